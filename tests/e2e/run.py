#!/usr/bin/env python3
"""run.py [PATTERN...] - runs the unittest cases of *_test.py beside it and prints TAP.

    COVE=build/cove tests/e2e/run.py            all
    COVE=build/cove tests/e2e/run.py timeout    those whose name contains the word
"""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))


class Tap(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.number = 0

    def line(self, test, state, directive="", detail=""):
        self.number += 1
        # "Class.test_a_sentence" reads best as its sentence.
        name = test.id().split(".")[-1].removeprefix("test_").replace("_", " ")
        where = test.id().split(".")[0].removesuffix("_test")
        print(f"{state} {self.number} - {where}: {name}{directive}")
        for text in detail.splitlines():
            print(f"# {text}")
        sys.stdout.flush()

    def addSuccess(self, test):
        self.line(test, "ok")

    def addSkip(self, test, reason):
        self.line(test, "ok", f" # SKIP {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(test, "not ok", "", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.line(test, "not ok", "", self.errors[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.line(test, "not ok", "", f"{subtest}\n{self._exc_info_to_string(err, test)}")


def cases(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def main():
    words = sys.argv[1:]
    found = [c for c in cases(unittest.defaultTestLoader.discover(HERE, "*_test.py"))
             if not words or any(w in c.id() for w in words)]
    result = Tap()
    if not found:
        print("1..0 # SKIP no test matches")
        return 0
    unittest.TestSuite(found).run(result)
    print(f"1..{result.number}")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
