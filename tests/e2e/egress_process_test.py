"""The egress proxy as a program of `cove serve`: its arguments, its restarts, and a server without
it. The program is a script here, which only listens.
"""
import json
import os
import shutil
import signal

from cove import COVE, Case, run
from server import Launched, processes, wait_for

PROGRAMS = ("cove", "cove-serve", "coved", "cove-runtime")
LISTENER = """#!/usr/bin/python3
import json, os, socket, sys
with open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "arguments"), "w", encoding="utf-8") as f:
    json.dump(dict(zip(sys.argv[1::2], sys.argv[2::2])), f)
path = sys.argv[sys.argv.index("--socket") + 1]
if os.path.exists(path):
    os.unlink(path)
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(path)
server.listen(8)
kept = []
while True:
    kept.append(server.accept()[0])
"""
BROKEN = "#!/bin/sh\nexit 3\n"


class EgressProcess(Case):
    def setUp(self):
        super().setUp()
        self.programs = os.path.join(self.dir, "programs")
        self.run_dir = os.path.join(self.dir, "place/run")
        self.launched = None
        os.mkdir(self.programs)
        for name in PROGRAMS:
            shutil.copy(os.path.join(os.path.dirname(COVE), name), self.programs)

    def tearDown(self):
        if self.launched:
            self.launched.kill()
        super().tearDown()

    def start(self, script, *flags):
        if script:
            path = os.path.join(self.programs, "cove-egress")
            with open(path, "w", encoding="utf-8") as f:
                f.write(script)
            os.chmod(path, 0o755)
        self.launched = Launched(os.path.join(self.programs, "cove"), self.dir, "--pools-default", "off", *flags)

    def stop(self):
        self.assertEqual(self.launched.stop(), 0, self.launched.logged())
        self.assertEqual(processes(self.run_dir), {})
        self.assertFalse(os.path.exists(os.path.join(self.run_dir, "egress.sock")))

    def test_its_arguments_are_those_of_the_settings(self):
        self.start(LISTENER, "--egress-open-ranges", "10.1.0.0/16, 192.168.1.7", "--egress-resolvers", "10.1.0.53",
                   "--egress-connections-per-sandbox", "7", "--egress-connections-per-tenant", "70", "--egress-ca-file", "/etc/own.pem",
                   "--log-level", "warn")
        path = os.path.join(self.programs, "arguments")
        wait_for(lambda: os.path.exists(path) and os.path.getsize(path))
        with open(path, encoding="utf-8") as f:
            told = json.load(f)
        self.assertEqual({name: told[name] for name in told if name not in ("--parent", "--host-uid")},
                         {"--socket": os.path.join(self.run_dir, "egress.sock"), "--log-level": "warn", "--log-format": "text",
                          "--open-ranges": "10.1.0.0/16,192.168.1.7", "--resolvers": "10.1.0.53", "--connections": "7",
                          "--tenant-connections": "70", "--ca-file": "/etc/own.pem"})
        self.assertEqual(int(told["--parent"]), self.launched.process.pid)
        self.stop()

    def test_a_killed_proxy_is_restarted_within_a_second_and_the_jailer_connects_again(self):
        self.start(LISTENER)
        path = os.path.join(self.run_dir, "egress.sock")
        wait_for(lambda: os.path.exists(path))
        pid = wait_for(lambda: processes(self.run_dir).get("cove-egress"))
        jailer = processes(self.run_dir)["cove-jailer"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: processes(self.run_dir).get("cove-egress", pid) != pid, 3)
        again = processes(self.run_dir)["cove-egress"]
        # The supervisor's own check closes its connection; the jailer keeps one.
        wait_for(lambda: len([fd for fd in os.listdir(f"/proc/{again}/fd")
                              if os.readlink(f"/proc/{again}/fd/{fd}").startswith("socket:")]) >= 2)
        self.assertEqual(processes(self.run_dir)["cove-jailer"], jailer)
        self.stop()

    def test_a_server_whose_proxy_cannot_run_starts_and_reports_it(self):
        self.start(BROKEN)
        wait_for(lambda: "cove-egress restarts in 2000 ms" in self.launched.logged())
        self.assertIn("cove-egress exited with status 3", self.launched.logged())
        self.assertEqual(run("key", "ls", env={"COVE_URL": self.launched.url, "COVE_API_KEY": self.launched.key}).code, 0)
        self.stop()

    def test_a_server_without_the_program_starts_and_reports_it(self):
        self.start(None)
        self.assertIn("cove-egress: No such file or directory; sandboxes with a network are refused", self.launched.logged())
        self.stop()

    def test_a_proxy_that_is_switched_off_does_not_run(self):
        self.start(LISTENER, "--egress-enabled", "false")
        self.assertNotIn("cove-egress", processes(self.run_dir))
        self.assertNotIn("egress", self.launched.logged())
        self.stop()

    def test_an_address_that_is_none_is_refused_before_the_start(self):
        for flags in (("--egress-open-ranges", "10.1.0.0/8"), ("--egress-open-ranges", "example.org"),
                      ("--egress-resolvers", "10.0.0.0/8"), ("--egress-resolvers", "127.1")):
            done = run("serve", "--state-dir", os.path.join(self.dir, "other"), *flags)
            self.assertEqual(done.code, 2, done)
            self.assertIn(flags[1], done.err)

    def test_a_relative_path_of_authorities_is_refused_before_the_start(self):
        done = run("serve", "--state-dir", os.path.join(self.dir, "other"), "--egress-ca-file", "own.pem")
        self.assertEqual(done.code, 2, done)
        self.assertIn("egress.caFile: 'own.pem' is not an absolute path", done.err)
