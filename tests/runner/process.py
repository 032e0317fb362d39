"""process.py - runs one command in its own session, with a deadline, and measures its CPU time."""
import contextlib
import os
import select
import signal
import subprocess
import threading
import time


class Done:
    """How a command ended: exit status (124: deadline, 127: not started), output, seconds of
    elapsed and CPU time."""

    def __init__(self, code, output, wall, cpu):
        self.code, self.output, self.wall, self.cpu = code, output, wall, cpu


class Processes:
    """The commands that are running now, so that an interrupted run can end them."""

    def __init__(self):
        self.lock, self.pids, self.closed = threading.Lock(), set(), False

    def run(self, command, env=None, timeout=900, cwd=None, nice=0):
        began = time.monotonic()
        try:
            with self.lock:
                if self.closed:
                    return Done(130, "interrupted\n", 0.0, 0.0)
                child = subprocess.Popen(command, cwd=cwd, env=dict(os.environ, **(env or {})), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
                self.pids.add(child.pid)
        except OSError as error:
            return Done(127, f"{command[0]}: {error.strerror}\n", 0.0, 0.0)
        if nice:
            renice(child.pid, nice)
        output, late = read_until(child.stdout, began + timeout)
        if late:
            output += f"\nstopped after {timeout} s\n".encode()
            signal_group(child.pid, signal.SIGTERM)
            rest, late = read_until(child.stdout, time.monotonic() + 2)
            output += rest
            signal_group(child.pid, signal.SIGKILL)
            late = True
        child.stdout.close()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        with self.lock:
            self.pids.discard(child.pid)
        code = 124 if late else child.returncode
        return Done(code, output.decode(errors="replace"), time.monotonic() - began, usage.ru_utime + usage.ru_stime)

    def stop(self):
        """Ends all running commands: first as Ctrl-C would, so that scripts remove their servers,
        at last by SIGKILL."""
        with self.lock:
            self.closed = True
        for sig, seconds in ((signal.SIGINT, 10), (signal.SIGTERM, 3), (signal.SIGKILL, 2)):
            with self.lock:
                left = set(self.pids)
            for pid in left:
                signal_group(pid, sig)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                with self.lock:
                    if not self.pids:
                        return
                time.sleep(0.05)


def read_until(pipe, deadline):
    """(bytes, whether the deadline passed before the end of the pipe). A leftover process that
    holds the pipe open counts."""
    output = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return bytes(output), True
        if select.select([pipe], [], [], min(left, 60))[0]:
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                return bytes(output), False
            output += piece


def signal_group(pid, sig):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sig)


def renice(pid, nice):
    """Sets the nice value of a session, which is its own scheduling group where the kernel groups
    by session."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, nice)
    with contextlib.suppress(OSError), open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as f:
        f.write(str(nice))
