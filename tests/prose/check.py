#!/usr/bin/env python3
"""check.py - finds prose that CONTRIBUTING.md forbids: riddles, private words and lines over 100 columns.

    tests/prose/check.py               checks the tree this file lies in
    tests/prose/check.py FILE...       checks these files
    tests/prose/check.py --self-test   plants one violation of each rule and demands that it is found

Prints TAP. Prose is a comment or a string in C, a comment or a docstring in Python, TypeScript and shell, and a line of
Markdown outside of code. A line that must keep a forbidden word, because it quotes one, is listed in allowed.txt.
"""
import io
import os
import re
import subprocess
import sys
import tokenize

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COLUMNS = 100
SKIPPED = ("tests/fuzz/corpus/", "bench/results/", "LICENSE", "tests/prose/")

# (pattern, the way to write it)
FORBIDDEN = [
    (r"\b(?:who|whom|whoever|nobody|somebody|anybody)\b", "name the subject: a user, a tenant, a client, a process"),
    (r"(?:^|[.;:] )(?:What|Whatever|One that|Those that|That which)\b(?![^.]*\?)", "begin with the noun that the sentence is about"),
    (r"\btold\b", "reported, sent, recorded, logged or returned"),
    (r"\b(?:tell|tells|telling)\b(?! (?:apart|\w+ apart|from))", "report, send, record, log or return"),
    (r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer\b|more than\b|less than\b|fewer than\b)\w+", "is not a"),
    (r"(?<!if )\b(?:it|this) were\b", "would be"),
    (r"\bneeds not\b", "need not"),
    (r"\bbehind (?:it|them|that|this|the (?:answer|last|first|end|request|event))\b", "after"),
    (r"\b(?:leave|leaves|left) (?:the |a )?\S+ away\b", "omit"),
    (r"\bhow manieth\b", "ordinal number"),
    (r"\b(?:graves?|bury|buried|knocks?|breeders?|shelf|mourn(?:ed)?|hopeless|brood|stirs?)\b", "the term of art: docs/glossary.md"),
    (r"\brooms?\b(?! (?:for|is|left|in|was)\b)(?<!no room)(?<!make room)(?<!makes room)(?<!enough room)", "component, directory or space"),
    (r"\b(?:set|sets) right\b", "correct"),
]
RULES = [(re.compile(pattern, re.I if pattern.islower() else 0), instead) for pattern, instead in FORBIDDEN]
C_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.M)


def from_c(text):
    """[(line, prose, wraps)]: wraps says whether the line holds nothing but prose"""
    text = INCLUDE.sub("", text)
    lines = text.split("\n")
    for match in C_TOKEN.finditer(text):
        token = match.group(0)
        if token[0] == "'" or token[:2] in ("//", "/*") and "clang-format" in token:
            continue
        first = text.count("\n", 0, match.start()) + 1
        for offset, part in enumerate(token.split("\n")):
            alone = token[0] == "/" and re.match(r"\s*(?:/\*|\*|//)", lines[first + offset - 1]) is not None
            if token[0] == "/" and offset > 0:
                alone = True
            yield first + offset, re.sub(r"^\s*(?:/\*+|\*(?!/)|//)?\s*|\s*\*/$", "", part).strip('"'), alone


def from_markdown(text):
    fence, comment, generated = None, False, False
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.lstrip()
        mark = re.match(r"(`{3,}|~{3,})", stripped)
        if fence is None and mark:
            fence = mark.group(1)
        elif fence is not None:
            if mark and stripped.startswith(fence):
                fence = None
        elif comment or stripped.startswith("<!--"):
            generated = stripped.startswith("<!-- table ") or generated and not stripped.startswith("<!-- end of table")
            comment = "-->" not in stripped
        elif not line.startswith("    ") or re.match(r"\s*(?:[-*]|\d+\.) ", line):
            table = stripped.startswith("|")
            prose = re.sub(r"`[^`]*`", "`x`", line)
            unbreakable = table or stripped.startswith(("#", "[", "![")) or " " not in stripped.lstrip("-*0123456789. ")
            yield number, prose, not unbreakable and not generated


def from_python(text):
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return
    first = True  # a string here begins a statement, so it is a docstring
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), token.line.lstrip().startswith("#")
        elif token.type == tokenize.STRING and first:
            for offset, line in enumerate(token.string.split("\n")):
                yield token.start[0] + offset, line.strip().strip('"'), not re.match(r"\s*(?:>>>|\.\.\.)", line)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            first = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


