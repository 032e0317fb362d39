"""Policies: files, floors and grants, with real sandboxes."""
import json
import os
import re
import shutil
import subprocess
import unittest

from cove import COVE, ROOT, Case, run

with open(os.path.join(ROOT, "docs/syscalls.md"), encoding="utf-8") as f:
    DOC = f.read()
NEEDS_STRACE = unittest.skipUnless(shutil.which("strace"), "strace is not installed")
NEEDS_GDB = unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")


class Files(Case):
    def policy(self, text, name="policy.yaml"):
        return self.file(name, "version: 1\n" + text)

    def test_limits_of_a_policy_are_enforced(self):
        path = self.policy("limits: {memoryBytes: 64M, timeoutMs: 20s}\n")
        done = run("run", "--policy", path, "--runtime", "python", "-c", "x = bytearray(200 << 20)")
        self.assertIn(done.code, (123, 1), done)
        slow = self.policy("limits: {timeoutMs: 300}\n", "slow.yaml")
        self.assertCode(run("run", "--policy", slow, "--", "sleep", "20"), 124)

    def test_a_flag_overrides_the_policy_and_the_policy_overrides_the_default(self):
        path = self.policy("limits:\n  memoryBytes: 96M\n  pids: 33\n")
        plan = run("run", "--dry-run", "--json", "--policy", path, "--memory", "48M", "--", "true").json
        self.assertEqual(plan["limits"]["memoryBytes"], 48 << 20)
        self.assertEqual(plan["limits"]["pids"], 33)
        self.assertEqual(plan["limitSources"]["memoryBytes"], "--memory")
        self.assertEqual(plan["limitSources"]["pids"], f"{path}:4")
        self.assertEqual(plan["limitSources"]["openFiles"], "standard")
        self.assertEqual(plan["limitSources"]["tmpBytes"], "follows from others")
        self.assertEqual(plan["level"], "custom")

    def test_files_environment_and_hidden_paths_are_applied(self):
        self.file("data/a.txt", "shown")
        self.file("work/.env", "secret")
        self.file("work/plain", "plain")
        path = self.policy("filesystem:\n"
                           "  workspace: {mode: copyOnWrite, path: work}\n"
                           "  readOnly: [data]\n"
                           "  hide: [/workspace/.env, /usr/share/doc, /usr/nothing-of-this-name]\n"
                           "environment:\n  set: {GREETING: 'hello there'}\n  pass: [COVE_TEST_PASSED, COVE_TEST_UNSET]\n")
        script = ("cat /mnt/data/a.txt plain; wc -c < .env; ls /usr/share/doc | wc -l; "
                  "echo $GREETING $COVE_TEST_PASSED ${COVE_TEST_UNSET-unset}; echo new > made")
        done = run("run", "--policy", path, "--", "sh", "-c", script, env={"COVE_TEST_PASSED": "on"})
        self.assertEqual(done.out, "shownplain0\n0\nhello there on unset\n", done)
        self.assertEqual(sorted(os.listdir(os.path.join(self.dir, "work"))), [".env", "plain"])

    def test_a_denied_call_is_refused_and_the_program_continues(self):
        path = self.policy("syscalls: {deny: [inotify_init1]}\n")
        code = ("import ctypes, os; c = ctypes.CDLL(None, use_errno=True); r = c.inotify_init1(0); "
                "print(r < 0 and os.strerror(ctypes.get_errno()))")
        self.assertEqual(run("run", "--runtime", "python", "-c", code).out, "False\n")
        self.assertEqual(run("run", "--policy", path, "--runtime", "python", "-c", code).out, "Operation not permitted\n")

    def test_programs_start_with_every_deniable_call_denied(self):
        allowed = set(re.findall(r"`(\w+)`", DOC.split("## Allowed")[1].split("## Refused")[0]))
        needed = set(re.findall(r"`(\w+)`", DOC.split("## Calls that a policy can deny")[1].split("## ")[0]))
        names = sorted(allowed - needed)
        self.assertGreater(len(names), 80)
        path = self.policy("syscalls:\n  deny: [%s]\n" % ", ".join(names))
        self.file("w/x", "1")
        for args in (["--", "true"], ["--json", "-w", os.path.join(self.dir, "w") + ":cow", "--", "sh", "-c", "echo a > y"],
                     ["-t", "--", "sh", "-c", "echo $((1+1))"]):
            with self.subTest(args):
                self.assertCode(run("run", "--policy", path, *args), 0)

    def test_the_receipt_names_policy_and_level(self):
        path = self.policy("name: mine\n")
        receipt = run("run", "--json", "--policy", path, "--", "true").json["receipt"]
        self.assertEqual((receipt["level"], receipt["policy"]), ("custom", "mine"))
        receipt = run("run", "--json", "--", "true").json["receipt"]
        self.assertEqual((receipt["level"], receipt["policy"]), ("standard", "standard"))
        self.assertIn("level custom by policy debug,", run("run", "--receipt", "--policy", "debug", "--", "true").err)

    def test_a_policy_may_be_json(self):
        path = self.file("p.json", json.dumps({"version": 1, "limits": {"timeoutMs": 300}}))
        self.assertCode(run("run", "--policy", path, "--", "sleep", "20"), 124)

    def test_a_bad_policy_starts_nothing_and_reports_every_error(self):
        path = self.policy("nme: x\nlimits:\n  memryBytes: 1\nnetwork: all\n")
        done = run("run", "--policy", path, "--", "touch", "x")
        self.assertErrorCode(done, 2, "policy_unknown_key")
        for place in (":2:1:", ":4:3:", ":5:10:"):
            self.assertIn(path + place, done.err)
        report = run("run", "--json", "--policy", path, "--", "true")
        self.assertEqual([e["line"] for e in report.json["errors"]], [2, 4, 5])
        self.assertEqual(report.json["error"]["code"], "policy_unknown_key")
        self.assertEqual(report.code, 2)

    def test_unknown_names_are_refused(self):
        self.assertErrorCode(run("run", "--policy", "no-such-policy", "--", "true"), 125, "policy_not_found")
        self.assertErrorCode(run("run", "--policy", "high", "--", "true"), 125, "level_unavailable")
        self.assertErrorCode(run("run", "--level", "custom", "--", "true"), 2, "bad_usage")
        self.assertErrorCode(run("run", "--level", "standard", "--policy", "debug", "--", "true"), 2, "bad_usage")

    def test_a_missing_file_is_reported_by_its_name(self):
        plain = self.file("plain", "x")
        for path in (os.path.join(self.dir, "missing.yaml"), "missing.yaml", plain + "/below.yaml"):
            done = run("run", "--policy", path, "--", "true")
            self.assertErrorCode(done, 125, "policy_not_found")
            self.assertTrue(done.err.startswith(f"cove: {path}: no file and no built-in policy has this name"), done.err)
            report = run("run", "--json", "--policy", path, "--", "true")
            self.assertEqual((report.code, report.json["error"]["code"], report.json["error"]["file"]), (125, "policy_not_found", path))
        done = run("run", "--policy", self.dir, "--", "true")
        self.assertErrorCode(done, 2, "policy_syntax")
        self.assertIn("cannot read the file: Is a directory", done.err)

    def test_a_relative_policy_path_and_relative_paths_in_it_are_found(self):
        self.policy("filesystem: {readOnly: [data]}\n", "sub/p.yaml")
        self.file("sub/data/x", "found")
        self.assertEqual(run("run", "--policy", "sub/p.yaml", "--", "cat", "/mnt/data/x", cwd=self.dir).out, "found")


