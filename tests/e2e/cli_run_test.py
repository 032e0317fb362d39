"""`cove run`: programs, scripts, streams, files and the ways in which a run ends."""
import array
import fcntl
import http.server
import json
import os
import resource
import shutil
import signal
import subprocess
import termios
import threading
import time

from cove import COVE, Case, descendants, run, start
from server import wait_for


class Programs(Case):
    def test_output_is_streamed_and_the_exit_status_is_passed_on(self):
        done = run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((done.code, done.out, done.err), (7, "out\n", "err\n"), done)

    def test_a_missing_program_ends_with_127(self):
        self.assertErrorCode(run("run", "--", "no-such-program"), 127, "program_not_found")

    def test_a_file_that_cannot_be_executed_ends_with_126(self):
        self.assertErrorCode(run("run", "--", "/etc/passwd"), 126, "program_not_executable")

    def test_a_signal_ends_with_128_and_its_number(self):
        self.assertCode(run("run", "--", "sh", "-c", "kill -SEGV $$"), 128 + signal.SIGSEGV)

    def test_code_is_python_without_a_runtime_and_languages_have_aliases(self):
        self.assertEqual(run("run", "-c", "print(6 * 7)").out, "42\n")
        self.assertEqual(run("run", "-", stdin="print(6 * 7)").out, "42\n")
        for name in ("py", "python3"):
            self.assertEqual(run("run", "--language", name, "-c", "print(6 * 7)").out, "42\n")
        self.assertEqual(run("run", "--rm", "-m", "64m", "--timeout", "5", "--runtime", "shell", "-c", "echo 1").out, "1\n")
        self.assertIn("did you mean 64M?", run("run", "--memory", "64", "--", "true").err)
        self.file("a/in.txt", "given")
        self.assertEqual(run("run", "-v", f"{self.dir}/a:/mnt/a:ro", "--", "cat", "/mnt/a/in.txt").out, "given")
        self.assertEqual(run("run", "-v", f"{self.dir}/a:/workspace", "--", "cat", "in.txt").out, "given")

    def test_code_runs_in_each_available_runtime(self):
        code = {"python": "import sys; print(6*7, sys.argv[1:])", "node": "console.log(6*7, process.argv.slice(1))",
                "bash": "echo $((6*7)) $1", "sh": "echo $((6*7)) $1"}
        for runtime in run("runtimes", "--json").json["runtimes"]:
            if runtime["available"]:
                with self.subTest(runtime["name"]):
                    done = run("run", "--runtime", runtime["name"], "-c", code[runtime["name"]], "arg")
                    self.assertCode(done, 0)
                    self.assertTrue(done.out.startswith("42 "), done)
                    self.assertIn("arg", done.out, done)

    def test_runtimes_report_which_builtin_templates_lack_modules(self):
        templates = {t["name"]: t for t in run("runtimes", "--json").json["templates"]}
        self.assertEqual(set(templates), {"bash", "node", "python", "python-data", "snippet"})
        self.assertTrue(templates["python"]["available"])
        text = run("runtimes").out
        for name, template in templates.items():
            self.assertEqual("reason" in template, not template["available"], template)
            self.assertEqual("fix" in template, not template["available"], template)
            if "modules" in template.get("reason", ""):
                self.assertIn(f"template {name} not usable: {template['reason']}; {template['fix']}", text)
            else:
                self.assertNotIn(f"template {name} ", text)

    def test_long_code_runs_like_short_code(self):
        pad = "x" * 100000
        for runtime, code, says in [
                ("python", f"import sys; print(sys.argv, sys.path[0], __name__) #{pad}", "['-c', 'arg']  __main__\n"),
                ("sh", f"echo $0 $1 #{pad}", "sh arg\n"), ("bash", f"echo $0 $1 #{pad}", "bash arg\n"),
                ("node", f"console.log(process.argv[1], typeof require) //{pad}", "arg function\n")]:
            with self.subTest(runtime):
                done = run("run", "--runtime", runtime, "-c", code, "arg")
                if "runtime_not_found" not in done.err:
                    self.assertEqual((done.code, done.out), (0, says), done)

    def test_a_program_may_come_through_standard_input(self):
        self.assertEqual(run("run", "--runtime", "python", "-", "a", stdin="import sys; print(sys.argv)").out, "['-', 'a']\n")
        self.assertEqual(run("run", "--runtime", "sh", "-", "a", stdin="echo got $1").out, "got a\n")

    def test_a_script_runs_under_its_runtime_with_its_arguments(self):
        script = self.file("hello.py", "import sys; print(sys.argv)")
        self.assertEqual(run("run", script, "a", "--json").out, "['/mnt/script/hello.py', 'a', '--json']\n")

    def test_a_script_that_only_its_owner_may_read_runs(self):
        self.assertEqual(run("run", self.file("secret.sh", "echo ok", 0o600)).out, "ok\n")

    def test_the_first_line_of_a_script_is_honoured(self):
        self.assertEqual(run("run", self.file("tool", "#!/usr/bin/env python3\nprint(1)")).out, "1\n")

    def test_a_script_below_the_workspace_can_import_other_files(self):
        self.file("helper.py", "x = 5")
        script = self.file("main.py", "import helper; print(helper.x)")
        self.assertEqual(run("run", "-w", self.dir, script).out, "5\n")

    def test_a_program_file_of_the_caller_is_mounted_and_run(self):
        program = os.path.join(self.dir, "mine")
        with open("/bin/true", "rb") as source, open(program, "wb") as copy:
            copy.write(source.read())
        os.chmod(program, 0o755)
        self.assertCode(run("run", program), 0)


