#!/usr/bin/env python3
"""run.py [OPTION...] [WORD...] - the Python package as its users get it: checked, built, installed
by pip, and run against a real server.

Prints TAP. Words choose tests of sdk/python/tests by their names. Needs PyPI the first time,
otherwise it is skipped.

    tests/sdk/run.py --python          prints the path of a Python with the package; status 77 and
                                       the reason if there is none
    tests/sdk/run.py --only TITLE      exactly the test with this title in TAP
    tests/sdk/run.py --jobs N          the tests of sdk/python/tests in N processes at a time
    tests/sdk/run.py --shard I/N       one of N parts; the first also checks the package itself

Whether the package calls every operation of the contract is known when all tests have run in one
call: with parts, the last one reports that it was not checked.
"""
import argparse
import concurrent.futures
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import pypi  # noqa: E402

SDK = os.path.join(ROOT, "sdk/python")
COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
OPENAPI = os.path.join(ROOT, "api/openapi.yaml")
COUNT = [0]
FAILED = [0]
OUTPUT = threading.Lock()  # parts print at the same time


def say(name, wrong=None, skip=None):
    COUNT[0] += 1
    FAILED[0] += wrong is not None
    print(f"{'ok' if wrong is None else 'not ok'} {COUNT[0]} - {name}{f' # SKIP {skip}' if skip else ''}")
    for line in (wrong or "").splitlines():
        print(f"# {line}")
    sys.stdout.flush()
    return wrong is None and skip is None


def step(name, command, cwd=SDK, timeout=300):
    try:
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
    except subprocess.TimeoutExpired:
        return say(name, f"did not end within {timeout} s")
    return say(name, None if done.returncode == 0 else done.stdout.decode(errors="replace")[-4000:])


def version_is_ours():
    with open(os.path.join(ROOT, "VERSION"), encoding="utf-8") as f, open(os.path.join(SDK, "src/cove/__init__.py"), encoding="utf-8") as g:
        ours, theirs = f.read().strip(), re.search(r'__version__ = "(.*)"', g.read()).group(1)
    say(VERSION, None if ours == theirs else f"VERSION is {ours}, the package's is {theirs}")


def digest():
    """A hash of the files from which a wheel is made."""
    found = hashlib.sha256(sys.version.encode() + sys.executable.encode())
    for top, names, files in os.walk(SDK):
        names[:] = sorted(n for n in names if n != "__pycache__")
        for name in sorted(files):
            if top.startswith(os.path.join(SDK, "src")) or name in ("pyproject.toml", "README.md"):
                with open(os.path.join(top, name), "rb") as f:
                    found.update(name.encode() + b"\0" + f.read())
    return found.hexdigest()


def installed(python):
    """The interpreter of an environment that holds only the wheel and the packages that pip
    installs for it."""
    where = os.path.join(pypi.PLACE, "sdk-installed")
    stamp, wanted = os.path.join(where, "stamp"), digest()
    with pypi.locked("sdk-installed"):
        if os.path.exists(stamp):
            with open(stamp, encoding="utf-8") as f:
                if f.read() == wanted:
                    return os.path.join(where, "bin/python")
        with tempfile.TemporaryDirectory(prefix="cove-wheel-") as scratch:
            source = shutil.copytree(SDK, os.path.join(scratch, "source"), ignore=shutil.ignore_patterns("__pycache__"))
            pypi.call([python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch, source], 300)
            wheel = [n for n in os.listdir(scratch) if n.endswith(".whl")]
            fresh = pypi.make(where, "--without-pip")
            pypi.install(python, os.path.join(scratch, *wheel), into=fresh)
        with open(stamp, "w", encoding="utf-8") as f:
            f.write(wanted)
        return fresh


def package():
    """The interpreter with the package installed; for the docs and e2e suites too. Raises
    pypi.Unavailable."""
    return installed(pypi.ready("sdk", "sdk/python/requirements-test.txt"))


TYPED = """
import cove, importlib.resources, importlib.metadata
assert "site-packages" in cove.__file__, cove.__file__
assert importlib.resources.files("cove").joinpath("py.typed").is_file()
assert importlib.metadata.version("cove-sdk") == cove.__version__
assert all(hasattr(cove, name) for name in cove.__all__)
"""