class Grants(Case):
    @NEEDS_STRACE
    def test_strace_works_under_debug_and_only_there(self):
        done = run("run", "--policy", "debug", "--", "strace", "-f", "-e", "trace=openat", "cat", "/etc/hostname")
        self.assertCode(done, 0)
        self.assertIn('"/etc/hostname"', done.err, done)
        refused = run("run", "--", "strace", "true")
        self.assertNotEqual(refused.code, 0, refused)
        self.assertIn("Operation not permitted", refused.err)

    @NEEDS_GDB
    def test_gdb_stops_steps_and_reads_under_debug_and_only_there(self):
        args = ["gdb", "-nx", "-batch", "-ex", "starti", "-ex", "stepi", "-ex", "info registers rip", "-ex", "x/i $pc",
                "-ex", "kill", "/bin/true"]
        done = run("run", "--policy", "debug", "--", *args)
        self.assertCode(done, 0)
        self.assertIn("rip ", done.out, done)
        self.assertIn("=> 0x", done.out, done)
        self.assertNotIn("rip ", run("run", "--", *args).out)

    @NEEDS_STRACE
    def test_the_runtime_that_is_pid_1_stays_closed_to_tracers(self):
        done = run("run", "--policy", "debug", "--", "strace", "-p", "1")
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("Operation not permitted", done.err)

    def test_memory_and_descriptors_of_pid_1_stay_closed(self):
        code = """
import ctypes, os, signal
c = ctypes.CDLL(None, use_errno=True)
class iov(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
def tell(name, r):
    print(name, "refused" if r < 0 and ctypes.get_errno() in (1, 3, 13) else f"{r} {ctypes.get_errno()}")
def call(nr, *args): # whole words, or the upper half of an argument is what lay on the stack
    return c.syscall(*map(ctypes.c_long, (nr, *args)))
def copy(nr, pid, remote):
    local, remote = iov(ctypes.addressof(buf), 64), iov(remote, 64)
    return call(nr, pid, ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0)
buf = ctypes.create_string_buffer(64)
tell("readv", copy(310, 1, 0x400000))
tell("writev", copy(311, 1, 0x400000))
tell("attach", call(101, 16, 1, 0, 0))
tell("seize", call(101, 0x4206, 1, 0, 0))
tell("getfd", call(438, call(434, 1, 0), 3, 0))
tell("kcmp", call(312, os.getpid(), 1, 0, 0, 3))
try:
    open("/proc/1/mem", "rb"); print("mem opened")
except OSError:
    print("mem refused")
# and the same calls do work on a child
pid = os.fork()
if pid == 0:
    signal.pause()
print("child", copy(310, pid, ctypes.addressof(buf)))
os.kill(pid, 9)
"""
        done = run("run", "--policy", "debug", "--runtime", "python", "-c", code)
        self.assertEqual(done.out.splitlines(), ["readv refused", "writev refused", "attach refused", "seize refused",
                                                 "getfd refused", "kcmp refused", "mem refused", "child 64"], done)

    def test_a_tracer_cannot_make_a_refused_call_through_its_child(self):
        # The kernel applies the filter after the tracer: a changed call number is filtered as the
        # new call.
        code = """
import ctypes, os, signal
c = ctypes.CDLL(None, use_errno=True)
c.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
class regs(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in
                "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs gs ds es fsb gsb".split()]
pid = os.fork()
if pid == 0:
    c.ptrace(0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    r = c.syscall(39)
    os._exit(ctypes.get_errno() if r == -1 else 77)
os.waitpid(pid, 0)
got = False
while True:
    c.ptrace(24, pid, None, None)
    _, st = os.waitpid(pid, 0)
    if os.WIFEXITED(st):
        print("status", os.WEXITSTATUS(st)); break
    r = regs()
    c.ptrace(12, pid, None, ctypes.addressof(r))
    if r.orig_rax == 39 and not got:
        got = True
        r.orig_rax, r.rdi = 272, 0x10000000   # unshare(CLONE_NEWUSER)
        c.ptrace(13, pid, None, ctypes.addressof(r))
"""
        done = run("run", "--policy", "debug", "--runtime", "python", "-c", code)
        self.assertEqual(done.out, "status 1\n", done)

    def test_the_calls_of_py_spy_work_under_debug_and_only_there(self):
        """py-spy seizes a process and copies from its memory; Debian has no package of it, so the
        calls are made here."""
        script = ("import ctypes, os, time\n"
                  "libc = ctypes.CDLL(None, use_errno=True)\n"
                  "here, there = ctypes.create_string_buffer(8), ctypes.create_string_buffer(b'secrets', 8)\n"
                  "class Vec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]\n"
                  "child = os.fork()\n"
                  "while child == 0: time.sleep(1)\n"
                  "seized = libc.ptrace(0x4206, child, None, None)\n"
                  "to, of = Vec(ctypes.addressof(here), 8), Vec(ctypes.addressof(there), 8)\n"
                  "n = libc.process_vm_readv(child, ctypes.byref(to), 1, ctypes.byref(of), 1, 0)\n"
                  "print(seized, n, here.value.decode(), ctypes.get_errno())\n"
                  "os.kill(child, 9)\n")
        done = run("run", "--policy", "debug", "--runtime", "python", "-c", script)
        self.assertEqual((done.code, done.out), (0, "0 8 secrets 0\n"), done)
        done = run("run", "--runtime", "python", "-c", script)
        self.assertEqual((done.code, done.out), (0, "-1 -1  1\n"), done)

    def test_a_policy_file_may_request_the_debug_grant(self):
        path = self.file("p.yaml", "version: 1\nsyscalls: {grant: [debug]}\n")
        plan = run("run", "--dry-run", "--json", "--policy", path, "--", "true").json
        self.assertEqual(plan["granted"], ["debug"])


