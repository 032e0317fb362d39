"""`cove doctor`: it says what holds, by attacking; it notices what does not, and its status says so."""
import concurrent.futures
import functools
import glob
import os
import shutil
import signal
import subprocess
import time
import unittest

from cove import COVE, Case, Done, run
from server import wait_for

USER = 65534
PARTS = ("cove", "cove-runtime", "cove-probe")


@functools.lru_cache(maxsize=None)
def doctor_json():
    """One for all tests that look at it: it takes seconds."""
    return run("doctor", "--json")


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class AsRoot(Case):
    undivided = True

    def test_every_line_is_held_and_the_status_is_0(self):
        done = run("doctor")
        self.assertEqual((done.code, done.err), (0, ""), done)
        *lines, also, verdict = done.out.splitlines()
        self.assertEqual([line for line in lines if not line.startswith("held ")], [], done)
        self.assertRegex(also, "^also +disk rates .*--io-read")
        self.assertRegex(verdict, r"^standard is complete on this host: \d+ walls and \d+ limits held$")
        self.assertGreaterEqual(len(lines), 39)

    def test_json_has_the_same_rows_with_what_was_seen(self):
        done = doctor_json()
        self.assertCode(done, 0)
        found = done.json
        self.assertEqual((found["level"], found["complete"], found["exitStatus"], found["rootless"]), ("standard", True, 0, False))
        for row in found["walls"] + found["limits"]:
            self.assertEqual(set(row), {"name", "state", "tried", "seen"}, row)
            self.assertEqual(row["state"], "held", row)
        names = {row["name"] for row in found["walls"]}
        receipt = run("run", "--json", "--", "true").json["receipt"]["walls"]
        self.assertEqual({*receipt["outside"], *receipt["inside"]} - names, set(), "a wall that nobody attacks")
        limits = set(run("run", "--json", "--cpu-time", "10s", "--", "true").json["receipt"]["limits"])
        self.assertLessEqual({row["name"] for row in found["limits"]} - {"idleTimeoutMs"}, limits)  # no flag sets that one

    def test_every_limit_that_standard_has_is_attacked(self):
        attacked = {row["name"] for row in doctor_json().json["limits"]}
        for name in ("memoryBytes", "cpuMillis", "pids", "timeoutMs", "cpuTimeMs", "lifetimeMs", "idleTimeoutMs", "outputBytes"):
            self.assertIn(name, attacked)
        self.assertEqual(set(run("run", "--json", "--", "true").json["receipt"]["limits"]) - attacked, {"swapBytes"})

    def test_a_floor_is_told_and_whether_this_host_meets_it(self):
        floor = self.file("floor.yaml", "version: 1\nenforce: [memoryBytes, pids]\nlimits:\n  memoryBytes: 64M\n")
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            done, told = both.map(lambda flags: run("doctor", *flags, env={"COVE_FLOOR": floor}), ((), ("--json",)))
        self.assertCode(done, 0)
        self.assertRegex(done.out, f"also +floor +{floor}: met; they apply to every run here\n")
        self.assertTrue(told.json["floor"]["met"])

    def test_a_floor_that_stops_every_run_stops_the_doctor_with_the_same_words(self):
        for text in ("version: 1\nlevel: high\n", "version: 1\nfloor: 1\n"):
            floor = self.file("floor.yaml", text)
            ours, theirs = run("doctor", env={"COVE_FLOOR": floor}), run("run", "--", "true", env={"COVE_FLOOR": floor})
            self.assertNotEqual(ours.code, 0)
            self.assertEqual((ours.code, ours.out, ours.err), (theirs.code, "", theirs.err))

    def test_disk_rates_are_tried_where_the_host_has_them(self):
        says = doctor_json().json["diskRates"]
        work = os.path.join(self.dir, "work")
        os.mkdir(work)
        limits = run("run", "--json", "--workspace", work, "--io-read", "1M", "--", "true").json["receipt"]["limits"]
        if "not tested" in says or limits["ioReadBytesPerSecond"]["state"] != "enforced":
            self.skipTest(says)
        self.assertRegex(says, r"^--io-read held \(384 KiB took \d+ ms\); --io-write held")

    def test_a_signal_ends_it_and_what_it_lent_goes_too(self):
        """The directory for disk rates is the one thing that does not go with the process by itself."""
        def lent():
            return set(glob.glob("/var/tmp/cove-doctor-*"))
        before = lent()
        process = subprocess.Popen([COVE, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while process.poll() is None and not lent() - before and time.monotonic() < end:
            time.sleep(0.005)
        mine = lent() - before
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertIn(process.returncode, (0, 128 + signal.SIGTERM))  # 0 where there was nothing to lend, and it is over
        while mine & lent() and time.monotonic() < end:  # others may run a doctor here
            time.sleep(0.01)
        self.assertEqual(mine & lent(), set())

    def test_it_leaves_nothing_behind(self):
        state = os.path.join(self.dir, "state")
        os.mkdir(state)
        def left():
            """Shared memory whose maker has ended: other doctors may be at work."""
            with open("/proc/sysvipc/shm", encoding="ascii") as f:
                rows = [line.split() for line in f if " 4096 " in line]
            return {row[1] for row in rows if not os.path.exists(f"/proc/{row[4]}")}
        before = left()
        self.assertCode(run("doctor", "--state-dir", state), 0)
        wait_for(lambda: not left() - before)  # one more of another doctor may just be going
        self.assertEqual(run("ls", "--state-dir", state).out, "")


class Refusals(Case):
    def test_words_are_a_usage_error(self):
        self.assertErrorCode(run("doctor", "now"), 2, "bad_usage")

    def test_without_the_probe_nothing_is_claimed(self):
        for name in PARTS[:2]:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)
        done = run("doctor", env={"COVE_LIBEXEC": self.dir})
        self.assertErrorCode(done, 125, "probe_program_missing")
        self.assertEqual(done.out, "")

    def test_the_probe_does_nothing_outside_a_sandbox(self):
        done = subprocess.run([os.path.join(os.path.dirname(COVE), "cove-probe"), "limits"], capture_output=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, b""))

    def test_a_probe_that_lies_in_another_form_is_refused(self):
        """What comes out of the sandbox is hostile input."""
        for name in PARTS:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)
        for text in ("landlock held fine", "landlock\\theld\\tx\\nlandlock\\theld\\tx", "moat\\theld\\tx"):
            with self.subTest(text):
                self.file("cove-probe", f"#!/bin/sh\nprintf '{text}\\n'\n", 0o755)
                done = run("doctor", env={"COVE_LIBEXEC": self.dir})
                self.assertErrorCode(done, 125, "protocol_error")
        self.file("cove-probe", "#!/bin/sh\nwhile :; do echo; done | head -c 20000\n", 0o755)
        self.assertErrorCode(run("doctor", env={"COVE_LIBEXEC": self.dir}), 125, "protocol_error")

    def test_silence_is_not_held(self):
        for name in PARTS:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)
        self.file("cove-probe", "#!/bin/sh\nexit 0\n", 0o755)
        done = run("doctor", env={"COVE_LIBEXEC": self.dir})
        self.assertCode(done, 1)
        self.assertIn("the attack gave no answer", done.out)
        self.assertIn("standard is not complete on this host: user_namespace", done.out)


@unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody else")
class AsPlainUser(Case):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.state = os.path.join(self.dir, "state")
        os.mkdir(self.state, 0o700)
        for name in PARTS:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)

    def run_as_user(self, *args):
        ended = subprocess.run([os.path.join(self.dir, "cove"), *args], capture_output=True, user=USER, group=USER,
                               extra_groups=[4, 5], cwd="/", timeout=60, check=False,
                               env={"COVE_STATE_DIR": self.state, "COVE_LIBEXEC": self.dir})
        return Done(args, ended.returncode, ended.stdout, ended.stderr)

    def test_where_no_sandbox_can_be_made_the_error_is_that_of_run(self):
        ours, theirs = self.run_as_user("doctor"), self.run_as_user("run", "--", "true")  # the state is somebody else's
        self.assertEqual((ours.code, ours.out, ours.err), (125, "", theirs.err), ours)
        self.assertRegex(ours.err, r"^cove: .*: Permission denied \[[a-z_]+\]\n$")
        self.assertEqual(set(self.run_as_user("doctor", "--json").json["error"]), {"code", "message"})

    def test_what_is_weaker_is_partial_and_the_status_is_3(self):
        os.chown(self.state, USER, USER)
        done = self.run_as_user("doctor", "--json")
        if done.code == 125 and "no_namespaces" in done.out:
            self.skipTest("this host lets no plain user make user namespaces")
        self.assertCode(done, 3)
        self.assertTrue(done.json["rootless"])
        self.assertFalse(done.json["complete"])
        for row in done.json["walls"]:
            expected = "partial" if row["name"] in ("unique_uid", "no_groups") else "held"
            self.assertEqual(row["state"], expected, row)
        weak = {row["name"]: row for row in done.json["limits"] if row["state"] != "held"}
        self.assertLessEqual(set(weak), {"memoryBytes", "pids", "cpuMillis", "cpuTimeMs"})
        for row in weak.values():
            self.assertIn("root", row["fix"])
