#!/usr/bin/env python3
"""unasync.py - writes src/cove/_sync from src/cove/_async, token by token.

The package is written once, with `await`; the sync half differs by keywords and names only.

    tools/unasync.py            rewrites the files that have changed
    tools/unasync.py --check    changes nothing; lists outdated files and fails if there are any
"""
from __future__ import annotations

import io
import os
import sys
import tokenize
from typing import Dict, Iterator, List, Tuple

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE, TARGET = os.path.join(HERE, "src/cove/_async"), os.path.join(HERE, "src/cove/_sync")
NAMES: Dict[str, str] = {
    "__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__", "StopAsyncIteration": "StopIteration",
    "AsyncIterator": "Iterator", "AsyncIterable": "Iterable", "aclose": "close", "aread": "read", "aiter_bytes": "iter_bytes", "_aio": "_sio",
}
WORDS: Tuple[Tuple[str, str], ...] = (("async with await ", "with "), ("async with ", "with "), ("async for ", "for "), ("await ", ""),
                                      ("many tasks at a time", "many threads at a time"))


def plain_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    return name[len("Async"):] if name.startswith("Async") and name != "Async" else name


def plain_text(text: str) -> str:
    """Converts the examples in a docstring, which are code too."""
    for word, instead in WORDS:
        text = text.replace(word, instead)
    return text.replace("AsyncSandbox", "Sandbox").replace("AsyncCove", "Cove")


def tokens(text: str) -> Iterator[Tuple[int, str, str]]:
    """Yields (kind, the white space before the token, the token)."""
    lines = text.splitlines(keepends=True)
    row, column = 1, 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        between: List[str] = []
        while row < token.start[0]:
            between.append(lines[row - 1][column:])
            row, column = row + 1, 0
        between.append(lines[row - 1][column:token.start[1]] if row <= len(lines) else "")
        if token.type in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            if token.type == tokenize.INDENT:
                yield token.type, "", token.string
                row, column = token.end
            continue
        yield token.type, "".join(between), token.string
        row, column = token.end


def convert(text: str) -> str:
    out: List[str] = []
    swallow = False  # the blank after a removed keyword
    for kind, between, word in tokens(text):
        if swallow:
            between, swallow = "", False
        if kind == tokenize.STRING or word.startswith(('"""', "'''")):
            word = plain_text(word)
        elif word in ("async", "await"):
            out.append(between)
            swallow = True
            continue
        elif kind == tokenize.NAME:
            word = plain_name(word)
        out.append(between + word)
    return "".join(out)


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = []
    wanted = sorted(n for n in os.listdir(SOURCE) if n.endswith(".py"))
    for name in wanted:
        with open(os.path.join(SOURCE, name), encoding="utf-8") as f:
            fresh = convert(f.read())
        if fresh:
            fresh = f"# Written by tools/unasync.py from _async/{name}: change that.\n" + fresh
        path = os.path.join(TARGET, name)
        try:
            with open(path, encoding="utf-8") as f:
                same = f.read() == fresh
        except FileNotFoundError:
            same = False
        if not same:
            stale.append(name)
            if not check:
                with open(path, "w", encoding="utf-8") as f:
                    f.write(fresh)
    stale += [n for n in sorted(os.listdir(TARGET)) if n.endswith(".py") and n not in wanted]
    for name in stale:
        print(f"src/cove/_sync/{name} {'is out of date: run tools/unasync.py' if check else 'was rewritten'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
