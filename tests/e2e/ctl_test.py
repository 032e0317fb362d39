"""The verbs that talk to a server, against a real server: what a person types, and what is printed.
"""
import datetime
import hashlib
import json
import os
import signal
import subprocess
import time

from cove import COVE, Case, run, start
from served import OwnServer, Served, wait_for


class Ctl(Served):
    def test_a_sandbox_is_created_used_and_ended(self):
        sandbox = self.cove("sandbox", "create", "-q", "-m", "task=42", "-e", "WHO=you").out.strip()
        self.assertEqual(self.cove("exec", "-c", "print(6 * 7)", sandbox).out, "42\n")
        self.assertEqual(self.cove("exec", sandbox, "-c", "6 * 7").out, "42\n")
        self.assertEqual(self.cove("exec", sandbox, "-c", "x = 5").out, "")
        self.assertEqual(self.cove("exec", sandbox, "-c", "x").out, "5\n")
        self.assertEqual(self.cove("exec", sandbox, "--isolated", "-c", "print('x' in globals())").out, "False\n")
        self.assertIn("ZeroDivisionError", self.cove("exec", sandbox, "-c", "1 / 0", code=1).err)
        self.cove("exec", sandbox, "-c", "import sys; sys.exit(3)", code=3)
        self.assertEqual(self.cove("exec", sandbox, "-i", "-c", "input() + '!'", stdin="Ada\n").out, "'Ada!'\n")
        self.assertIn("--isolated", self.cove("exec", sandbox, "--isolated", "--", "ls", code=2).err)
        done = self.cove("exec", sandbox, "--", "sh", "-c", "echo $WHO; echo no >&2; exit 3", code=3)
        self.assertEqual((done.out, done.err), ("you\n", "no\n"))
        self.assertEqual(self.cove("exec", "-i", sandbox, "--", "cat", stdin="hello").out, "hello")
        self.assertIn(sandbox, self.cove("sandbox", "ls", "--state", "running", "-m", "task=42").out)
        self.assertNotIn(sandbox, self.cove("sandbox", "ls", "-m", "task=43").out)
        self.assertEqual(len(self.cove("ps", "-a", "--json", sandbox).json["items"]), 10)
        self.cove("sandbox", "pause", sandbox)
        self.assertIn("paused", self.cove("sandbox", "info", sandbox).out)
        self.cove("sandbox", "resume", sandbox)
        self.cove("sandbox", "set", "--lifetime", "1h", "--idle", "20m", "--idle-action", "pause", "-m", "step=2", "--name", "sums", sandbox)
        info = self.cove("sandbox", "info", "--json", "sums").json
        self.assertEqual((info["lifetimeMs"], info["idleTimeoutMs"], info["idleAction"]), (3600000, 1200000, "pause"))
        self.assertEqual(info["metadata"], {"task": "42", "step": "2"})
        self.assertIn("nothing to change", self.cove("sandbox", "set", sandbox, code=2).err)
        self.cove("sandbox", "rm", sandbox)
        self.assertIn("killed", self.cove("sandbox", "ls", "-a").out)
        self.assertIn("sandbox_ended", self.cove("exec", sandbox, "--", "true", code=125).err)
        self.assertEqual(self.cove("logs", sandbox).out, "hello")

    def test_a_sandbox_is_found_by_its_name(self):
        sandbox = self.cove("sandbox", "create", "-q", "--name", "build", "-m", "a=1", "-m", "b=2").out.strip()
        self.assertEqual(self.cove("exec", "-c", "print(6 * 7)", "build").out, "42\n")
        here = os.path.join(self.dir, "named")
        with open(here, "w", encoding="utf-8") as f:
            f.write("text")
        self.cove("cp", here, "build:into")
        self.assertEqual(self.cove("cp", "build:into", "-").out, "text")
        self.assertIn("conflict", self.cove("sandbox", "create", "--name", "build", code=125).err)
        self.assertIn("build", self.cove("sandbox", "ls", "--name", "build", "--state", "!ended").out)
        self.assertIn(sandbox, self.cove("sandbox", "ls", "-m", "a=1", "-m", "b=2").out)
        self.assertNotIn(sandbox, self.cove("sandbox", "ls", "-m", "a=1", "-m", "b=3").out)
        self.assertEqual(self.cove("sandbox", "rm", "build").out.strip(), sandbox)
        self.assertIn("killed", self.cove("sandbox", "info", "build").out)
        self.assertIn("no sandbox named 'no-such'", self.cove("sandbox", "info", "no-such", code=125).err)

    def test_execute_runs_in_a_fresh_sandbox_and_returns_files(self):
        self.assertEqual(self.cove("execute", "-c", "print('a')\n6 * 7").out, "a\n42\n")
        raised = self.cove("execute", "-c", "1 / 0", code=1)
        self.assertIn("ZeroDivisionError", raised.err)
        done = self.cove("execute", "-i", "-e", "WHO=you", "--", "sh", "-c", "cat; echo $WHO; echo no >&2; exit 3", stdin="in ", code=3)
        self.assertEqual((done.out, done.err), ("in you\n", "no\n"))
        self.assertEqual(self.cove("execute", "-", stdin="print('piped')").out, "piped\n")
        self.assertIn("write - for", self.cove("execute", stdin="print('piped')", code=2).err)
        here = os.path.join(self.dir, "execute")
        os.mkdir(here)
        with open(os.path.join(here, "job.sh"), "w", encoding="utf-8") as f:
            f.write("mkdir out; tr a-z A-Z < given > out/up; echo deep > out/b")
        with open(os.path.join(here, "data"), "w", encoding="utf-8") as f:
            f.write("text")
        self.cove("execute", "-q", "--file", f"{here}/data:given", "--output", "out/*", "--save", f"{here}/back", f"{here}/job.sh")
        with open(os.path.join(here, "back", "out", "up"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "TEXT")
        self.assertTrue(os.path.exists(os.path.join(here, "back", "out", "b")))
        missing = self.cove("execute", "--output", "none", "--", "true")
        self.assertIn("none was not copied", missing.err)
        answer = self.cove("execute", "--json", "--timeout", "10s", "-c", "[1]").json
        self.assertEqual((answer["outcome"], answer["value"]), ("success", "[1]"))
        self.assertIn("timeout after 300ms", self.cove("execute", "--timeout", "300ms", "--", "sleep", "60", code=124).err)
        self.assertIn("exclude each other", self.cove("execute", "-c", "1", "--", "ls", code=2).err)
        self.assertIn("with -c", self.cove("execute", f"{here}/no-such.py", code=125).err)

    def test_execute_does_not_wait_for_an_open_pipe(self):
        process = start("execute", "-c", "6 * 7", env=self.env)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.read(), b"42\n")  # its standard input is still open
        self.assertEqual(process.wait(120), 0)
        process.stdout.close(), process.stderr.close()

    def test_exec_and_execute_share_the_flags_of_run(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        script = self.file("job.py", "import os; print('file', os.environ['A'])")
        here = ("-e", "A=1", "--timeout", "20", "--max-output", "1m")
        for flags in (("run",), ("execute",), ("exec", sandbox)):
            if flags[0] != "exec":
                self.assertEqual(self.cove(*flags[:1], *here, *flags[1:], script).out, "file 1\n", flags)
            self.assertEqual(self.cove(*flags[:1], *here, *flags[1:], "-", stdin="print(6 * 7)").out, "42\n", flags)
            self.assertEqual(self.cove(*flags[:1], "-i", *flags[1:], "-c", "print(input())", stdin="typed\n").out, "typed\n", flags)
            receipt = os.path.join(self.dir, "receipt.json")
            self.cove(*flags[:1], f"--receipt={receipt}", *flags[1:], "-c", "print(1)")
            self.assertIn("exited with status 0", self.cove("explain", receipt).out, flags)
            self.assertIn("memory", self.cove(*flags[:1], "--receipt", *flags[1:], "-c", "print(1)").err, flags)
        self.assertIn("has no arguments here", self.cove("exec", sandbox, script, "a", code=2).err)
        for name in ("js", "javascript", "node"):
            self.assertEqual(self.cove("execute", "--language", name, "-c", "6 * 7").out, "42\n", name)
        self.assertEqual(self.cove("execute", "--runtime", "sh", "-c", "echo $((6 * 7))").out, "42\n")

    def test_execute_passes_on_the_exit_status_or_the_reason_of_the_end(self):
        done = self.cove("execute", "-c", "import sys; print('x'); sys.exit(3)", code=3)
        self.assertEqual((done.out, done.err), ("x\n", ""))
        self.cove("execute", "-c", "import sys; sys.exit(0)")
        self.assertIn("status 7", self.cove("execute", "-c", "import os; os._exit(7)", code=7).err)
        self.cove("execute", "-c", "import os; os.kill(os.getpid(), 9)", code=137)
        self.assertIn("--memory", self.cove("execute", "--memory", "128M", "-c", "x = b'1' * (1 << 30)", code=123).err)

    def test_unsupported_uses_of_execute_are_refused_with_an_alternative(self):
        here = os.path.join(self.dir, "ways")
        os.mkdir(here)
        with open(os.path.join(here, "job.rb"), "w", encoding="utf-8") as f:
            f.write("puts 1")
        self.assertIn("--runtime", self.cove("execute", f"{here}/job.rb", code=2).err)
        self.assertIn("python-data", self.cove("execute", "--template", "none-such", "-c", "1", code=125).err)
        shows = "class P:\n    def _repr_png_(self): return b'\\x89PNG'\nP()"
        self.assertIn("--save", self.cove("execute", "-c", shows).err)
        for _ in range(2):  # the file that the first run saved is kept
            self.cove("execute", "--save", here, "-c", shows)
        self.assertEqual(sorted(n for n in os.listdir(here) if n.startswith("shown")), ["shown-1.png", "shown-2.png"])

    def test_a_pure_program_is_answered_from_the_cache_unchanged(self):
        code = "import sys, uuid; print(uuid.uuid4()); print('e', file=sys.stderr); [1]"
        first, again = (self.cove("execute", "--cache", "-c", code) for _ in range(2))
        self.assertEqual((first.out, "earlier" in first.err, "earlier" in again.err), (again.out, False, True))
        self.assertTrue(first.out.endswith("\n[1]\n"), first.out)

    def test_a_cpu_share_is_printed_as_it_was_given(self):
        self.operator("pool", "set", "--template", "bash", "--hit-rate", "0.95", "shares")
        self.assertIn('"targetHitRate":0.95,', self.operator("pool", "info", "--json", "shares").out)
        self.operator("pool", "rm", "shares")
        self.operator("pool", "set", "--max", "3", "python")
        self.assertIn("defaults of the server", self.operator("pool", "rm", "python").err)

    def test_a_sandbox_is_pinned_by_a_flag(self):
        pinned = self.cove("sandbox", "create", "-q", "--pin", "--runtime", "sh").out.strip()
        self.assertTrue(self.cove("sandbox", "info", "--json", pinned).json["resources"]["cpuPinning"])
        where = self.cove("exec", pinned, "--", "grep", "Cpus_allowed_list", "/proc/self/status").out.split()[1]
        self.assertRegex(where, "^[0-9]+$")

    def test_flags_may_stand_anywhere_and_a_prefix_of_an_id_is_enough(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        self.assertEqual(self.cove("exec", sandbox[:12], "-c", "print(6 * 7)").out, "42\n")
        self.assertEqual(self.cove("exec", sandbox, "echo", "-n", "--json").out, "--json")  # the program's own flags
        self.assertEqual(self.cove("sandbox", "info", sandbox[:12], "--json").json["id"], sandbox)
        for word in ("sbaaaa", "x y", "sb"):
            self.assertIn("'cove ls'", self.cove("exec", word, "--", "true", code=125).err)
        letters = [sandbox[2]]
        while letters[-1] not in letters[:-1]:  # of 33 sandboxes two have the same first letter, and usually already of a few
            letters.append(self.cove("sandbox", "create", "-q").out[2])
        self.assertIn("write more of the ID", self.cove("sandbox", "rm", "sb" + letters[-1], code=2).err)

    def test_the_reason_of_an_end_is_printed_with_its_status(self):
        sandbox = self.cove("sandbox", "create", "-q", "--memory", "64M").out.strip()
        self.assertIn("timeout after 200ms", self.cove("exec", "--timeout", "200ms", sandbox, "--", "sleep", "60", code=124).err)
        self.assertIn("more memory", self.cove("exec", sandbox, "-c", "x = bytearray(1 << 28)", code=123).err)
        self.assertEqual(self.cove("exec", "-q", "--timeout", "200ms", sandbox, "--", "sleep", "60", code=124).err, "")
        self.assertIn("program_not_found", self.cove("exec", sandbox, "--", "no-such-program", code=127).err)
        self.assertIn("program_not_found", self.cove("ps", "-a", sandbox).out)

        def found(*flags):
            return [x["outcome"] for x in self.cove("ps", "--json", *flags, sandbox).json["items"]]

        self.assertEqual(found("-a"), ["error", "timeout", "out_of_memory", "timeout"])
        self.assertEqual(found(), [])
        self.assertEqual(found("--outcome", "timeout"), ["timeout", "timeout"])
        self.assertEqual(found("--outcome", "!timeout", "--state", "ended"), ["error", "out_of_memory"])
        self.assertIn("outcome: must be success, error", self.cove("ps", "--outcome", "fine", code=2).err)
        background = self.cove("exec", "-d", sandbox, "--", "sleep", "60").out.strip()
        self.assertIn(background, self.cove("ps").out)  # without a sandbox: those of all
        self.assertNotIn(sandbox, self.cove("ps", "--state", "ended", "--outcome", "success").out)

    def test_paths_of_files_have_the_meaning_of_cp(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        here, out = os.path.join(self.dir, "data.csv"), os.path.join(self.dir, "fetched")
        os.mkdir(out)
        with open(here, "w", encoding="utf-8") as f:
            f.write("a,b\n")
        self.cove("cp", here, f"{sandbox}:")
        self.cove("cp", here, f"{sandbox}:second.csv")
        self.cove("cp", here, f"{sandbox}:/tmp/")
        self.assertEqual(self.cove("exec", sandbox, "--", "sh", "-c", "ls; ls /tmp").out, "data.csv\nsecond.csv\ndata.csv\n")
        self.cove("cp", f"{sandbox}:second.csv", out)
        self.assertEqual(os.listdir(out), ["second.csv"])
        self.assertIn("--tar", self.cove("cp", f"{sandbox}:/workspace", "-", code=125).err)
        listed = subprocess.run(["tar", "-t"], input=self.cove("cp", "--tar", f"{sandbox}:", "-").bytes_out,
                                capture_output=True, check=True).stdout
        self.assertIn(b"data.csv", listed)
        self.assertIn("not_found", self.cove("cp", f"{sandbox}:second.csv", os.path.join(self.dir, "no", "x"), code=125).err)

    def test_directories_are_copied_in_both_directions(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        tree, back = os.path.join(self.dir, "tree"), os.path.join(self.dir, "back")
        os.makedirs(os.path.join(tree, "deep/er"))
        os.mkdir(back)
        for name in ("a", "deep/er/b"):
            with open(os.path.join(tree, name), "w", encoding="utf-8") as f:
                f.write(name)
        self.cove("cp", tree, f"{sandbox}:")
        self.cove("cp", "-r", tree + "/", f"{sandbox}:as/other")
        self.cove("cp", tree + "/.", f"{sandbox}:")
        found = self.cove("exec", sandbox, "--", "sh", "-c", "find . -type f | sort").out.split()
        self.assertEqual(found, ["./a", "./as/other/a", "./as/other/deep/er/b", "./deep/er/b", "./tree/a", "./tree/deep/er/b"])
        self.cove("cp", f"{sandbox}:tree", back)
        self.cove("cp", f"{sandbox}:", os.path.join(self.dir, "all"))
        for place in ("back/tree", "all/as/other"):
            with open(os.path.join(self.dir, place, "deep/er/b"), encoding="utf-8") as f:
                self.assertEqual(f.read(), "deep/er/b")
        self.assertIn("already exists", self.cove("cp", f"{sandbox}:tree", back, code=125).err)
        self.assertIn("not_found", self.cove("cp", f"{sandbox}:none/", os.path.join(self.dir, "none"), code=125).err)
        self.assertIn("omit --tar", self.cove("cp", "--tar", tree, f"{sandbox}:", code=2).err)
        self.cove("exec", sandbox, "--", "sh", "-c",
                  f"mkdir bad; cd bad; cp ../a s; chmod 6755 s; ln -s {self.dir} out; mkfifo p")
        self.cove("cp", f"{sandbox}:bad", self.dir)
        self.assertEqual(os.stat(os.path.join(self.dir, "bad/s")).st_mode & 0o6000, 0)
        self.assertEqual(os.stat(os.path.join(self.dir, "bad/s")).st_uid, os.geteuid())
        self.assertTrue(os.path.islink(os.path.join(self.dir, "bad/out")))
        self.assertEqual([n for n in os.listdir(self.dir) if n.endswith(".cove-part")], [])

    def test_a_key_may_have_an_expiry(self):
        self.cove("key", "create", "-q", "--expires", "30d", "month")
        keys = self.cove("key", "ls", "--json").json["items"]
        until = next(k["expiresAt"] for k in keys if k["name"] == "month")
        days = (datetime.datetime.fromisoformat(until.replace("Z", "+00:00")) - datetime.datetime.now(datetime.timezone.utc)).days
        self.assertIn(days, (29, 30))
        self.assertIn("expiresAt", self.cove("key", "create", "--expires", "soon", "x", code=2).err)

    def test_files_are_copied_completely_in_both_directions(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        here, there, back = os.path.join(self.dir, "a"), f"{sandbox}:/workspace/a", os.path.join(self.dir, "b")
        data = os.urandom(3 << 20)
        with open(here, "wb") as f:
            f.write(data)
        self.cove("cp", here, there)
        self.cove("cp", there, back)
        with open(back, "rb") as f:
            self.assertEqual(f.read(), data)
        self.assertEqual(self.cove("cp", there, "-").bytes_out, data)
        self.assertIn("not_found", self.cove("cp", f"{sandbox}:/workspace/none", back + "2", code=125).err)
        self.assertEqual(sorted(n for n in os.listdir(self.dir) if n.startswith("b")), ["b"])  # no partial file is left
        archive = subprocess.run(["tar", "-c", "-C", self.dir, "a"], stdout=subprocess.PIPE, check=True).stdout
        self.cove("cp", "--tar", "-", f"{sandbox}:/workspace", stdin=archive)

    def test_output_is_followed_and_ctrl_c_ends_the_execution(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        script = "for i in 1 2 3; do echo $i; sleep 0.1; done"
        execution = self.cove("exec", "-d", sandbox, "--", "sh", "-c", script).out.strip()
        self.assertEqual(self.cove("logs", "-f", sandbox, execution).out, "1\n2\n3\n")
        process = start("exec", sandbox, "--", "sh", "-c", "echo here; sleep 60", env=self.env)
        self.assertEqual(process.stdout.readline(), b"here\n")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (128 + signal.SIGINT, b""), err)
        self.assertEqual(self.cove("ps", "--json", sandbox).json["items"], [])
        self.assertEqual(self.cove("exec", "--timeout", "200ms", sandbox, "--", "sleep", "60", code=124).out, "")

    def test_every_metadata_pair_of_ls_reaches_the_server(self):
        self.cove("sandbox", "create", "-q", "-m", "a=1", "-m", "b=2")
        self.assertEqual(self.cove("sandbox", "ls", "-q", "-m", "a=3", "-m", "b=2").out, "")  # a=3 must not be ignored

    def test_a_streamed_execution_that_the_client_has_read_is_not_logged_as_cut_off(self):
        self.cove("execute", "-c", "6 * 7")
        lines = wait_for(lambda: [x for x in self.launched.logged().splitlines() if "POST /v1/execute 200" in x])
        self.assertNotIn("cut off", "\n".join(lines))

    def test_a_token_for_a_port_is_refused_because_ports_are_not_served(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        self.assertIn("no flag '--port'", self.cove("token", "create", "--port", "8000", sandbox, code=2).err)

    def test_output_of_an_ended_sandbox_is_followed_to_its_end(self):
        sandbox = self.cove("sandbox", "create", "-q", "--runtime", "sh").out.strip()
        self.cove("exec", sandbox, "--", "sh", "-c", "seq 20000; echo last >&2")
        running = self.cove("exec", "-d", sandbox, "--", "sh", "-c", "echo begun; sleep 600").out.strip()
        follower = start("logs", "-f", sandbox, running, env=self.env)
        self.assertEqual(follower.stdout.readline(), b"begun\n")
        self.cove("sandbox", "rm", sandbox)
        out, err = follower.communicate(timeout=60)  # a follower that runs when the sandbox ends
        self.assertEqual((follower.returncode, out), (0, b""), err)
        self.assertIn(b"killed", err)
        late = self.cove("logs", "-f", sandbox)  # and one that starts later; the default is the newest execution
        self.assertEqual(late.out, "begun\n")
        self.assertIn("killed", late.err)
        first = [e["id"] for e in self.cove("ps", "-a", "--json", sandbox).json["items"] if e["id"] != running]
        done = self.cove("logs", "-f", sandbox, *first)
        self.assertEqual(done.out, "".join(f"{i}\n" for i in range(1, 20001)))
        self.assertEqual(done.err, "last\n")

    def test_standard_input_is_streamed_in_both_directions(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        process = start("exec", "-i", sandbox, "--", "cat", env=self.env, stdin=subprocess.PIPE)
        for line in (b"one\n", b"two\0\xff\n"):
            process.stdin.write(line)
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), line)  # before its end is known
        self.assertEqual(process.communicate(timeout=60), (b"", b""))
        self.assertEqual(process.returncode, 0)
        data = os.urandom(5 << 20)
        here = os.path.join(self.dir, "data")
        with open(here, "wb") as f:
            f.write(data)
        with open(here, "rb") as f:  # a file, which epoll cannot wait for
            out, err = start("exec", "-i", sandbox, "--", "sha256sum", env=self.env, stdin=f).communicate(timeout=60)
        self.assertEqual(out.split()[0].decode(), hashlib.sha256(data).hexdigest(), err)
        self.assertEqual(self.cove("exec", "-i", sandbox, "--", "head", "-c", "3", stdin=data).bytes_out, data[:3])
        self.assertEqual(self.cove("exec", "-i", "--json", sandbox, "--", "cat", stdin="x").json["stdout"], "x")

    def test_piped_input_is_passed_on_by_default_as_run_does(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        self.assertEqual(self.cove("exec", sandbox, "--", "cat", stdin="hello").out, "hello")
        done = self.cove("exec", "--json", sandbox, "--", "sh", "-c", "cat; exit 3", stdin="x\n", code=3).json
        self.assertEqual((done["stdout"], done["exitCode"], done["state"]), ("x\n", 3, "ended"))
        missing = self.cove("exec", "--json", sandbox, "--", "no-such-program", code=127).json
        self.assertEqual(missing["error"]["code"], "program_not_found")
        for words in (("--",), ("--json", "--")):  # an open pipe does not block a program that does not read it
            process = start("exec", sandbox, *words, "echo", "here", env=self.env)
            self.assertIn(b"here", process.stdout.read())
            self.assertEqual(process.wait(60), 0)
            process.communicate()
        background = self.cove("exec", "-d", sandbox, "--", "cat", stdin="unasked").out.strip()
        self.assertEqual(self.cove("logs", "-f", sandbox, background).out, "")
        background = self.cove("exec", "-id", sandbox, "--", "cat", stdin="asked").out.strip()
        self.assertEqual(self.cove("logs", "-f", sandbox, background).out, "asked")

    def test_logs_show_the_receipt_and_why_there_is_no_output(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        self.cove("exec", sandbox, "--", "sh", "-c", "echo out; exit 3", code=3)
        words = self.cove("logs", "--receipt", sandbox).out
        self.assertIn("status 3", words)
        raw = self.cove("logs", "--receipt", "--json", sandbox)
        self.assertEqual(raw.json["exitCode"], 3)
        self.assertRegex(self.launched.logged(), f"POST [^ ]*/executions 200 .*{raw.json['requestId']}")
        self.assertEqual(run("explain", "-", stdin=raw.out).out, words)
        self.assertEqual(self.cove("logs", "--json", sandbox).json["stdout"], "out\n")
        self.cove("exec", "--timeout", "200ms", sandbox, "--", "sleep", "60", code=124)
        self.assertIn("ended: timeout", self.cove("logs", sandbox).err)
        self.cove("exec", sandbox, "--", "no-such-program", code=127)
        told = self.cove("logs", sandbox)
        self.assertIn("never started", told.err)
        self.assertIn("program_not_found", told.err)
        self.assertEqual(self.cove("logs", "-q", sandbox).err, "")
        self.assertIn("no receipt", self.cove("logs", "--receipt", sandbox, code=125).err)

    def test_tables_show_ages_and_json_shows_times(self):
        sandbox = self.cove("sandbox", "create", "--lifetime", "1d").out.strip()
        self.cove("exec", sandbox, "--", "true")
        for words in (("sandbox", "ls"), ("ps", "-a")):
            self.assertNotRegex(self.cove(*words).out, r"\d\d:\d\d")
            self.assertRegex(self.cove(*words).out, r"\bago|\bnow")
            self.assertRegex(self.cove(*words, "--json").out, r"T\d\d:\d\d:\d\d\.\d{3}Z")
        self.assertRegex(self.cove("sandbox", "ls").out, r"in 2[34]h")
        self.assertNotRegex(self.cove("key", "ls").out, r"\d\d:\d\d")

    def test_a_key_is_revoked_by_name_or_prefix_of_its_id(self):
        for name in ("one", "two", "two"):
            self.cove("key", "create", "-q", name)
        by_name = lambda: [k for k in self.cove("key", "ls", "--json").json["items"] if not k.get("revokedAt")]
        self.cove("key", "revoke", "one")
        self.assertNotIn("one", [k["name"] for k in by_name()])
        self.assertIn("not_found", self.cove("key", "revoke", "one", code=125).err)
        self.assertIn("2 keys match", self.cove("key", "revoke", "two", code=2).err)
        ids = [k["id"] for k in by_name() if k["name"] == "two"]
        self.cove("key", "revoke", ids[0][:20])
        self.assertEqual([k["id"] for k in by_name() if k["name"] == "two"], ids[1:])
        self.assertTrue(self.cove("key", "rotate", "-q", "two").out.startswith("cove_"))

    def test_output_of_others_cannot_steer_the_terminal(self):
        evil = "x\x1b]0;mine\x07\ncove: \x9b31m\u202ey"
        made = self.ask("POST", "/v1/keys", 201, {"name": evil, "scopes": ["files"]}, key=self.key)
        for words in (("key", "rotate", made["id"]), ("key", "ls"), ("audit", "tail")):
            done = self.cove(*words)
            self.assertIn("x?]0;mine" if words[0] == "key" else "x\\u001B]0;mine", done.out + done.err)
            for steers in ("\x1b", "\x07", "\x9b", "\u202e", "\ncove: ?"):
                self.assertNotIn(steers, done.out + done.err, words)
        self.assertIn(evil, [k["name"] for k in self.cove("key", "ls", "--json").json["items"]])

    def test_a_watch_reports_changes_until_the_sandbox_ends(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        process = start("watch", "-r", sandbox, env=self.env)
        self.assertIn(b"watching /workspace", process.stderr.readline())
        self.cove("exec", sandbox, "--", "sh", "-c", "mkdir d; echo 1 >d/f; mv d/f d/g; rm d/g; >\"$(printf 'a\\033b')\"")
        told = [process.stdout.readline().decode().split(None, 1) for _ in range(6)]
        self.assertEqual([t[0] for t in told], ["created", "created", "modified", "moved", "removed", "created"], told)
        self.assertEqual([t[1].strip() for t in told[:5]],
                         ["/workspace/d/", "/workspace/d/f", "/workspace/d/f", "/workspace/d/f -> /workspace/d/g",
                          "/workspace/d/g"])
        self.assertNotIn("\033", told[5][1])  # a terminal would execute it
        self.cove("sandbox", "rm", sandbox)
        out, err = process.communicate(timeout=120)
        self.assertEqual((process.returncode, out), (125, b""), err)
        self.assertIn(b"sandbox_ended", err)
        self.assertIn("sandbox_ended", self.cove("watch", sandbox, code=125).err)

    def test_usage_is_shown_by_sandbox_and_hour_as_table_and_csv(self):
        sandbox = self.cove("sandbox", "create", "-q", "--runtime", "sh").out.strip()
        self.cove("exec", sandbox, "--", "echo", "hello")
        lines = self.cove("usage", "--by", "sandbox").out.splitlines()
        self.assertTrue(lines[0].startswith("SANDBOX"), lines)
        row = next(line.split() for line in lines if line.startswith(sandbox))
        self.assertEqual((row[1], row[-1]), ("1", "6"), lines)
        self.assertTrue(lines[-1].startswith("total"))
        self.assertEqual(self.cove("usage", "--json", sandbox[:12]).json["total"]["executions"], 1)
        table = self.cove("usage", "--csv", "--by", "hour,sandbox", "--from", "2h").out.splitlines()
        self.assertTrue(table[0].startswith("hour,sandboxId,executions,"), table)
        self.assertEqual(sum(int(line.split(",")[2]) for line in table[1:] if sandbox in line), 1, table)
        self.assertEqual(self.cove("usage", "--from", "2001-01-01", "--to", "2001-01-02", "--json").json["usage"][0]["executions"], 0)
        for words in (("--from", "soon"), ("--by", "month"), ("one", "two")):
            self.cove("usage", *words, code=2)

    def test_top_shows_what_sandboxes_use(self):
        busy = self.cove("sandbox", "create", "-q").out.strip()
        quiet = self.cove("sandbox", "create", "-q", "--runtime", "sh").out.strip()
        self.cove("exec", "-d", busy, "-c", "while True: pass")
        seen = wait_for(lambda: (lambda top: top if top[0]["id"] == busy and top[0].get("cpuPercent", 1) > 0 else None)(
            self.cove("top", "--once", "--json").json["sandboxes"]))
        self.assertEqual([s["id"] for s in seen], [busy, quiet])
        lines = self.cove("top").out.splitlines()  # without a terminal: once
        self.assertTrue(lines[0].startswith("SANDBOX"), lines)
        self.assertEqual(len(lines), 3)
        self.assertNotIn("\033", "".join(lines))
        self.assertTrue(self.cove("top", "--sort", "age").out.splitlines()[1].startswith(busy))
        for words in (("--sort", "name"), ("--interval", "1ms"), ("x",)):
            self.cove("top", *words, code=2)

    def test_a_key_is_limited_to_its_scopes(self):
        key = self.cove("key", "create", "-q", "--scope", "sandboxes:read", "looker").out.strip()
        self.assertIn("looker", self.cove("key", "ls").out)
        less = dict(self.env, COVE_API_KEY=key)
        self.assertEqual(run("sandbox", "ls", env=less).code, 0)
        refused = run("sandbox", "create", env=less)
        self.assertEqual(refused.code, 125, refused)
        self.assertIn("forbidden", refused.err)
        wrong = run("sandbox", "ls", env=dict(self.env, COVE_API_KEY="cove_" + "0" * 40))
        self.assertIn("unauthorized", wrong.err)

    def test_tenants_users_and_roles_are_managed_by_name(self):
        self.assertIn("local", self.operator("tenant", "ls").out)
        self.operator("tenant", "create", "-q", "--sandboxes", "2", "--cpus", "1.5", "--memory", "2G", "--executions", "9", "crew")
        told = self.operator("tenant", "info", "--json", "crew").json
        self.assertEqual(told["quota"], {"sandboxes": 2, "cpuMillis": 1500, "memoryBytes": 2 << 30, "executionsPerHour": 9})
        self.assertEqual(self.operator("tenant", "set", "--json", "--memory", "none", "crew").json["quota"].get("memoryBytes"), None)
        self.operator("role", "create", "-t", "crew", "--allow", "sandboxes:read", "--allow", "executions", "runner")
        self.assertIn("executions:read", self.operator("role", "show", "-t", "crew", "runner").out)
        self.assertIn("runner", self.operator("role", "ls", "-t", "crew").out)
        self.operator("user", "add", "-q", "-t", "crew", "--role", "admin", "boss")
        self.operator("user", "add", "-q", "-t", "crew", "--role", "runner", "ron")
        boss = dict(self.env, COVE_API_KEY=self.operator("key", "create", "-q", "-t", "crew", "-u", "boss", "k").out.strip())
        hint = self.operator("user", "add", "-t", "crew", "--role", "viewer", "guest").err.split("'")[1].split()
        self.assertEqual(self.operator(*hint[1:], "--json").json["tenant"], "crew")  # the suggested command works as printed
        ron = dict(self.env, COVE_API_KEY=self.operator("key", "create", "-q", "-u", "ron", "k").out.strip())
        self.assertIn("forbidden", run("sandbox", "create", env=ron).err)
        self.assertIn("ron", run("user", "ls", env=boss).out)
        self.assertEqual(run("user", "set", "--role", "developer", "ron", env=boss).code, 0)
        box = run("sandbox", "create", "-q", "--runtime", "sh", env=ron).out.strip()
        self.assertEqual(run("sandbox", "rm", "-q", box, env=ron).code, 0)
        self.assertIn("last_admin", run("user", "set", "--disable", "boss", env=boss).err)
        self.assertEqual(run("role", "rm", "-q", "runner", env=boss).code, 0)
        self.assertEqual(run("user", "rm", "-q", "ron", env=boss).code, 0)
        self.assertIn("unauthorized", run("sandbox", "ls", env=ron).err)
        machine = run("key", "create", "-q", "-u", "none", "--scope", "sandboxes:read", "ci", env=boss).out.strip()
        self.assertEqual(run("tenant", "info", env=dict(self.env, COVE_API_KEY=machine)).out.split()[0], "crew")
        self.operator("tenant", "set", "-q", "--suspend", "crew")
        self.assertIn("tenant_suspended", run("sandbox", "ls", env=boss).err)
        self.operator("tenant", "set", "-q", "--resume", "crew")
        self.assertEqual(run("user", "info", "boss", env=boss).code, 0)
        self.operator("tenant", "rm", "-q", "crew")
        self.assertIn("removed", self.operator("tenant", "ls").out)

    def test_a_pool_is_created_watched_changed_and_removed(self):
        self.ask("PUT", "/v1/templates/ctl-pooled", 200, {"runtime": "sh", "resources": {"pids": 61}})
        self.assertIn("--template", self.operator("pool", "set", "--min", "1", "ctl-pool", code=125).err)
        made = self.operator("pool", "set", "--json", "--template", "ctl-pooled", "--min", "1", "--max", "3", "--ttl", "90s", "--hit-rate", "0.9",
                         "--scale-down", "2m", "ctl-pool").json
        self.assertEqual((made["min"], made["max"], made["ttlMs"]), (1, 3, 90000))
        self.assertEqual(made["autoscale"], {"enabled": True, "targetHitRate": 0.9, "scaleDownDelayMs": 120000})
        wait_for(lambda: self.operator("pool", "info", "--json", "ctl-pool").json["status"].get("ready") == 1)
        sandbox = self.cove("sandbox", "create", "-q", "--template", "ctl-pooled").out.strip()
        self.assertIn("1: 1 ready (100.0 %)", self.operator("pool", "info", "ctl-pool").out)
        row = next(line.split() for line in self.operator("pool", "ls").out.splitlines() if line.startswith("ctl-pool"))
        self.assertEqual((row[1], row[5], row[6], row[7]), ("ctl-pooled", "1", "3", "1"))
        self.assertIn("none: always 1", self.operator("pool", "set", "--fixed", "ctl-pool").out)
        for flags in (["--hit-rate", "2"], ["--min", "x"], ["--ttl", "soon"], ["--fixed", "--autoscale"], []):
            self.assertEqual(self.operator("pool", "set", *flags, "ctl-pool", code=2).out, "")
        self.assertIn("greater than max", self.operator("pool", "set", "--min", "4", "--max", "3", "ctl-pool", code=2).err)
        self.operator("pool", "rm", "-q", "ctl-pool")
        self.assertIn("not_found", self.operator("pool", "info", "ctl-pool", code=125).err)
        self.cove("sandbox", "rm", "-q", sandbox)

    def test_interrupt_and_restart_of_a_context_report_whether_its_variables_are_kept(self):
        sandbox = self.cove("sandbox", "create", "-q").out.strip()
        context = self.cove("context", "create", "-q", sandbox).out.strip()
        idle = self.cove("context", "interrupt", sandbox, context)
        self.assertEqual((idle.out, "nothing to interrupt" in idle.err), (context + "\n", True), idle)

        def busy(code):
            execution = self.cove("context", "exec", "--background", "-c", f"x = 1; print('on', flush=True)\n{code}", sandbox).out.strip()
            wait_for(lambda: self.cove("logs", sandbox, execution).out == "on\n")
        busy("while True: pass")
        stopped = self.cove("context", "interrupt", sandbox)
        self.assertIn("its variables are kept", stopped.err)
        self.assertEqual(self.cove("context", "exec", "-c", "x", sandbox).out, "1\n")
        busy("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\nwhile True: pass")
        killed = self.cove("context", "interrupt", sandbox)
        self.assertIn("had to be killed: its variables are lost", killed.err)
        self.assertIn("NameError", self.cove("context", "exec", "-c", "x", sandbox, code=1).err)

        self.cove("context", "exec", "-c", "x = 2", sandbox)
        self.assertEqual(self.cove("context", "restart", sandbox).out, context + "\n")
        self.assertIn("NameError", self.cove("context", "exec", "-c", "x", sandbox, code=1).err)
        told = self.cove("context", "ls", "--json", sandbox).json["items"]
        self.assertEqual([(c["id"], c["restarts"]) for c in told], [(context, 2)], told)
        self.assertIn("has no context", self.cove("context", "restart", sandbox, "cx" + "a" * 20, code=125).err)

    def test_a_budget_is_changed_limit_by_limit(self):
        self.operator("tenant", "create", "-q", "thrift")
        self.assertIn("thrift has no budget", self.operator("budget", "get", "thrift").err)
        self.operator("budget", "set", "-q", "--cpu", "10h", "--executions", "500", "thrift")
        told = self.operator("budget", "set", "--json", "--per", "month", "--alive", "30d", "thrift").json
        self.assertEqual((told["day"]["cpuMs"], told["day"]["executions"], told["month"]["sandboxMs"]),
                         (36000000, 500, 30 * 86400000))
        self.operator("budget", "set", "-q", "--cpu", "none", "thrift")
        shown = self.operator("budget", "get", "thrift").out
        self.assertNotIn("processor", shown)
        self.assertRegex(shown, r"executions +day +(0|-) +500")
        self.assertRegex(shown, r"lifetime +month .* 720.00h")
        key = self.operator("key", "create", "-q", "-t", "thrift", "--scope", "usage", "k").out.strip()
        theirs = dict(self.env, COVE_API_KEY=key)
        self.assertIn("executions", run("budget", "get", env=theirs).out)
        self.assertIn("forbidden", run("budget", "set", "--executions", "9", "thrift", env=theirs).err)
        self.assertNotIn("month", self.operator("budget", "clear", "--per", "month", "thrift").out)
        self.assertIn("500", self.operator("budget", "get", "thrift").out)
        self.operator("budget", "clear", "-q", "thrift")
        self.assertIn("thrift has no budget", self.operator("budget", "get", "thrift").err)
        self.assertIn("not_found", self.operator("budget", "get", "nobody", code=125).err)
        self.operator("tenant", "rm", "-q", "thrift")


class Restarts(OwnServer):
    def child(self, name):
        """The pid of one of the server's processes."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                    words = f.read().rsplit(")", 1)
            except OSError:
                continue
            if words[0].endswith(f"({name}") and int(words[1].split()[1]) == self.server.pid:
                return int(pid)
        return None

    def test_events_are_listed_and_followed_across_a_restart_of_the_server(self):
        sandbox = self.cove("sandbox", "create", "-q", "--runtime", "sh").out.strip()
        process = start("events", "-f", "--after", "0", "--json", env=self.env)
        first = json.loads(process.stdout.readline())
        self.assertEqual((first["kind"], first["sandboxId"]), ("sandbox_created", sandbox))
        coved = wait_for(lambda: self.child("coved"))
        os.kill(coved, signal.SIGKILL)
        wait_for(lambda: self.child("coved") not in (None, coved))
        wait_for(lambda: run("exec", sandbox, "--", "true", env=self.env).code == 0)  # refused while the server recovers
        self.cove("sandbox", "rm", sandbox)
        told = [json.loads(process.stdout.readline()) for _ in range(3)]
        self.assertEqual([e["kind"] for e in told], ["execution_started", "execution_ended", "sandbox_ended"], told)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        lines = self.cove("events", sandbox[:12]).out.splitlines()
        self.assertEqual([line.split()[1] for line in lines],
                         ["sandbox_created", "execution_started", "execution_ended", "sandbox_ended"])
        self.assertTrue(all(line.split()[2] == sandbox for line in lines))
        only = self.cove("events", "--kind", "sandbox_ended", "--after", str(first["seq"]), "--json").out.splitlines()
        self.assertEqual([json.loads(line)["seq"] for line in only], [told[-1]["seq"]])
        self.assertIn("--after", self.cove("events", "--after", "x", code=2).err)
        self.assertIn("kind", self.cove("events", "--kind", "NO", code=2).err)


class Words(Case):
    def test_typing_errors_are_reported_with_suggestions(self):
        for words, told in ((("sandbox", "lss"), "cove sandbox ls"), (("sandbox",), "needs a command"),
                            (("sandbox", "frob"), "use one of: create, ls"), (("exec", "sbx"), "missing argument"),
                            (("exec", "sbx", "-x"), "has no flag '-x'"),
                            (("cp", "a", "b"), "SANDBOX:PATH"), (("key", "revoke"), "missing argument"),
                            (("sandbox", "create", "--memory", "much"), "such as"),
                            (("sandbox", "create", "--memory", "1K"), "less than 16M"),
                            (("sandbox", "create", "--lifetime", "99d"), "more than 720h"),
                            (("sandbox", "create", "--storage", "1"), "did you mean 1M?"),
                            (("exec", "sbx", "--timeout", "0s", "--", "true"), "less than 1ms"),
                            (("sandbox", "create", "-m", "x"), "NAME=VALUE"), (("user", "add", "x"), "--role"),
                            (("tenant", "set", "x"), "--suspend"), (("tenant", "create", "--memory", "x", "x"), "such as 4G"),
                            (("user", "set", "--disable", "--enable", "us" + "a" * 20), "exclude each other"),
                            (("budget", "set", "x"), "--executions"), (("budget", "set", "--cpu", "x", "x"), "such as 90s"),
                            (("budget", "set", "--per", "week", "--cpu", "1h", "x"), "day or month"),
                            (("budget", "clear", "--cpu", "1h", "x"), "budget set"),
                            (("role", "create", "x"), "--allow")):
            done = run(*words, env={"COVE_URL": "http://127.0.0.1:1", "COVE_API_KEY": ""})
            self.assertEqual(done.code, 2, done)
            self.assertIn(told, done.err)

    def test_an_unreachable_server_is_reported_with_its_address_and_no_key_is_sent(self):
        nobody = run("ps", env={"COVE_URL": "http://127.0.0.1:1", "COVE_API_KEY": ""})
        self.assertEqual(nobody.code, 125)
        self.assertIn("http://127.0.0.1:1", nobody.err)
        self.assertIn("cove serve", nobody.err)
        clear = run("ps", "--url", "http://example.org", env={"COVE_API_KEY": "cove_" + "0" * 40})
        self.assertIn("without encryption", clear.err)