class Floor(Case):
    def floor(self, text):
        return {"COVE_FLOOR": self.file("floor.yaml", "version: 1\n" + text)}

    def test_a_policy_beyond_the_floor_is_refused_with_field_and_line(self):
        env = self.floor("limits: {memoryBytes: 128M}\nsyscalls: {forbid: [debug]}\n")
        path = self.file("p.yaml", "version: 1\nlimits:\n  memoryBytes: 256M\n")
        done = run("run", "--policy", path, "--", "true", env=env)
        self.assertErrorCode(done, 125, "policy_below_floor")
        self.assertIn(f"{path}:3:", done.err)
        self.assertIn("limits.memoryBytes", done.err)
        self.assertErrorCode(run("run", "--policy", "debug", "--", "true", env=env), 125, "policy_below_floor")
        self.assertErrorCode(run("policy", "check", path, env=env), 125, "policy_below_floor")

    def test_a_flag_beyond_the_floor_is_refused_and_a_default_is_lowered(self):
        env = self.floor("limits: {memoryBytes: 128M, timeoutMs: 400}\n")
        self.assertErrorCode(run("run", "--memory", "256M", "--", "true", env=env), 125, "policy_below_floor")
        self.assertCode(run("run", "--memory", "64M", "--", "true", env=env), 0)
        self.assertCode(run("run", "--", "sleep", "20", env=env), 124)
        self.assertCode(run("run", "-t", "--", "sleep", "20", env=env), 124)

    def test_calls_and_modes_of_the_floor_apply_to_standard(self):
        env = self.floor("syscalls: {deny: [inotify_init1]}\nfilesystem: {workspace: [copyOnWrite]}\n")
        code = "import ctypes; print(ctypes.CDLL(None).inotify_init1(0) < 0)"
        self.assertEqual(run("run", "--runtime", "python", "-c", code, env=env).out, "True\n")
        self.assertErrorCode(run("run", "-w", self.dir, "--", "true", env=env), 125, "policy_below_floor")
        self.assertCode(run("run", "-w", self.dir + ":cow", "--", "true", env=env), 0)

    def test_a_floor_may_require_what_only_root_can_have(self):
        env = dict(os.environ, **self.floor("walls: all\nenforce: [memoryBytes, pids]\n"))
        os.chmod(self.dir, 0o755)
        self.assertIn(run("run", "--", "true", env=env).code, (0, 125))
        plain = ["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups", COVE, "run", "--", "true"]
        free = subprocess.run(plain, capture_output=True, text=True, timeout=60)
        if free.returncode != 0:
            self.skipTest("plain users have no sandboxes on this host:" + free.stderr[-200:])
        held = subprocess.run(plain, capture_output=True, text=True, timeout=60, env=env)
        self.assertEqual(held.returncode, 125, held.stderr)
        self.assertRegex(held.stderr, "wall_missing|limit_not_enforced")

    def test_an_unreadable_floor_stops_every_run(self):
        self.assertErrorCode(run("run", "--", "true", env={"COVE_FLOOR": "/no/such/floor"}), 125, "policy_not_found")
        env = self.floor("limits: {memory: 1G}\n")
        self.assertErrorCode(run("run", "--", "true", env=env), 2, "policy_unknown_key")