class Environment(Case):
    def test_only_named_variables_of_the_callers_environment_are_passed(self):
        env = {"COVE_TEST_A": "1", "COVE_TEST_B": "two words"}
        done = run("run", "--env", "COVE_TEST_B", "-e", "C=x=y", "--", "env", env=env)
        lines = done.out.splitlines()
        self.assertIn("COVE_TEST_B=two words", lines)
        self.assertIn("C=x=y", lines)
        self.assertNotIn("COVE_TEST_A", done.out)

    def test_dangerous_variables_reach_the_program_and_nothing_else(self):
        done = run("run", "-e", "LD_PRELOAD=/nonexistent.so", "-e", "PYTHONPATH=/x", "-e", "IFS=:", "--", "env")
        self.assertCode(done, 0)
        self.assertIn("LD_PRELOAD=/nonexistent.so\n", done.out)

    def test_cwd_is_used_and_a_missing_one_is_an_error(self):
        self.assertEqual(run("run", "--cwd", "/tmp", "--", "pwd").out, "/tmp\n")
        self.assertCode(run("run", "--cwd", "/no/such", "--", "pwd"), 125)
        self.assertCode(run("run", "--cwd", "../../no", "--", "pwd"), 125)


class Streams(Case):
    def test_piped_input_is_passed_on_by_default(self):
        self.assertEqual(run("run", "--", "cat", stdin="x\n").out, "x\n")

    def test_input_from_a_file_is_passed_on(self):
        path = self.file("in", "from a file\n")
        with open(path, "rb") as f:
            process = start("run", "--", "cat", stdin=f)
            self.assertEqual(process.communicate(timeout=120)[0], b"from a file\n")

    def test_closed_standard_streams_do_no_harm(self):
        path = os.path.join(self.dir, "out")
        done = subprocess.run(["sh", "-c", f'"{COVE}" run -- sh -c "cat; echo ok" <&- >"{path}" 2>&-'], timeout=120)
        self.assertEqual(done.returncode, 0)
        with open(path) as f:
            self.assertEqual(f.read(), "ok\n")

    def test_large_data_passes_unchanged(self):
        data = os.urandom(1 << 20) * 20
        done = run("run", "--", "cat", stdin=data, timeout=120)
        self.assertTrue(done.bytes_out == data, f"{len(done.bytes_out)} of {len(data)} bytes, status {done.code}")

    def test_a_closed_output_ends_the_run_as_sigpipe_would(self):
        process = start("run", "--", "yes", stdin=subprocess.DEVNULL)
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(120), 128 + signal.SIGPIPE)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()

    def test_a_slow_reader_slows_the_program_and_costs_no_memory(self):
        process = start("run", "--", "sh", "-c", "yes | head -c 300000000; echo done >&2", stdin=subprocess.DEVNULL)
        self.wait_until_full(process)
        time.sleep(0.5)  # an unbounded buffer would hold hundreds of megabytes by now
        self.assertIsNone(process.poll())
        with open(f"/proc/{process.pid}/status") as f:
            status = dict(line.split(":", 1) for line in f if ":" in line)
        self.assertLess(int(status["VmHWM"].split()[0]), 16 * 1024, "kB of memory while the reader sleeps")
        process.kill()
        process.communicate(timeout=120)

    def wait_until_full(self, process):
        deadline, held = time.monotonic() + 60, array.array("i", [0])
        while held[0] < 65536:
            self.assertLess(time.monotonic(), deadline, "the program wrote nothing")
            time.sleep(0.02)
            fcntl.ioctl(process.stdout, termios.FIONREAD, held)

    def past_the_clock(self, process):
        """Waits until the pipe is full, and then until the timeout has ended the sandbox and its
        PID 1 is gone."""
        self.wait_until_full(process)
        self.assertIn("runtime", descendants(process.pid))
        wait_for(lambda: "runtime" not in descendants(process.pid))
        self.assertIsNone(process.poll())  # it waits for its reader

    def test_a_slow_reader_gets_what_the_receipt_counts_also_after_the_timeout(self):
        receipt = os.path.join(self.dir, "receipt")
        process = start("run", "--timeout", "1s", f"--receipt={receipt}", "--", "head", "-c", "300000", "/dev/zero",
                        stdin=subprocess.DEVNULL)
        self.past_the_clock(process)
        out, err = process.communicate(timeout=120)
        with open(receipt, encoding="utf-8") as f:
            told = json.load(f)
        self.assertEqual((process.returncode, told["endedBy"], told["final"]), (124, "timeout", True), err)
        self.assertGreater(len(out), 65536)
        self.assertEqual(told["stdoutBytes"], len(out))

    def test_a_timeout_ends_the_run_even_while_the_reader_sleeps(self):
        process = start("run", "--timeout", "1s", "--", "yes", stdin=subprocess.DEVNULL)
        self.past_the_clock(process)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 124, err)
        self.assertIn(b"--timeout", err)
        self.assertGreater(len(out), 1000)

    def test_a_full_disk_is_reported_with_its_code(self):
        with open("/dev/full", "wb") as full:
            process = start("run", "--", "echo", "x", stdout=full, stdin=subprocess.DEVNULL)
            self.assertIn(b"disk_full", process.communicate(timeout=120)[1])
        self.assertEqual(process.returncode, 125)

    def test_a_limit_on_output_drops_and_counts(self):
        done = run("run", "--max-output", "10", "--", "sh", "-c", "printf 0123456789abcdef")
        self.assertEqual((done.code, done.out), (0, "0123456789"), done)
        self.assertIn("6 bytes of output", done.err)


