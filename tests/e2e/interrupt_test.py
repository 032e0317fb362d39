"""Ctrl-C: every verb that waits ends at once with status 130 and leaves nothing behind."""
import contextlib
import glob
import os
import signal
import time

from cove import start
from served import Served, wait_for


class Interrupt(Served):
    def setUp(self):
        super().setUp()
        self.box = self.cove("sandbox", "create", "-q").out.strip()

    def interrupted(self, *words, ready, **options):
        """Starts the command, waits until ready(process), sends Ctrl-C and returns its output."""
        process = start(*words, env=self.env, cwd=self.dir, **options)
        ready(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        self.assertEqual(code, 130, (words, out, err))
        return out

    def running(self, _process):
        wait_for(lambda: self.cove("ps", "--json", self.box).json["items"])

    def said(self, process):
        self.assertEqual(process.stdout.readline(), b"up\n")

    def settled(self, process):
        """It waits for the server: a socket is open, and it has had time to send a request."""
        def connected():
            for fd in glob.glob(f"/proc/{process.pid}/fd/*"):
                with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                    if os.readlink(fd).startswith("socket:"):
                        return True
            return False
        wait_for(connected)
        time.sleep(0.3)

    def test_programs_and_code(self):
        self.interrupted("run", "--", "sh", "-c", "echo up; exec sleep 60", ready=self.said)
        self.interrupted("exec", self.box, "--", "sh", "-c", "echo up; exec sleep 60", ready=self.said)
        self.interrupted("shell", self.box, "--", "sh", "-c", "echo up; exec sleep 60", ready=self.said)
        self.interrupted("execute", "--", "sh", "-c", "echo up; exec sleep 60", ready=self.said)
        self.cove("context", "create", self.box)
        slow = "print('up', flush=True)\nimport time\ntime.sleep(60)"
        self.interrupted("context", "exec", "-c", slow, self.box, ready=self.said)
        self.assertEqual(self.cove("context", "exec", "-c", "6 * 7", self.box).out, "42\n")
        wait_for(lambda: not self.cove("ps", "--json", self.box).json["items"])

    def test_streams(self):
        self.cove("exec", "-d", self.box, "--", "sh", "-c", "echo up; exec sleep 600")
        self.interrupted("logs", "-f", self.box, ready=self.said)
        for words in (("events", "-f"), ("watch", self.box), ("audit", "tail", "-f"), ("top", "--json", "--interval", "1h")):
            self.interrupted(*words, ready=self.settled)
        self.assertEqual(len(self.cove("ps", "--json", self.box).json["items"]), 1)  # a viewer is not the program

    def test_copies_leave_no_part_behind(self):
        self.cove("exec", self.box, "--", "sh", "-c", "mkdir d; for i in $(seq 400); do truncate -s 200M d/$i; done")
        self.interrupted("cp", f"{self.box}:d", "d", ready=lambda _: wait_for(lambda: os.listdir(self.dir)))
        self.assertEqual(os.listdir(self.dir), [])
        self.interrupted("cp", "-", f"{self.box}:up", ready=self.settled)
        self.assertNotIn("up", self.cove("files", "ls", "-q", self.box).out)
