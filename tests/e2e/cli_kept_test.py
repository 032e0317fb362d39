"""Kept sandboxes: run --keep, enter, ls, rm."""
import subprocess
import time

from cove import Case, run, start
from server import wait_for


class Kept(Case):
    def setUp(self):
        super().setUp()
        self.flag = ("--state-dir", self.dir)
        self.addCleanup(run, "rm", "--all", *self.flag)

    def keep(self, script="echo kept > note"):
        done = run("run", "--keep", "--json", *self.flag, "--", "sh", "-c", script)
        self.assertCode(done, 0)
        self.assertTrue(done.json["kept"])
        return done.json["sandbox"]

    def test_a_kept_sandbox_prints_how_to_return_and_is_listed(self):
        done = run("run", "--keep", *self.flag, "--", "true")
        listed = run("ls", *self.flag).out
        sandbox = listed.split()[0]
        self.assertIn(f"cove enter {sandbox}", done.err)
        self.assertIn(f"cove rm {sandbox}", done.err)
        self.assertEqual([s["id"] for s in run("ls", "--json", *self.flag).json["sandboxes"]], [sandbox])

    def test_enter_finds_everything_as_it_was_left_more_than_once(self):
        sandbox = self.keep()
        for _ in range(3):
            self.assertEqual(run("enter", *self.flag, sandbox, "--", "cat", "note").out, "kept\n")
        self.assertCode(run("enter", *self.flag, sandbox, "--", "sh", "-c", "echo more >> note; exit 6"), 6)
        self.assertEqual(run("enter", *self.flag, sandbox[:6], "cat", "note").out, "kept\nmore\n")

    def test_processes_of_a_kept_sandbox_are_frozen_until_enter(self):
        script = self.file("ticks.py", "import os, time\nlast, longest = time.monotonic(), 0\nwhile True:\n    time.sleep(0.01)\n"
                                       "    longest, last = max(longest, time.monotonic() - last), time.monotonic()\n"
                                       "    with open('new', 'w') as f:\n        f.write(f'{last} {longest}')\n    os.rename('new', 'ticks')\n")
        with open(script, encoding="utf-8") as f:
            sandbox = self.keep("cat > ticks.py <<'END'\n" + f.read() + "END\n"
                                "python3 ticks.py >/dev/null 2>&1 & until [ -s ticks ]; do sleep 0.02; done")

        def seen():
            """The last time at which it was awake, and its longest sleep."""
            return [float(word) for word in run("enter", *self.flag, sandbox, "--", "cat", "ticks").out.split()]
        first, _ = seen()
        kept = 1.5
        time.sleep(kept)
        wait_for(lambda: seen()[0] > first)  # it continues then
        self.assertGreater(seen()[1], kept, "it ran while it was kept")

    def test_enter_without_a_command_is_a_shell(self):
        sandbox = self.keep()
        self.assertIn("kept", run("enter", *self.flag, sandbox, stdin="cat note; exit 5\n").out)

    def test_enter_passes_input_variables_and_directory(self):
        sandbox = self.keep()
        done = run("enter", *self.flag, "-e", "A=b", "--cwd", "/tmp", sandbox, "--", "sh", "-c", "cat; echo $A; pwd", stdin="in\n")
        self.assertEqual((done.code, done.out), (0, "in\nb\n/tmp\n"), done)

    def test_a_command_in_it_has_a_timeout(self):
        self.assertCode(run("enter", *self.flag, "--timeout", "300ms", self.keep(), "--", "sleep", "9"), 124)

    def test_a_missing_program_in_it_leaves_it_kept(self):
        sandbox = self.keep()
        self.assertErrorCode(run("enter", *self.flag, sandbox, "--", "no-such-program"), 127, "program_not_found")
        self.assertEqual(run("enter", *self.flag, sandbox, "--", "cat", "note").out, "kept\n")

    def test_only_denials_of_the_entered_command_are_reported(self):
        sandbox = self.keep("unshare --mount true; true")
        for _ in range(2):  # the second enter finds a monitor whose client has disconnected twice
            done = run("enter", *self.flag, sandbox, "--", "unshare", "--user", "true")
            self.assertEqual(done.code, 1, done)
            self.assertIn("cove: refused: unshare(0x10000000); there is no way to allow it\n", done.err)
            self.assertNotIn("0x20000", done.err)
        self.assertNotIn("refused", run("enter", *self.flag, sandbox, "--", "false").err)
        self.assertNotIn("refused", run("enter", "-q", *self.flag, sandbox, "--", "unshare", "--user", "true").err)

    def test_two_clients_cannot_enter_it_at_once(self):
        sandbox = self.keep()
        first = start("enter", *self.flag, sandbox, "--", "sh", "-c", "echo up; cat", stdin=subprocess.PIPE)
        self.assertEqual(first.stdout.readline(), b"up\n")
        self.assertErrorCode(run("enter", *self.flag, sandbox, "--", "true"), 125, "service_unavailable")
        first.communicate(b"", timeout=120)
        self.assertCode(run("enter", *self.flag, sandbox, "--", "true"), 0)

    def test_rm_ends_it_and_prints_its_name(self):
        one, two = self.keep(), self.keep()
        done = run("rm", *self.flag, one)
        self.assertEqual((done.code, done.out), (0, one + "\n"), done)
        self.assertEqual(run("ls", *self.flag).out.split()[0], two)
        self.assertEqual(run("rm", *self.flag, "--all").out, two + "\n")
        self.assertEqual(run("ls", *self.flag).out, "")

    def test_unknown_and_ambiguous_names_are_refused(self):
        self.assertErrorCode(run("enter", *self.flag, "sbnone"), 125, "not_found")
        self.assertErrorCode(run("rm", *self.flag, "sbnone"), 125, "not_found")
        self.keep()
        self.keep()
        self.assertErrorCode(run("rm", *self.flag, "sb"), 2, "invalid_request")
        self.assertErrorCode(run("rm", *self.flag), 2, "bad_usage")
        self.assertErrorCode(run("enter", *self.flag), 2, "bad_usage")
