#!/usr/bin/env python3
"""catalogue_test.py - checks that every case of the attack catalogue that concerns a server is
tested or omitted with a reason; prints TAP. The list is catalogue.txt in the same directory.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LINE = re.compile(r"([A-Z]{2}\d\d) (?:in (\S+): (.+)|omitted: (.{20,}))")
# A test carries its id in its name: def FA01_..., def test_RC04_..., TEST(ST02_...), TEST(js04_...,
# """HT01 ..."""
NAMED = re.compile(r'(?:def (?:test_)?|TEST\(|""")((?:[A-Za-z]{2}\d\d[_ ])+)')


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def expand(words):
    for word in words:
        first, _, last = word.partition("-")
        yield from (f"{first[:2]}{n:02}" for n in range(int(first[2:]), int((last or first)[2:]) + 1))


def named():
    found = set()
    for folder in ("contract", "unit", "e2e", "crash"):
        for where, _, names in os.walk(os.path.join(ROOT, "tests", folder)):
            for name in names:
                if name.endswith(("_test.c", "_test.py", "run.py")):
                    for ids in NAMED.findall(read(os.path.join(where, name))):
                        found.update(one.upper() for one in re.findall(r"[A-Za-z]{2}\d\d", ids))
    return found


def main():
    wanted, listed, wrong = set(), set(), []
    for line in read("tests/contract/catalogue.txt").splitlines():
        match = LINE.fullmatch(line)
        if line.startswith("ids "):
            wanted.update(expand(line.split()[1:]))
        elif match:
            listed.add(match.group(1))
            if match.group(2) and not (os.path.exists(os.path.join(ROOT, match.group(2))) and match.group(3) in read(match.group(2))):
                wrong.append(f"{match.group(1)}: {match.group(2)} has no '{match.group(3)}'")
        elif line and not line.startswith("#"):
            wrong.append(f"cannot parse: {line}")
    tested = named()
    wrong += [f"{one}: neither tested nor listed" for one in sorted(wanted - tested - listed)]
    wrong += [f"{one}: listed, although a test has that id" for one in sorted(listed & tested)]
    wrong += [f"{one}: listed, but not in the catalogue" for one in sorted(listed - wanted)]
    print("1..1")
    print(f"{'not ok' if wrong else 'ok'} 1 - {len(wanted)} cases are tested or omitted with a reason")
    for line in wrong:
        print(f"# {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
