"""`cove exec -t` and `cove attach`: a terminal of a sandbox on a server, shown on a local terminal.
"""
import os
import signal
import termios

from cli_terminal_test import Terminal
from serve_test import processes
from served import OwnServer, Served, wait_for

WHOLE = termios.ICANON | termios.ECHO | termios.ISIG


class Terminals:
    def on_terminal(self, *args, **options):
        before = dict(os.environ)
        os.environ.update(self.env)
        try:
            terminal = Terminal(*args, **options)
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.addCleanup(terminal.close)
        return terminal

    def sandbox(self):
        return self.cove("sandbox", "create", "-q", "--lifetime", "1h").out.strip()

    def shell(self, sandbox, *args, **options):
        return self.on_terminal("shell", "-e", "PS1=% ", sandbox, *args, **options)


class OnAServer(Terminals, Served):
    def test_a_shell_takes_input_and_its_status_is_passed_on(self):
        t = self.on_terminal("exec", "-it", "-e", "PS1=% ", self.sandbox(), "sh", "-i", rows=33, cols=111)
        t.read(b"% ")
        self.assertFalse(t.flags() & WHOLE)
        t.write(b"stty size; echo $((40+2))\r")
        t.read(b"33 111")
        t.read(b"42")
        t.resize(44, 99)
        t.write(b"until stty size | grep '44 9'9; do sleep 0.1; done\r")
        t.read(b"44 99\r\n")
        t.write(b"""sh -c 'trap "echo cau""ght; exit" INT; echo rea""dy; while :; do sleep 0.05; done'\r""")
        t.read(b"ready")
        t.write(b"\x03")
        t.read(b"caught")
        t.write(b"exit 7\r")
        self.assertEqual(t.wait(), 7)
        self.assertEqual(t.flags() & WHOLE, WHOLE)

    def test_context_exec_without_code_reads_lines_from_the_terminal(self):
        sandbox = self.sandbox()
        self.cove("context", "create", sandbox)
        t = self.on_terminal("context", "exec", sandbox)
        t.read(b">>> ")
        for typed, shown in ((b"x = 6\r", b">>> "), (b"x * 7\r", b"42\r\n"), (b"for i in range(2):\r", b"... "), (b"    print('line', i)\r", b"... "),
                             (b"\r", b"line 1\r\n"), (b"1 / 0\r", b"ZeroDivisionError"), (b"import time; print('re'+'ady', flush=True); time.sleep(60)\r", b"ready")):
            t.write(typed)
            t.read(shown)
            t.seen = b""
        t.write(b"\x03")
        t.read(b">>> ")
        t.seen = b""
        t.write(b"half a li\x03")
        t.read(b">>> ")
        t.write(b"print('still', x)\r")
        t.read(b"still 6\r\n")
        t.seen = b""
        t.write(b"\x04")
        self.assertEqual(t.wait(), 0)

    def test_top_quits_with_q_or_ctrl_c_and_restores_the_terminal(self):
        sandbox = self.sandbox()
        for key, status in ((b"q", 0), (b"\x03", 130)):
            t = self.on_terminal("top", "--interval", "1h")
            t.read(sandbox.encode())
            self.assertFalse(t.flags() & termios.ICANON)
            t.write(b"x")  # other keys refresh
            t.write(key)
            self.assertEqual(t.wait(), status)
            self.assertTrue(t.flags() & termios.ICANON)
            self.assertNotIn(b"qq", t.seen)

    def test_json_is_indented_on_a_terminal_and_one_line_in_a_pipe(self):
        sandbox = self.sandbox()
        shown = self.on_terminal("sandbox", "info", "--json", sandbox).read(None)
        self.assertIn(b'{\r\n  "id": "' + sandbox.encode(), shown)
        self.assertEqual(self.cove("sandbox", "info", "--json", sandbox).out.count("\n"), 1)
        self.assertIn(b'{\r\n  "outcome": "success",', self.on_terminal("run", "--json", "-c", "print(1)").read(None))
        self.assertIn(b'{\r\n  "error": {\r\n    "code": "bad_usage"', self.on_terminal("run", "--json", "--none").read(None))
        self.assertEqual(self.cove("run", "--json", "-c", "print(1)").out.count("\n"), 1)

    def test_rm_all_asks_and_ends_nothing_without_a_yes(self):
        sandbox = self.sandbox()
        for answer, status, state in ((b"n\r", 2, "running"), (b"\r", 2, "running"), (b"y\r", 0, "ended")):
            t = self.on_terminal("sandbox", "rm", "--all")
            t.read(b"end 1 sandbox of ")
            t.read(b"[y/N] ")
            t.write(answer)
            self.assertEqual(t.wait(), status)
            self.assertEqual(self.cove("sandbox", "info", "--json", sandbox).json["state"], state)

    def test_a_detached_terminal_continues_and_can_be_attached_again(self):
        sandbox = self.sandbox()
        t = self.shell(sandbox, "sh", "-i")
        t.read(b"% ")
        t.write(b"x=for'ty'-two\r")
        t.read(b"% ")
        t.write(b"\x10\x11")
        t.read(b"cove attach " + sandbox.encode())
        self.assertEqual(t.wait(), 0)
        self.assertEqual(t.flags() & WHOLE, WHOLE)
        one, two = (self.on_terminal("attach", sandbox) for _ in range(2))
        one.read(b"% ")
        two.read(b"% ")
        one.write(b"echo $x\r")
        one.read(b"forty-two")
        two.read(b"forty-two")
        two.write(b"exit 5\r")
        self.assertEqual((one.wait(), two.wait()), (5, 5))
        self.assertIn(b"no terminal is open", self.on_terminal("attach", sandbox).read(None))

    def test_the_local_terminal_is_restored_after_every_end(self):
        sandbox = self.sandbox()
        for name, sig in (("term", signal.SIGTERM), ("hup", signal.SIGHUP), ("abort", signal.SIGABRT), ("segv", signal.SIGSEGV)):
            with self.subTest(name):
                t = self.on_terminal("exec", "-t", sandbox, "--", "sh", "-c", "echo up; sleep 100")
                t.read(b"up")
                os.kill(t.pid, sig)
                t.wait()
                self.assertEqual(t.flags() & WHOLE, WHOLE)
        t = self.on_terminal("exec", "-t", "--timeout", "500ms", sandbox, "sleep", "100")
        self.assertEqual(t.wait(), 124)
        self.assertEqual(t.flags() & WHOLE, WHOLE)
        t = self.on_terminal("exec", "-t", sandbox, "no-such-program")
        t.read(b"program_not_found")
        self.assertEqual(t.wait(), 127)
        self.assertEqual(t.flags() & WHOLE, WHOLE)

    def test_deleting_the_sandbox_ends_the_terminal_with_a_message(self):
        sandbox = self.sandbox()
        t = self.on_terminal("exec", "-t", sandbox, "--", "sh", "-c", "echo up; sleep 100")
        t.read(b"up")
        self.cove("sandbox", "rm", sandbox)
        self.assertIn(t.wait(), (125, 137))
        self.assertEqual(t.flags() & WHOLE, WHOLE)

    def test_a_missing_local_terminal_is_reported(self):
        sandbox = self.sandbox()
        self.assertIn("not a terminal", self.cove("exec", "-t", sandbox, "true", code=2).err)
        self.assertIn("not a terminal", self.cove("attach", sandbox, code=2).err)
        execution = self.cove("exec", "-td", sandbox, "--", "sh", "-c", "tty; sleep 100").out.strip()
        wait_for(lambda: "/dev/pts" in self.cove("logs", sandbox, execution).out)


class OnAServerThatDies(Terminals, OwnServer):
    def type_until_seen(self, t, keys, answer):
        """Types until the answer is seen: input that is typed before the broken connection is
        noticed may be lost, but never arrives twice."""
        for _ in range(120):
            t.write(keys)
            try:
                return t.read(answer, timeout=1)
            except AssertionError as e:
                lost = e
        raise lost

    def test_a_killed_server_does_not_end_the_terminal(self):
        t = self.shell(self.sandbox(), "sh", "-i")
        t.read(b"% ")
        t.write(b"echo be'fore'\r")
        t.read(b"before")
        os.kill(processes(os.path.join(self.dir, "place"))["coved"], signal.SIGKILL)
        self.type_until_seen(t, b"echo af'ter'\r", b"after")
        self.assertEqual(t.seen.count(b"\nbefore"), 1)
        t.write(b"exit\r")
        self.assertEqual(t.wait(60), 0)
