#!/usr/bin/env python3
"""run.py [OPTION...] [WORD...] - runs the tests of the package in this tree and prints TAP; words
choose tests by their names.

    COVE=/usr/local/bin/cove python tests/run.py stream
    COVE=/usr/local/bin/cove python tests/run.py --only 'run_test: options are honoured'
    COVE=/usr/local/bin/cove python tests/run.py --shard 1/3     the first of three parts

    --only TITLE     runs exactly the test with this title
    --times FILE     writes the seconds of every test to FILE, as JSON
    --called FILE    writes the operations that were called to FILE, as JSON

All parts together run every test exactly once and may run at the same time: each has its own
server. They need a `cove` that can serve, which means root, and the package installed (or
PYTHONPATH=src).
"""
from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import unittest
from typing import Any, Dict, Iterator, List, Set, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


# Seconds of the slow tests; every other test counts as USUAL. Parts are balanced by these.
SLOW = {
    "channel_test: input arrives once with cuts in both directions": 1.1,
    "channel_test: keystrokes arrive once despite cuts": 1.9,
    "channel_test: unread output waits at the server": 3.3,
    "client_test: an unreachable server is reported soon": 1.4,
    "client_test: a refusal with retry after is repeated at that time": 1.1,
    "contexts_test: an interrupt keeps the state": 1.1,
    "run_test: a timeout kills the program and is reported": 2.0,
    "stream_test: a hanging server is noticed and the request repeated": 2.2,
    "stream_test: a stream resumes after the server was killed": 1.3,
    "tenants_test: events continue through cuts and a killed server": 1.4,
}
USUAL = 0.2


def title(test: unittest.TestCase) -> str:
    name = test.id().split(".")[-1]
    name = name[len("test_"):] if name.startswith("test_") else name
    return f"{test.id().split('.')[0]}: {name.replace('_', ' ')}"


class Tap(unittest.TestResult):
    number = 0
    began = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.seconds: Dict[str, float] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.seconds[title(test)] = round(time.monotonic() - self.began, 2)

    def say(self, test: unittest.TestCase, state: str, directive: str = "", detail: str = "") -> None:
        self.number += 1
        print(f"{state} {self.number} - {title(test)}{directive}")
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
    """(method, path) of every operation of an OpenAPI file in the layout of cove's."""
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


NOT_FOR_PROGRAMS = re.compile(r"/|/v1|/v1/openapi\.(yaml|json)|/docs.*|/compat/.*|/mcp")  # for people, tools and MCP clients; other names of templates and pools


def untouched(contract: str, called: Set[Tuple[str, str]]) -> List[str]:
    """The operations that no test has called through the package."""
    def reached(method: str, path: str) -> bool:
        shape = re.sub(r"\{\w+\}", "[^/]+", path)
        return any(m == method and re.fullmatch(shape, p) for m, p in called)

    return [f"{method} {path}" for method, path in operations(contract) if not NOT_FOR_PROGRAMS.fullmatch(path) and not reached(method, path)]


def contract(operations_called: Set[Tuple[str, str]]) -> List[str]:
    """Titles of the check that the package calls every operation of the contract; none if there is
    no contract."""
    if not os.environ.get("COVE_OPENAPI"):
        return []
    missing = untouched(os.environ["COVE_OPENAPI"], operations_called)
    return [f"contract: {operation} # SKIP the package has no call for it" for operation in missing] or ["contract: every operation is reached"]


def part(found: List[unittest.TestCase], index: int, count: int) -> List[unittest.TestCase]:
    """The tests of part `index` of `count`: the longest test goes to the part with the least
    work."""
    load, chosen = [0.0] * count, set()
    for test in sorted(found, key=lambda t: (-SLOW.get(title(t), USUAL), t.id())):
        least = load.index(min(load))
        load[least] += SLOW.get(title(test), USUAL)
        if least == index - 1:
            chosen.add(test.id())
    return [t for t in found if t.id() in chosen]


def shard(text: str) -> Tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match.group(1)) <= int(match.group(2)):
        raise argparse.ArgumentTypeError(f"{text}: is not I/N with 1 <= I <= N")
    return int(match.group(1)), int(match.group(2))


def main() -> int:
    import support
    parser = argparse.ArgumentParser(usage="run.py [--only TITLE]... [--shard I/N] [--times FILE] [--called FILE] [WORD...]")
    parser.add_argument("--only", action="append", default=[], metavar="TITLE")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N")
    parser.add_argument("--times", metavar="FILE")
    parser.add_argument("--called", metavar="FILE")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    every = list(cases(unittest.defaultTestLoader.discover(HERE, "*_test.py")))
    titles = [title(c) for c in every]
    wrong = [name for name in asked.only if titles.count(name) != 1] or sorted({name for name in titles if titles.count(name) > 1})
    if wrong:
        print(f"Bail out! {titles.count(wrong[0])} tests have the title {wrong[0]!r}")
        return 1
    found = [c for c in every if (not asked.only or title(c) in asked.only) and (not asked.words or any(w in c.id() for w in asked.words))]
    found = part(found, *asked.shard)
    result = Tap()
    try:
        unittest.TestSuite(found).run(result)
    finally:
        support.stop_server()
    if len(found) == len(every):
        for line in contract(support.CALLED):
            result.number += 1
            print(f"ok {result.number} - {line}")
    print(f"1..{result.number}")
    for name, value in ((asked.times, result.seconds), (asked.called, sorted(support.CALLED))):
        if name:
            with open(name, "w", encoding="utf-8") as f:
                json.dump(value, f, indent=0)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
