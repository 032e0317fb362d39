"""cell.py - compiles and runs one cell.

If the last statement is an expression, it is compiled separately, so that its value is available.
Both parts may await; a part that does compiles to a coroutine, and only then asyncio is imported
and a loop runs: a cell without await can call asyncio.run() itself. The source is stored in
linecache under the cell's name, where tracebacks and inspect.getsource() find it.
"""
import ast
import inspect
import linecache
import os
import re
import traceback

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
CALL = re.compile(r"[A-Za-z_][\w.]*\([^;\n]*\)")  # most likely one expression, which does not need ast
CELLS_KEPT = 1000
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
LINES_MAX = 400
LINE_TEXT_MAX = 2000
VALUE_MAX = 64 << 10
kept = []


def remember(name, source):
    linecache.cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)
    kept.append(name)
    while len(kept) > CELLS_KEPT:
        linecache.cache.pop(kept.pop(0), None)


def forget():
    while kept:
        linecache.cache.pop(kept.pop(), None)


def silenced(source, last):
    """A semicolon after the last expression suppresses the result. After it there can only be
    blanks, comments and continued lines. Not done with a tokenizer, which takes longer to
    initialize than most cells take to run."""
    if ";" not in source:
        return False
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")[last.end_lineno - 1:]
    rest = [lines[0].encode()[last.end_col_offset:], *(line.encode() for line in lines[1:])]
    return b"\n".join(rest).lstrip(b" \t\f\\\n").startswith(b";")


def parts(source, name):
    """[(code, is the result)]: the statements, and the expression at their end, if present."""
    if CALL.fullmatch(source):
        try:
            return [(compile(source, name, "eval", FLAGS), True)]
        except SyntaxError:
            pass
    tree = compile(source, name, "exec", FLAGS | ast.PyCF_ONLY_AST)
    found, last = [], None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body.pop()
    if tree.body or last is None:
        found.append((compile(tree, name, "exec", FLAGS, dont_inherit=True), False))
    if last is not None:
        # A `from __future__` of the cell also applies to its last line.
        flags = FLAGS | (found[0][0].co_flags & 0x1fe0000 if found else 0)
        code = compile(ast.Expression(last.value), name, "eval", flags, dont_inherit=True)
        found.append((code, not silenced(source, last)))
    return found


def run(source, name, namespace, run_coroutine):
    """Returns the value of the last expression, or None. Exceptions of user code pass through."""
    remember(name, source)
    value = None
    for code, wanted in parts(source, name):
        value = eval(code, namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            value = run_coroutine(value)
        if not wanted:
            value = None
    return value


def scrub(report, seen):
    """Removes the frames of the kernel, and of the code that called the cell, from a traceback."""
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    frames = list(report.stack)
    first = next((i for i, frame in enumerate(frames) if frame.filename in linecache.cache and frame.filename.startswith("<cell ")), None)
    if first is not None and any(frame.filename.startswith(HERE) for frame in frames[:first]):
        frames = frames[first:]
    report.stack[:] = [frame for frame in frames if not frame.filename.startswith(HERE)]
    for other in (report.__cause__, report.__context__, *(report.exceptions or () if hasattr(report, "exceptions") else ())):
        scrub(other, seen)


def shorten(line):
    return line if len(line) <= LINE_TEXT_MAX else line[:LINE_TEXT_MAX] + "..."


def traceback_lines(error):
    try:
        report = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
        scrub(report, set())
        lines = "".join(report.format()).rstrip("\n").split("\n")
    except KeyboardInterrupt:
        raise
    except BaseException:
        lines = [name_of(error)]
    if len(lines) > LINES_MAX:
        half = LINES_MAX // 2
        lines = lines[:half] + [f"  ... {len(lines) - LINES_MAX} lines left out"] + lines[-half:]
    return [shorten(line) for line in lines]


def name_of(error):
    return type.__dict__["__name__"].__get__(type(error))


def value_of(error):
    try:
        text = str(error)
        return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}... cut here: {len(text)} characters"
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "<exception str() failed>"
