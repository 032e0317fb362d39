"""`cove run` on a terminal: raw mode, size, Ctrl-C, Ctrl-Z, and the restored terminal afterwards.
"""
import errno
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

from cove import COVE, ROOT, Case, run


class Terminal:
    """cove on a pseudo-terminal of the test, as the leader of its session."""

    def __init__(self, *args, rows=24, cols=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            os.execv(COVE, [COVE, *args])
        self.seen = b""
        self.status = None

    def read(self, until, timeout=120):
        """Reads until the text was seen; to the end when it is None."""
        deadline = time.monotonic() + timeout
        while until is None or until not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"{until!r} was not seen in {self.seen!r}")
            try:
                data = os.read(self.fd, 65536)
            except OSError as e:
                if e.errno != errno.EIO:
                    raise
                data = b""
            if not data:
                if until is None:
                    return self.seen
                raise AssertionError(f"ended without {until!r}: {self.seen!r}")
            self.seen += data
        return self.seen

    def write(self, data):
        os.write(self.fd, data)

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def flags(self):
        return termios.tcgetattr(self.fd)[3]

    def wait(self, timeout=120):
        deadline = time.monotonic() + timeout
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError(f"did not end; saw {self.seen!r}")
            else:
                time.sleep(0.01)
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class OnATerminal(Case):
    def cove(self, *args, **options):
        terminal = Terminal(*args, **options)
        self.addCleanup(terminal.close)
        return terminal

    def test_ctrl_c_reaches_the_program(self):
        t = self.cove("run", "--", "sh", "-c", "trap 'echo caught; exit 6' INT; echo up; while :; do sleep 0.05; done")
        t.read(b"up\r\n")
        t.write(b"\x03")
        t.read(b"caught")
        self.assertEqual(t.wait(), 6)

    def test_after_a_while_a_hint_says_how_to_end_the_program(self):
        t = self.cove("run", "--", "sh", "-c", "trap '' INT; echo up; while :; do sleep 0.05; done")
        t.read(b"up\r\n")
        t.write(b"\x03")
        t.read(b"press Ctrl-C again to kill it")
        t.write(b"\x03")
        self.assertEqual(t.wait(), 137)

    def test_without_i_or_t_the_terminal_is_not_read(self):
        t = self.cove("run", "--", "sh", "-c", "cat; echo end")
        t.read(b"end")
        self.assertEqual(t.wait(), 0)

    def test_with_i_lines_of_the_terminal_are_passed_on(self):
        t = self.cove("run", "-i", "--", "sh", "-c", "read x; echo got $x")
        t.write(b"line\n")
        t.read(b"got line")
        self.assertEqual(t.wait(), 0)

    def test_tty_gives_the_program_a_terminal_of_the_same_size(self):
        t = self.cove("run", "-t", "--", "sh", "-c", "stty size; test -t 0 && test -t 1 && echo yes; exit 4", rows=33, cols=111)
        t.read(b"33 111")
        t.read(b"yes")
        self.assertEqual(t.wait(), 4)

    def test_a_new_size_is_passed_on(self):
        t = self.cove("run", "-t", "--", "sh", "-c", "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done")
        t.read(b"up")
        t.resize(44, 99)
        t.read(b"44 99")
        self.assertEqual(t.wait(), 0)

    def test_keys_reach_the_program_raw_and_ctrl_c_belongs_to_it(self):
        t = self.cove("run", "-t", "--", "sh", "-c", "trap 'echo inside; exit 9' INT; echo up; while :; do sleep 0.05; done")
        t.read(b"up")
        self.assertFalse(t.flags() & (termios.ICANON | termios.ECHO | termios.ISIG))
        t.write(b"\x03")
        t.read(b"inside")
        self.assertEqual(t.wait(), 9)

    def test_the_terminal_is_restored_after_every_end(self):
        ways = {
            "exit": (["sh", "-c", "echo up"], [], None),
            "signal": (["sh", "-c", "echo up; sleep 0.2; kill -9 $$"], [], None),
            "timeout": (["sh", "-c", "echo up; sleep 100"], ["--timeout", "3s"], None),
            "sigterm": (["sh", "-c", "echo up; sleep 100"], [], signal.SIGTERM),
            "sighup": (["sh", "-c", "echo up; sleep 100"], [], signal.SIGHUP),
            "abort": (["sh", "-c", "echo up; sleep 100"], [], signal.SIGABRT),
            "segv": (["sh", "-c", "echo up; sleep 100"], [], signal.SIGSEGV),
        }
        for name, (program, flags, sig) in ways.items():
            with self.subTest(name):
                t = self.cove("run", "-t", *flags, "--", *program)
                before = termios.ICANON | termios.ECHO | termios.ISIG
                t.read(b"up")
                if sig:
                    os.kill(t.pid, sig)
                t.wait()
                self.assertEqual(t.flags() & before, before)

    def test_a_missing_program_leaves_the_terminal_intact(self):
        t = self.cove("run", "-t", "--", "no-such-program")
        t.read(b"program_not_found")
        self.assertEqual(t.wait(), 127)
        self.assertTrue(t.flags() & termios.ICANON)

    def test_an_interactive_shell_works(self):
        t = self.cove("run", "-t", "-e", "PS1=% ", "--", "sh", "-i")
        t.read(b"% ")
        t.write(b"echo $((40+2))\r")
        t.read(b"42")
        t.write(b"exit 3\r")
        self.assertEqual(t.wait(), 3)

    def test_the_prompt_of_bash_is_the_one_that_the_documentation_shows(self):
        with open(os.path.join(ROOT, "docs", "run.md"), encoding="utf-8") as f:
            shown = f.read().split("$ cove run -t -- bash\n")[1].splitlines()[0]
        t = self.cove("run", "-t", "--", "bash")
        t.read(shown.encode() + b" ")
        t.write(b"exit 3\r")
        self.assertEqual(t.wait(), 3)

    def test_shell_is_a_shell_in_the_kept_sandbox(self):
        state = ("--state-dir", self.dir)
        self.addCleanup(run, "rm", "--all", "--local", "--yes", *state)
        sandbox = run("run", "--keep", "--json", *state, "--", "sh", "-c", "echo kept > note").json["sandboxId"]
        t = self.cove("shell", *state, "-e", "PS1=% ", sandbox)
        t.write(b"cat note; exit 4\r")
        t.read(b"kept\r\n")
        self.assertEqual(t.wait(), 4)
        self.assertTrue(t.flags() & termios.ICANON)
