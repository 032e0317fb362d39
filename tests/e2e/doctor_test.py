"""`cove doctor`: it checks each wall by attacking it, reports missing walls, and returns a matching
status.
"""
import concurrent.futures
import functools
import glob
import os
import shutil
import signal
import subprocess
import time
import unittest

from cli_terminal_test import Terminal
from cove import COVE, Case, Done, run
from server import wait_for

USER = 65534
PARTS = ("cove", "cove-runtime", "cove-probe")
# A proxy that answers every bind, name and CONNECT with yes: header of a frame is u32 length, u8
# type, u8 flags, u16 zero, u32 stream.
OPEN_PROXY = """#!/usr/bin/python3
import array, os, select, socket, struct, sys
told = dict(zip(sys.argv[1::2], sys.argv[2::2]))
jailer = socket.socket(fileno=int(told["--jailer-fd"]))
engine = socket.socket(fileno=int(told["--engine-fd"]))
waiting, listening = [jailer, engine], {}
while True:
    for ready in select.select(waiting, [], [])[0]:
        if ready is jailer:
            data, fds, _, _ = socket.recv_fds(jailer, 65536, 8)
            for fd in fds:
                listening[fd] = socket.socket(fileno=fd)
                waiting.append(listening[fd])
        elif ready is engine:
            data = engine.recv(66000)
            if data:
                stream = struct.unpack("<I", data[8:12])[0]
                kind = {98: 99, 100: 102, 101: 102}.get(data[4], 0)
                body = bytes(1 + 8 * 6 + 4) if kind == 102 else b""
                if kind:
                    engine.send(struct.pack("<IBBHI", len(body), kind, 0, 0, stream) + body)
        elif ready.type == socket.SOCK_DGRAM:
            query, peer = ready.recvfrom(512)
            ready.sendto(query[:2] + b"\\x81\\x83" + query[4:], peer)
        else:
            near = ready.accept()[0]
            near.setblocking(True)
            if near.getsockname()[1] == 3128:
                near.recv(4096)
                near.send(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
            near.close()
        if ready in (jailer, engine) and not data:
            sys.exit(0)
"""


