"""`cove serve` for an operator: it starts, prints what is needed, restarts what dies, and leaves
nothing behind.
"""
import datetime
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import threading
import time
import unittest

from cove import COVE, Case, run
from server import Launched, processes, wait_for

USER = 65534
SANDBOXES = int(os.environ.get("COVE_TEST_SANDBOXES", "200"))


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Server(Case):
    """A test with its own server."""

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.place = os.path.join(self.dir, "place")
        self.run_dir = os.path.join(self.place, "run")
        self.launched = self.server = None

    def tearDown(self):
        if self.server and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        super().tearDown()

    def start(self, *flags, **options):
        self.launched = Launched(COVE, self.dir, *flags, **options)
        self.server = self.launched.process
        return self.launched.url

    def said(self):
        return self.launched.said()

    def logged(self):
        return self.launched.logged()

    def health(self, url):
        host = url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def stop(self, how=signal.SIGTERM):
        self.server.send_signal(how)
        self.assertEqual(self.server.wait(120), 0, self.logged())
        self.assertEqual(processes(self.run_dir), {})


class Serve(Server):
    def test_a_server_that_was_built_in_the_home_of_root_starts_and_runs_code(self):
        closed, wrapper = os.path.join(self.dir, "closed"), os.path.join(self.dir, "wrapper")
        os.mkdir(closed)
        with open(wrapper, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs -o mode=700 closed \"$0\" && mkdir \"$0/build\" && "
                    f"mount --bind {COVE.removesuffix('/src/main/cove')} \"$0/build\" && exec \"$0/build/src/main/cove\" \"$@\"' {closed} \"$@\"\n")
        os.chmod(wrapper, 0o755)
        self.launched = Launched(wrapper, self.dir)
        self.server = self.launched.process
        done = run("execute", "--json", "-c", "6 * 7", env={"COVE_URL": self.launched.url, "COVE_API_KEY": self.launched.key})
        self.assertEqual(done.json["results"][0]["data"]["text/plain"], "42", done)
        self.stop()

    def test_AU22_no_server_is_open_and_it_listens_on_loopback_by_default(self):
        settings = run("serve", "--print-config", "--json").json
        self.assertEqual(settings["listen"]["value"].split(":")[0], "127.0.0.1")
        for name in settings:  # no setting can disable authentication
            self.assertNotRegex(name.lower(), "insecure|anonymous|noauth|disable")
        url = self.start("--listen", "0.0.0.0:0")
        host = "127.0.0.1:" + url.rsplit(":", 1)[1]
        for method, path in (("GET", "/v1/sandboxes"), ("POST", "/v1/keys"), ("GET", "/v1/tenants"),
                             ("GET", "/metrics"), ("GET", "/v1/maintenance/backup"), ("GET", "/v1/capabilities")):
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request(method, path, "{}" if method == "POST" else None, {"Content-Type": "application/json"})
            self.assertEqual(connection.getresponse().status, 401, path)
            connection.close()
        self.stop()

    def test_it_prints_what_is_needed_and_stops_cleanly(self):
        url = self.start()
        text = self.said().decode()
        self.assertIn("key      cove_", text)
        self.assertIn(f"{url}/v1/execute", text)
        self.assertEqual(self.health(url)[0], 200)
        over_socket = Unix(os.path.join(self.run_dir, "api.sock"))
        over_socket.request("GET", "/health")
        self.assertEqual(over_socket.getresponse().status, 200)
        over_socket.close()
        self.assertNotIn("cove_", self.logged())  # the key is not in the log
        self.stop()
        self.assertEqual(os.listdir(self.run_dir), ["serve.lock"])
        url = self.start()
        self.assertNotIn("cove_", self.said().decode())  # it was shown once
        self.assertIn("cove key create", self.said().decode())
        self.stop(signal.SIGINT)

    def test_the_printed_commands_can_be_pasted(self):
        self.start()
        text = self.said().decode()
        lines = text[text.index("Run code:"):].split("\n\n")[1]
        done = subprocess.run(["sh", "-euc", lines], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "42\n"), done)
        line = text[text.index("Try it:"):].split("\n\n")[1]
        done = subprocess.run(["sh", "-euc", line], capture_output=True, text=True, timeout=60)
        self.assertEqual(json.loads(done.stdout)["value"], "42")
        self.stop()

    def test_sandboxes_that_lived_at_the_stop_are_reported_as_ended_by_it(self):
        sandbox = self.start_with_sandbox()
        self.call("POST", f"/v1/sandboxes/{sandbox}/executions", {"command": ["sleep", "600"], "background": True})
        self.stop(signal.SIGINT)
        key = self.key
        self.url, self.key = self.start(), key
        ended = self.call("GET", f"/v1/sandboxes/{sandbox}")[1]
        self.assertEqual((ended["state"], ended["endedBy"]), ("ended", "killed"), ended)
        self.assertIn("the server was stopped", ended["reason"]["message"])
        execution = self.call("GET", f"/v1/sandboxes/{sandbox}/executions")[1]["items"][0]
        self.assertEqual(execution["endedBy"], "killed", execution)
        self.stop()

    def test_an_invalid_address_is_reported_before_anything_else(self):
        self.start()
        for listen, told in (("127.0.0.1:80000", "not an address with a port"), ("here", "not an address with a port")):
            self.assertIn(told, run("serve", "--state-dir", self.place, "--listen", listen).err)
        self.assertIn("server_running", run("serve", "--state-dir", self.place, "--listen", "127.0.0.1:0").err)
        other = run("serve", "--state-dir", self.place + "2", "--listen", "192.0.2.77:8701")
        self.assertIn("this host does not have the address", other.err)
        self.assertEqual(other.code, 2, other)

    def ask(self, url, method, path, body=None):
        words = self.said().decode().split()
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Authorization": "Bearer " + words[words.index("key") + 1], "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def test_the_operators_floor_applies_to_every_request(self):
        floor = os.path.join(self.dir, "floor.yaml")
        with open(floor, "w", encoding="utf-8") as f:
            f.write("version: 1\nlimits: {memoryBytes: 128M, timeoutMs: 60s, lifetimeMs: 1h}\nsyscalls: {forbid: [debug]}\n")
        url = self.start("--floor", floor)
        status, made = self.ask(url, "POST", "/v1/sandboxes", {"runtime": "sh"})
        self.assertEqual((status, made["resources"]["memoryBytes"]), (201, 128 << 20), made)
        here = f"/v1/sandboxes/{made['id']}"
        for method, path, body in (
                ("POST", "/v1/sandboxes", {"runtime": "sh", "resources": {"memoryBytes": 256 << 20}}),
                ("POST", "/v1/sandboxes", {"runtime": "sh", "policy": {"version": 1, "limits": {"memoryBytes": "256M"}}}),
                ("POST", "/v1/sandboxes", {"runtime": "sh", "policy": {"version": 1, "extends": "debug"}}),
                ("PUT", "/v1/templates/big", {"resources": {"memoryBytes": 256 << 20}}),
                ("PATCH", here, {"lifetimeMs": 7200000}),
                ("POST", here + "/executions", {"command": ["true"], "timeoutMs": 61000})):
            status, answer = self.ask(url, method, path, body)
            self.assertEqual((status, answer["error"]["code"]), (403, "policy_below_floor"), answer)
        self.assertEqual(self.ask(url, "POST", here + "/executions", {"command": ["true"], "timeoutMs": 59000})[0], 200)
        self.stop()
        with open(floor, "a", encoding="utf-8") as f:
            f.write("limts: {}\n")
        done = run("serve", "--state-dir", self.place + "2", "--listen", "127.0.0.1:0", "--floor", floor, timeout=60)
        self.assertNotEqual(done.code, 0)
        self.assertIn("limts", done.err)

    def test_cpus_of_the_floor_confine_sandboxes_pinned_or_not(self):
        last = str(max(os.sched_getaffinity(0)))
        floor = os.path.join(self.dir, "floor.yaml")
        with open(floor, "w", encoding="utf-8") as f:
            f.write(f"version: 1\nlimits: {{cpuSet: '{last}'}}\n")
        url = self.start("--floor", floor)
        for pinning in (False, True, True):
            status, made = self.ask(url, "POST", "/v1/sandboxes", {"runtime": "sh", "resources": {"cpuPinning": pinning}})
            self.assertEqual(status, 201, made)
            _, ran = self.ask(url, "POST", f"/v1/sandboxes/{made['id']}/executions",
                              {"command": ["grep", "Cpus_allowed_list", "/proc/self/status"]})
            self.assertEqual(ran["stdout"].split()[1:], [last], ran)
        self.stop()

    def test_a_rate_limited_key_gets_its_rate_and_the_time_to_retry(self):
        url = self.start("--rate-limit-create", "2/h")

        def create(connection, **headers):
            connection.request("POST", "/v1/sandboxes", json.dumps({"runtime": "sh"}), {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            body = json.loads(answer.read())
            connection.close()
            self.assertEqual("ratelimit" in told, "x-ratelimit-limit" in told)
            if "ratelimit" in told:
                self.assertEqual(told["ratelimit-policy"], '"create";q=2;w=3600')
                self.assertEqual(told["ratelimit"], f'"create";r={told["x-ratelimit-remaining"]};t={told["x-ratelimit-reset"]}')
            return answer.status, [int(told.get(name, -1)) for name in ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after")], body

        host, by_key = url.removeprefix("http://"), {"Authorization": "Bearer " + self.launched.key}
        for left in (1, 0):
            status, (limit, remaining, reset, retry), body = create(http.client.HTTPConnection(host, timeout=60), **by_key)
            self.assertEqual((status, limit, remaining, retry), (201, 2, left, -1), body)
            self.assertTrue((2 - left) * 1800 - 120 < reset <= (2 - left) * 1800, reset)
        for _ in range(2):  # refused requests do not count
            status, (limit, remaining, reset, retry), body = create(http.client.HTTPConnection(host, timeout=60), **by_key)
            self.assertEqual((status, limit, remaining, body["error"]["code"]), (429, 2, 0, "rate_limited"))
            self.assertTrue(3480 < reset <= 3600 and 1680 < retry <= 1800, (reset, retry))
        self.assertEqual(self.ask(url, "GET", "/v1/sandboxes")[0], 200)  # another kind of request
        status, told, body = create(Unix(os.path.join(self.run_dir, "api.sock")))
        self.assertEqual((status, told), (201, [-1] * 4), body)
        self.stop()

    def test_AU21_a_lost_first_key_is_replaced_over_the_socket_and_revoked_at_once(self):
        url = self.start()

        def owner(method, path):
            connection = Unix(os.path.join(self.run_dir, "api.sock"))
            connection.request(method, path)
            answer = json.loads(connection.getresponse().read())
            connection.close()
            return answer

        def status(key):
            return run("key", "ls", env={"COVE_URL": url, "COVE_API_KEY": key})

        lost = self.launched.key
        self.assertEqual(status(lost).code, 0)
        first = [k["id"] for k in owner("GET", "/v1/keys")["items"] if k["name"] == "first key"]
        self.assertEqual(len(first), 1)
        made = owner("POST", f"/v1/keys/{first[0]}/rotate")
        self.assertNotEqual(made["key"], lost)
        self.assertErrorCode(status(lost), 125, "unauthorized")
        self.assertEqual(status(made["key"]).code, 0)
        self.assertEqual(run("key", "rotate", "-q", "first key", env={"COVE_URL": url, "COVE_API_KEY": lost}).code, 125)
        self.stop()

    def test_limits_of_requests_are_settings(self):
        url = self.start("--http-max-line", "1K", "--http-head-timeout", "1s")
        self.assertEqual(self.ask(url, "GET", "/v1/sandboxes?cursor=" + "x" * 1500)[0], 414)
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=120) as slow:
            slow.sendall(b"GET /health HT")
            self.assertEqual(slow.recv(100), b"")
        self.stop()

    def test_slots_of_the_fair_queue_are_settings(self):
        """With one slot, concurrent requests are queued, and all of them are answered."""
        url = self.start("--limits-creating", "1", "--limits-starting", "1")
        key = re.search(r"key +(cove_[0-9a-f]{40})", self.said().decode())[1]
        made = []

        def work():
            host = url.removeprefix("http://")
            head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            connection = http.client.HTTPConnection(host, timeout=120)
            connection.request("POST", "/v1/sandboxes", '{"runtime": "sh"}', head)
            sandbox = json.loads(connection.getresponse().read())["id"]
            connection.request("POST", f"/v1/sandboxes/{sandbox}/executions", '{"command": ["echo", "here"]}', head)
            made.append(json.loads(connection.getresponse().read())["stdout"])
            connection.close()

        workers = [threading.Thread(target=work) for _ in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(made, ["here\n"] * 6)
        self.stop()

    def test_coved_has_its_own_user_and_no_privilege(self):
        self.start()
        running = processes(self.run_dir)
        status = {}
        with open(f"/proc/{running['coved']}/status", encoding="utf-8") as f:
            for line in f:
                name, _, value = line.partition(":")
                status[name] = value.split()
        uid = int(status["Uid"][0])
        self.assertNotEqual(uid, 0)
        self.assertEqual(set(status["Uid"]), {str(uid)})
        self.assertEqual(status["Groups"], [])
        for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            self.assertEqual(int(status[name][0], 16), 0, name)
        self.assertEqual(status["NoNewPrivs"], ["1"])
        self.assertEqual(status["Seccomp"], ["2"])  # it cannot fork or exec: tests/unit/main/serve/no_fork_filter_test.c
        state = os.stat(os.path.join(self.place, "state"))
        self.assertEqual((state.st_uid, state.st_mode & 0o777), (uid, 0o700))
        self.assertEqual(os.stat(self.run_dir).st_uid, 0)
        self.assertEqual(os.stat(os.path.join(self.place, "state/cove.db")).st_mode & 0o777, 0o600)
        self.stop()

    def test_coved_has_threads_and_never_a_child_process(self):
        sandbox = self.start_with_sandbox()
        coved = processes(self.run_dir)["coved"]
        self.assertEqual(self.execute(sandbox, "echo hi"), "hi\n")
        for method, path, body in (("POST", "/v1/execute", {"language": "python", "code": "print(1)"}), ("GET", "/v1/maintenance/backup", None),
                                   ("POST", "/v1/maintenance/gc", None), ("GET", f"/v1/sandboxes/{sandbox}/files/tar?path=/workspace", None)):
            connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=120)
            connection.request(method, path, json.dumps(body) if body else None,
                               {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            self.assertEqual((answer.status, len(answer.read()) > 0), (200, True), path)
            connection.close()
        threads = os.listdir(f"/proc/{coved}/task")
        self.assertGreater(len(threads), 1)
        for thread in threads:
            with open(f"/proc/{coved}/task/{thread}/status", encoding="utf-8") as f:
                self.assertIn("\nSeccomp:\t2\n", f.read())
        parents = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                    parents.append(int(f.read().rpartition(")")[2].split()[1]))
            except OSError:
                pass  # it ended in between
        self.assertNotIn(coved, parents)
        self.stop()

    def test_killed_processes_are_restarted_and_clients_wait_meanwhile(self):
        url = self.start()
        for name in ("coved", "cove-jailer", "cove-monitor"):
            pid = processes(self.run_dir)[name]
            os.kill(pid, signal.SIGKILL)
            if name == "coved":
                self.assertEqual(self.health(url)[0], 200)  # the connection waited in the kernel's queue
            wait_for(lambda: processes(self.run_dir).get(name, pid) != pid)
            self.assertEqual(self.health(url)[0], 200)
        self.assertEqual(self.said().count(b"is ready"), 1)
        self.stop()

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=120)
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    def start_with_sandbox(self, *flags):
        self.url = self.start(*flags)
        words = self.said().decode().split()
        self.key = words[words.index("key") + 1]
        status, made = self.call("POST", "/v1/sandboxes", {"runtime": "sh"})
        self.assertEqual(status, 201, made)
        return made["id"]

    def execute(self, sandbox, code):
        status, done = self.call("POST", f"/v1/sandboxes/{sandbox}/executions", {"code": code})
        return done.get("stdout") if status == 200 else None

    def open_stream(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=120)
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json",
                            "Accept": "application/x-ndjson"})
        self.addCleanup(connection.close)
        return connection.getresponse()

    def test_a_stream_resumes_at_its_offset_after_coved_was_killed(self):
        sandbox = self.start_with_sandbox()
        base = f"/v1/sandboxes/{sandbox}/executions"
        script = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.1; done; exit 4"
        stream = self.open_stream("POST", base, {"command": ["sh", "-c", script]})
        execution = json.loads(stream.readline())["execution"]["id"]
        seen = ""
        while len(seen) < 4:
            seen += json.loads(stream.readline())["data"]
        os.kill(processes(self.run_dir)["coved"], signal.SIGKILL)
        wait_for(lambda: self.call("GET", "/ready")[0] == 200)
        stream = self.open_stream("GET", f"{base}/{execution}/stream?stdoutOffset={len(seen)}")
        events = [json.loads(line) for line in stream]
        seen += "".join(e.get("data", "") for e in events)
        self.assertEqual(seen, "".join(f"{i}\n" for i in range(1, 10)))
        self.assertEqual(events[-1]["execution"]["exitCode"], 4, events[-1])
        status, rows = self.call("GET", base)
        self.assertEqual([r["id"] for r in rows["items"]], [execution])
        status, ended = self.call("DELETE", f"/v1/sandboxes/{sandbox}")
        self.assertEqual((status, ended["state"]), (200, "ended"))
        self.stop()

    def test_a_sandbox_and_its_files_survive_coved(self):
        sandbox = self.start_with_sandbox()
        self.assertEqual(self.execute(sandbox, "echo kept > /workspace/a; echo done"), "done\n")
        os.kill(processes(self.run_dir)["coved"], signal.SIGKILL)
        self.assertEqual(wait_for(lambda: self.execute(sandbox, "cat /workspace/a")), "kept\n")
        self.stop()

    def test_sandboxes_of_a_killed_jailer_are_reported_lost_and_the_server_continues(self):
        sandbox = self.start_with_sandbox()
        os.kill(processes(self.run_dir)["cove-jailer"], signal.SIGKILL)
        ended = wait_for(lambda: (lambda s: s if s["state"] == "ended" else None)(self.call("GET", f"/v1/sandboxes/{sandbox}")[1]))
        self.assertEqual(ended["endedBy"], "lost")
        wait_for(lambda: self.call("GET", "/ready")[0] == 200)
        status, made = self.call("POST", "/v1/sandboxes", {"runtime": "sh"})
        self.assertEqual(status, 201, made)
        self.assertEqual(self.execute(made["id"], "echo again"), "again\n")
        self.stop()

    def test_RC07_stopping_with_many_sandboxes_ends_cleanly_and_leaves_none(self):
        first = self.start_with_sandbox("--rate-limit-default", "none", "--rate-limit-create", "none", "--rate-limit-execute", "none",
                                        "--limits-sandboxes", str(SANDBOXES + 8))
        made, wrong = [first], []

        def make():
            while len(made) < SANDBOXES and not wrong:
                status, one = self.call("POST", "/v1/sandboxes", {"runtime": "sh"})
                if status != 201:
                    wrong.append(one)
                    return
                made.append(one["id"])
                if len(made) % 10 == 0:  # some of them run programs that ignore SIGTERM
                    self.call("POST", f"/v1/sandboxes/{one['id']}/executions",
                              {"command": ["sh", "-c", "trap '' TERM; while :; do sleep 600; done"], "background": True})
        makers = [threading.Thread(target=make) for _ in range(4)]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        self.assertEqual(wrong, [])
        status, page = self.call("GET", "/v1/sandboxes?state=running&limit=1")
        self.assertEqual((status, len(page["items"])), (200, 1), page)
        self.stop()
        parent = os.environ.get("COVE_CGROUP_PARENT", "cove")
        leaves = {name for top, names, _ in os.walk("/sys/fs/cgroup") if os.path.basename(top) == parent for name in names}
        self.assertEqual(leaves & set(made), set())

    def inside(self, sandbox):
        """The pids of all processes in a sandbox, with its runtime: they are in its cgroup,
        whatever their names are."""
        found = set()
        for top, _, files in os.walk("/sys/fs/cgroup"):
            if sandbox in top and "cgroup.procs" in files:
                try:
                    with open(os.path.join(top, "cgroup.procs"), encoding="ascii") as f:
                        found |= {int(pid) for pid in f.read().split()}
                except OSError:
                    pass  # it ended in between
        return found

    def test_RC02_a_killed_supervisor_ends_everything_and_the_next_start_reports_it(self):
        sandbox = self.start_with_sandbox()  # creating a sandbox changes the jailer's identity for a moment
        base = f"/v1/sandboxes/{sandbox}/executions"
        script = "(setsid sleep 600 </dev/null >/dev/null 2>&1 &) ; trap '' TERM HUP INT; echo up; while :; do sleep 600; done"
        status, running = self.call("POST", base, {"command": ["sh", "-c", script], "background": True, "timeoutMs": 900000})
        self.assertEqual(status, 202, running)
        wait_for(lambda: len(self.inside(sandbox)) >= 4, 60)  # runtime, shell, its sleep, and the one that left the session
        watched = [os.pidfd_open(pid) for pid in self.inside(sandbox)]
        self.server.kill()
        self.server.wait()
        wait_for(lambda: processes(self.run_dir) == {}, 60)
        for fd in watched:
            self.assertTrue(select.select([fd], [], [], 60)[0], "a process of the sandbox is still alive")
            os.close(fd)
        self.assertEqual(self.inside(sandbox), set())
        key = self.key
        self.url, self.key = self.start(), key
        ended = wait_for(lambda: (lambda s: s if s["state"] == "ended" else None)(self.call("GET", f"/v1/sandboxes/{sandbox}")[1]))
        self.assertEqual(ended["endedBy"], "lost", ended)
        self.assertEqual(ended["reason"], {"code": "sandbox_lost", "message": "it ended while the server was down"})
        lost = self.call("GET", f"{base}/{running['id']}")[1]
        self.assertEqual((lost["outcome"], lost["endedBy"]), ("lost", "lost"), lost)
        self.assertEqual(self.call("POST", base, {"code": "echo"})[0], 410)
        wait_for(lambda: not [top for top, _, _ in os.walk("/sys/fs/cgroup") if sandbox in top], 60)
        self.stop()

    def test_a_spawner_dies_with_its_jailer_even_if_it_cannot_read_its_socket(self):
        sandbox = self.start_with_sandbox()
        jailer = processes(self.run_dir)["cove-jailer"]
        spawner = processes(self.run_dir)["cove-spawner"]
        os.kill(spawner, signal.SIGSTOP)  # so it does not see the end of its socket
        os.kill(jailer, signal.SIGKILL)
        wait_for(lambda: processes(self.run_dir).get("cove-spawner") != spawner, 60)
        wait_for(lambda: self.call("GET", f"/v1/sandboxes/{sandbox}")[1]["state"] == "ended", 60)
        self.stop()

    def test_a_killed_spawner_costs_its_sandboxes_and_no_more(self):
        sandbox = self.start_with_sandbox()
        os.kill(processes(self.run_dir)["cove-spawner"], signal.SIGKILL)
        wait_for(lambda: self.call("GET", f"/v1/sandboxes/{sandbox}")[1]["state"] == "ended", 60)
        status, made = wait_for(lambda: (lambda a: a if a[0] == 201 else None)(self.call("POST", "/v1/sandboxes", {"runtime": "sh"})), 60)
        self.assertEqual(self.execute(made["id"], "echo again"), "again\n")
        self.stop()

    def step_clock(self, seconds):
        with open(self.step, "r+b") as f:
            f.write(struct.pack("q", seconds))
        self.stepped = seconds

    def key_until(self, seconds):
        """A key that expires in so many seconds by the wall clock of the server."""
        at = datetime.datetime.fromtimestamp(time.time() + self.stepped + seconds, datetime.timezone.utc)
        status, made = self.call("POST", "/v1/keys", {"name": "t", "scopes": ["sandboxes:read"], "expiresAt": at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"})
        self.assertEqual(status, 201, made)
        return made["key"]

    def status_with(self, key):
        mine, self.key = self.key, key
        try:
            return self.call("GET", "/v1/whoami")[0]
        finally:
            self.key = mine

    def test_RC06_a_wall_clock_jump_ends_nothing_early_and_nothing_lives_for_ever(self):
        """Steps the wall clock of the running server forwards and backwards, and over a kill;
        durations do not follow it."""
        shim = os.path.join(os.path.dirname(COVE), "../../tests/tools/libclockstep.so")
        if not os.path.exists(shim):
            self.skipTest("libclockstep.so is not built")
        self.step, day = os.path.join(self.dir, "step"), 86400
        with open(self.step, "wb") as f:
            f.write(struct.pack("q", 0))
        os.chmod(self.step, 0o644)
        self.stepped = 0
        self.url = self.start(env=dict(os.environ, LD_PRELOAD=os.path.abspath(shim), COVE_CLOCK_STEP=self.step))
        self.key = self.launched.key
        old, live = (self.call("POST", "/v1/sandboxes", {"runtime": "sh", "lifetimeMs": 3600000})[1]["id"] for _ in range(2))
        self.assertEqual(self.call("DELETE", f"/v1/sandboxes/{old}")[0], 200)
        base = f"/v1/sandboxes/{live}/executions"
        running = self.call("POST", base, {"command": ["sleep", "600"], "background": True, "timeoutMs": 900000})[1]["id"]
        hour = self.key_until(3600)
        self.assertEqual(self.status_with(hour), 200)

        def nothing_ended():
            self.assertEqual(self.call("GET", f"/v1/sandboxes/{live}")[1]["state"], "running")
            self.assertEqual(self.call("GET", f"{base}/{running}")[1]["state"], "running")
            self.assertEqual(self.execute(live, "echo on"), "on\n")
            done = self.call("POST", "/v1/maintenance/gc")[1]  # rows that are minutes old are not taken for a month old
            if abs(self.stepped) > day:  # later, rows with a date of long ago are old
                self.assertEqual((done["sandboxes"], done["executions"]), (0, 0), done)
            self.assertEqual(self.call("GET", f"/v1/sandboxes/{old}")[1]["state"], "ended")

        def seconds_are_seconds():
            ended = self.call("POST", base, {"command": ["sleep", "600"], "timeoutMs": 300})[1]
            self.assertEqual(ended["endedBy"], "timeout", ended)
            short = self.call("POST", "/v1/sandboxes", {"runtime": "sh", "lifetimeMs": 300})[1]["id"]
            wait_for(lambda: self.call("GET", f"/v1/sandboxes/{short}")[1]["state"] == "ended")

        wait_for(lambda: self.call("GET", f"{base}/{running}")[1]["state"] == "running")
        for away in (40 * day, -40 * day):
            self.step_clock(away)
            nothing_ended()
            seconds_are_seconds()
            self.assertEqual(self.status_with(hour), 401 if away > 0 else 200)  # an expiry is a moment of the wall clock
            brief = self.key_until(1)
            wait_for(lambda: self.status_with(brief) == 401)
        for away in (day, -day, 0):  # the next coved starts with another wall clock than the last one had
            self.step_clock(away)
            coved = processes(self.run_dir)["coved"]
            os.kill(coved, signal.SIGKILL)
            wait_for(lambda: processes(self.run_dir).get("coved", coved) != coved and self.call("GET", "/ready")[0] == 200)
            nothing_ended()
            seconds_are_seconds()
        self.assertEqual(self.status_with(hour), 200)
        self.stop()

    def test_a_second_server_and_a_used_port_are_clear_errors(self):
        url = self.start()
        done = run("serve", "--state-dir", self.place)
        self.assertEqual(done.code, 125, done)
        self.assertIn("server_running", done.err)
        done = run("serve", "--state-dir", os.path.join(self.dir, "other"), "--listen", url.removeprefix("http://"))
        self.assertEqual(done.code, 125, done)
        self.assertIn("address_in_use", done.err)
        self.stop()

    def test_a_directory_of_another_user_is_refused(self):
        os.makedirs(os.path.join(self.place, "state"))
        done = run("serve", "--state-dir", self.place, "--listen", "127.0.0.1:0")
        self.assertEqual(done.code, 125, done)
        self.assertIn("state_dir_unusable", done.err)
        self.assertIn("belongs to uid 0", done.err)

    def test_a_broken_database_stops_the_start_with_its_reason(self):
        self.start()
        self.stop()
        with open(os.path.join(self.place, "state/cove.db"), "r+b") as f:
            f.write(b"this is no database at all" * 100)
        for name in ("cove.db-wal", "cove.db-shm"):
            if os.path.exists(os.path.join(self.place, "state", name)):
                os.unlink(os.path.join(self.place, "state", name))
        done = run("serve", "--state-dir", self.place, "--listen", "127.0.0.1:0", timeout=120)
        self.assertEqual(done.code, 125, done)
        self.assertIn("coved exited with status 125", done.err)
        self.assertEqual(processes(self.run_dir), {})

    def resident(self, name):
        with open(f"/proc/{processes(self.run_dir)[name]}/status", encoding="utf-8") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))

    def test_RS12_clients_that_do_not_read_cost_the_server_no_memory(self):
        sandbox = self.start_with_sandbox()
        base = f"/v1/sandboxes/{sandbox}/executions"
        script = "while [ ! -e go ]; do sleep 0.05; done; yes | head -c 20000000; i=0; while [ $i -lt 20000 ]; do echo; i=$((i+1)); done"
        status, flood = self.call("POST", base, {"command": ["sh", "-c", script], "background": True,
                                                 "outputBytes": 1 << 30, "timeoutMs": 600000})
        self.assertEqual(status, 202, flood)
        host, port = self.url.removeprefix("http://").split(":")
        stalled = []
        for accept in ("application/x-ndjson", "text/event-stream") * 5:
            s = socket.create_connection((host, int(port)))
            self.addCleanup(s.close)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(f"GET {base}/{flood['id']}/stream HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
                      f"Authorization: Bearer {self.key}\r\n\r\n".encode())
            self.assertIn(b"200", s.recv(20))
            stalled.append(s)
        before = self.resident("coved")
        self.assertEqual(self.execute(sandbox, "touch go; echo went"), "went\n")
        wait_for(lambda: "endedAt" in self.call("GET", f"{base}/{flood['id']}")[1], 300)
        self.assertEqual(self.call("GET", f"{base}/{flood['id']}")[1]["stdoutBytes"], 20020000)
        self.assertLess(self.resident("coved") - before, 24 << 20)
        for s in stalled:
            s.close()
        self.stop()

    def test_RC04_a_full_disk_is_reported_loses_nothing_and_is_survived(self):
        os.mkdir(self.place, 0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "none", self.place], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.place], check=False)
        sandbox = self.start_with_sandbox()
        other = self.call("POST", "/v1/sandboxes", {"runtime": "sh"})[1]["id"]
        base = f"/v1/sandboxes/{sandbox}/executions"
        script = "i=0; while [ ! -e /workspace/go ]; do sleep 0.05; done; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 3"
        status, running = self.call("POST", base, {"command": ["sh", "-c", script], "background": True, "timeoutMs": 600000})
        self.assertEqual(status, 202, running)
        filler = os.path.join(self.place, "filler")
        with open(filler, "wb", buffering=0) as f:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while f.write(b"x" * size) == size:
                        pass
                except OSError:
                    pass
        self.execute(sandbox, "touch go")  # may be refused; the file is then written another way
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=120)
        connection.request("PUT", f"/v1/sandboxes/{sandbox}/files?path=/workspace/go", b"", {"Authorization": f"Bearer {self.key}"})
        self.assertEqual(connection.getresponse().status, 200)  # a sandbox's files are not on this disk
        connection.close()
        refused = wait_for(lambda: (lambda a: a if a[0] != 201 else None)(self.call("POST", "/v1/sandboxes", {"runtime": "sh"})), 60)
        self.assertEqual((refused[0], refused[1]["error"]["code"]), (507, "store_full"), refused)
        self.assertEqual(self.call("GET", f"/v1/sandboxes/{sandbox}")[1]["state"], "running")
        self.assertEqual(self.call("DELETE", f"/v1/sandboxes/{other}")[0], 200)
        os.kill(processes(self.run_dir)["coved"], signal.SIGKILL)
        wait_for(lambda: self.call("GET", "/ready")[0] == 200, 60)
        self.assertEqual(self.call("GET", f"/v1/sandboxes/{other}")[1]["state"], "ended")
        ended = wait_for(lambda: (lambda e: e if "endedAt" in e else None)(self.call("GET", f"{base}/{running['id']}")[1]), 120)
        whole = "".join(f"line {i}\n" for i in range(20000))
        self.assertEqual((ended["exitCode"], ended["stdoutBytes"] + ended["droppedBytes"]), (3, len(whole)), ended)
        self.assertTrue(whole.startswith(ended["stdout"]), "the kept output is not the beginning of the complete output")
        os.unlink(filler)
        made = wait_for(lambda: (lambda a: a if a[0] == 201 else None)(self.call("POST", "/v1/sandboxes", {"runtime": "sh"})), 60)
        self.assertEqual(self.execute(made[1]["id"], "echo room"), "room\n")
        self.stop()

    def test_an_unreadable_row_costs_its_sandbox_and_no_other(self):
        damaged = self.start_with_sandbox()
        whole = self.call("POST", "/v1/sandboxes", {"runtime": "sh"})[1]["id"]
        status, running = self.call("POST", f"/v1/sandboxes/{whole}/executions",
                                    {"command": ["sleep", "600"], "background": True, "timeoutMs": 900000})
        self.assertEqual(status, 202, running)
        self.stop_coved_and(lambda db: (
            db.execute("UPDATE sandboxes SET spec_json = '{\"spec\": [' WHERE id = ?", (damaged,)),
            db.execute("UPDATE executions SET request_json = 'nonsense' WHERE id = ?", (running["id"],))))
        wait_for(lambda: self.call("GET", "/ready")[0] == 200, 60)
        self.assertEqual(self.call("GET", f"/v1/sandboxes/{damaged}")[0], 200)
        self.assertEqual(self.call("GET", "/v1/sandboxes")[0], 200)
        self.assertEqual(self.execute(whole, "echo fine"), "fine\n")
        ended = wait_for(lambda: (lambda e: e if "endedAt" in e else None)(
            self.call("GET", f"/v1/sandboxes/{whole}/executions/{running['id']}")[1]), 60)
        self.assertEqual((ended["outcome"], ended["endedBy"]), ("lost", "lost"), ended)
        self.assertIn("cannot read its row", self.logged())
        self.assertEqual(self.call("DELETE", f"/v1/sandboxes/{damaged}")[1]["state"], "ended")
        self.stop()

    def stop_coved_and(self, change):
        """Changes the database while coved is stopped, and restarts it immediately."""
        path = os.path.join(self.place, "state/cove.db")
        os.kill(self.server.pid, signal.SIGSTOP)  # so that the supervisor does not start the next one meanwhile
        pid = processes(self.run_dir)["coved"]
        os.kill(pid, signal.SIGKILL)

        def try_it():
            db = sqlite3.connect(path)
            try:
                with db:
                    change(db)
                return True
            except sqlite3.OperationalError:
                return False
            finally:
                db.close()
                for name in os.listdir(os.path.dirname(path)):
                    os.chown(os.path.join(os.path.dirname(path), name), os.stat(path).st_uid, os.stat(path).st_gid)
        wait_for(try_it)
        os.kill(self.server.pid, signal.SIGCONT)

    def test_settings_come_from_file_variable_and_flag(self):
        config = self.file("cove.yaml", "drainTimeout: 3s\nlog:\n  level: warn\n  format: json\n")
        done = run("serve", "--config", config, "--print-config", "--json", "--log-level=error",
                   env={"COVE_LOG_FORMAT": "text"})
        self.assertEqual(done.code, 0, done)
        self.assertEqual(done.json["drainTimeout"], {"value": "3s", "from": f"{config}:1"})
        self.assertEqual(done.json["log.level"], {"value": "error", "from": "--log-level"})
        self.assertEqual(done.json["log.format"], {"value": "text", "from": "COVE_LOG_FORMAT"})
        printed = run("serve", "--config", config, "--print-config")
        again = self.file("again.yaml", printed.out)
        done = run("serve", "--config", again, "--print-config", "--json")
        self.assertEqual(done.json["drainTimeout"]["value"], "3s")
        for flags in ((), ("--state-dir", self.place)):  # directories are printed as they were given, and can be read again
            first = run("serve", *flags, "--print-config", "--json").json
            self.assertTrue(first["stateDir"]["value"].startswith(self.place if flags else "/"), first)
            again = self.file("dirs.yaml", run("serve", *flags, "--print-config").out)
            second = run("serve", "--config", again, "--print-config", "--json").json
            for name in ("stateDir", "runDir"):
                self.assertEqual(second[name]["value"], first[name]["value"])

    def test_errors_in_settings_are_fatal_with_their_place(self):
        config = self.file("cove.yaml", "listen: 127.0.0.1:0\nlog:\n  levle: warn\n")
        done = run("serve", "--config", config)
        self.assertEqual(done.code, 2, done)
        self.assertIn(f"{config}:3:3", done.err)
        self.assertIn("did you mean 'log.level'?", done.err)
        done = run("serve", "--lisen", "x")
        self.assertEqual(done.code, 2, done)
        self.assertEqual(done.err, "cove: '--lisen' is not a flag; did you mean --listen? [bad_usage]\n")  # its value is not reported as a second error
        for text, told in (("user: cove\nlisten: nowhere\n", ":2:1: listen: 'nowhere' is not an address"),
                           ("user: cove\n\nrunDir: x\n", ":3:1: runDir: 'x' is not an absolute path"),
                           ("limits:\n  creating: 0\n", ":2:13: limits.creating must be from 1 to 1024"),
                           ("limits:\n  starting: 4097\n", ":2:13: limits.starting must be from 1 to 4096")):
            wrong = self.file("wrong.yaml", text)
            done = run("serve", "--config", wrong, "--print-config")
            self.assertEqual(done.code, 2, done)
            self.assertIn(wrong + told, done.err)
        done = run("serve", env={"COVE_LISTN": "x"})
        self.assertEqual(done.code, 2, done)
        self.assertIn("COVE_LISTEN", done.err)
        os.chmod(config, 0o666)
        done = run("serve", "--config", config)
        self.assertEqual(done.code, 125, done)
        self.assertIn("config_unsafe_file", done.err)

    def start_as_plain_user(self, *flags):
        """Starts the server with its default directories; returns the function that runs another
        `cove` as the same user."""
        for name in ("cove", "cove-ctl", "cove-runtime", "cove-serve", "coved"):
            shutil.copy(os.path.join(os.path.dirname(os.path.realpath(COVE)), name), self.dir)
        home = os.path.join(self.dir, "home")
        os.mkdir(home, 0o700)
        os.chown(home, USER, USER)
        place = os.path.join(home, ".local/state/cove")
        self.run_dir = os.path.join(place, "run")
        who = {"cwd": "/", "user": USER, "group": USER, "extra_groups": [], "env": {"PATH": "/usr/bin:/bin", "HOME": home}}
        cove = os.path.join(self.dir, "cove")
        try:
            self.launched = Launched(cove, self.dir, *flags, place=place, **who)
        except AssertionError as ended:
            if "no_namespaces" in str(ended) or "user namespace" in str(ended):
                self.skipTest("plain users cannot create user namespaces on this host")
            raise
        self.server = self.launched.process
        who["stdin"] = subprocess.DEVNULL
        return lambda *words: subprocess.run([cove, *words], capture_output=True, text=True, timeout=60, check=False, **who)

    def test_a_server_of_a_plain_user_that_would_refuse_every_sandbox_does_not_start(self):
        with self.assertRaises(AssertionError) as ended:
            self.start_as_plain_user()
        self.assertIn("--limits-enforced false", str(ended.exception))
        self.assertNotIn("is ready", str(ended.exception))

    def test_a_plain_user_needs_no_key_for_their_own_server(self):
        cove = self.start_as_plain_user("--limits-enforced", "false")
        words = self.said().decode().split()
        self.assertEqual(self.health(words[words.index("address") + 1])[0], 200)
        self.assertEqual(os.stat(self.run_dir).st_mode & 0o777, 0o700)
        self.assertNotIn("--limits-enforced", self.said().decode())
        rotated = cove("key", "rotate", "-q", "first key").stdout.strip()
        self.assertRegex(rotated, "^cove_[0-9a-f]{40}$")
        self.assertErrorCode(run("key", "ls", env={"COVE_URL": self.launched.url, "COVE_API_KEY": self.launched.key}), 125, "unauthorized")
        self.assertEqual(run("key", "ls", env={"COVE_URL": self.launched.url, "COVE_API_KEY": rotated}).code, 0)
        made = cove("sandbox", "create", "-q")
        self.assertEqual(made.returncode, 0, made)
        done = cove("exec", made.stdout.strip(), "--", "echo", "inside")
        self.assertEqual((done.returncode, done.stdout), (0, "inside\n"), done)
        self.stop()

    def test_a_plain_users_pool_starts_each_interpreter_itself_and_says_why(self):
        shutil.copytree(os.path.join(os.path.dirname(os.path.realpath(COVE)), "kernels"), os.path.join(self.dir, "kernels"),
                        ignore=shutil.ignore_patterns("*.p"))
        cove = self.start_as_plain_user("--limits-enforced", "false")
        put = cove("pool", "set", "--template", "python", "--min", "1", "--max", "1", "mine")
        self.assertEqual(put.returncode, 0, put)

        def status():
            return json.loads(cove("pool", "info", "--json", "mine").stdout)["status"]
        wait_for(lambda: status().get("ready") == 1 and status()["zygote"]["state"] == "failed")
        self.assertIn("unprivileged server", status()["zygote"]["message"])
        made = cove("sandbox", "create", "-q", "--template", "python")
        self.assertEqual(made.returncode, 0, made)
        cove("context", "create", made.stdout.strip())
        done = cove("context", "exec", made.stdout.strip(), "-c", "6 * 7")
        self.assertEqual((done.returncode, done.stdout), (0, "42\n"), done)
        told = status()
        self.assertEqual((told["claims"], told["partial"]), (1, 1), told)
        self.stop()

    @unittest.skipUnless(os.access("/usr/bin/bwrap", os.X_OK), "Bubblewrap is not installed")
    def test_a_plain_users_pool_of_bwrap_serves_only_that_driver(self):
        shutil.copytree(os.path.join(os.path.dirname(os.path.realpath(COVE)), "kernels"), os.path.join(self.dir, "kernels"),
                        ignore=shutil.ignore_patterns("*.p"))
        cove = self.start_as_plain_user("--limits-enforced", "false")
        for words in (["template", "set", "boxed", "--runtime", "python", "--driver", "bwrap"],
                      ["pool", "set", "--template", "boxed", "--min", "1", "--max", "1", "--fixed", "mine"]):
            put = cove(*words)
            self.assertEqual(put.returncode, 0, put)

        def status():
            return json.loads(cove("pool", "info", "--json", "mine").stdout)["status"]
        wait_for(lambda: status()["ready"] == 1)
        self.assertEqual(status()["zygote"]["state"], "unsupported")
        for driver, hits in (("native", 0), ("bwrap", 1)):
            made = cove("sandbox", "create", "-q", "--template", "boxed", "--driver", driver)
            self.assertEqual(made.returncode, 0, made)
            sandbox = made.stdout.strip()
            self.assertEqual(status()["hits"], hits)
            done = cove("exec", "--receipt=" + os.path.join(self.dir, "home", driver), sandbox, "-c", "6 * 7")
            self.assertEqual((done.returncode, done.stdout), (0, "42\n"), done)
            with open(os.path.join(self.dir, "home", driver), encoding="utf-8") as f:
                receipt = json.load(f)
            self.assertEqual((receipt["driver"], receipt["walls"]["rootless"]), (driver, True))
        self.stop()

    def test_the_units_for_systemd_are_well_formed(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        units = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "deploy/systemd")
        names = [n for n in os.listdir(units) if n.endswith((".service", ".socket", ".target"))]
        for name in names:  # verify requires the programs at the paths of the unit
            with open(os.path.join(units, name), encoding="utf-8") as f:
                text = re.sub(r"/usr/local/(bin/cove|libexec/cove/[a-z-]+)", "/bin/true", f.read())
            self.file(name, text)
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *(os.path.join(self.dir, n) for n in names)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        said = [line for line in done.stdout.decode().splitlines() if any(n in line for n in names)]
        self.assertEqual((done.returncode, said), (0, []), done.stdout.decode())

    def test_logs_are_json_on_request_and_name_the_request(self):
        url = self.start("--log-format", "json")
        self.health(url)
        wait_for(lambda: "/health" in self.logged())
        lines = [json.loads(line) for line in self.logged().splitlines()]
        access = [line for line in lines if "/health" in line["message"]]
        self.assertTrue(access[0]["requestId"])
        self.stop()