class Limits(Case):
    def test_each_time_limit_and_the_memory_limit_end_with_their_status_and_name(self):
        busy = "while :; do :; done"
        cases = [
            (("--timeout", "300ms"), ("sleep", "20"), 124, "--timeout"),
            (("--cpu-time", "300ms"), ("sh", "-c", busy), 124, "--cpu-time"),
            (("--lifetime", "1m", "--timeout", "600ms"), ("sleep", "100"), 124, "--timeout"),
            (("--memory", "32M"), ("python3", "-c", "x = bytearray(200 << 20)"), 123, "--memory"),
        ]
        for flags, program, code, word in cases:
            with self.subTest(word):
                done = run("run", *flags, "--", *program)
                self.assertCode(done, code)
                self.assertIn(word, done.err)

    def test_quiet_prints_no_reason(self):
        self.assertEqual(run("run", "-q", "--timeout", "200ms", "--", "sleep", "9").err, "")

    def test_limit_hits_are_reported_with_the_way_to_change_them(self):
        """Each program hits one limit, and no other is reported."""
        fill = "f = open('{}', 'wb', 0)\ntry:\n    while True: f.write(bytes(1 << 16))\nexcept OSError as e: assert e.errno == 28"
        many = "import os\ntry:\n    for i in range(99999): os.mkdir('{}/' + str(i))\nexcept OSError as e: assert e.errno == 28"
        threads = ("import threading\ntry:\n    for i in range(99): threading.Thread(target=threading.Event().wait, daemon=True)"
                   ".start()\nexcept RuntimeError: pass")
        for limit, code, flag in (
                ("workspaceBytes", fill.format("/workspace/x"), "--disk=1M"),
                ("workspaceInodes", many.format("/workspace"), "--disk=200M"),
                ("tmpBytes", fill.format("/tmp/x"), "--tmp=1M"),
                ("tmpInodes", many.format("/tmp"), "--tmp=64M"),
                ("shmBytes", fill.format("/dev/shm/x"), "--memory=512M"),
                ("pids", threads, "--pids=20")):
            with self.subTest(limit=limit):
                done = run("run", "--json", flag, "--runtime", "python", "-c", code)
                self.assertCode(done, 0)
                receipt = done.json["receipt"]
                self.assertEqual([m["limit"] for m in receipt["limitHits"]], [limit], done)
                self.assertNotIn("unseen", receipt["limits"][limit])
                if limit == "pids":
                    self.assertEqual(receipt["limitHits"][0]["count"], receipt["used"]["pidsRefused"])
                text = run("explain", "-", stdin=done.out).out
                self.assertRegex(text, f"The limit {limit}: .*; (--[a-z]+|limits.{limit} of a policy) sets it[.]")

    def test_the_file_size_limit_is_reported_only_after_its_signal(self):
        big = "import os, signal; signal.signal(signal.SIGXFSZ, signal.SIG_{}); f = os.open('x', 65); os.pwrite(f, b'x', 1 << 30)"
        done = run("run", "--runtime", "python", "-c", big.format("DFL"))
        self.assertCode(done, 128 + signal.SIGXFSZ)
        self.assertIn("limit: fileSizeBytes: a write past it ended the program; limits.fileSizeBytes of a policy", done.err)
        done = run("run", "--json", "--runtime", "python", "-c", big.format("IGN"))
        self.assertEqual(done.json["receipt"]["limitHits"], [])
        self.assertIn("EFBIG", done.json["receipt"]["limits"]["fileSizeBytes"]["unseen"])

    def test_a_full_disk_that_failed_a_program_is_reported_immediately(self):
        done = run("run", "--disk", "1M", "--", "sh", "-c", "head -c 2000000 /dev/zero > x")
        self.assertNotEqual(done.code, 0)
        self.assertIn("limit: workspaceBytes: was full when the execution ended; --disk sets it", done.err)

    def test_an_end_by_memory_is_reported_even_without_a_killed_process(self):
        for _ in range(4):
            answer = run("run", "--json", "--memory", "32M", "--runtime", "python", "-c",
                         "x = [bytearray(1 << 20) for i in range(999)]").json
            receipt = answer["receipt"]
            self.assertEqual((answer["outcome"], receipt["endedBy"]), ("out_of_memory", "memory"))
            self.assertNotEqual(receipt["used"].get("oomKills"), 0)
            self.assertTrue("oomKills" in receipt["used"] or "oomKills" in receipt["absent"])

    def test_disk_rates_are_throttled_and_late_writes_are_reported(self):
        self.file("work/data", "x" * (1 << 20))
        os.sync()
        work = os.path.join(self.dir, "work")
        script = "dd if=data of=/dev/null bs=64k iflag=direct && dd if=/dev/zero of=data bs=64k count=16 oflag=direct"
        done = run("run", "--json", "--workspace", work, "--io-read", "1M", "--io-write", "1M", "--", "sh", "-c", script)
        limits = done.json["receipt"]["limits"]
        read, write = limits["ioReadBytesPerSecond"], limits["ioWriteBytesPerSecond"]
        if read["state"] == "none" or done.code != 0:
            self.skipTest(read.get("why") or done.json["stderr"])
        self.assertEqual((read["value"], write["value"]), (1 << 20, 1 << 20))
        self.assertGreater(done.json["receipt"]["used"]["wallMs"], 1500)
        if write["state"] != "enforced":
            self.assertEqual(write["state"], "partial")
            self.assertTrue(write["why"])

    def test_a_disk_limit_ends_by_its_timeout_and_not_by_its_disk(self):
        self.file("work/data", "")
        before = time.monotonic()
        done = run("run", "--workspace", os.path.join(self.dir, "work"), "--io-write", "32K", "--timeout", "500ms", "--",
                   "dd", "if=/dev/zero", "of=data", "bs=1M", "count=4", "conv=fsync")
        self.assertIn(done.code, (0, 124), done)  # 0 where no disk is throttled
        self.assertLess(time.monotonic() - before, 60)

    def test_a_required_disk_limit_is_enforced_or_refused(self):
        demand = self.file("demand.yaml", "version: 1\nwalls: all\nenforce: [ioWriteBytesPerSecond]\n")
        self.file("work/data", "")
        done = run("run", "--json", "--io-write", "1M", "--workspace", os.path.join(self.dir, "work"), "--", "true",
                   env={"COVE_FLOOR": demand})
        if done.code == 0:
            self.assertEqual(done.json["receipt"]["limits"]["ioWriteBytesPerSecond"]["state"], "enforced")
        else:
            self.assertEqual(done.json["error"]["code"], "limit_not_enforced")
            self.assertIn("ioWriteBytesPerSecond", done.json["error"]["message"])

    def test_processes_beyond_the_limit_are_refused(self):
        done = run("run", "--pids", "8", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 5 & done; echo no")
        self.assertNotEqual(done.code, 0, done)


class Files(Case):
    def test_a_workspace_is_read_and_written_as_its_owner(self):
        os.chmod(self.dir, 0o700)
        self.file("in", "old")
        self.assertCode(run("run", "-w", self.dir, "--", "sh", "-c", "cat in; echo new > out; rm in"), 0)
        self.assertEqual(os.listdir(self.dir), ["out"])
        self.assertEqual(os.stat(os.path.join(self.dir, "out")).st_uid, os.getuid())

    def test_a_copy_on_write_workspace_leaves_the_directory_unchanged(self):
        self.file("in", "old")
        done = run("run", "-w", self.dir + ":cow", "--", "sh", "-c", "echo more >> in; echo x > y; cat in")
        self.assertEqual((done.code, done.out), (0, "oldmore\n"), done)
        self.assertEqual(os.listdir(self.dir), ["in"])
        with open(os.path.join(self.dir, "in")) as f:
            self.assertEqual(f.read(), "old")

    def test_binds_and_skills_are_readable_and_not_writable(self):
        self.file("data/x", "seen")
        done = run("run", "--bind-ro", f"{self.dir}/data:/mnt/data", "--skills", f"{self.dir}/data", "--", "sh", "-c",
                   "cat /mnt/data/x /skills/x; echo > /mnt/data/y; echo > /skills/y")
        self.assertTrue(done.out.startswith("seenseen"), done)
        self.assertNotEqual(done.code, 0)
        self.assertEqual(os.listdir(f"{self.dir}/data"), ["x"])

    def test_a_bad_bind_is_refused_before_anything_starts(self):
        fifo = os.path.join(self.dir, "fifo")
        os.mkfifo(fifo)
        file = self.file("f")
        for flags, code in [(("--bind-ro", "/no/such:/mnt/x"), "bind_source_unreadable"),
                            (("--bind-ro", f"{fifo}:/mnt/x"), "bind_source_unreadable"),
                            (("--bind-ro", f"{self.dir}:/proc/x"), "bind_target_refused"),
                            (("--bind-ro", f"{self.dir}:/mnt/../x"), "bind_target_refused"),
                            (("--workspace", file), "workspace_refused"),
                            (("--workspace", "/no/such"), "bind_source_unreadable"),
                            (("--workspace", "/"), "bind_source_refused"),
                            (("--bind-ro", "/proc:/mnt/x"), "bind_source_refused"),
                            (("--bind-ro", f"{self.dir}:/etc/nowhere"), "bind_target_refused"),
                            (("--skills", file), "workspace_refused")]:
            with self.subTest(flags):
                done = run("run", *flags, "--", "true")
                self.assertErrorCode(done, 125, code)
                if code == "bind_source_refused":
                    self.assertIn(" ".join(flags).partition(":")[0] + ": ", done.err)  # what the user typed, not the target


class Json(Case):
    def test_a_run_with_json_is_one_object_with_output_status_and_receipt(self):
        done = run("run", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
        self.assertCode(done, 3)
        answer = done.json
        self.assertEqual((answer["stdout"], answer["stderr"], answer["exitCode"], answer["signal"], answer["endedBy"]),
                         ("out\n", "err\n", 3, None, "exit"))
        self.assertEqual((answer["outcome"], run("run", "--json", "--", "true").json["outcome"]), ("error", "success"))
        self.assertEqual((answer["truncated"], answer["kept"]), (False, False))
        self.assertEqual(answer["receipt"]["sandbox"], answer["sandboxId"])
        self.assertTrue(answer["receipt"]["final"])
        self.assertEqual(done.err, "")

    def test_binary_output_is_base64(self):
        answer = run("run", "--json", "--", "sh", "-c", r"printf '\377\000'; echo fine >&2").json
        self.assertEqual((answer["stdoutBase64"], answer["stderr"]), ("/wA=", "fine\n"))
        self.assertNotIn("stdout", answer)

    def test_output_is_capped_and_reported(self):
        answer = run("run", "--json", "--", "sh", "-c", "yes | head -c 20000000").json
        self.assertEqual((len(answer["stdout"]), answer["truncated"]), (8 << 20, True))

    def test_a_timeout_is_named_and_partial_output_is_kept(self):
        for patience in ("500ms", "5s"):  # a busy machine needs longer to start the program
            done = run("run", "--json", "--timeout", patience, "--", "sh", "-c", "echo partial; sleep 100")
            self.assertCode(done, 124)
            if done.json["stdout"]:
                break
        self.assertEqual((done.json["stdout"], done.json["endedBy"], done.json["exitCode"]), ("partial\n", "timeout", None))
        self.assertEqual(done.json["outcome"], "timeout")

    def test_errors_with_json_are_objects(self):
        for words, status, code in [(("--", "no-such-program"), 127, "program_not_found"),
                                    (("--nope", "x"), 2, "bad_usage"),
                                    (("--memory", "lots", "x"), 2, "invalid_request"),
                                    (("--level", "high", "x"), 125, "level_unavailable"),
                                    (("--net", "host", "x"), 2, "invalid_request"),
                                    (("--bind-ro", "/no/such:/mnt/x", "x"), 125, "bind_source_unreadable"),
                                    (("--runtime", "cobol", "-"), 127, "runtime_not_found")]:
            with self.subTest(words):
                done = run("run", "--json", *words)
                self.assertCode(done, status)
                self.assertEqual(done.json["error"]["code"], code)
                hints = {"cause", "fix"} if code == "program_not_found" else set()
                self.assertEqual(set(done.json["error"]), {"code", "message"} | hints)
                self.assertEqual(done.err, "")


class Receipt(Case):
    def test_a_receipt_goes_to_standard_error_or_to_a_file(self):
        self.assertIn("wall", run("run", "--receipt", "--", "true").err)
        path = os.path.join(self.dir, "receipt.json")
        done = run("run", f"--receipt={path}", "--", "sh", "-c", "exit 4")
        self.assertEqual((done.code, done.err), (4, ""), done)
        with open(path) as f:
            self.assertEqual(json.load(f)["exitCode"], 4)

    def test_an_unwritable_receipt_path_is_reported_before_the_run(self):
        marker = os.path.join(self.dir, "ran")
        done = run("run", "--receipt=/no/such/dir/r", "-w", self.dir, "--", "touch", "ran")
        self.assertErrorCode(done, 2, "invalid_request")
        self.assertFalse(os.path.exists(marker))

    def test_an_old_receipt_is_kept_when_the_run_is_refused(self):
        path = self.file("receipt", "old")
        run("run", f"--receipt={path}", "--", "no-such-program")
        with open(path) as f:
            self.assertEqual(f.read(), "old")


class Signals(Case):
    def running(self, *program):
        process = start("run", "--", *program, stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"up\n")
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        return process

    def test_signals_reach_the_program(self):
        for sig in ("INT", "TERM", "HUP", "QUIT"):
            with self.subTest(sig):
                # Not a shell: dash loses a signal that arrives while it forks.
                process = self.running("python3", "-c", "import os, signal, time\n"
                                       f"signal.signal(signal.SIG{sig}, lambda *_: os._exit(5))\n"
                                       "print('up', flush=True)\nwhile True:\n    time.sleep(0.05)")
                process.send_signal(getattr(signal, "SIG" + sig))
                self.assertEqual(process.wait(120), 5)

    def test_a_program_without_a_handler_ends_with_the_signal(self):
        process = self.running("sh", "-c", "echo up; exec sleep 20")  # dash loses a signal that arrives while it forks
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(120), 130)

    def test_a_second_ctrl_c_ends_a_program_that_ignores_the_first(self):
        process = self.running("sh", "-c", "trap '' INT; echo up; while :; do sleep 0.05; done")
        process.send_signal(signal.SIGINT)
        time.sleep(1.3)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(120), 137)

    def test_signals_that_the_caller_ignores_stay_ignored(self):
        process = subprocess.Popen([COVE, "run", "--", "sh", "-c", "echo up; sleep 1; echo end"], bufsize=0, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.communicate(timeout=120)[0], b"end\n")
        self.assertEqual(process.returncode, 0)

    def test_more_processors_than_the_host_has_are_noted(self):
        done = run("run", "--cpus", "1000", "--", "true")
        self.assertEqual(done.code, 0, done)
        self.assertRegex(done.err, r"cove: --cpus: this host has only \d+ processors?, so the limit has no effect\n")
        self.assertNotIn("--cpus:", run("run", "--cpus", "1", "--", "true").err + run("run", "-q", "--cpus", "1000", "--", "true").err)

    def test_ctrl_z_stops_the_program_and_fg_continues_it(self):
        def state():
            with open(f"/proc/{process.pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0]

        process = start("run", "--", "sh", "-c", "echo up; i=0; while [ $i -lt 60 ]; do echo $i; i=$((i+1)); sleep 0.02; done; read go; true",
                        stdin=subprocess.PIPE)
        process.stdout.readline()
        process.send_signal(signal.SIGTSTP)
        deadline = time.monotonic() + 60
        while state() != "T":
            self.assertLess(time.monotonic(), deadline, "cove did not stop")
            time.sleep(0.01)
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        out = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 0)
        self.assertEqual(out.split(), [str(i).encode() for i in range(60)])

    def test_killing_cove_leaves_no_process(self):
        mark = f"sleep 54321{os.getpid()}"
        process = self.running("sh", "-c", "echo up; exec " + mark)
        process.kill()
        process.wait(120)
        deadline = time.monotonic() + 60
        while subprocess.run(["pgrep", "-f", mark], stdout=subprocess.DEVNULL).returncode == 0:
            self.assertLess(time.monotonic(), deadline, mark + " still lives")
            time.sleep(0.05)


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_):
        pass


