"""server.py - `cove serve` in a directory of its own, for tests of any suite.

    server = Launched(COVE, directory, "--http-max-line", "1K")   # its state is in directory/place
    server.url, server.key, server.processes()["coved"], server.said(), server.logged()
    server.stop()
"""
import os
import re
import signal
import subprocess
import time


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("timed out")


def processes(run_dir):
    """{name: pid} of the server whose sockets are in run_dir."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
            with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                name = f.read().strip()
        except OSError:
            continue
        if any(run_dir in word for word in words):
            found[name] = int(pid)
    return found


class Launched:
    def __init__(self, cove, where, *flags, place=None, **options):
        """Returns when the server is ready; AssertionError with its log if it ended instead.
        `place` is the default state directory of the server, which is then not passed as a flag."""
        os.chmod(where, 0o755)
        self.place = place or os.path.join(where, "place")
        self.run_dir = os.path.join(self.place, "run")
        self.out, self.err = os.path.join(where, "out"), os.path.join(where, "err")
        words = [cove, "serve", "--listen", "127.0.0.1:0"] + ([] if place else ["--state-dir", self.place])
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([*words, *flags], stdin=subprocess.DEVNULL, stdout=out, stderr=err, **options)
        try:
            wait_for(lambda: b"is ready" in self.said() or self.process.poll() is not None)
        except AssertionError:
            self.kill()
            raise
        if self.process.poll() is not None:
            raise AssertionError(self.logged())
        words = self.said().decode().split()
        self.url = words[words.index("address") + 1]
        key = re.search(rb"cove_[0-9a-f]{40}", self.said())  # shown by the first start only
        self.key = key.group().decode() if key else None

    def said(self):
        with open(self.out, "rb") as f:
            return f.read()

    def logged(self):
        with open(self.err, "rb") as f:
            return f.read().decode(errors="replace")

    def processes(self):
        return processes(self.run_dir)

    def stop(self, how=signal.SIGTERM):
        """Returns its status."""
        self.process.send_signal(how)
        return self.process.wait(120)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