def relay(python, words):
    """Runs the tests and prints their TAP with our numbers."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COVE_URL", "COVE_API_KEY")}
    run = subprocess.Popen([python, os.path.join(SDK, "tests/run.py"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, env=dict(env, COVE=COVE, COVE_OPENAPI=OPENAPI), text=True)
    planned, held = False, []

    def flush():
        """Prints a result with its lines of detail; other parts print at the same time."""
        with OUTPUT:
            for text in held:
                if match := re.match(r"(ok|not ok) \d+ - (.*)", text):
                    COUNT[0] += 1
                    FAILED[0] += match.group(1) != "ok"
                    print(f"{match.group(1)} {COUNT[0]} - {match.group(2)}")
                else:
                    print(text if text.startswith("#") else "# " + text, end="" if text.endswith("\n") else "\n")
            sys.stdout.flush()
        held.clear()

    for line in run.stdout:
        if re.match(r"(ok|not ok) \d+ - ", line):
            flush()
        if line.startswith("1.."):
            planned = True
        else:
            held.append(line)
    flush()
    if run.wait() not in (0, 1) or not planned:
        with OUTPUT:
            say(f"the tests end {' '.join(words)}".rstrip(), f"status {run.returncode}")


def relay_parts(python, jobs):
    """Runs all tests in `jobs` processes at a time, and checks the operations that they call
    together."""
    with tempfile.TemporaryDirectory(prefix="cove-sdk-called-") as scratch:
        parts = [(f"{i}/{jobs}", os.path.join(scratch, str(i))) for i in range(1, jobs + 1)]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda p: relay(python, ["--shard", p[0], "--called", p[1]]), parts))
        called = set()
        for name, path in parts:
            if not os.path.exists(path):
                say(f"the operations of part {name} are known", "the tests wrote no file")
                continue
            with open(path, encoding="utf-8") as f:
                called.update(map(tuple, json.load(f)))
    spec = importlib.util.spec_from_file_location("sdk_tests_run", os.path.join(SDK, "tests/run.py"))
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    for operation in tests.untouched(OPENAPI, called):
        say(f"contract: {operation}", skip="the package has no call for it")
    if not tests.untouched(OPENAPI, called):
        say("contract: every operation is reached")


VERSION, HALVES, TYPES = "the version is the tree's", "the sync half is what the generator makes of the async one", "mypy --strict"
WHEEL = "the wheel builds and installs into a fresh environment"


def checks(wanted):
    """Runs the checks of the package itself with these titles. Returns the interpreter that has it,
    or None."""
    if VERSION in wanted:
        version_is_ours()
    if HALVES in wanted:
        step(HALVES, [sys.executable, "tools/unasync.py", "--check"])
    try:
        tools = pypi.ready("sdk", "sdk/python/requirements-test.txt")
        if TYPES in wanted:
            step(TYPES, [tools, "-m", "mypy", "--cache-dir", os.path.join(ROOT, "build/venvs/mypy")])
        python = installed(tools)
    except pypi.Unavailable as why:
        say("the package builds, installs and works", skip=str(why))
        return None
    except pypi.Failed as why:
        say(WHEEL, str(why))
        return None
    return python if WHEEL not in wanted or step(WHEEL, [python, "-c", TYPED], cwd="/") else None


def main():
    parser = argparse.ArgumentParser(usage="run.py [--python] [--only TITLE] [--jobs N] [--shard I/N] [WORD...]")
    parser.add_argument("--python", action="store_true")
    parser.add_argument("--only", metavar="TITLE")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    if asked.python:
        try:
            print(package())
        except pypi.Unavailable as why:
            print(why, file=sys.stderr)
            return 77
        return 0
    match = re.fullmatch(r"(\d+)/(\d+)", asked.shard)
    if not match or not 1 <= int(match.group(1)) <= int(match.group(2)):
        parser.error(f"--shard {asked.shard}: is not I/N with 1 <= I <= N")
    index, count = map(int, match.groups())

    every = [VERSION, HALVES, TYPES, WHEEL]
    wanted = [asked.only] if asked.only else [] if index > 1 else [name for name in every if name != TYPES or not asked.words]
    python = checks(wanted)
    if python and asked.only not in every:
        if asked.jobs > 1 and count == 1 and not asked.only and not asked.words:
            relay_parts(python, asked.jobs)
        else:
            relay(python, (["--only", asked.only] if asked.only else []) + (["--shard", asked.shard] if count > 1 else []) + asked.words)
        if index == count > 1 and not asked.words:
            say("contract: every operation is reached", skip="only a call that runs all tests can know it")
    print(f"1..{COUNT[0]}")
    return 1 if FAILED[0] else 0


if __name__ == "__main__":
    sys.exit(main())