class Rules(Case):
    """Rules of the flags, against a server on the loopback of the host, which the floor opens."""

    def setUp(self):
        super().setUp()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.port = server.server_address[1]
        self.floor = self.file("floor.yaml", "version: 1\nnetwork: {openRanges: [127.0.0.1]}\n")

    def fetch(self, *flags, floor=True):
        return run("run", *flags, "--", "curl", "-sS", "-m", "20", "--noproxy", ",", "-x", "http://127.0.0.1:3128",
                   f"http://localhost:{self.port}/", env={"COVE_FLOOR": self.floor} if floor else {})

    def test_an_allowed_name_is_reached_and_another_port_is_not(self):
        self.assertEqual(self.fetch("--allow", f"localhost:{self.port}").out, "hello\n")
        self.assertIn("no rule allows it, only other ports", self.fetch("--allow", "localhost").out)

    def test_EG05_a_name_that_resolves_to_a_closed_range_is_refused_without_the_operators_exemption(self):
        self.assertIn("closed range", self.fetch("--allow", f"*:{self.port}", floor=False).out)
        self.assertErrorCode(self.fetch("--allow", f"localhost:{self.port}", floor=False), 2, "egress_rule_invalid")

    def test_a_denied_prefix_holds_for_the_addresses_of_allowed_names(self):
        allow = ("--allow", f"localhost:{self.port}")
        self.assertIn("resolves to 127.0.0.1, which a rule denies", self.fetch("--deny", "127.0.0.0/8:*", *allow).out)
        self.assertEqual(self.fetch("--deny", "127.0.0.0/8:1", *allow).out, "hello\n")
        self.assertEqual(self.fetch(*allow, "--deny", "127.0.0.0/8:*").out, "hello\n")


