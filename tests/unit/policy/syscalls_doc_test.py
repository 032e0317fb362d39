#!/usr/bin/env python3
"""syscalls_doc_test.py GENERATOR PAGE - the committed page matches the table; prints TAP."""
import difflib
import subprocess
import sys

generator, page = sys.argv[1:]
want = subprocess.check_output([generator], text=True)
with open(page, encoding="utf-8") as f:
    have = f.read()
print("1..1")
if have == want:
    print("ok 1 - docs/syscalls.md is up to date")
    sys.exit(0)
print("not ok 1 - docs/syscalls.md is up to date")
print(f"# write it again: {generator} >docs/syscalls.md")
for line in list(difflib.unified_diff(have.splitlines(), want.splitlines(), "page", "table", lineterm=""))[:40]:
    print(f"# {line}")
sys.exit(1)
