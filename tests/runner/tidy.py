"""tidy.py - clang-tidy of one file, not repeated for a file whose preprocessed text passed before.

The key of the cache is the version of clang-tidy, its settings, the flags of the compiler and the
output of the preprocessor with comments (NOLINT counts) and macro definitions. So an edit of a
header invalidates the files that include it and no other. COVE_CHECK_CACHE names another directory
for the cache than build/logs, which several clones can share.
"""
import hashlib
import json
import os
import shlex
import subprocess

from runner.tap import Result
from runner.task import ROOT, Task

LOGS = os.path.join(ROOT, "build/logs")
CACHE = os.path.join(os.environ.get("COVE_CHECK_CACHE", LOGS), "tidy")
DATABASE = os.path.join(LOGS, "tidy-db")


def one_command_each(build):
    """{file: command}, after writing the same for clang-tidy: a file that goes into two programs
    has two commands, and when the analyzer reads one file twice, it takes every va_list of the
    second time for uninitialized."""
    first = {}
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        for command in json.load(f):
            first.setdefault(os.path.relpath(os.path.join(command["directory"], command["file"]), ROOT), command)
    os.makedirs(DATABASE, exist_ok=True)
    with open(os.path.join(DATABASE, "compile_commands.json"), "w", encoding="utf-8") as f:
        json.dump(list(first.values()), f)
    return first


def flags(command):
    """The compiler and its flags, without those that name outputs, with paths that do not depend on
    the place of the tree."""
    words, kept = iter(shlex.split(command["command"])), []
    for word in words:
        if word in ("-o", "-MQ", "-MF", "-MT"):
            next(words)
        elif word not in ("-c", "-MD", "-MMD", command["file"]):
            kept.append(word)
    return kept


def settings():
    """The common part of all keys: the program and its settings."""
    found = hashlib.sha256(subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=False).stdout)
    with open(os.path.join(ROOT, ".clang-tidy"), "rb") as f:
        found.update(f.read())
    return found.digest()


def key(run, path, command, common):
    """The name of the file's stamp; None where the preprocessor fails, which clang-tidy will
    report."""
    words = flags(command)
    done = run([*words, "-w", "-E", "-CC", "-dD", command["file"]], cwd=command["directory"], log=False)
    if done.code != 0:
        return None
    text = "\0".join([path, *words, done.output]).replace(ROOT + "/", "")
    return hashlib.sha256(common + text.encode()).hexdigest()


def check(run, path, command, common):
    stamp = key(run, path, command, common)
    name = f"clang-tidy {path}"
    if stamp and os.path.exists(os.path.join(CACHE, stamp)):
        return [Result(name, "passed")]
    done = run(["clang-tidy", "--quiet", "-p", DATABASE, path], timeout=900)
    if done.code == 0:
        if stamp:
            os.makedirs(CACHE, exist_ok=True)
            with open(os.path.join(CACHE, stamp), "w", encoding="utf-8"):
                pass
        return [Result(name, "passed")]
    return [Result(name, "failed", "\n".join(line for line in done.output.splitlines() if "warnings generated" not in line))]


def tasks(build, files):
    """One task for each of the files that is compiled."""
    known, common = one_command_each(build), settings()
    return [Task("static", f"clang-tidy {path}", nice=10,
                 work=lambda run, path=path: check(run, path, known[path], common)) for path in files if path in known]
