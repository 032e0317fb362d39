"""Kept sandboxes: run --keep, and ls, shell, exec, cp and rm without a server."""
import os
import socket
import subprocess
import time

from cove import Case, run, start
from served import Served
from server import wait_for

NOWHERE = {"COVE_URL": "http://127.0.0.1:1"}  # no server answers there


class Kept(Case):
    def setUp(self):
        super().setUp()
        self.flag = ("--state-dir", os.path.join(self.dir, "kept"))
        self.addCleanup(run, "rm", "--all", "--local", "--yes", *self.flag)

    def keep(self, script="echo kept > note"):
        done = run("run", "--keep", "--json", *self.flag, "--", "sh", "-c", script)
        self.assertCode(done, 0)
        self.assertTrue(done.json["kept"])
        return done.json["sandboxId"]

    def test_a_kept_sandbox_prints_how_to_return_and_is_listed(self):
        done = run("run", "--keep", *self.flag, "--", "true")
        listed = run("ls", "-q", "--local", *self.flag).out
        sandbox = listed.strip()
        self.assertIn(f"cove shell {sandbox}", done.err)
        self.assertIn(f"cove rm {sandbox}", done.err)
        self.assertEqual([(s["id"], s["state"]) for s in run("ls", "--json", "--local", *self.flag).json["items"]], [(sandbox, "kept")])
        self.assertRegex(run("ls", "--local", *self.flag).out, f"^ID .*\n{sandbox}  -     kept ")

    def test_enter_finds_everything_as_it_was_left_more_than_once(self):
        sandbox = self.keep()
        for _ in range(3):
            self.assertEqual(run("shell", *self.flag, sandbox, "--", "cat", "note").out, "kept\n")
        self.assertCode(run("shell", *self.flag, sandbox, "--", "sh", "-c", "echo more >> note; exit 6"), 6)
        self.assertEqual(run("shell", *self.flag, sandbox[:6], "cat", "note").out, "kept\nmore\n")

    def test_processes_of_a_kept_sandbox_are_frozen_until_enter(self):
        script = self.file("ticks.py", "import os, time\nlast, longest = time.monotonic(), 0\nwhile True:\n    time.sleep(0.01)\n"
                                       "    longest, last = max(longest, time.monotonic() - last), time.monotonic()\n"
                                       "    with open('new', 'w') as f:\n        f.write(f'{last} {longest}')\n    os.rename('new', 'ticks')\n")
        with open(script, encoding="utf-8") as f:
            sandbox = self.keep("cat > ticks.py <<'END'\n" + f.read() + "END\n"
                                "python3 ticks.py >/dev/null 2>&1 & until [ -s ticks ]; do sleep 0.02; done")

        def seen():
            """The last time at which it was awake, and its longest sleep."""
            return [float(word) for word in run("shell", *self.flag, sandbox, "--", "cat", "ticks").out.split()]
        first, _ = seen()
        kept = 1.5
        time.sleep(kept)
        wait_for(lambda: seen()[0] > first)  # it continues then
        self.assertGreater(seen()[1], kept, "it ran while it was kept")

    def test_enter_without_a_command_is_a_shell(self):
        sandbox = self.keep()
        self.assertIn("kept", run("shell", *self.flag, sandbox, stdin="cat note; exit 5\n").out)

    def test_enter_passes_input_variables_and_directory(self):
        sandbox = self.keep()
        done = run("shell", *self.flag, "-e", "A=b", "--cwd", "/tmp", sandbox, "--", "sh", "-c", "cat; echo $A; pwd", stdin="in\n")
        self.assertEqual((done.code, done.out), (0, "in\nb\n/tmp\n"), done)

    def test_a_command_in_it_has_a_timeout(self):
        self.assertCode(run("shell", *self.flag, "--timeout", "300ms", self.keep(), "--", "sleep", "9"), 124)

    def test_a_missing_program_in_it_leaves_it_kept(self):
        sandbox = self.keep()
        self.assertErrorCode(run("shell", *self.flag, sandbox, "--", "no-such-program"), 127, "program_not_found")
        self.assertEqual(run("shell", *self.flag, sandbox, "--", "cat", "note").out, "kept\n")

    def test_only_denials_of_the_entered_command_are_reported(self):
        sandbox = self.keep("unshare --mount true; true")
        for _ in range(2):  # the second enter finds a monitor whose client has disconnected twice
            done = run("shell", *self.flag, sandbox, "--", "unshare", "--user", "true")
            self.assertEqual(done.code, 1, done)
            self.assertIn("cove: refused: unshare(0x10000000); there is no way to allow it\n", done.err)
            self.assertNotIn("0x20000", done.err)
        self.assertNotIn("refused", run("shell", *self.flag, sandbox, "--", "false").err)
        self.assertNotIn("refused", run("shell", "-q", *self.flag, sandbox, "--", "unshare", "--user", "true").err)

    def test_two_clients_cannot_enter_it_at_once(self):
        sandbox = self.keep()
        first = start("shell", *self.flag, sandbox, "--", "sh", "-c", "echo up; cat", stdin=subprocess.PIPE)
        self.assertEqual(first.stdout.readline(), b"up\n")
        self.assertErrorCode(run("shell", *self.flag, sandbox, "--", "true"), 125, "service_unavailable")
        first.communicate(b"", timeout=120)
        self.assertCode(run("shell", *self.flag, sandbox, "--", "true"), 0)

    def test_rm_ends_it_and_prints_its_name(self):
        one, two = self.keep(), self.keep()
        done = run("rm", *self.flag, one)
        self.assertEqual((done.code, done.out), (0, one + "\n"), done)
        self.assertEqual(run("ls", "-q", "--local", *self.flag).out, two + "\n")
        self.assertEqual(run("rm", *self.flag, "--all", "--local", "--yes").out, two + "\n")
        self.assertEqual(run("ls", "-q", "--local", *self.flag).out, "")

    def test_unknown_and_ambiguous_names_are_refused(self):
        self.assertErrorCode(run("shell", *self.flag, "no-such"), 125, "not_found")
        self.assertErrorCode(run("rm", *self.flag, "no-such"), 125, "not_found")
        kept = [self.keep()]
        while len({s[2] for s in kept}) == len(kept):  # of 33 sandboxes two have the same first letter
            kept.append(self.keep())
        same = [s for s in kept if s[2] == kept[-1][2]]
        done = run("rm", *self.flag, "sb" + kept[-1][2], env=NOWHERE)
        self.assertErrorCode(done, 2, "invalid_request")
        for sandbox in same:
            self.assertIn(f"{sandbox} (kept)", done.err)
        self.assertEqual(run("ls", "-q", "--local", *self.flag).out.count("\n"), len(kept))
        self.assertErrorCode(run("rm", *self.flag), 2, "bad_usage")
        self.assertErrorCode(run("shell", *self.flag), 2, "bad_usage")

    def test_rm_all_without_a_terminal_needs_yes(self):
        sandbox = self.keep()
        self.assertErrorCode(run("rm", "--all", "--local", *self.flag), 2, "bad_usage")
        self.assertEqual(run("ls", "-q", "--local", *self.flag).out, sandbox + "\n")

    def test_a_server_that_does_not_answer_hides_no_kept_sandbox(self):
        sandbox = self.keep()
        deaf = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(deaf.close)
        for url in (NOWHERE["COVE_URL"], f"http://127.0.0.1:{deaf.getsockname()[1]}", "ftp://example.org"):
            env = {"COVE_URL": url, "COVE_API_KEY": "cove_" + "0" * 40}
            began = time.monotonic()
            done = run("ls", *self.flag, env=env)
            self.assertLess(time.monotonic() - began, 20, url)
            self.assertRegex(done.out, f"{sandbox} +- +kept ")
            self.assertRegex(done.err, "^cove: only sandboxes kept on this host are listed: .*\n$")
            self.assertCode(done, 0)
            self.assertEqual(run("shell", *self.flag, sandbox[:8], "--", "cat", "note", env=NOWHERE).out, "kept\n")
        self.assertEqual(run("rm", *self.flag, sandbox[:8], env=NOWHERE).out, sandbox + "\n")
        self.assertErrorCode(run("ls", *self.flag, env=NOWHERE), 125, "server_unreachable")

    def test_exec_runs_a_command_in_it_and_refuses_what_needs_a_server(self):
        sandbox = self.keep()
        self.assertEqual(run("exec", *self.flag, "-i", sandbox, "--", "sh", "-c", "cat; cat note", stdin="in\n").out, "in\nkept\n")
        done = run("exec", *self.flag, sandbox, "-c", "print(1)")
        self.assertErrorCode(done, 2, "bad_usage")
        self.assertIn("--code needs a sandbox of a server", done.err)
        self.assertIn("kept on this host", run("logs", sandbox, env=dict(NOWHERE, COVE_STATE_DIR=self.flag[1])).err)

    def test_cp_copies_files_and_directories_both_ways(self):
        sandbox = self.keep("mkdir -p out/deep; echo made > out/deep/file")
        self.file("up/sub/name", "sent")
        self.assertCode(run("cp", *self.flag, "up", f"{sandbox}:", cwd=self.dir), 0)
        self.assertCode(run("cp", *self.flag, "up/sub/name", f"{sandbox}:a/b/", cwd=self.dir), 0)
        self.assertCode(run("cp", *self.flag, "-", f"{sandbox}:piped", stdin="through"), 0)
        shown = run("shell", *self.flag, sandbox, "--", "cat", "up/sub/name", "a/b/name", "piped").out
        self.assertEqual(shown, "sentsentthrough")
        self.assertCode(run("cp", *self.flag, f"{sandbox}:out", "down", cwd=self.dir), 0)
        with open(os.path.join(self.dir, "down", "deep", "file"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "made\n")
        self.assertEqual(run("cp", *self.flag, f"{sandbox}:out/deep/file", "-").out, "made\n")
        self.assertErrorCode(run("cp", *self.flag, f"{sandbox}:none", "here", cwd=self.dir), 125, "not_found")
        self.assertEqual(sorted(os.listdir(self.dir)), ["down", "kept", "up"])


class BothWorlds(Served):
    """Sandboxes of a server and kept ones, in one list."""

    def setUp(self):
        super().setUp()
        self.env["COVE_STATE_DIR"] = os.path.join(self.dir, "kept")
        self.addCleanup(run, "rm", "--all", "--local", "--yes", env=self.env)
        self.kept = self.cove("run", "--keep", "--json", "--", "sh", "-c", "echo kept > note").json["sandboxId"]
        self.served = self.cove("sandbox", "create", "-q").out.strip()
        self.cove("exec", self.served, "--", "sh", "-c", "echo served > note")

    def ids(self, *flags):
        return set(self.cove("ls", "-q", *flags).out.split())

    def test_ls_shows_living_sandboxes_of_both(self):
        ended = self.cove("sandbox", "create", "-q").out.strip()
        self.cove("rm", ended)
        self.assertEqual(self.ids(), {self.kept, self.served})
        self.assertEqual(self.ids("-a"), {self.kept, self.served, ended})
        self.assertEqual(self.ids("--local"), {self.kept})
        self.assertEqual({s["id"]: s["state"] for s in self.cove("ls", "--json").json["items"]},
                         {self.kept: "kept", self.served: "running"})
        self.assertEqual(self.cove("sandbox", "ls", "-q").out.split(), [self.served])
        self.assertEqual(set(self.cove("sandbox", "ls", "-aq").out.split()), {self.served, ended})

    def test_shell_exec_and_cp_accept_both(self):
        for sandbox, note in ((self.kept, "kept\n"), (self.served, "served\n")):
            for word in (sandbox, sandbox[:10]):
                self.assertEqual(self.cove("shell", word, "--", "cat", "note").out, note)
                self.assertEqual(self.cove("exec", word, "--", "cat", "note").out, note)
                self.assertEqual(self.cove("cp", f"{word}:note", "-").out, note)
            self.assertEqual(self.cove("shell", "-e", "A=b", "--cwd", "/tmp", sandbox, stdin="pwd; echo $A; exit 6\n", code=6).out, "/tmp\nb\n")
            self.cove("shell", "--timeout", "300ms", sandbox, "--", "sleep", "60", code=124)

    def test_rm_ends_sandboxes_of_both_and_goes_on_after_an_error(self):
        done = self.cove("rm", self.kept, "sb" + "a" * 20, self.served[:10], code=125)
        self.assertEqual(done.out.split(), [self.kept, self.served])
        self.assertEqual(self.ids(), set())

    def test_rm_all_ends_both_and_sandbox_rm_all_only_those_of_the_server(self):
        self.assertIn("end 1 sandbox of", self.cove("rm", "--all", code=2).err)
        self.assertEqual(self.cove("sandbox", "rm", "--all", "--yes").out.split(), [self.served])
        again = self.cove("sandbox", "create", "-q").out.strip()
        self.assertEqual(set(self.cove("rm", "--all", "--yes").out.split()), {self.kept, again})
        self.assertEqual(self.ids(), set())