@functools.lru_cache(maxsize=None)
def doctor_json():
    """One report for all tests that read it: it takes seconds."""
    return run("doctor", "--json")


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class AsRoot(Case):
    undivided = True

    def test_every_row_is_held_and_the_status_is_0(self):
        done = run("doctor")
        self.assertEqual((done.code, done.err), (0, ""), done)
        *rows, verdict = done.out.splitlines()
        lines = [line for line in rows if line.startswith("held ")]
        rates, network, native, bwrap = [line for line in rows if line not in lines and not line.startswith(" ")]
        self.assertRegex(rates, "^also +disk rates .*--io-read")
        self.assertRegex(network, "^also +network +carrier (proxy|tproxy).*; everything that no rule allows was refused$")
        self.assertRegex(native, "^also +driver native +available; tested above$")
        self.assertRegex(bwrap, "^also +driver bwrap +(un)?available")
        self.assertRegex(verdict, r"^standard is complete on this host: \d+ walls and \d+ limits held$")
        self.assertGreaterEqual(len(lines), 39)

    def test_json_has_the_same_rows_with_the_evidence(self):
        done = doctor_json()
        self.assertCode(done, 0)
        found = done.json
        self.assertEqual((found["level"], found["complete"], found["exitStatus"], found["rootless"]), ("standard", True, 0, False))
        for row in found["walls"] + found["limits"]:
            self.assertEqual(set(row), {"name", "state", "tried", "seen"}, row)
            self.assertEqual(row["state"], "held", row)
        names = {row["name"] for row in found["walls"]}
        receipt = run("run", "--json", "--", "true").json["receipt"]["walls"]
        self.assertEqual({*receipt["outside"], *receipt["inside"]} - names, set(), "a wall that the doctor does not attack")
        limits = set(run("run", "--json", "--cpu-time", "10s", "--", "true").json["receipt"]["limits"])
        self.assertLessEqual({row["name"] for row in found["limits"]} - {"idleTimeoutMs"}, limits)  # this limit has no flag

    def test_every_limit_that_standard_has_is_attacked(self):
        attacked = {row["name"] for row in doctor_json().json["limits"]}
        for name in ("memoryBytes", "cpuMillis", "pids", "timeoutMs", "cpuTimeMs", "lifetimeMs", "idleTimeoutMs", "outputBytes"):
            self.assertIn(name, attacked)
        self.assertEqual(set(run("run", "--json", "--", "true").json["receipt"]["limits"]) - attacked, {"swapBytes"})

    def test_a_network_is_attacked_with_the_carrier_of_this_kernel(self):
        found = doctor_json().json["network"]
        self.assertEqual((set(found), found["held"]), ({"carrier", "held", "says"}, True), found)
        self.assertIn(found["carrier"], ("tproxy", "proxy"))
        self.assertIn("carrier " + found["carrier"], found["says"])

    def test_a_host_without_the_egress_proxy_is_complete_and_reports_why_it_has_no_network(self):
        for name in PARTS:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)
        done = run("doctor", "--json", env={"COVE_LIBEXEC": self.dir})
        self.assertCode(done, 0)
        self.assertEqual(done.json["network"]["carrier"], "none", done.json["network"])
        self.assertRegex(done.json["network"]["says"], "^not available: .*cove-egress")

    def test_a_proxy_that_allows_everything_is_found(self):
        for name in PARTS:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)
        self.file("cove-egress", OPEN_PROXY, 0o755)
        done = run("doctor", env={"COVE_LIBEXEC": self.dir})
        self.assertCode(done, 1)
        self.assertRegex(done.out, "(?m)^also +network .*a destination that no rule allows: DID NOT HOLD .the proxy answered: HTTP/1.1 200")
        self.assertRegex(done.out, "(?m)^standard is not complete on this host: network did not hold$")

    def test_a_floor_is_reported_with_whether_this_host_meets_it(self):
        floor = self.file("floor.yaml", "version: 1\nenforce: [memoryBytes, pids]\nlimits:\n  memoryBytes: 64M\n")
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            done, told = both.map(lambda flags: run("doctor", *flags, env={"COVE_FLOOR": floor}), ((), ("--json",)))
        self.assertCode(done, 0)
        self.assertRegex(done.out, f"also +floor +{floor}: met; they apply to every run here\n")
        self.assertTrue(told.json["floor"]["met"])

    def test_a_floor_that_stops_every_run_stops_the_doctor_with_the_same_message(self):
        for text in ("version: 1\nlevel: high\n", "version: 1\nfloor: 1\n"):
            floor = self.file("floor.yaml", text)
            ours, theirs = run("doctor", env={"COVE_FLOOR": floor}), run("run", "--", "true", env={"COVE_FLOOR": floor})
            self.assertNotEqual(ours.code, 0)
            self.assertEqual((ours.code, ours.out, ours.err), (theirs.code, "", theirs.err))

    def test_a_terminal_sees_the_progress_and_a_pipe_does_not(self):
        t = Terminal("doctor")
        self.addCleanup(t.close)
        shown = t.read(None)
        self.assertRegex(shown, rb"\rcove: test 1 of \d+\rcove: test 2 of ")
        self.assertIn(b"\r\x1b[K", shown)
        self.assertIn(t.wait(), (0, 3))
        self.assertNotIn("cove: test", run("doctor").err)

    def test_disk_rates_are_tried_where_the_host_has_them(self):
        says = doctor_json().json["diskRates"]
        work = os.path.join(self.dir, "work")
        os.mkdir(work)
        limits = run("run", "--json", "--workspace", work, "--io-read", "1M", "--", "true").json["receipt"]["limits"]
        if "not tested" in says or limits["ioReadBytesPerSecond"]["state"] != "enforced":
            self.skipTest(says)
        self.assertRegex(says, r"^--io-read held \(384 KiB took \d+ ms\); --io-write held")

    def test_a_signal_ends_the_doctor_and_removes_its_directory(self):
        """The directory for disk rates is the only resource that does not end with the process."""
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
        self.assertIn(process.returncode, (0, 128 + signal.SIGTERM))  # 0 where there was no directory to make, and the doctor has finished
        while mine & lent() and time.monotonic() < end:  # other doctors may run on this host
            time.sleep(0.01)
        self.assertEqual(mine & lent(), set())

    def test_the_doctor_leaves_no_resources(self):
        state = os.path.join(self.dir, "state")
        os.mkdir(state)
        def left():
            """Shared memory whose creator has ended: other doctors may run at the same time."""
            with open("/proc/sysvipc/shm", encoding="ascii") as f:
                rows = [line.split() for line in f if " 4096 " in line]
            return {row[1] for row in rows if not os.path.exists(f"/proc/{row[4]}")}
        before = left()
        self.assertCode(run("doctor", "--state-dir", state), 0)
        wait_for(lambda: not left() - before)  # another doctor may be about to end
        self.assertEqual(run("ls", "-q", "--local", "--state-dir", state).out, "")


