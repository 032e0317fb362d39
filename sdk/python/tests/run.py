#!/usr/bin/env python3
"""run.py [WORD...] - runs the tests of the package beside it and prints TAP; words choose tests by their names.

    COVE=/usr/local/bin/cove python tests/run.py stream

They need a `cove` that can serve, which means root, and the package installed (or PYTHONPATH=src).
"""
from __future__ import annotations

import os
import re
import sys
import unittest
from typing import Any, Iterator, List, Set, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


class Tap(unittest.TestResult):
    number = 0

    def say(self, test: unittest.TestCase, state: str, directive: str = "", detail: str = "") -> None:
        self.number += 1
        name = test.id().split(".")[-1]
        name = name[len("test_"):] if name.startswith("test_") else name
        print(f"{state} {self.number} - {test.id().split('.')[0]}: {name.replace('_', ' ')}{directive}")
        for line in detail.splitlines():
            print(f"# {line}")
        sys.stdout.flush()

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.say(test, "ok")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.say(test, "ok", f" # SKIP {reason}")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self.say(test, "not ok", "", self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self.say(test, "not ok", "", self.errors[-1][1])


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def operations(contract: str) -> Iterator[Tuple[str, str]]:
    """(method, path) of every operation of an OpenAPI file that is written as cove's is."""
    path = ""
    with open(contract, encoding="utf-8") as f:
        for line in f:
            found = re.match(r"  (/\S*):$", line)
            method = re.match(r"    (get|post|put|delete|patch):$", line)
            if found:
                path = found.group(1)
            elif method:
                yield method.group(1).upper(), path
            elif line.startswith("components:"):
                return


NOT_FOR_PROGRAMS = {"/", "/v1/openapi.yaml", "/v1/profiles", "/v1/profiles/{template}", "/v1/warmpools", "/v1/warmpools/{pool}", "/v1/warmpools/{pool}/status"}  # for people and tools; other names of templates and pools


def untouched(contract: str, called: Set[Tuple[str, str]]) -> List[str]:
    """The operations that no test has reached through the package."""
    def reached(method: str, path: str) -> bool:
        shape = re.sub(r"\{\w+\}", "[^/]+", path)
        return any(m == method and re.fullmatch(shape, p) for m, p in called)

    return [f"{method} {path}" for method, path in operations(contract) if path not in NOT_FOR_PROGRAMS and not reached(method, path)]


def main() -> int:
    import support
    words = sys.argv[1:]
    found = [c for c in cases(unittest.defaultTestLoader.discover(HERE, "*_test.py")) if not words or any(w in c.id() for w in words)]
    result = Tap()
    try:
        unittest.TestSuite(found).run(result)
    finally:
        support.stop_server()
    if not words and os.environ.get("COVE_OPENAPI"):
        for operation in untouched(os.environ["COVE_OPENAPI"], support.CALLED) or [""]:
            result.number += 1
            print(f"ok {result.number} - contract: " + (f"{operation} # SKIP the package has no call for it" if operation else "every operation is reached"))
    print(f"1..{result.number}")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
