"""pypi.py - packages of PyPI for tests, each set in its own virtual environment below build/venvs.

    sys.path.insert(0, os.path.join(ROOT, "tests/support"))
    import pypi

    # returns the interpreter
    python = pypi.ready("schema", "tests/contract/schema/requirements.txt")

A requirements file pins every package with its version, so that a test stays the same. The
environment is made once, and again when the file or the interpreter changes; two concurrent runs
make it once. If PyPI cannot be reached, Unavailable is raised and the test is skipped with that
reason; packages that are installed already need no network.
"""
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLACE = os.path.join(ROOT, "build/venvs")


class Unavailable(Exception):
    """The packages are not available here; the message says why."""


class Failed(Exception):
    """pip ran and failed; the message is its output."""


@contextlib.contextmanager
def locked(name):
    os.makedirs(PLACE, exist_ok=True)
    with open(os.path.join(PLACE, name + ".lock"), "w", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def call(command, timeout):
    """Returns its output; raises Unavailable if the network failed."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(command, env=dict(env, PIP_DISABLE_PIP_VERSION_CHECK="1"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command[:4])} did not end within {timeout} s") from None
    text = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return text
    if "ensurepip is not" in text or "No module named venv" in text:
        raise Unavailable("this Python makes no virtual environments: apt-get install python3-venv")
    signs = ("NewConnectionError", "NameResolutionError", "Max retries exceeded", "Could not connect", "ProxyError", "ReadTimeoutError", "ConnectTimeoutError",
             "Temporary failure in name resolution", "Network is unreachable", "from versions: none")
    if any(sign in text for sign in signs):
        raise Unavailable("PyPI cannot be reached from here")
    raise Failed(f"{' '.join(command)}\n{text[-4000:]}")


def make(where, *words):
    """Makes an empty environment; returns its interpreter."""
    shutil.rmtree(where, ignore_errors=True)
    call([sys.executable, "-m", "venv", *words, where], 300)
    return os.path.join(where, "bin/python")


def install(python, *words, into=None):
    """Installs with the pip of that interpreter, into its own environment or into another one
    without pip."""
    other = ["--python", into] if into else []
    call([python, "-m", "pip", *other, "install", "--quiet", "--no-input", "--retries", "2", "--timeout", "20", *words], 600)


def ready(name, requirements):
    """Returns the interpreter of an environment with the packages of a file of the tree."""
    path = os.path.join(ROOT, requirements)
    with open(path, "rb") as f:
        wanted = hashlib.sha256(f.read() + sys.version.encode() + sys.executable.encode()).hexdigest()
    where = os.path.join(PLACE, name)
    stamp = os.path.join(where, "stamp")
    python = os.path.join(where, "bin/python")
    with locked(name):
        with contextlib.suppress(OSError), open(stamp, encoding="utf-8") as f:
            if f.read() == wanted:
                return python
        make(where)
        install(python, "--requirement", path)
        with open(stamp, "w", encoding="utf-8") as f:
            f.write(wanted)
        return python
