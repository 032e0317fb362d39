"""cove.py - runs the cove under test as a person or a script would.

    from cove import run, Case

    class Streams(Case):
        def test_stdout_and_stderr_stay_apart(self):
            done = run("run", "--", "sh", "-c", "echo out; echo err >&2")
            self.assertEqual((done.code, done.out, done.err), (0, "out\\n", "err\\n"))

`run` never raises for a status; a command that does not end in time is a failure that shows its
output.
"""
import json
import os
import signal
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))

# If these signals are ignored (nohup, background jobs of a shell), every program under test would
# inherit that; it does not inherit a handler.
for _signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, lambda *_: None)


class Done:
    """The result of a command. `code` is as a shell would see it: 128+n for a signal."""

    def __init__(self, args, code, out, err):
        self.args, self.bytes_out, self.bytes_err = args, out, err
        self.code = code if code >= 0 else 128 - code
        self.out, self.err = out.decode(errors="replace"), err.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"{' '.join(self.args)}\nstatus {self.code}\nstdout:\n{self.out[-3000:]}\nstderr:\n{self.err[-3000:]}"


def start(*args, env=None, **options):
    """The running process, for tests that talk to it. All three streams are pipes by default, and
    unbuffered: communicate() would miss data that readline() had read ahead."""
    options.setdefault("bufsize", 0)
    for stream in ("stdin", "stdout", "stderr"):
        options.setdefault(stream, subprocess.PIPE)
    return subprocess.Popen([COVE, *args], env=dict(os.environ, **(env or {})), **options)


def run(*args, stdin=b"", env=None, timeout=120, cwd=None):
    if isinstance(stdin, str):
        stdin = stdin.encode()
    process = start(*args, env=env, cwd=cwd)
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"not ended after {timeout} s: {Done(args, 124, out, err)}") from None
    return Done(args, process.returncode, out, err)


def descendants(pid):
    """{name: [pid, ...]} of the processes below a process."""
    below, names = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as f:
                head, _, rest = f.read().rpartition(")")
        except OSError:
            continue  # it ended in between
        below.setdefault(int(rest.split()[1]), []).append(int(entry))
        names[int(entry)] = head.partition("(")[2]
    found, waiting = {}, [pid]
    while waiting:
        for child in below.get(waiting.pop(), []):
            found.setdefault(names[child], []).append(child)
            waiting.append(child)
    return found


class Case(unittest.TestCase):
    """A test with its own scratch directory: self.dir, and self.file(name, text) to write a file
    into it."""

    longMessage = True
    maxDiff = 4000

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="cove-e2e-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name

    def file(self, name, text="", mode=0o644):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def assertCode(self, done, code):
        self.assertEqual(done.code, code, done)

    def assertErrorCode(self, done, code, name):
        """Asserts that cove itself refused: its exit status, and the stable code of the message on
        standard error."""
        self.assertEqual(done.code, code, done)
        self.assertIn(name, done.err, done)
