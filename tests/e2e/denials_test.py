"""Denied system calls: in the receipt, on standard error, and in sentences."""
import json
import os
import signal
import subprocess
import time

from cove import Case, run, start

CALLS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    return 0 if libc.syscall(*args) != -1 else ctypes.get_errno()
"""
MOUNT = "call(165, b'a', b'b', b'c', 0, 0)"
PTRACE = "call(101, 16, 1, 0, 0)"


def python(code, *flags, **options):
    return run("run", *flags, "--runtime", "python", "-c", CALLS + code, **options)


def monitors_of(pid):
    children = subprocess.run(["pgrep", "-P", str(pid), "-x", "cove-monitor"], stdout=subprocess.PIPE, text=True, check=False)
    return [int(word) for word in children.stdout.split()]


class Denials(Case):
    def test_the_receipt_names_the_call_the_rule_and_the_fix(self):
        done = python(f"{MOUNT}; {PTRACE}; {PTRACE}", "--json")
        self.assertCode(done, 0)
        receipt = done.json["receipt"]
        self.assertEqual(receipt["denials"], [
            {"syscall": "mount", "call": "mount(...)", "count": 1,
             "rule": "not allowed (profile python): mounts and roots are the walls themselves", "fix": "there is no way to allow it"},
            {"syscall": "ptrace", "call": "ptrace(16)", "count": 2, "rule": receipt["denials"][1]["rule"],
             "fix": "allow with --policy debug"}])
        self.assertEqual(receipt["denialsMore"], 0)
        self.assertNotIn("denials", receipt["absent"])

    def test_no_denials_are_an_empty_list(self):
        self.assertEqual(run("run", "--json", "--", "true").json["receipt"]["denials"], [])

    def test_the_suggested_fix_works(self):
        trace_me = "print(call(101, 0, 0, 0, 0))"
        done = python(trace_me, "--json")
        self.assertEqual((done.json["stdout"], done.json["receipt"]["denials"][0]["fix"]), ("1\n", "allow with --policy debug"))
        done = python(trace_me, "--json", "--policy", "debug")
        self.assertEqual((done.json["stdout"], done.json["receipt"]["denials"]), ("0\n", []))

    def test_a_failed_program_is_reported_with_its_denials(self):
        done = python(f"{MOUNT}; sys.exit(4)")
        self.assertCode(done, 4)
        self.assertEqual(done.err, "cove: refused: mount(...): not allowed (profile python); there is no way to allow it\n")
        self.assertEqual(python(f"{MOUNT}; sys.exit(4)", "-q").err, "")
        self.assertEqual(python(MOUNT).err, "")

    def test_a_readable_receipt_has_a_line_for_each_denial(self):
        done = python(f"{MOUNT}", "--receipt")
        self.assertIn("denied   mount (1): not allowed (profile python); there is no way to allow it\n", done.err)

    def test_denials_before_a_timeout_are_in_the_receipt(self):
        for patience in ("1s", "5s"):  # a busy machine needs longer to start the program
            done = python(f"{MOUNT}; print('up', flush=True)\nwhile True: pass", "--json", "--timeout", patience)
            self.assertCode(done, 124)
            if done.json["stdout"]:
                break
        self.assertEqual([d["syscall"] for d in done.json["receipt"]["denials"]], ["mount"])

    def test_a_kept_sandbox_has_the_same_walls_later(self):
        flag = ("--state-dir", self.dir)
        self.addCleanup(run, "rm", "--all", "--local", "--yes", *flag)
        sandbox = run("run", "--keep", "--json", *flag, "--", "true").json["sandboxId"]
        time.sleep(0.2)
        done = run("shell", *flag, sandbox, "--", "python3", "-c", CALLS + f"print({MOUNT})")
        self.assertEqual(done.out, "1\n", done)

    def test_no_monitor_process_remains(self):
        process = start("run", "--", "sh", "-c", "echo up; sleep 30")
        self.addCleanup(process.communicate)
        process.stdout.readline()
        monitors = monitors_of(process.pid)
        self.assertEqual(len(monitors), 1)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 60
        while os.path.exists(f"/proc/{monitors[0]}") and time.monotonic() < deadline:
            with open(f"/proc/{monitors[0]}/stat", encoding="utf-8") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            time.sleep(0.02)
        self.assertFalse(os.path.exists(f"/proc/{monitors[0]}"))

    def test_a_killed_monitor_is_reported_and_no_call_is_allowed(self):
        process = start("run", "--json", "-w", self.dir, "--runtime", "python", "-c",
                        CALLS + f"open('up', 'w').close(); sys.stdin.read(); print({MOUNT})", stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.dir, "up")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(monitors_of(process.pid)[0], signal.SIGKILL)
        out, _ = process.communicate(b"", 120)
        done = json.loads(out)
        self.assertEqual(done["stdout"], "38\n")
        self.assertIn("monitor was lost", done["receipt"]["absent"]["denials"])


class Explain(Case):
    def test_explain_turns_a_receipt_into_sentences(self):
        receipt = os.path.join(self.dir, "receipt.json")
        python(f"{MOUNT}; open('x', 'w').close(); sys.exit(3)", f"--receipt={receipt}")
        done = run("explain", receipt)
        self.assertCode(done, 0)
        for line in ("The program exited with status 3.", "Denied system calls:", "  mount(...), 1 time",
                     "    why: mounts and roots are the walls themselves", "    fix: there is no way to allow it",
                     "Under /workspace: 1 added, 0 modified, 0 deleted.", "  added x"):
            self.assertIn(line + "\n", done.out)
        self.assertRegex(done.out, "  denials by workspaceBytes, .*, shmBytes: it was not full")  # one line for one reason

    def test_explain_reads_the_object_of_json_and_a_pipe(self):
        done = python("while True: pass", "--json", "--timeout", "1s")
        text = run("explain", "-", stdin=done.out).out
        self.assertIn("It was ended because it ran longer than its timeout (1s); --timeout changes the limit.\n", text)
        self.assertIn("No system call was denied.\n", text)

    def test_explain_refuses_input_that_is_not_a_receipt(self):
        self.assertErrorCode(run("explain"), 2, "bad_usage")
        self.assertErrorCode(run("explain", os.path.join(self.dir, "none")), 125, "not_found")
        self.assertErrorCode(run("explain", "-", stdin="{"), 2, "invalid_request")
        self.assertErrorCode(run("explain", "-", stdin="[1]"), 2, "invalid_request")
        failed = run("run", "--json", "--", "no-such-program").out
        self.assertIn("the run failed: ", run("explain", "-", stdin=failed).err)

    def test_a_hostile_receipt_cannot_steer_the_terminal(self):
        hostile = {"endedBy": "exit", "exitCode": 0, "absent": {"\x1b[2J": "\u009b2J\u202e"},
                   "denials": [{"call": "\x1b]0;x\x07", "rule": "\r\n", "fix": "\x00"[:0]}]}
        done = run("explain", "-", stdin=json.dumps(hostile))
        self.assertCode(done, 0)
        self.assertFalse(set(done.out) & set("\x1b\x07\r\u009b\u202e"), done)
