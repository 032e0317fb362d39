#!/usr/bin/env python3
"""run.py [OPTION...] [PATTERN...] - runs the unittest cases of *_test.py in this directory and
prints TAP.

    COVE=build/cove tests/e2e/run.py               all
    COVE=build/cove tests/e2e/run.py timeout       those whose id (file.Class.test) has the word
    COVE=build/cove tests/e2e/run.py --only 'ctl: a key may have an expiry'    exactly this title
    COVE=build/cove tests/e2e/run.py --shard 2/3   the second of three parts

    --list          prints the titles that would run, one per line
    --times FILE    writes the seconds of every test to FILE, as JSON; times.json has those over 1 s

All parts together run every test exactly once, and parts may run at the same time. A class whose
tests share a server stays in one part. Parts are balanced by times.json; the result depends on the
files of the tree only, so all machines agree on it.
"""
import argparse
import json
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
TIMES = os.path.join(HERE, "times.json")
USUAL = 0.3  # seconds of a test that is not in times.json, which has those above 1 s


def title(test):
    """"file: a sentence" of file_test.Class.test_a_sentence."""
    words = test.id().split(".")
    return f"{words[0].removesuffix('_test')}: {words[-1].removeprefix('test_').replace('_', ' ')}"


class Tap(unittest.TestResult):
    def __init__(self, selected):
        super().__init__()
        self.selected, self.number, self.seconds, self.began = selected, 0, {}, 0

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.seconds[title(test)] = round(time.monotonic() - self.began, 2)

    def line(self, test, state, directive="", detail=""):
        for name in self.titles(test):
            self.number += 1
            print(f"{state} {self.number} - {name}{directive}")
            for text in detail.splitlines():
                print(f"# {text}")
        sys.stdout.flush()

    def titles(self, test):
        """The title of the test; the titles of all selected tests of a class when its set-up failed
        or was skipped."""
        where = test.id()
        if not where.startswith("setUpClass ("):
            return [where if where.startswith("tearDownClass (") else title(test)]
        name = where[len("setUpClass ("):-1]
        return [title(t) for t in self.selected if t.id().rpartition(".")[0] == name]

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


def part(found, index, count):
    """The tests of part `index` of `count`: the longest unit goes to the part with the least
    work."""
    try:
        with open(TIMES, encoding="utf-8") as f:
            known = json.load(f)
    except FileNotFoundError:
        known = {}
    units = {}
    for test in found:
        whole = getattr(test, "undivided", False)
        units.setdefault(test.id().rpartition(".")[0] if whole else test.id(), []).append(test)
    weight = {name: sum(known.get(title(t), USUAL) for t in tests) for name, tests in units.items()}
    load, chosen = [0.0] * count, set()
    for name in sorted(units, key=lambda n: (-weight[n], n)):
        least = load.index(min(load))
        load[least] += weight[name]
        if least == index - 1:
            chosen.update(t.id() for t in units[name])
    return [t for t in found if t.id() in chosen]


def shard(text):
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text}: is not I/N with 1 <= I <= N")
    return int(index), int(count)


def main():
    parser = argparse.ArgumentParser(usage="run.py [--only TITLE]... [--shard I/N] [--list] [--times FILE] [PATTERN...]")
    parser.add_argument("--only", action="append", default=[], metavar="TITLE")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--times", metavar="FILE")
    parser.add_argument("patterns", nargs="*")
    asked = parser.parse_args()
    every = list(cases(unittest.defaultTestLoader.discover(HERE, "*_test.py")))
    titles = [title(t) for t in every]
    if double := sorted({name for name in titles if titles.count(name) > 1}):
        print(f"Bail out! two tests have the title {double[0]!r}")
        return 1
    if unknown := [name for name in asked.only if name not in titles]:
        print(f"Bail out! no test has the title {unknown[0]!r}")
        return 1
    found = [t for t in every if (not asked.only or title(t) in asked.only) and (not asked.patterns or any(w in t.id() for w in asked.patterns))]
    found = part(found, *asked.shard)
    if asked.list:
        print("\n".join(title(t) for t in found))
        return 0
    if not found:
        print("1..0 # SKIP no test matches")
        return 0
    result = Tap(found)
    unittest.TestSuite(found).run(result)
    print(f"1..{result.number}")
    if asked.times:
        with open(asked.times, "w", encoding="utf-8") as f:
            json.dump(dict(sorted(result.seconds.items())), f, indent=0)
            f.write("\n")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