class Verb(Case):
    def test_check_is_quiet_about_a_valid_policy(self):
        path = self.file("p.yaml", "version: 1\nname: fine\n")
        self.assertEqual(run("policy", "check", path).out, f"{path}: policy fine is valid\n")
        self.assertEqual(run("policy", "check", path, "--json").json, {"ok": True, "errors": []})

    def test_check_reports_each_error_with_its_line_and_a_fix_where_there_is_one(self):
        path = self.file("p.yaml", "version: 1\nlimts: {}\nnetwork: all\n")
        done = run("policy", "check", path)
        self.assertErrorCode(done, 2, "policy_unknown_key")
        self.assertEqual(done.err, f"cove: {path}:2:1: unknown key 'limts'; did you mean 'limits'? [policy_unknown_key]\n"
                         f"cove: {path}:3:10: network: must be none or a mapping [policy_bad_value]\n"
                         "  fix:   Write 'network: none', or {egress: [pypi.org, ...]}; docs/policies.md lists all forms.\n")

    def test_show_is_complete_and_its_json_can_be_used_as_a_file(self):
        shown = run("policy", "show", "debug", "--json").json
        self.assertEqual(shown["policy"]["syscalls"]["grant"], ["debug"])
        self.assertEqual(len(shown["policy"]["limits"]), 19)
        path = self.file("again.json", json.dumps(shown["policy"]))
        self.assertCode(run("policy", "check", path), 0)
        self.assertEqual(run("policy", "diff", "debug", path).out, "")

    def test_diff_returns_1_when_policies_differ(self):
        done = run("policy", "diff", "standard", "debug")
        self.assertCode(done, 1)
        self.assertIn("+ syscalls.grant.debug", done.out)
        self.assertCode(run("policy", "diff", "standard", "standard"), 0)

    def test_import_writes_a_policy_and_lists_what_is_lost(self):
        path = self.file("srt.json", json.dumps({"network": {"allowUnixSockets": ["/x.sock"]},
                                                 "filesystem": {"allowWrite": ["."], "denyRead": ["~/.ssh"]}}))
        done = run("policy", "import", path)
        self.assertCode(done, 0)
        self.assertIn("allowUnixSockets '/x.sock': no equivalent", done.err)
        self.assertIn("1 setting without an equivalent", done.err)
        made = self.file("made.yaml", done.out)
        self.file("x", "here")
        self.assertEqual(run("run", "--policy", made, "--", "cat", "x").out, "here")

    def test_imported_domains_are_rules_of_a_valid_policy(self):
        path = self.file("srt.json", json.dumps({"network": {"allowedDomains": ["*.example.com", "127.0.0.1"],
                                                             "deniedDomains": ["x.example.com"]}}))
        done = run("policy", "import", path)
        self.assertIn("allowedDomains '*.example.com': kept: allowed on ports 80 and 443", done.err)
        self.assertIn("1 setting without an equivalent", done.err)
        shown = run("policy", "show", self.file("made.yaml", done.out), "--json").json["policy"]
        self.assertEqual(shown["network"], {"mode": "egress", "egress": ["deny x.example.com:*", "allow *.example.com"]})

    def test_rules_of_the_network_are_shown_and_survive_as_a_file(self):
        path = self.file("p.yaml", "version: 1\nnetwork:\n  egress: ['preset:pypi', {deny: '*:22'}]\n"
                                   "  secrets: [{name: k, host: api.example.com}]\n")
        self.assertRegex(run("policy", "show", path).out, rf"\n  network.rule.2 +deny \*:22 +{path}:3\n")
        again = self.file("again.json", json.dumps(run("policy", "show", path, "--json").json["policy"]))
        self.assertEqual(run("policy", "diff", path, again).out, "")
        self.assertIn("+ network.rule.1 ", run("policy", "diff", "standard", path).out)

    def test_why_decides_about_a_url_without_a_server(self):
        path = self.file("p.yaml", "version: 1\nnetwork:\n  egress:\n    - preset:pypi\n"
                                   "    - {allow: 'a.example:80', methods: [GET]}\n")
        for words, code, parts in (
                ([path, "https://pypi.org/simple/"], 0, ["allowed: pypi.org:443\n", "rule    allow preset:pypi\n"]),
                ([path, "https://example.org/"], 1, ["refused: example.org:443\n", "rule    no rule matches\n",
                                                     "reason  no rule allows example.org:443\n",
                                                     "fix     allow example.org:443\n"]),
                ([path, "http://a.example/x"], 0, ["allow a.example:80 methods=GET\n"]),
                (["--method", "POST", path, "http://a.example/x"], 1, ["this method and path on a.example:80\n"]),
                (["standard", "https://pypi.org/"], 1, ["fix     allow pypi.org:443\n"])):
            with self.subTest(words):
                done = run("policy", "why", *words)
                self.assertCode(done, code)
                for part in parts:
                    self.assertIn(part, done.out)
        answer = run("policy", "why", "--json", path, "https://example.org/").json
        self.assertEqual((answer["allowed"], answer["fix"]), (False, "allow example.org:443"))
        self.assertErrorCode(run("policy", "why", path, "https://127.1/"), 2, "invalid_request")
        self.assertErrorCode(run("policy", "why", path), 2, "bad_usage")

    def test_why_names_closed_ranges_and_follows_the_floor(self):
        path = self.file("p.yaml", "version: 1\nnetwork: {allow: ['169.254.169.254', '10.1.2.3', a.internal]}\n")
        done = run("policy", "why", path, "http://169.254.169.254/latest/")
        self.assertCode(done, 1)
        self.assertIn("closed (metadata)", done.out)
        limits = "version: 1\nnetwork: {openRanges: [10.1.0.0/16], deny: ['*.internal:*']}\n"
        floor = {"COVE_FLOOR": self.file("floor.yaml", limits)}
        self.assertCode(run("policy", "why", path, "http://10.1.2.3/"), 1)
        self.assertCode(run("policy", "why", path, "http://10.1.2.3/", env=floor), 0)
        self.assertCode(run("policy", "why", path, "http://a.internal/"), 0)
        done = run("policy", "why", path, "http://a.internal/", env=floor)
        self.assertCode(done, 1)
        self.assertIn("rule    deny *.internal:*\n", done.out)

    def test_help_is_generated_from_the_table(self):
        for args in (["help", "policy"], ["policy", "--help"]):
            self.assertIn("policy import SETTINGS.json", run(*args).out)

    def test_unknown_verbs_are_refused(self):
        self.assertErrorCode(run("policy"), 2, "bad_usage")
        self.assertErrorCode(run("policy", "chek", "x"), 2, "did you mean 'check'")
        self.assertErrorCode(run("policy", "check"), 2, "bad_usage")
        self.assertErrorCode(run("policy", "check", "--what", "x"), 2, "bad_usage")

    def test_a_missing_policy_program_is_reported(self):
        runtime = os.path.join(os.path.dirname(COVE), "cove-runtime")
        if not os.path.exists(runtime):
            self.skipTest("this cove is not in a build directory")
        lonely = os.path.join(self.dir, "libexec")
        os.mkdir(lonely)
        shutil.copy(runtime, lonely)
        env = {"COVE_LIBEXEC": lonely}
        self.assertErrorCode(run("policy", "show", env=env), 125, "policy_program_missing")
        path = self.file("p.yaml", "version: 1\n")
        self.assertErrorCode(run("run", "--policy", path, "--", "true", env=env), 125, "policy_program_missing")
        self.assertCode(run("run", "--policy", "debug", "--", "true", env=env), 0)