def from_comments(text):
    """Shell, YAML, Meson: what follows a # at the beginning of a line."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*# ", line):
            yield number, line.lstrip("# "), True


def reader_of(path, text):
    name = os.path.basename(path)
    if name.endswith((".c", ".h", ".def", ".ts", ".tsx", ".js", ".mjs", ".cjs")):
        return from_c
    if name.endswith(".md"):
        return from_markdown
    if name.endswith(".py") or text.startswith("#!/usr/bin/env python3"):
        return from_python
    if name.endswith((".sh", ".build", ".yaml", ".yml")) or name == "Makefile" or text.startswith("#!"):
        return from_comments
    return None


def complaints_of(path, text, allowed=frozenset()):
    reader = reader_of(path, text)
    if reader is None:
        return []
    lines, found = text.split("\n"), []
    for number, prose, wraps in reader(text):
        line = lines[number - 1]
        if line.strip() in allowed:
            continue
        for pattern, instead in RULES:
            match = pattern.search(prose)
            if match:
                found.append(f"{path}:{number}: '{match.group(0).strip()}': write {instead}")
        if wraps and len(line) > COLUMNS and "http" not in line:
            found.append(f"{path}:{number}: {len(line)} columns; prose wraps at {COLUMNS}")
    return found


def tracked():
    listing = subprocess.run(["git", "-C", ROOT, "ls-files"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [path for path in listing.split("\n") if path and not path.startswith(SKIPPED)]


def read_allowed():
    with open(os.path.join(HERE, "allowed.txt"), encoding="utf-8") as f:
        return frozenset(line.strip() for line in f if line.strip() and not line.startswith("# "))


def check_tree(paths):
    allowed = read_allowed()
    found = {}
    for path in paths:
        try:
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                text = f.read()
        except (UnicodeDecodeError, OSError):
            continue
        found.setdefault(path.split("/")[0], []).extend(complaints_of(path, text, allowed))
    return [(f"the prose of {place} is plain", complaints) for place, complaints in sorted(found.items())]


PLANTS = [  # (path, text, a word of the complaint that it must cause)
    ("a.c", "/* Nobody waits here. */\n", "'Nobody'"),
    ("a.c", "/* The socket of whoever asked. */\n", "'whoever'"),
    ("a.h", "int a; /* told by the jailer */\n", "'told'"),
    ("a.c", 'err_set(err, "it is no number");\n', "'is no number'"),
    ("a.c", "/* What was read is kept. */\n", "'What'"),
    ("a.c", "/* It is closed behind the answer. */\n", "'behind the answer'"),
    ("a.c", "\n\n#include <a.h>\n/* Tells the caller. */\n", "a.c:4: 'Tells'"),
    ("a.md", "The room of the jailer.\n", "'room'"),
    ("a.md", "long " * 25 + "\n", "columns"),
    ("a.py", '"""Somebody asks."""\n', "'Somebody'"),
    ("a.py", "x = 1  # leave the flag away\n", "'leave the flag away'"),
    ("Makefile", "# needs not exist\n", "'needs not'"),
]
ACCEPTED = [
    ("a.c", "/* There is no such file. */\nint nobody(void);\n"),
    ("a.md", "```console\n$ who\n```\n\n| " + "cell " * 40 + "|\n"),
    ("a.md", "Run `who` first.\n"),
    ("a.py", 'x = "told"\n'),
]


def self_test():
    for path, text, expected in PLANTS:
        found = complaints_of(path, text)
        yield (f"finds {expected} in {path}", [] if any(expected in c for c in found) else [f"complaints were {found}"])
    for path, text in ACCEPTED:
        yield (f"accepts {text.strip()[:30]!r} in {path}", complaints_of(path, text))
    line = "/* Nobody waits here. */"
    yield ("accepts a line that allowed.txt lists", complaints_of("a.c", line + "\n", frozenset([line])))


def main():
    results = list(self_test() if sys.argv[1:] == ["--self-test"] else check_tree(sys.argv[1:] or tracked()))
    print(f"1..{len(results)}")
    for number, (name, complaints) in enumerate(results, 1):
        print(f"{'not ok' if complaints else 'ok'} {number} - {name}")
        for line in complaints:
            print(f"# {line}")
    sys.exit(any(complaints for _, complaints in results))


if __name__ == "__main__":
    main()