class Refusals(Case):
    def test_level_high_and_other_networks_are_refused_with_the_reason(self):
        done = run("run", "--level", "high", "--", "true")
        self.assertErrorCode(done, 125, "level_unavailable")
        self.assertIn("second kernel", done.err)
        done = run("run", "--net", "bridge", "--", "true")
        self.assertErrorCode(done, 2, "invalid_request")
        self.assertIn("--allow HOST", done.err)

    def test_a_missing_runtime_program_is_reported(self):
        self.assertErrorCode(run("run", "--", "true", env={"COVE_LIBEXEC": self.dir}), 125, "runtime_program_missing")

    def test_without_free_descriptors_a_run_fails_with_a_code_and_leaves_nothing(self):
        process = start("run", "--", "true", stdin=subprocess.DEVNULL,
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6)))
        err = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 125, err)
        self.assertRegex(err, rb"^cove: .* \[[a-z_]+\]\n")

    def test_nothing_to_run_is_a_usage_error(self):
        for words in ([], ["--"], ["-c"]):
            with self.subTest(words):
                self.assertErrorCode(run("run", *words), 2, "bad_usage")


class Afterwards(Case):
    def test_nothing_touches_the_workspace_after_the_run_returned(self):
        log = os.path.join(self.dir, "log")
        for _ in range(5):
            run("run", "-w", self.dir, "--", "sh", "-c", "(while :; do echo x >> log; done) & until [ -s log ]; do sleep 0.02; done; sleep 0.1")
            size = os.path.getsize(log)
            time.sleep(0.05)
            self.assertEqual(os.path.getsize(log), size)

    def test_a_background_process_is_killed_soon_after_the_run(self):
        mark = f"sleep 65432{os.getpid()}"
        self.assertCode(run("run", "--", "sh", "-c", f"setsid {mark} & exit 0"), 0)
        deadline = time.monotonic() + 60
        while subprocess.run(["pgrep", "-f", mark], stdout=subprocess.DEVNULL).returncode == 0:
            self.assertLess(time.monotonic(), deadline, mark + " still lives")
            time.sleep(0.02)


