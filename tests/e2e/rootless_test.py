"""Sandboxes of a plain user: the same walls, with user namespaces, and a clear report of the weaker
limits.
"""
import os
import shutil
import subprocess
import sys
import time

from cove import COVE, Case, Done

USER = 65534


class RootlessCase(Case):
    """self.run_as_user runs cove as a plain user."""

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        for name in ("cove", "cove-runtime", "cove-egress"):  # the build may be in a directory that other users cannot enter
            shutil.copy(os.path.join(os.path.dirname(os.path.realpath(COVE)), name), self.dir)
        self.state = os.path.join(self.dir, "state")
        os.mkdir(self.state, 0o700)
        os.chown(self.state, USER, USER)

    def run_as_user(self, *args, timeout=60):
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "COVE_STATE_DIR": self.state,
               "COVE_LIBEXEC": self.dir, "PLANTED": "a secret"}
        done = subprocess.run([os.path.join(self.dir, "cove"), *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, user=USER, group=USER, extra_groups=[4, 5], env=env, cwd="/",
                              timeout=timeout, check=False)
        if done.returncode == 125 and b"no_namespaces" in done.stderr:
            self.skipTest("plain users cannot create user namespaces on this host")
        return Done(args, done.returncode, done.stdout, done.stderr)


class Rootless(RootlessCase):
    def test_a_program_runs_as_an_ordinary_user_without_capabilities(self):
        done = self.run_as_user("run", "-q", "--", "sh", "-c", "id -u; grep -E 'CapEff|CapBnd|NoNewPrivs|^Seccomp:' /proc/self/status")
        self.assertEqual(done.code, 0, done)
        self.assertEqual(done.out.split(), ["1000", "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:",
                                            "2"], done)

    def test_a_plain_user_has_a_network_by_rules(self):
        done = self.run_as_user("run", "--json", "--allow", "known.test", "--", "sh", "-c",
                                "getent hosts known.test; curl -sS http://refused.test/; ! curl -sS --noproxy '*' http://refused.test/")
        result = done.json
        self.assertEqual(result["exitCode"], 0, done)
        self.assertIn("198.18.", result["stdout"])
        self.assertIn("egress_denied", result["stdout"])
        self.assertIn("Could not resolve host", result["stderr"])
        network = result["receipt"]["network"]
        self.assertEqual((network["mode"], network["connections"], network["rules"]), ("egress", 0, ["allow known.test"]))
        self.assertIn("refused.test", [d["host"] for d in network["destinations"]])

    def test_nothing_of_the_caller_is_visible_inside(self):
        done = self.run_as_user("run", "-q", "--", "sh", "-c", "env; ls /home /root; touch /etc/x /usr/x /.cove/x")
        self.assertNotEqual(done.code, 0, done)
        self.assertNotIn("secret", done.out)
        self.assertEqual(done.err.count("Read-only file system"), 3, done)

    def test_the_receipt_lists_weaker_walls(self):
        receipt = self.run_as_user("run", "--json", "--", "true").json["receipt"]
        self.assertTrue(receipt["walls"]["rootless"])
        self.assertNotIn("unique_uid", receipt["walls"]["outside"])
        self.assertIn("landlock", receipt["walls"]["inside"])
        self.assertEqual(receipt["limits"]["memoryBytes"]["state"], "partial")
        self.assertEqual(receipt["limits"]["workspaceBytes"]["state"], "enforced")

    def test_a_host_without_user_namespaces_is_reported_with_its_setting_and_the_fix(self):
        """A user namespace that forbids further user namespaces behaves like such a host, and
        affects no other process."""
        script = ("import ctypes, os\n"
                  "assert ctypes.CDLL(None).unshare(0x10000000) == 0\n"
                  "print('there', flush=True); input()\n"
                  "open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
                  f"os.setgroups([]); os.setresgid({USER}, {USER}, {USER}); os.setresuid({USER}, {USER}, {USER})\n"
                  f"os.execv('{self.dir}/cove', ['cove', 'run', '--', 'true'])\n")
        env = {"PATH": os.environ["PATH"], "HOME": "/", "COVE_STATE_DIR": self.state, "COVE_LIBEXEC": self.dir}
        host = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=env, cwd="/", text=True)
        self.assertEqual(host.stdout.readline(), "there\n")
        for kind in ("uid", "gid"):
            with open(f"/proc/{host.pid}/{kind}_map", "w", encoding="ascii") as f:
                f.write("0 0 65536")
        _, said = host.communicate("go\n", timeout=60)
        self.assertEqual(host.returncode, 125, said)
        self.assertIn("no_namespaces", said)
        self.assertIn("user.max_user_namespaces", said)

    def test_one_line_reports_the_weaker_limits(self):
        done = self.run_as_user("run", "--", "true")
        self.assertEqual(done.code, 0, done)
        self.assertEqual(len(done.err.strip().splitlines()), 1, done)

    def test_a_timeout_ends_the_whole_process_tree(self):
        mark = "rootless-" + os.path.basename(self.dir)
        done = self.run_as_user("run", "-q", "--timeout", "700ms", "--", "sh", "-c",
                                f"(setsid sh -c 'trap \"\" TERM HUP; exec -a {mark} sleep 300' &) ; sleep 300")
        self.assertEqual(done.code, 124, done)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and subprocess.run(["pgrep", "-f", mark], stdout=subprocess.DEVNULL,
                                                            check=False).returncode == 0:
            time.sleep(0.05)
        self.assertNotEqual(subprocess.run(["pgrep", "-f", mark], stdout=subprocess.DEVNULL, check=False).returncode, 0)

    def test_cpu_time_of_a_process_is_bounded_and_reported(self):
        done = self.run_as_user("run", "-q", "--cpu-time", "1s", "--timeout", "50s", "--", "sh", "-c", "exec sh -c 'while :; do :; done'")
        self.assertEqual(done.code, 124, done)

    def test_processes_are_bounded(self):
        done = self.run_as_user("run", "-q", "--pids", "20", "--", "sh", "-c",
                                "for i in $(seq 60); do sleep 5 & done; wait")
        self.assertIn("fork", done.err, done)

    def test_a_workspace_keeps_its_owner(self):
        work = os.path.join(self.dir, "work")
        os.mkdir(work)
        os.chown(work, USER, USER)
        done = self.run_as_user("run", "-q", "--workspace", work, "--", "sh", "-c", "echo made > here; id -un")
        self.assertEqual((done.code, done.out), (0, "cove\n"), done)
        self.assertEqual(os.stat(os.path.join(work, "here")).st_uid, USER)

    def test_copy_on_write_leaves_the_directory_unchanged(self):
        work = os.path.join(self.dir, "work")
        os.mkdir(work)
        with open(os.path.join(work, "old"), "w", encoding="utf-8") as f:
            f.write("old\n")
        for path in (work, os.path.join(work, "old")):
            os.chown(path, USER, USER)
        done = self.run_as_user("run", "-q", "--workspace", work + ":cow", "--", "sh", "-c", "echo new > old; rm -f x; cat old")
        self.assertEqual((done.code, done.out), (0, "new\n"), done)
        with open(os.path.join(work, "old"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "old\n")

    def test_walls_that_need_root_are_refused_before_anything_runs(self):
        done = self.run_as_user("run", "--keep", "--", "sh", "-c", "echo ran")
        self.assertEqual((done.code, done.out), (125, ""), done)
        self.assertIn("no_cgroup", done.err)
        self.assertIn("loginctl enable-linger", done.err)

    def test_root_without_its_capabilities_gets_a_specific_error(self):
        """As in a container: the process is root already."""
        done = subprocess.run(["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", COVE, "run", "--", "true"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("no_namespaces", done.stderr)
        self.assertRegex(done.stderr, "root (of|without) .*may not make namespaces")

    def test_read_only_cgroups_are_reported(self):
        script = "for d in $(awk '$9 ~ /^cgroup/ || $10 ~ /^cgroup/ { print $5 }' /proc/self/mountinfo); do mount -o remount,ro,bind $d || exit 9; done; "
        done = subprocess.run(["unshare", "-m", "sh", "-c", script + f"exec {COVE} run -- true"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("no_cgroup", done.stderr)
        self.assertIn("read-only", done.stderr)

    def test_a_state_directory_of_another_user_is_refused(self):
        os.chown(self.state, 0, 0)
        done = self.run_as_user("run", "--", "true")
        self.assertEqual(done.code, 125, done)