class Refusals(Case):
    def test_arguments_are_a_usage_error(self):
        self.assertErrorCode(run("doctor", "now"), 2, "bad_usage")

    def test_without_the_probe_nothing_is_reported_as_held(self):
        for name in PARTS[:2]:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)
        done = run("doctor", env={"COVE_LIBEXEC": self.dir})
        self.assertErrorCode(done, 125, "probe_program_missing")
        self.assertEqual(done.out, "")

    def test_the_probe_does_nothing_outside_a_sandbox(self):
        done = subprocess.run([os.path.join(os.path.dirname(COVE), "cove-probe"), "limits"], capture_output=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, b""))

    def test_malformed_output_of_the_probe_is_refused(self):
        """Output of the sandbox is hostile input."""
        for name in PARTS:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)
        for text in ("landlock held fine", "landlock\\theld\\tx\\nlandlock\\theld\\tx", "moat\\theld\\tx"):
            with self.subTest(text):
                self.file("cove-probe", f"#!/bin/sh\nprintf '{text}\\n'\n", 0o755)
                done = run("doctor", env={"COVE_LIBEXEC": self.dir})
                self.assertErrorCode(done, 125, "protocol_error")
        self.file("cove-probe", "#!/bin/sh\nwhile :; do echo; done | head -c 20000\n", 0o755)
        self.assertErrorCode(run("doctor", env={"COVE_LIBEXEC": self.dir}), 125, "protocol_error")

    def test_a_missing_answer_is_not_reported_as_held(self):
        for name in PARTS:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.dir)
        self.file("cove-probe", "#!/bin/sh\nexit 0\n", 0o755)
        done = run("doctor", env={"COVE_LIBEXEC": self.dir})
        self.assertCode(done, 1)
        self.assertIn("the attack gave no answer", done.out)
        self.assertIn("standard is not complete on this host: user_namespace", done.out)


@unittest.skipUnless(os.geteuid() == 0, "needs root to run as another user")
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

    def test_without_sandboxes_the_error_is_the_same_as_of_run(self):
        ours, theirs = self.run_as_user("doctor"), self.run_as_user("run", "--", "true")  # the state directory belongs to another user
        self.assertEqual((ours.code, ours.out, ours.err), (125, "", theirs.err), ours)
        self.assertRegex(ours.err, r"^cove: .*: Permission denied \[[a-z_]+\]\n$")
        self.assertEqual(set(self.run_as_user("doctor", "--json").json["error"]), {"code", "message"})

    def test_a_weaker_host_is_partial_and_the_status_is_3(self):
        os.chown(self.state, USER, USER)
        done = self.run_as_user("doctor", "--json")
        if done.code == 125 and "no_namespaces" in done.out:
            self.skipTest("plain users cannot create user namespaces on this host")
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
