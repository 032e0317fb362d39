#!/usr/bin/env python3
"""source_names.py - checks that the source files and functions that the documentation names exist.

    tests/docs/source_names.py               checks the tree that holds this file
    tests/docs/source_names.py --self-test   plants violations of each rule and demands that they
                                             are found

Prints TAP. The rules:

1. Every `src/...` path in ARCHITECTURE.md, CONTRIBUTING.md, SECURITY.md and docs/*.md exists.
   Braces are expanded, as in `src/host/{isolate,jailer}`. Fenced blocks are not read: they may name
   files of the reader.
2. In docs/walkthrough.md every `function()` is defined in the file that is named before it, in the
   same table row or paragraph: `src/main/cove.c` `main()`.
"""
import glob
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WALKTHROUGH = "docs/walkthrough.md"
PATH = re.compile(r"(?<![\w/])src/[\w./{},-]+")
NAME = re.compile(r"`(src/[^`]+)`|`(\w+)\(\)`")


def expanded(path):
    """A path with braces as the paths that it stands for."""
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    return [p for part in match[1].split(",") for p in expanded(path[:match.start()] + part + path[match.end():])]


def prose(text):
    """The lines outside of fenced blocks, each with its number."""
    fence = None
    for number, line in enumerate(text.split("\n"), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if fence is None and mark:
            fence = mark[1]
        elif fence is not None:
            if line.strip() == fence:
                fence = None
        else:
            yield number, line


def missing_paths(root, text):
    for number, line in prose(text):
        for found in PATH.findall(line):
            for path in expanded(found.rstrip(".,{}-") if "{" not in found else found.rstrip(".,-")):
                if not os.path.exists(os.path.join(root, path)):
                    yield f"line {number}: {path}: there is no such file"


def defines(source, function):
    """True if the C source defines the function. `{` stands alone after the head: clang-format."""
    return re.search(rf"(?m)^[A-Za-z_][^;{{}}\n]*\b{function}\([^;{{}}]*\)\n\{{", source) is not None


def missing_functions(root, text):
    file, source = None, ""
    for number, line in prose(text):
        if not line.strip() or line.startswith("|"):
            file = None
        for path, function in NAME.findall(line):
            if path:
                file = path
                try:
                    with open(os.path.join(root, path), encoding="utf-8") as f:
                        source = f.read()
                except (FileNotFoundError, IsADirectoryError):
                    source = ""
            elif file is None:
                yield f"line {number}: {function}(): name its file before it, as `src/...`"
            elif not defines(source, function):
                yield f"line {number}: {file} does not define {function}()"


def check(root):
    """[(title, complaints)]"""
    pages = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(os.path.relpath(p, root) for p in glob.glob(os.path.join(root, "docs/*.md")))]
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as f:
            text = f.read()
        yield f"source files that {page} names", list(missing_paths(root, text))
        if page == WALKTHROUGH:
            functions = sum(1 for _, line in prose(text) for _, function in NAME.findall(line) if function)
            yield f"functions that {page} names", list(missing_functions(root, text)) or ([] if functions else ["it names none"])


def self_test():
    """Each planted page must give exactly the complaint of its rule, and a correct page none."""
    good = "`src/a.c` `one()`, `src/{a,b}.c`\n\n```c\nsrc/of/the/reader.c\n```\n| `src/a.c` `two()` |\n"
    cases = [
        ("a correct page", good, []),
        ("a path that does not exist", "See `src/c.c`.\n", ["line 1: src/c.c: there is no such file"]),
        ("a path in braces that does not exist", "See src/{a,c}.c.\n", ["line 1: src/c.c: there is no such file"]),
        ("a function of another file", "`src/b.c` `one()`\n", ["line 1: src/b.c does not define one()"]),
        ("a function that is only declared", "`src/b.c` `three()`\n", ["line 1: src/b.c does not define three()"]),
        ("a function that is only called", "`src/a.c` `three()`\n", ["line 1: src/a.c does not define three()"]),
        ("a function without its file", "`src/a.c`\n\n`one()`\n", ["line 3: one(): name its file before it, as `src/...`"]),
        ("a function whose file is in another row", "| `src/a.c` |\n| `one()` |\n", ["line 2: one(): name its file before it, as `src/...`"]),
    ]
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "src"))
        os.makedirs(os.path.join(root, "docs"))
        with open(os.path.join(root, "src/a.c"), "w", encoding="utf-8") as f:
            f.write("int one(int a,\n        int b)\n{\n    three();\n}\n\nstatic void two(void)\n{\n}\n")
        with open(os.path.join(root, "src/b.c"), "w", encoding="utf-8") as f:
            f.write("void three(void);\n")
        for page in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"):
            with open(os.path.join(root, page), "w", encoding="utf-8") as f:
                f.write(good)
        for title, text, wanted in cases:
            with open(os.path.join(root, WALKTHROUGH), "w", encoding="utf-8") as f:
                f.write(text if "()" in text else text + "\n`src/a.c` `one()`\n")
            found = [complaint for _, complaints in check(root) for complaint in complaints]
            yield f"self-test: {title}", [] if found == wanted else [f"found {found}", f"wanted {wanted}"]


def main():
    results = list(self_test() if sys.argv[1:] == ["--self-test"] else check(ROOT))
    for number, (title, wrong) in enumerate(results, 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - {title}")
        for line in wrong:
            print(f"# {line}")
    print(f"1..{len(results)}")
    return 1 if any(wrong for _, wrong in results) else 0


if __name__ == "__main__":
    sys.exit(main())