class PlainUser(Case):
    """The same as a user without any privilege, with a copy of cove that every user may read."""

    USER = 65534

    def setUp(self):
        super().setUp()
        if os.getuid() != 0 or not shutil.which("setpriv"):
            self.skipTest("needs root and setpriv to run as another user")
        os.chmod(self.dir, 0o755)
        for name in ("cove", "cove-runtime"):
            shutil.copy(os.path.join(os.path.dirname(os.path.realpath(COVE)), name), self.dir)
        self.home = os.path.join(self.dir, "home")
        os.mkdir(self.home)
        os.chown(self.home, self.USER, self.USER)

    def plain(self, *args):
        done = subprocess.run(
            ["setpriv", "--reuid", str(self.USER), "--regid", str(self.USER), "--clear-groups", "--bounding-set=-all",
             os.path.join(self.dir, "cove"), *args], capture_output=True, text=True, timeout=60, cwd=self.home,
            stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], "COVE_STATE_DIR": os.path.join(self.home, "state")})
        if "no_namespaces" in done.stderr:
            self.skipTest(done.stderr.splitlines()[0])
        return done

    def test_a_program_runs_and_one_line_reports_what_is_not_enforced(self):
        done = self.plain("run", "--", "id", "-u")
        self.assertEqual((done.returncode, done.stdout), (0, "1000\n"), done.stderr)
        self.assertLessEqual(len(done.stderr.splitlines()), 1)
        if done.stderr:
            self.assertIn("does not fully enforce: --memory", done.stderr)
        self.assertEqual(self.plain("run", "-q", "--", "true").stderr, "")

    def test_denials_are_reported_as_for_root(self):
        done = self.plain("run", "--json", "--", "python3", "-c", "import ctypes; ctypes.CDLL(None).mount(0, 0, 0, 0, 0)")
        receipt = json.loads(done.stdout)["receipt"]
        self.assertEqual([(d["syscall"], d["count"]) for d in receipt["denials"]], [("mount", 1)])

    def test_the_workspace_keeps_its_owner(self):
        with open(os.path.join(self.home, "s.py"), "w") as f:
            f.write("print(open('note', 'w').write('x'))")
        os.chmod(os.path.join(self.home, "s.py"), 0o600)
        os.chown(os.path.join(self.home, "s.py"), self.USER, self.USER)
        done = self.plain("run", "-q", "-w", self.home, "s.py")
        self.assertEqual((done.returncode, done.stdout), (0, "1\n"), done.stderr)
        self.assertEqual(os.stat(os.path.join(self.home, "note")).st_uid, self.USER)

    def test_timeouts_hold_without_privilege(self):
        self.assertEqual(self.plain("run", "-q", "--timeout", "300ms", "--", "sleep", "20").returncode, 124)
