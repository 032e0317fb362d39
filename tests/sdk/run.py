#!/usr/bin/env python3
"""run.py [WORD...] - the Python package as its users get it: checked, built, installed by pip, and run against a real server.

Prints TAP. Words choose tests of sdk/python/tests by their names. Needs PyPI the first time, or says that it is skipped.

    tests/sdk/run.py --python    prints the path of a Python that has the package; status 77 and the reason if there is none
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import pypi  # noqa: E402

SDK = os.path.join(ROOT, "sdk/python")
COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
COUNT = [0]
FAILED = [0]


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
    say("the version is the tree's", None if ours == theirs else f"VERSION is {ours}, the package's is {theirs}")


def digest():
    """Of what a wheel is made of."""
    found = hashlib.sha256(sys.version.encode() + sys.executable.encode())
    for top, names, files in os.walk(SDK):
        names[:] = sorted(n for n in names if n != "__pycache__")
        for name in sorted(files):
            if top.startswith(os.path.join(SDK, "src")) or name in ("pyproject.toml", "README.md"):
                with open(os.path.join(top, name), "rb") as f:
                    found.update(name.encode() + b"\0" + f.read())
    return found.hexdigest()


def installed(python):
    """The interpreter of an environment that holds nothing but the wheel and what pip says it needs."""
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
    """The interpreter with the package installed; for the docs and e2e suites too. Raises pypi.Unavailable."""
    return installed(pypi.ready("sdk", "sdk/python/requirements-test.txt"))


TYPED = """
import cove, importlib.resources, importlib.metadata
assert "site-packages" in cove.__file__, cove.__file__
assert importlib.resources.files("cove").joinpath("py.typed").is_file()
assert importlib.metadata.version("cove-sdk") == cove.__version__
assert all(hasattr(cove, name) for name in cove.__all__)
"""


def relay(python, words):
    """Its TAP with our numbers."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COVE_URL", "COVE_API_KEY")}
    run = subprocess.Popen([python, os.path.join(SDK, "tests/run.py"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, env=dict(env, COVE=COVE, COVE_OPENAPI=os.path.join(ROOT, "api/openapi.yaml")), text=True)
    for line in run.stdout:
        if match := re.match(r"(ok|not ok) \d+ - (.*)", line):
            COUNT[0] += 1
            FAILED[0] += match.group(1) != "ok"
            print(f"{match.group(1)} {COUNT[0]} - {match.group(2)}")
        elif not line.startswith("1.."):
            print(line if line.startswith("#") else "# " + line, end="" if line.endswith("\n") else "\n")
        sys.stdout.flush()
    if run.wait() not in (0, 1):
        say("the tests end", f"status {run.returncode}")


def main():
    words = sys.argv[1:]
    if words == ["--python"]:
        try:
            print(package())
        except pypi.Unavailable as why:
            print(why, file=sys.stderr)
            return 77
        return 0
    version_is_ours()
    step("the sync half is what the generator makes of the async one", [sys.executable, "tools/unasync.py", "--check"])
    try:
        tools = pypi.ready("sdk", "sdk/python/requirements-test.txt")
        if not words:
            step("mypy --strict", [tools, "-m", "mypy", "--cache-dir", os.path.join(ROOT, "build/venvs/mypy")])
        python = installed(tools)
    except pypi.Unavailable as why:
        say("the package builds, installs and works", skip=str(why))
    except pypi.Failed as why:
        say("the wheel builds and installs into a fresh environment", str(why))
    else:
        if step("the wheel builds and installs into a fresh environment", [python, "-c", TYPED], cwd="/"):
            relay(python, words)
    print(f"1..{COUNT[0]}")
    return 1 if FAILED[0] else 0


if __name__ == "__main__":
    sys.exit(main())
