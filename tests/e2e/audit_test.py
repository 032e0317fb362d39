"""The audit trail of a real server: its records, the secrets that must not be in it, and the
detection of changes.
"""
import glob
import hashlib
import hmac
import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from cove import ROOT, run, start
from serve_test import Server, processes, wait_for

SPARE = {"sandboxId": "sb" + "a" * 20, "executionId": "ex" + "a" * 20, "keyId": "ky" + "a" * 20, "userId": "us" + "a" * 20}


def operations():
    """(method, path, whether it takes a body) of every operation of the contract that could change
    state."""
    with open(os.path.join(ROOT, "api/openapi.yaml"), encoding="utf-8") as f:
        paths = f.read().partition("\npaths:\n")[2].partition("\ncomponents:\n")[0]
    for path, operation in re.findall(r"^  (/\S*):\n((?:    .*\n|\n)+)", paths, re.M):
        for method, text in re.findall(r"^    (post|put|patch|delete):\n((?:      .*\n|\n)+)", operation, re.M):
            yield method.upper(), re.sub(r"\{(\w+)\}", lambda m: SPARE.get(m[1], "spare"), path), "\n      requestBody:" in text


def unique(pairs):
    """The object of these pairs, none of whose keys may be there twice."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise AssertionError(f"a key is in a record twice: {names}")
    return dict(pairs)


class Audited(Server):
    def begin(self, *flags):
        self.url = self.start(*flags)
        found = re.search(r"key +(cove_[0-9a-f]{40})", self.said().decode())
        self.key = found[1] if found else self.key

    def ask(self, method, path, body=None, key=None, headers=None, raw=None):
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=120)
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key != "":
            sent["Authorization"] = f"Bearer {key or self.key}"
        connection.request(method, path, raw if raw is not None else json.dumps(body) if body is not None else None, sent)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        try:
            return answer.status, json.loads(text) if text else None
        except ValueError:
            return answer.status, text

    def sandbox(self):
        status, made = self.ask("POST", "/v1/sandboxes", {"runtime": "sh"})
        self.assertEqual(status, 201, made)
        return made["id"]

    def files(self):
        return sorted(glob.glob(os.path.join(self.place, "state/audit/*.jsonl")))

    def records(self):
        found = []
        for name in self.files():
            with open(name, "rb") as f:
                found += [json.loads(line, object_pairs_hook=unique) for line in f.read().split(b"\n")[:-1]]
        return found

    def find(self, **wanted):
        """The records with these fields, after at least one has arrived: records of refusals are
        delayed."""
        def look():
            return [r for r in self.records() if all(r.get(name) == value for name, value in wanted.items())]
        return wait_for(look)

    def verify(self, *flags):
        return run("audit", "verify", "--json", *flags, os.path.join(self.place, "state/audit"))


# A bad request to these routes does not attempt a change: the first one computes, and of a message
# to the second one the call in it is recorded.
CHANGES_NOTHING = ("/v1/calculate", "/mcp")


class Audit(Audited):
    def test_AL01_every_route_that_changes_state_leaves_a_record_of_success_and_denial(self):
        self.begin()
        status, made = self.ask("POST", "/v1/keys", {"name": "weak", "scopes": ["metrics"]})
        self.assertEqual(status, 201, made)
        sent = []
        for n, (method, path, has_body) in enumerate(operations()):
            for who, key in (("nobody", ""), ("weak", made["key"]), ("all", None)):
                name = f"al01-{n}-{who}"
                status, _ = self.ask(method, path, key=key, raw="{}" if has_body else None, headers={"X-Request-Id": name})
                sent.append((name, method, path, status))
        self.assertGreater(len(sent), 45)
        for name, method, path, status in sent:
            if status == 400 and path in CHANGES_NOTHING:
                continue
            with self.subTest(f"{method} {path} as {name}: {status}"):
                last = self.find(clientRequestId=name, status=status)[-1]
                self.assertEqual(last["outcome"], "success" if status < 400 else "refused" if status in (401, 403, 404, 429) else "failed")
                self.assertRegex(last["action"], r"^[a-z0-9_]+\.[a-z_]+$")
                self.assertEqual(last["actor"]["address"], "127.0.0.1")
                self.assertTrue(last["requestId"].startswith("rq"), last)
                if name.endswith("weak"):
                    self.assertEqual((last["actor"]["kind"], last["actor"]["key"]), ("key", made["id"]))
        self.stop()
        self.assertEqual(self.verify().json["intact"], True)

    def test_grants_of_keys_and_roles_are_in_the_record(self):
        self.begin()
        self.assertEqual(self.ask("POST", "/v1/tenants", {"name": "acme", "quota": {"sandboxes": 3}})[0], 201)
        self.assertEqual(self.ask("PUT", "/v1/tenants/acme/budget", {"day": {"executions": 5}, "month": {"cpuMs": 70}})[0], 200)
        self.assertEqual(self.ask("POST", "/v1/roles", {"name": "reader", "permissions": ["files:read"], "tenant": "acme"})[0], 201)
        user = self.ask("POST", "/v1/users", {"name": "ann", "role": "viewer", "tenant": "acme"})[1]["id"]
        key = self.ask("POST", "/v1/keys", {"name": "k", "user": user, "tenant": "acme"})[1]["id"]
        self.assertEqual(self.ask("PATCH", f"/v1/users/{user}", {"name": "eve"})[0], 200)
        self.assertEqual(self.ask("DELETE", "/v1/roles/reader?tenant=acme")[0], 204)
        for action, target, details in (("tenant.create", {"tenant": "acme"}, {"sandboxes": 3}),
                                        ("tenant.budget", {"tenant": "acme"}, {"day.executions": 5, "month.cpuMs": 70}),
                                        ("role.create", {"role": "reader"}, {"permissions": "files:read", "tenant": "acme"}),
                                        ("role.delete", {"role": "reader"}, {"tenant": "acme"}),
                                        ("user.create", {"user": user}, {"name": "ann", "role": "viewer", "tenant": "acme"}),
                                        ("user.update", {"user": user}, {"name": "eve"})):
            record = self.find(action=action)[0]
            self.assertEqual((record["target"], record["details"]), (target, details))
        made = [r for r in self.find(action="key.create") if r["target"] == {"key": key}][0]
        self.assertEqual((made["details"]["tenant"], made["details"]["user"]), ("acme", user))
        self.stop()
        self.assertEqual(self.verify().json["intact"], True)

    def test_an_execution_is_recorded_by_hash_before_its_end_and_with_its_outcome(self):
        self.begin()
        sandbox = self.sandbox()
        code = "until [ -e /workspace/go ]; do sleep 0.05; done; echo done"
        thread = threading.Thread(target=self.ask, args=("POST", f"/v1/sandboxes/{sandbox}/executions", {"code": code, "stdin": "x"}))
        thread.start()
        begun = self.find(action="execution.create", outcome="accepted")[0]
        self.assertEqual(begun["details"]["codeSha256"], hashlib.sha256(code.encode()).hexdigest())
        self.assertEqual((begun["details"]["codeBytes"], begun["details"]["stdinBytes"]), (len(code), 1))
        self.assertEqual(begun["target"]["sandbox"], sandbox)
        self.assertEqual([r for r in self.records() if r["action"] == "execution.create" and r["outcome"] != "accepted"], [])
        self.assertEqual(self.ask("PUT", f"/v1/sandboxes/{sandbox}/files?path=/workspace/go", raw="")[0], 200)
        thread.join()
        done = self.find(action="execution.create", outcome="success")[0]
        self.assertEqual(done["requestId"], begun["requestId"])
        self.assertEqual(done["target"], begun["target"])
        self.stop()

    def test_no_record_has_a_key_twice_and_all_can_be_listed(self):
        self.begin()
        _, made = self.ask("POST", "/v1/sandboxes", {"runtime": "python"})
        contexts = f"/v1/sandboxes/{made['id']}/contexts"
        status, first = self.ask("POST", contexts, {})
        self.assertEqual(status, 201, first)
        status, fork = self.ask("POST", f"{contexts}/{first['id']}/fork")
        self.assertEqual(status, 201, fork)
        record = self.find(action="context.fork", outcome="success")[0]
        self.assertEqual(record["target"], {"context": fork["id"], "sandbox": made["id"]})
        accepted = self.find(action="context.fork", outcome="accepted")[0]
        self.assertEqual(accepted["details"], {"forkedFrom": first["id"]})
        files = [{"path": name, "content": name} for name in ("a", "b")]
        status, answer = self.ask("POST", "/v1/execute", {"code": "1", "files": files})
        self.assertEqual(status, 200, answer)
        details = self.find(action="execution.execute", outcome="accepted")[0]["details"]
        self.assertEqual([details[f"file{n}Sha256"] for n in (1, 2)], [hashlib.sha256(x).hexdigest() for x in (b"a", b"b")])
        listed = run("audit", "tail", env={"COVE_URL": self.url, "COVE_API_KEY": self.key})
        self.assertEqual((listed.code, listed.err), (0, ""))
        self.assertIn("context.fork", listed.out)
        self.stop()

    def test_calls_of_tools_are_recorded_with_a_hash_of_their_arguments(self):
        self.begin()
        sandbox = self.sandbox()
        status, answer = self.ask("POST", f"/v1/sandboxes/{sandbox}/tools/bash", {"command": "true"})
        self.assertEqual(status, 200, answer)
        accepted = self.find(action="tool.call_in_sandbox", outcome="accepted")[0]
        self.assertEqual(accepted["target"], {"tool": "bash", "sandbox": sandbox})
        text = b'{"command":"true"}'
        self.assertEqual(accepted["details"], {"argumentsSha256": hashlib.sha256(text).hexdigest(), "argumentsBytes": len(text)})
        self.assertEqual(self.find(action="tool.call_in_sandbox", outcome="success")[0]["target"]["execution"], answer["executionId"])
        status, _ = self.ask("POST", "/v1/tools/code_executor", {"code": 1})
        self.assertEqual((status, self.find(action="tool.call", outcome="failed")[0]["target"]), (400, {"tool": "code_executor"}))
        self.stop()

    def test_content_is_recorded_when_the_operator_wants_it(self):
        self.begin("--audit-content", "true")
        sandbox = self.sandbox()
        self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", {"command": ["echo", "plain"], "env": {"A": "b"}})
        details = self.find(action="execution.create", outcome="accepted")[0]["details"]
        self.assertEqual(details, {"command": "echo\0plain\0", "env": "A=b\0"})
        self.stop()

    def test_actions_of_the_server_itself_are_recorded(self):
        self.begin()
        status, made = self.ask("POST", "/v1/sandboxes", {"runtime": "sh", "lifetimeMs": 1000})
        self.assertEqual(status, 201, made)
        ended = self.find(action="sandbox.end")[0]
        self.assertEqual((ended["target"], ended["details"]["endedBy"]), ({"sandbox": made["id"]}, "lifetime"))
        self.assertEqual(ended["actor"], {"kind": "server"})
        self.assertEqual(ended["tenant"], "local")
        self.stop()
        self.assertTrue(self.find(action="server.start") and self.find(action="server.stop"))
        copy = os.path.join(self.dir, "copy.db")
        self.assertEqual(run("backup", "--state-dir", self.place, copy).code, 0)
        self.assertEqual(run("restore", "--state-dir", self.place, copy).code, 0)
        self.begin()
        self.assertIn("restoredAt", self.find(action="server.restore")[0]["details"])
        self.stop()
        self.begin()
        self.stop()
        self.assertEqual(len(self.find(action="server.restore")), 1)

    def test_AL02_a_trail_that_cannot_be_written_closes_the_server_to_changes(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to mount a small disk")
        os.makedirs(self.place)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "small", self.place], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.place], check=False)
        self.begin("--audit-segment", "64K", "--rate-limit-default", "100000/s")
        sandbox = self.sandbox()
        ballast = os.path.join(self.place, "ballast")
        with open(ballast, "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 65536)
            except OSError:
                pass
        extend = ("PATCH", f"/v1/sandboxes/{sandbox}", {"lifetimeMs": 600000})
        for _ in range(600):
            status, answer = self.ask(*extend)
            if status == 503 and answer["error"]["code"] == "audit_unavailable":
                break
        else:
            self.fail(f"{status} {answer}")
        self.assertIn("cannot be recorded", answer["error"]["message"])
        for i in range(1500):  # more than the reserved space: each gets an error, and none waits for its own record
            status, answer = self.ask("PUT", f"/v1/sandboxes/{sandbox}/files?path=/{'long' * 900}{i}", raw="x")
            self.assertEqual((status, answer["error"]["code"]), (503, "audit_unavailable"))
        self.assertEqual(self.ask("GET", f"/v1/sandboxes/{sandbox}")[0], 200)  # reading is allowed
        status, ready = self.ask("GET", "/ready", key="")
        self.assertNotEqual(ready["checks"]["audit"], "ok")
        self.assertRegex(self.ask("GET", "/metrics")[1].decode(), r"cove_audit_state [12]")
        self.assertIn("audit trail", self.logged())  # the operator finds it in the log
        os.unlink(ballast)
        wait_for(lambda: self.ask(*extend)[0] == 200)
        self.stop()
        self.assertEqual(self.verify().json["intact"], True)

    def test_AL03_hostile_names_stay_in_their_line(self):
        self.begin()
        sandbox = self.sandbox()
        name = "a%0a%7b%22seq%22%3a1%7d%1b%5b2J%e2%80%a8%22%2c%22outcome%22%3a%22x"
        status, answer = self.ask("PUT", f"/v1/sandboxes/{sandbox}/files?path=/workspace/{name}", raw="x")
        self.assertEqual(status, 200, answer)
        record = self.find(action="file.write")[0]
        self.assertEqual(record["target"]["path"], '/workspace/a\n{"seq":1}\x1b[2J\u2028","outcome":"x')
        self.assertEqual(record["outcome"], "success")
        status, answer = self.ask("PUT", f"/v1/sandboxes/{sandbox}/files?path=relative", raw="x")
        self.assertEqual(status, 200, answer)
        self.assertIn("/workspace/relative", [r["target"]["path"] for r in self.find(action="file.write")])
        for text in [self.logged()] + [open(f, encoding="utf-8").read() for f in self.files()]:
            self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f\u2028\u2029]")
        self.stop()
        self.assertEqual(self.verify().json["intact"], True)

    def test_AL04_a_clients_request_id_is_kept_apart_from_the_servers_own(self):
        self.begin()
        for given, kept in (("mine-1", True), ("mine-1", True), ("x" * 65, False), ("with space", False)):
            self.ask("DELETE", f"/v1/sandboxes/{SPARE['sandboxId']}", headers={"X-Request-Id": given})
        self.assertEqual(self.ask("DELETE", "/v1/sandboxes/x", headers={"X-Request-Id": "x" * (1 << 20)})[0], 431)
        found = wait_for(lambda: len(r := self.find(action="sandbox.delete")) >= 4 and r)
        self.assertEqual(len({r["requestId"] for r in found}), len(found))  # reused by the client, never by the server
        self.assertEqual([r.get("clientRequestId") for r in found], ["mine-1", "mine-1", None, None])
        self.assertTrue(all(r["requestId"].startswith("rq") for r in found))
        self.stop()

    def test_AL05_no_secret_reaches_a_log_a_record_a_metric_or_a_command_line(self):
        canary = {name: f"canary{name}{os.urandom(6).hex()}" for name in ("code", "argv", "env", "sandboxenv", "stdin", "query", "userinfo", "header")}
        self.begin("--log-level", "debug", "--log-format", "json")
        status, made = self.ask("POST", "/v1/sandboxes", {"runtime": "sh", "env": {"S": canary["sandboxenv"]}})
        self.assertEqual(status, 201, made)
        base = f"/v1/sandboxes/{made['id']}"
        self.ask("POST", f"{base}/executions", {"code": f": {canary['code']}", "stdin": canary["stdin"], "env": {"A": canary["env"]}})
        self.ask("POST", f"{base}/executions", {"command": ["true", canary["argv"]]})
        self.ask("POST", f"{base}/executions", {"command": ["/no/such", canary["argv"]]})
        self.ask("POST", f"{base}/executions", raw='{"code": "' + canary["code"])  # not even JSON
        status, key = self.ask("POST", "/v1/keys", {"name": "one", "scopes": ["files"]})
        status, again = self.ask("POST", f"/v1/keys/{key['id']}/rotate")
        wrong = "cove_" + os.urandom(20).hex()
        for headers in ({"Authorization": f"Bearer {wrong}"}, {"X-API-Key": wrong}, {"Authorization": f"Basic {canary['header']}"}):
            self.ask("GET", "/v1/sandboxes", key="", headers=headers)
        self.ask("GET", f"/v1/sandboxes?ticket={canary['query']}")
        self.ask("GET", f"http://u:{canary['userinfo']}@localhost/v1/sandboxes")
        answers = [json.dumps(self.ask("GET", path)[1]) for path in ("/ready", "/v1/audit", "/v1/sandboxes", base, f"{base}/events", "/v1/events")]
        answers.append(self.ask("GET", "/metrics")[1].decode())
        lines = b""
        for pid in processes(self.run_dir).values():
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                lines += f.read()
        time.sleep(0.2)
        texts = {"log": self.logged().encode(), "command lines": lines}
        for name in glob.glob(os.path.join(self.place, "**"), recursive=True):
            if os.path.isfile(name):
                with open(name, "rb") as f:
                    texts[name] = f.read()
        texts["answers"] = "".join(answers).encode()
        secrets = {**canary, "first key": self.key, "key": key["key"], "rotated": again["key"], "wrong key": wrong}
        for where, text in texts.items():
            for what, secret in secrets.items():
                if what == "sandboxenv" and (re.search(r"cove\.db", where) or where == "answers"):
                    continue  # the spec of a sandbox is stored, and shown to its owner
                if what == "stdin" and re.search(r"cove\.db", where):
                    continue  # input is stored, so that a restarted server can continue to send it
                self.assertNotIn(secret.encode(), text, f"{what} in {where}")
        self.stop()
        self.assertNotRegex(self.logged(), "|".join(secrets.values()))

    def test_AL06_a_changed_trail_is_reported_with_file_and_line(self):
        self.begin()
        self.sandbox()
        public = self.file("key.pub", run("audit", "key", "--url", self.url, env={"COVE_API_KEY": self.key}).out)
        head = run("audit", "key", "--json", "--url", self.url, env={"COVE_API_KEY": self.key}).json["head"]
        self.stop()
        name = self.files()[0]
        with open(name, encoding="utf-8") as f:
            lines = f.readlines()
        self.assertEqual(self.verify("--key", public).json["signedTo"], len(lines))
        told = run("audit", "verify", "--key", public, name)
        self.assertEqual((told.code, told.out), (0, f"intact: {len(lines)} records, 1 to {len(lines)}; signed up to {len(lines)}\n"))
        at = next(i for i, line in enumerate(lines) if "sandbox.create" in line)
        for what, changed in (("edited", [*lines[:at], lines[at].replace("127.0.0.1", "127.0.0.9"), *lines[at + 1:]]),
                              ("missing", lines[:at] + lines[at + 1:]),
                              ("reordered", lines[:at + 1] + lines[at - 1:]),
                              ("truncated", lines[:at] + [lines[at][:50]])):
            with self.subTest(what):
                with open(name, "w", encoding="utf-8") as f:
                    f.writelines(changed)
                told = self.verify("--key", public)
                self.assertEqual(told.code, 1, told)
                broken = told.json["broken"]
                self.assertEqual((broken["what"], broken["file"]), (what, name))
                self.assertEqual(broken["line"], at + (2 if what == "reordered" else 1))
                self.assertRegex(run("audit", "verify", name).out, rf"^{re.escape(name)}:{broken['line']}: record \d+ is broken \({what}\): ")
        with open(name, "w", encoding="utf-8") as f:
            f.writelines(lines[:at])
        self.assertEqual(self.verify("--key", public).code, 0)  # cut between two records: the file alone does not show it
        told = self.verify("--head", f"{head['seq']}:{head['hash']}")
        self.assertEqual((told.code, told.json["broken"]["what"]), (1, "truncated"))
        self.begin()  # but the server has the number of the last record
        self.assertIn("records were removed", self.logged())
        self.assertEqual(self.ask("GET", "/v1/audit?action=security.")[1]["items"][0]["action"], "security.audit_damaged")
        self.stop()

    def test_AL07_errors_reveal_nothing_about_the_server(self):
        self.begin()
        sandbox = self.sandbox()
        bodies = []
        for method, path, body in (("GET", "/v1/sandboxes/x", None), ("POST", "/v1/sandboxes", {"runtime": "x'; DROP TABLE sandboxes; --"}),
                                   ("GET", "/v1/sandboxes?cursor='", None),
                                   ("GET", f"/v1/sandboxes/{sandbox}/files?path=/../../etc/shadow", None), ("GET", "/v1/keys/ky", None),
                                   ("PUT", "/v1/templates/a%00b", {}), ("GET", "/v1/audit?since=x", None), ("BREW", "/v1/sandboxes", None)):
            status, answer = self.ask(method, path, body)
            self.assertGreaterEqual(status, 400, (path, answer))
            self.assertTrue(answer["error"]["code"] and answer["error"]["requestId"], answer)
            bodies.append(json.dumps(answer))
        for body in bodies:
            self.assertNotRegex(body, r"sqlite|SELECT|\.c:\d|libmicrohttpd|OpenSSL|cove\.db|/run/|" + re.escape(self.place))
        self.stop()

    def test_AL08_metrics_need_a_key_and_name_no_user(self):
        self.begin()
        sandbox = self.sandbox()
        for path in ("/v1/x/" + "y" * 30, f"/v1/sandboxes/{sandbox}", "/v1/sandboxes/sb" + "z" * 20):
            self.ask("GET", path)
        self.assertEqual(self.ask("GET", "/metrics", key="")[0], 401)
        status, weak = self.ask("POST", "/v1/keys", {"name": "weak", "scopes": ["files"]})
        self.assertEqual(self.ask("GET", "/metrics", key=weak["key"])[0], 403)
        text = "\n".join(line for line in self.ask("GET", "/metrics")[1].decode().splitlines() if not line.startswith("# HELP"))
        self.assertNotRegex(text, rf"{sandbox}|{weak['id']}|yyy|zzz|tenant|owner|\"local\"")
        status, health = self.ask("GET", "/health", key="")
        self.assertEqual(set(health), {"status", "version"})
        self.stop()

    def test_AL09_reading_and_exporting_need_the_scope(self):
        self.begin()
        self.sandbox()
        status, weak = self.ask("POST", "/v1/keys", {"name": "weak", "scopes": ["sandboxes:read"]})
        status, reader = self.ask("POST", "/v1/keys", {"name": "reader", "scopes": ["audit"]})
        for path in ("/v1/audit", "/v1/audit?format=jsonl", "/v1/audit/key", "/v1/audit?action=security."):
            self.assertEqual(self.ask("GET", path, key="")[0], 401)
            self.assertEqual(self.ask("GET", path, key=weak["key"])[0], 403)
            self.assertEqual(self.ask("GET", path, key=reader["key"])[0], 200)
        own = self.ask("GET", "/v1/audit", key=reader["key"])[1]["items"]
        self.assertTrue(own and all(r["tenant"] == "local" for r in own))  # not those of the server itself
        self.assertEqual(self.ask("GET", "/v1/audit?tenant=other", key=reader["key"])[0], 403)
        self.assertEqual(self.ask("GET", "/v1/audit?tenant=other")[1]["items"], [])
        self.stop()

    def test_AU12_an_export_ends_with_its_key(self):
        self.begin("--rate-limit-default", "100000/s")
        sandbox = self.sandbox()
        long = "/workspace/" + "/".join("d" * 200 for _ in range(18))
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=120)
        for _ in range(2500):  # about ten megabytes: more than any socket buffer holds
            connection.request("POST", f"/v1/sandboxes/{sandbox}/files/mkdir", json.dumps({"path": long, "parents": True}),
                               {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            self.assertEqual(answer.status, 204, answer.read())
            answer.read()
        connection.close()
        status, reader = self.ask("POST", "/v1/keys", {"name": "reader", "scopes": ["audit"]})
        host, port = self.url.removeprefix("http://").split(":")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(120)
        slow.connect((host, int(port)))
        slow.sendall(f"GET /v1/audit?format=jsonl HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {reader['key']}\r\n\r\n"
                     .encode())
        self.assertEqual(slow.recv(12), b"HTTP/1.1 200")
        self.assertEqual(self.ask("DELETE", f"/v1/keys/{reader['id']}")[0], 204)
        told = b""
        try:
            while piece := slow.recv(65536):
                told += piece
        except ConnectionResetError:
            pass
        slow.close()
        self.assertFalse(told.endswith(b"0\r\n\r\n"), "the export ended as if it were complete")
        self.stop()

    def test_actions_of_an_operator_on_a_tenants_sandbox_are_visible_to_the_tenant(self):
        self.begin()
        self.assertEqual(self.ask("POST", "/v1/tenants", {"name": "crew"})[0], 201)
        theirs = self.ask("POST", "/v1/keys", {"name": "k", "tenant": "crew",
                                                  "scopes": ["sandboxes:read", "sandboxes:write", "audit"]})[1]["key"]
        sandbox = self.ask("POST", "/v1/sandboxes", {"runtime": "sh"}, key=theirs)[1]["id"]
        self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", {"command": ["echo", "operators-word"], "env": {"S": "secret-of-his"}})
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{sandbox}")[0], 200)
        seen = self.ask("GET", "/v1/audit?limit=100", key=theirs)[1]["items"]
        acts = [(r["action"], r["outcome"]) for r in seen if r["actor"]["kind"] == "operator"]
        self.assertIn(("execution.create", "success"), acts)
        self.assertIn(("sandbox.delete", "success"), acts)
        for r in seen:
            self.assertEqual(r["tenant"], "crew")
            if r["actor"]["kind"] == "operator":
                self.assertRegex(r["actor"]["key"], "^ky")
                self.assertEqual(r["target"]["sandbox"], sandbox)
                self.assertNotIn("address", r["actor"])
                self.assertNotIn("details", r)
        self.assertNotRegex(json.dumps(seen), "operators-word|secret-of-his")
        ids = {r["requestId"] for r in seen if r["actor"]["kind"] == "operator"}
        own = [r for r in self.records() if r.get("requestId") in ids and r["tenant"] == "local"]
        self.assertEqual({r["requestId"] for r in own}, ids)  # the same actions, recorded for both
        quiet = self.sandbox()  # in the operator's own tenant: one record is enough
        self.assertFalse([r for r in self.records() if r["actor"]["kind"] == "operator" and r["target"].get("sandbox") == quiet])
        self.stop()

    def test_a_request_beyond_a_quota_is_recorded_as_refused(self):
        self.begin()
        self.assertEqual(self.ask("POST", "/v1/tenants", {"name": "small", "quota": {"sandboxes": 1}})[0], 201)
        status, made = self.ask("POST", "/v1/keys", {"name": "small", "tenant": "small", "user": None, "scopes": ["sandboxes:write"]})
        self.assertEqual(status, 201, made)
        for name, expected in (("first", 201), ("second", 409)):
            status, answer = self.ask("POST", "/v1/sandboxes", {}, key=made["key"], headers={"X-Request-Id": name})
            self.assertEqual(status, expected, answer)
        last = self.find(clientRequestId="second", status=409)[-1]
        self.assertEqual((last["action"], last["outcome"], last["error"]), ("sandbox.create", "refused", "quota_exceeded"))

    def test_a_flood_of_refusals_is_recorded_as_a_count(self):
        self.begin()
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        for _ in range(300):
            connection.request("DELETE", "/v1/sandboxes/x")
            connection.getresponse().read()
        connection.close()
        self.stop()  # the aggregated count is written at the stop
        found = [r for r in self.records() if r["action"] == "sandbox.delete"]
        self.assertLess(len(found), 50)
        self.assertEqual(sum(r.get("details", {}).get("count", 1) for r in found), 300)

    def test_records_survive_a_kill_and_the_next_server_continues_the_chain(self):
        self.begin()
        for _ in range(3):
            sandbox = self.sandbox()
            os.kill(processes(self.run_dir)["coved"], signal.SIGKILL)
            self.assertTrue([r for r in self.records() if r["action"] == "sandbox.create" and r["target"].get("sandbox") == sandbox])
            wait_for(lambda: self.alive())
        self.stop()
        self.assertEqual(self.verify().json["intact"], True)

    def alive(self):
        try:
            return self.ask("GET", "/ready", key="")[0] == 200
        except OSError:
            return False


class Receiver(http.server.BaseHTTPRequestHandler):
    got = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((dict(self.headers), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *words):
        pass


class Security(Audited):
    def receiver(self):
        Receiver.got = []
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}/hook"

    def test_escapes_and_wrong_keys_raise_events_in_the_feed_the_metrics_and_the_webhook(self):
        self.begin("--security-webhook", self.receiver(), "--security-webhook-allow", "127.0.0.1")
        sandbox = self.sandbox()
        status, done = self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", {"code": "unshare -r true; mount -t tmpfs x /tmp; true"})
        self.assertEqual((status, done["exitCode"]), (200, 0), done)
        for n in range(12):
            self.ask("GET", "/v1/sandboxes", key="")
        found = wait_for(lambda: len({e["action"] for e in self.ask("GET", "/v1/audit?action=security.")[1]["items"]}) == 2 and
                         self.ask("GET", "/v1/audit?action=security.")[1]["items"])
        escape = next(e for e in found if e["action"] == "security.escape_attempt")
        self.assertEqual((escape["tenant"], escape["target"]["sandbox"]), ("local", sandbox))
        self.assertTrue(any(call.startswith(("unshare", "mount")) for call in escape["details"]["calls"]), escape)
        failures = next(e for e in found if e["action"] == "security.repeated_failures")
        self.assertEqual((failures["actor"]["address"], failures["details"]["count"]), ("127.0.0.1", 10))
        text = self.ask("GET", "/metrics")[1].decode()
        self.assertIn('cove_security_events_total{kind="escape_attempt"} 1', text)
        self.assertIn('cove_security_events_total{kind="repeated_failures"} 1', text)
        wait_for(lambda: len(Receiver.got) == 2)
        with open(os.path.join(self.place, "state/audit/webhook.secret"), encoding="ascii") as f:
            secret = f.read()
        for headers, body in Receiver.got:
            want = hmac.new(secret.encode(), headers["Cove-Timestamp"].encode() + b"." + body, "sha256").hexdigest()
            self.assertTrue(hmac.compare_digest(headers["Cove-Signature"], "v1=" + want))
            self.assertLess(abs(time.time() - int(headers["Cove-Timestamp"])), 120)
            self.assertIn(json.loads(body)["action"], ("security.escape_attempt", "security.repeated_failures"))
        self.assertEqual(len({headers["Cove-Delivery"] for headers, _ in Receiver.got}), 2)
        self.stop()
        self.assertNotIn(secret, self.logged() + text + json.dumps(self.records()))
        self.assertNotIn(secret, run("serve", "--print-config", "--state-dir", self.place).out)

    def escapes(self):
        return [e for e in self.ask("GET", "/v1/audit?action=security.")[1]["items"] if e["action"] == "security.escape_attempt"]

    def refused_calls(self):
        text = self.ask("GET", "/metrics")[1].decode()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("cove_refused_calls_total "))

    def test_escapes_of_code_are_reported_once(self):
        self.begin("--security-webhook", self.receiver(), "--security-webhook-allow", "127.0.0.1")
        code = "import ctypes; ctypes.CDLL(None).unshare(0x10000000)"
        status, done = self.ask("POST", "/v1/execute", {"code": code})
        self.assertEqual((status, done["outcome"]), (200, "success"), done)
        ran = wait_for(self.escapes)
        self.assertEqual([e["target"] for e in ran], [{"sandbox": done["sandboxId"], "execution": done["id"]}])
        self.assertEqual((ran[0]["tenant"], ran[0]["details"]["count"]), ("local", 1))
        self.assertEqual(self.refused_calls(), 1)

        sandbox = self.ask("POST", "/v1/sandboxes", {"runtime": "python"})[1]["id"]
        status, context = self.ask("POST", f"/v1/sandboxes/{sandbox}/contexts", {"language": "python"})
        self.assertEqual(status, 201, context)
        self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", {"command": ["python3", "-c", code]})  # reports its own
        self.assertEqual(len(wait_for(lambda: len(self.escapes()) == 2 and self.escapes())), 2)
        status, done = self.ask("POST", f"/v1/sandboxes/{sandbox}/contexts/{context['id']}/execute", {"code": code})
        self.assertEqual((status, done["exitCode"]), (200, 0), done)
        told = wait_for(lambda: len(self.escapes()) == 3 and self.escapes())
        last = next(e for e in told if e["target"] == {"sandbox": sandbox, "execution": done["id"]})
        self.assertEqual((last["tenant"], last["details"]["count"]), ("local", 1), last)
        self.assertEqual(self.refused_calls(), 3)
        late = "import threading, ctypes; threading.Timer(0.5, lambda: ctypes.CDLL(None).unshare(0x10000000)).start()"
        status, done = self.ask("POST", f"/v1/sandboxes/{sandbox}/contexts/{context['id']}/execute", {"code": late})
        self.assertEqual((status, done["exitCode"]), (200, 0), done)
        time.sleep(1)
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{sandbox}")[0], 200)
        told = wait_for(lambda: len(self.escapes()) == 4 and self.escapes())
        last = next(e for e in told if e["target"] == {"sandbox": sandbox})  # of no execution
        self.assertEqual((last["tenant"], last["details"]["count"]), ("local", 1), last)
        self.assertEqual(self.refused_calls(), 4)
        wait_for(lambda: len(Receiver.got) == 4)

    def execute(self, sandbox, **body):
        status, done = self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", body)
        self.assertEqual(status, 200, done)
        status, receipt = self.ask("GET", f"/v1/sandboxes/{sandbox}/executions/{done['id']}/receipt")
        self.assertEqual(status, 200, receipt)
        self.assertNotIn("denials", receipt["absent"])
        self.assertEqual(receipt["denialsMore"], 0)
        return done, {d["syscall"]: d["count"] for d in receipt["denials"]}

    def test_the_receipt_of_each_execution_of_a_context_has_its_refused_calls(self):
        self.begin()
        sandbox = self.ask("POST", "/v1/sandboxes", {"runtime": "python"})[1]["id"]
        call = "import ctypes; ctypes.CDLL(None).unshare(0x10000000)"
        self.assertEqual(self.execute(sandbox, code="x = 1")[1], {})
        done, denials = self.execute(sandbox, code=call + "; ctypes.CDLL(None).unshare(0x10000000); import sys; sys.exit(1)")
        self.assertEqual(denials, {"unshare": 2})
        self.assertIn("unshare", done["hint"])
        done, denials = self.execute(sandbox, code="import sys; sys.exit(1)")
        self.assertEqual((denials, "unshare" in done.get("hint", "")), ({}, False))
        self.assertEqual(self.execute(sandbox, code=call, isolated=True)[1], {"unshare": 1})
        self.assertEqual(self.execute(sandbox, code="x")[1], {})
        done, denials = self.execute(sandbox, code="unshare -r true", language="bash")
        self.assertEqual((denials, done["exitCode"]), ({"unshare": 1}, 1))
        self.assertIn("unshare", done["hint"])
        self.assertEqual(self.execute(sandbox, code=call)[1], {"unshare": 1})
        done, denials = self.execute(sandbox, code=call + "; import time; time.sleep(60)", timeoutMs=500)
        self.assertEqual((denials, done["outcome"]), ({"unshare": 1}, "timeout"))
        self.assertEqual(self.execute(sandbox, code=call + "; import os; os._exit(3)")[1], {"unshare": 1})  # ends its interpreter
        self.assertEqual(self.execute(sandbox, code="1")[1], {})
        self.assertEqual(self.refused_calls(), 7)
        wait_for(lambda: sum(e["details"]["count"] for e in self.escapes()) == 7)

    def test_denials_before_a_restart_of_the_server_are_not_those_of_a_later_execution(self):
        self.begin()
        sandbox = self.ask("POST", "/v1/sandboxes", {"runtime": "python"})[1]["id"]
        call = "import ctypes; ctypes.CDLL(None).unshare(0x10000000)"
        self.assertEqual(self.execute(sandbox, code=call)[1], {"unshare": 1})
        os.kill(processes(self.run_dir)["coved"], signal.SIGKILL)

        def first():
            try:
                status, done = self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", {"code": "1"})
            except OSError:
                return None
            return done if status == 200 else None

        receipt = self.ask("GET", f"/v1/sandboxes/{sandbox}/executions/{wait_for(first)['id']}/receipt")[1]
        self.assertIn("server was restarted", receipt["absent"]["denials"])
        self.assertEqual(self.execute(sandbox, code=call)[1], {"unshare": 1})
        self.assertEqual(self.execute(sandbox, code="1")[1], {})
        self.assertEqual(self.refused_calls(), 1)

    def test_an_ordinary_program_raises_no_event(self):
        self.begin()
        sandbox = self.sandbox()
        self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", {"code": "ls -l /; cat /etc/passwd; id; ps; git --version; python3 -c 'import ssl, socket; print(1)'; true"})
        status, made = self.ask("POST", "/v1/sandboxes", {"runtime": "python"})
        if status == 201:
            self.ask("POST", f"/v1/sandboxes/{made['id']}/executions", {"code": "import subprocess, threading; print(subprocess.run(['true']))"})
        self.stop()
        self.assertEqual([r for r in self.records() if r["action"].startswith("security.")], [])

    def test_SR01_a_webhook_into_the_own_network_is_refused_at_the_start(self):
        for url in ("http://127.0.0.1:1/", "http://169.254.169.254/latest", "http://[::1]/", "http://2130706433/", "file:///etc/passwd", "https://u:p@example.org/"):
            with self.subTest(url):
                done = run("serve", "--state-dir", self.place, "--listen", "127.0.0.1:0", "--security-webhook", url)
                self.assertNotEqual(done.code, 0)
                self.assertIn("webhook", done.err)
                self.assertNotIn("u:p@", done.err)


class Command(Audited):
    def cove(self, *words):
        return run(*words, "--url", self.url, env={"COVE_API_KEY": self.key})

    def test_an_export_of_everything_can_be_verified(self):
        self.begin("--audit-segment", "64K")
        for _ in range(3):
            self.sandbox()
        for n in range(200):
            self.ask("PUT", f"/v1/templates/t{n}", {"runtime": "sh"})
        done = self.cove("audit", "export")
        self.assertEqual(done.code, 0, done)
        lines = done.out.splitlines()
        self.assertGreater(len(lines), 200)
        path = self.file("all.jsonl", done.out)
        key = self.file("key.pub", self.cove("audit", "key").out)
        told = run("audit", "verify", "--json", "--key", key, path)
        self.assertEqual((told.code, told.json["records"]), (0, len(lines)), told)
        only = self.cove("audit", "export", "--action", "sandbox.", "--since", "1h").out.splitlines()
        self.assertTrue(only and {json.loads(line)["action"] for line in only} == {"sandbox.create"})
        self.assertEqual(self.cove("audit", "export", "--until", "1h").out, "")
        self.assertEqual(self.cove("audit", "export", "--since", "soon").code, 2)
        self.stop()

    def test_tail_prints_the_latest_records_and_follows(self):
        self.begin()
        for _ in range(3):
            self.sandbox()
        wait_for(lambda: len(self.find(action="sandbox.create", outcome="success")) == 3)
        done = self.cove("audit", "tail", "-n", "2", "--json", "--action", "sandbox.create")
        self.assertEqual([json.loads(line)["outcome"] for line in done.out.splitlines()], ["accepted", "success"])
        follower = start("audit", "tail", "-f", "-n", "1", "--action", "template.put", "--url", self.url, env={"COVE_API_KEY": self.key})
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        self.ask("PUT", "/v1/templates/later", {"runtime": "sh"})
        self.assertIn(b"template.put", follower.stdout.readline())
        for stream in (follower.stdin, follower.stdout, follower.stderr):
            self.addCleanup(stream.close)
        self.stop()

    def test_usage_errors_are_reported(self):
        self.assertEqual(run("audit").code, 2)
        self.assertEqual(run("audit", "verify").code, 2)
        self.assertEqual(run("audit", "verify", "/no/such").code, 125)
        self.assertIn("not a public key", run("audit", "verify", "--key", self.file("k", "x"), self.file("l", "")).err)
        told = run("audit", "verify", self.file("log.jsonl", "hello\n"))
        self.assertEqual((told.code, "unreadable" in told.out), (1, True), told)
