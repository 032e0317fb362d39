#!/usr/bin/env python3
"""links.py - checks that every link of the documentation leads somewhere; prints TAP.

It reads README.md, CHANGELOG.md and the other pages of the root, and docs/, deploy/, sdk/ and
tests/. Links to files are resolved from the page that holds them; anchors are those that GitHub
makes of headings. Addresses on the network are not checked.

The `docs` of every error is checked too: docs/errors.md#CODE for each row of
src/core/base/errors.def, because clients print it.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"(?<!\!)\[[^\]\n]*\]\(([^()\s]+)\)")


def pages():
    found = glob.glob(os.path.join(ROOT, "*.md"))
    for folder in ("docs", "deploy", "sdk", "tests"):
        found += glob.glob(os.path.join(ROOT, folder, "**/*.md"), recursive=True)
    return sorted(found)


def text_of(path):
    """Without code, in which brackets mean something else."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return re.sub(r"`[^`\n]*`", lambda m: "`" + m[0].strip("`").replace("[", "(") + "`", re.sub(r"(?ms)^\s*```.*?^\s*```", "", text))


def anchors(path):
    seen, found = {}, set()
    for heading in re.findall(r"(?m)^#{1,6} +(.+?)\s*$", text_of(path)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        n = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{n}" if n else slug)
    return found


def wrong_links(page):
    for target in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
        if not os.path.exists(path):
            yield f"{target}: there is no such file"
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            yield f"{target}: {os.path.relpath(path, ROOT)} has no such heading"


def codes():
    with open(os.path.join(ROOT, "src/core/base/errors.def"), encoding="utf-8") as f:
        return re.findall(r'^ERR\(\w+,\s*"(\w+)"', f.read(), re.M)


def main():
    results = [(os.path.relpath(page, ROOT), list(wrong_links(page))) for page in pages()]
    known = anchors(os.path.join(ROOT, "docs/errors.md"))
    results.append(("the docs of every error", [f"docs/errors.md#{code}: there is no such heading" for code in codes() if code not in known]))
    results.append(("the table of errors was found", [] if len(codes()) > 50 else ["src/core/base/errors.def has another form than this test reads"]))
    for number, (name, wrong) in enumerate(results, 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - links of {name}" if name.endswith(".md") else f"{'not ok' if wrong else 'ok'} {number} - {name}")
        for line in wrong:
            print(f"# {line}")
    print(f"1..{len(results)}")
    return 1 if any(wrong for _, wrong in results) else 0


if __name__ == "__main__":
    sys.exit(main())
