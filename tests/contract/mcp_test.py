#!/usr/bin/env python3
"""mcp_test.py COVE - the Model Context Protocol of a real server, with a client of its own over
http.client; prints TAP. The conformance suite (make check-mcp) compares the wire with the schemas;
here are sandboxes, tenants, ends and hostile clients. Needs root.
"""
import contextlib
import http.client
import json
import os
import shutil
import sqlite3
import socket
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from server import Launched, wait_for  # noqa: E402

COVE = os.path.abspath(sys.argv[1])
MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
SCOPES = ["sandboxes:read", "sandboxes:write", "executions", "files"]
BOTH = "application/json, text/event-stream"
CASES = []


def case(function):
    CASES.append(function)
    return function


class Answer:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode()
        self.stream = self.headers.get("Content-Type") == "text/event-stream"
        self.events = events_of(self.text) if self.stream else []

    @property
    def messages(self):
        return [m for _, m in self.events if m] if self.stream else [json.loads(self.text)]

    @property
    def result(self):
        assert self.messages and "result" in self.messages[-1], (self.status, self.text)
        return self.messages[-1]["result"]

    @property
    def error(self):
        assert self.messages and "error" in self.messages[-1], (self.status, self.text)
        return self.messages[-1]["error"]


def events_of(text):
    """[(id, message or None)] of an event stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in fields or "id" in fields:
            found.append((fields.get("id"), json.loads(fields["data"]) if fields.get("data") else None))
    return found


class Server:
    def __init__(self, *flags):
        self.dir = tempfile.mkdtemp(prefix="cove-mcp-")
        self.launched = Launched(COVE, self.dir, "--rate-limit-default", "none", *(flags or ("--rate-limit-create", "none")))
        self.key = self.launched.key
        host, port = self.launched.url.removeprefix("http://").split(":")
        self.address = (host, int(port))
        self.names = 0

    def connect(self):
        return http.client.HTTPConnection(*self.address, timeout=60)

    def call(self, method, path, body=None, key=None, headers=None):
        connection = self.connect()
        try:
            data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, data, {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json",
                                                    "Accept": BOTH, **(headers or {})})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def json(self, method, path, body=None, key=None, status=200):
        a = self.call(method, path, body, key)
        assert a.status == status, (a.status, a.text)
        return json.loads(a.text) if a.text else None

    def tenant(self, scopes=None):
        """The key of a new tenant."""
        self.names += 1
        self.json("POST", "/v1/tenants", {"name": f"t{self.names}"}, status=201)
        return self.key_of(f"t{self.names}", scopes)

    def key_of(self, tenant, scopes=None):
        return self.json("POST", "/v1/keys", {"name": "k", "tenant": tenant, "scopes": scopes or SCOPES}, status=201)["key"]

    def client(self, key=None, revision="2025-11-25", **more):
        return Client(self, key or self.tenant(), revision, **more)

    def stop(self):
        status = self.launched.process.poll()
        status = self.launched.stop() if status is None else status
        log = self.launched.logged()
        shutil.rmtree(self.dir, ignore_errors=True)
        assert status == 0 and " error " not in log and "Sanitizer" not in log, log[-9000:]
        return log


class Client:
    """A legacy client: one session."""

    def __init__(self, server, key, revision, headers=None, capabilities=None):
        self.server, self.key, self.ids, self.more = server, key, 0, headers or {}
        self.capabilities = capabilities or {}
        self.headers = {}
        opened = self.send("initialize", {"protocolVersion": revision, "capabilities": self.capabilities,
                                          "clientInfo": {"name": "test", "version": "1"}})
        self.initialized = opened.result
        self.secret = opened.headers["Mcp-Session-Id"]
        self.headers = {"Mcp-Session-Id": self.secret, "MCP-Protocol-Version": self.initialized["protocolVersion"]}
        assert self.server.call("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, self.key,
                                self.headers).status == 202

    def send(self, method, params=None, ident=None):
        self.ids += 1
        message = {"jsonrpc": "2.0", "id": ident or self.ids, "method": method, **({"params": params} if params else {})}
        return self.server.call("POST", "/mcp", message, self.key, {**self.headers, **self.more})

    def tool(self, name, arguments=None, meta=None, **more):
        return self.send("tools/call", {"name": name, "arguments": arguments or {}, **({"_meta": meta} if meta else {})}, **more)

    def shell(self, command):
        result = self.tool("bash", {"command": command}).result
        assert result["isError"] is False, result
        return result["structuredContent"]["stdout"].strip()

    def listed(self):
        items = self.server.json("GET", "/v1/mcp/sessions", key=self.key)["items"]
        return next((i for i in items if i.get("clientName") == "test"), None)


def modern(server, key, method, params=None, headers=None, name=None, ident=7):
    message = {"jsonrpc": "2.0", "id": ident, "method": method, "params": {**(params or {}), "_meta": META}}
    named = name or (params or {}).get("name") or (params or {}).get("uri")
    return server.call("POST", "/mcp", message, key, {"MCP-Protocol-Version": MODERN, "Mcp-Method": method,
                                                      **({"Mcp-Name": named} if named else {}), **(headers or {})})


def modern_tool(server, key, name, arguments=None, **more):
    return modern(server, key, "tools/call", {"name": name, "arguments": arguments or {}}, **more)


def text_of(result):
    return result["content"][0]["text"]


def state(server, key, sandbox):
    return server.json("GET", f"/v1/sandboxes/{sandbox}", key=key)["state"]


# --- the legacy era ---


@case
def initialize_answers_the_requested_revision_or_the_newest(s):
    key = s.tenant()
    for asked, answered in (("2024-11-05", "2024-11-05"), ("2025-03-26", "2025-03-26"), ("2025-06-18", "2025-06-18"),
                            ("2025-11-25", "2025-11-25"), ("2099-01-01", "2025-11-25")):
        c = s.client(key, asked)
        assert c.initialized["protocolVersion"] == answered
        assert c.initialized["serverInfo"]["name"] == "cove" and "sandbox" in c.initialized["instructions"]
        assert len(c.secret) == 64
    assert len({i["id"] for i in s.json("GET", "/v1/mcp/sessions", key=key)["items"]}) == 5


@case
def a_message_needs_its_session_and_a_supported_revision(s):
    c = s.client()
    ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
    assert c.send("ping").result == {}
    assert s.call("POST", "/mcp", ping, c.key).status == 400
    assert s.call("POST", "/mcp", ping, c.key, {"Mcp-Session-Id": "0" * 64}).status == 404
    assert s.call("POST", "/mcp", ping, c.key, {**c.headers, "MCP-Protocol-Version": "1999-01-01"}).status == 400
    a = s.call("POST", "/mcp", ping, c.key, {"Mcp-Session-Id": c.secret})
    assert a.status == 200 and a.messages[0]["id"] == "p"
    assert s.call("DELETE", "/mcp", None, c.key, c.headers).status == 204
    gone = c.send("ping")
    assert gone.status == 404 and "initialize" in gone.error["message"]
    assert s.call("DELETE", "/mcp", None, c.key, c.headers).status == 404
    assert s.call("GET", "/mcp", None, c.key, c.headers).status == 404


@case
def a_session_works_only_with_the_key_that_opened_it(s):
    c = s.client()
    tenant = f"t{s.names}"
    for other in (s.tenant(), s.key_of(tenant), s.key):
        for method in ("POST", "GET", "DELETE"):
            body = {"jsonrpc": "2.0", "id": 1, "method": "ping"} if method == "POST" else None
            assert s.call(method, "/mcp", body, other, c.headers).status == 404, method
        assert modern(s, other, "tools/list", headers={"Cove-Session": c.secret}).status == 404
    assert s.call("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, "cove_" + "0" * 40, c.headers).status == 401
    assert c.send("ping").result == {}
    public = c.listed()["id"]
    assert s.call("GET", f"/v1/mcp/sessions/{public}", key=s.tenant()).status == 404
    assert c.secret not in s.call("GET", "/v1/mcp/sessions", key=c.key).text
    assert s.call("DELETE", f"/v1/mcp/sessions/{public}", key=c.key).status == 204
    assert c.send("ping").status == 404


@case
def the_tools_of_a_session_share_its_sandbox_which_ends_with_it(s):
    c = s.client()
    assert s.json("GET", "/v1/sandboxes", key=c.key)["items"] == [], "a sandbox was made before a call needed one"
    c.shell("echo kept > /workspace/note")
    c.tool("run_code", {"code": "x = 20"})
    result = c.tool("run_code", {"code": "x + 22"}).result
    assert result["structuredContent"]["value"] == "42" and "42" in text_of(result), result
    assert c.shell("cat /workspace/note") == "kept"
    sandbox = c.listed()["sandboxId"]
    other = s.client(c.key)
    assert other.shell("ls /workspace") == "" and other.listed()["sandboxId"] != sandbox
    assert s.call("DELETE", "/mcp", None, c.key, c.headers).status == 204
    wait_for(lambda: state(s, c.key, sandbox) == "ended")


@case
def calls_at_the_same_time_get_the_same_new_sandbox(s):
    c = s.client()
    found = []
    threads = [threading.Thread(target=lambda: found.append(c.tool("bash", {"command": "hostname"}).result["structuredContent"]["sandboxId"]))
               for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4 and len(set(found)) == 1, found


@case
def a_session_whose_sandbox_ended_says_so_and_gets_another(s):
    c = s.client()
    c.shell("touch /workspace/a")
    sandbox = c.listed()["sandboxId"]
    s.json("DELETE", f"/v1/sandboxes/{sandbox}", key=c.key)
    lost = c.tool("bash", {"command": "ls"}).result
    assert lost["isError"] and "sandbox_ended" in text_of(lost), lost
    assert c.shell("ls /workspace") == ""


@case
def a_missing_execution_script_or_context_leaves_the_session_its_sandbox(s):
    c = s.client()
    c.shell("echo kept > /workspace/note")
    sandbox = c.listed()["sandboxId"]
    for tool, arguments in (("run_sandbox", {"mode": "status", "execution_id": "ex" + "a" * 20}), ("run_sandbox", {"cached": "sc" + "a" * 20}),
                            ("run_code", {"code": "1", "context": "cx" + "a" * 20})):
        result = c.tool(tool, arguments).result
        assert result["isError"] and "not_found" in text_of(result), (tool, result)
        assert c.listed()["sandboxId"] == sandbox, tool
    assert c.shell("cat /workspace/note") == "kept"


@case
def failures_of_a_tool_are_results_and_unknown_tools_are_errors(s):
    c = s.client()
    for arguments, said in (({"comand": "ls"}, "did you mean command"), ({}, "command"), ({"command": 7}, "command"),
                            ({"command": "ls", "sandbox": "sb"}, "sandbox"), ({"command": "ls", "sandbox": "sb" + "a" * 20}, "not_found")):
        result = c.tool("bash", arguments).result
        assert result["isError"] and said in text_of(result), result
    failed = c.tool("bash", {"command": "echo out; exit 3"}).result
    assert failed["isError"] and failed["structuredContent"]["exitCode"] == 3 and "out" in text_of(failed)
    assert c.tool("no_such_tool").error["code"] == -32602
    assert c.tool("test_simple_text").error["code"] == -32602, "fixtures are on"
    assert c.send("tools/call", {"name": "bash", "arguments": []}).error["code"] == -32602
    assert c.send("no/such/method").error["code"] == -32601


@case
def the_list_of_tools_is_stable_and_names_only_what_the_key_may_call(s):
    key = s.tenant()
    lists = [s.client(key).send("tools/list").text.split('"result":')[1] for _ in range(2)]
    assert lists[0] == lists[1]
    tools = {t["name"]: t for t in json.loads(lists[0].rstrip()[:-1])["tools"]}
    for t in tools.values():
        assert t["inputSchema"]["type"] == "object" and t["description"] and len(t["name"]) <= 64
        assert set(t["annotations"]) >= {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert "sandbox" in tools["bash"]["inputSchema"]["properties"]
    assert tools["bash"]["inputSchema"].get("required") == ["command"]
    reader = s.key_of(f"t{s.names}", ["sandboxes:read", "files:read"])
    few = s.client(reader)
    names = {t["name"] for t in few.send("tools/list").result["tools"]}
    assert "list_sandboxes" in names and "read_file" in names and not names & {"bash", "run_code", "create_sandbox", "write_file"}, names
    assert few.tool("bash", {"command": "id"}).status == 403
    assert few.send("tools/list", {"cursor": "bm9uZTox"}).error["code"] == -32602
    assert few.send("tools/list", {"cursor": 7}).error["code"] == -32602


@case
def a_key_that_may_not_create_sandboxes_gets_none_from_its_session(s):
    s.tenant()
    c = s.client(s.key_of(f"t{s.names}", ["executions"]))
    result = c.tool("bash", {"command": "id"}).result
    assert result["isError"] and "sandboxes:write" in text_of(result), result


@case
def progress_comes_on_the_stream_of_the_call_and_increases(s):
    c = s.client()
    a = c.tool("bash", {"command": "for i in 1 2 3; do echo line $i; sleep 0.15; done"}, {"progressToken": "p7"})
    progress = [m["params"] for m in a.messages if m.get("method") == "notifications/progress"]
    assert len(progress) >= 2 and all(p["progressToken"] == "p7" for p in progress), a.text
    assert [p["progress"] for p in progress] == sorted({p["progress"] for p in progress})
    assert progress[0]["message"].startswith("line 1") and a.result["isError"] is False, a.text
    old = s.client(c.key, "2025-03-26").tool("bash", {"command": "true"})
    assert not old.stream, "a stream without need"


@case
def a_cancelled_call_ends_without_a_result_and_kills_its_program(s):
    c = s.client()
    c.shell("true")
    answers = []
    slow = threading.Thread(target=lambda: answers.append(c.tool("bash", {"command": "sleep 300"}, ident="slow")))
    slow.start()
    sandbox = c.listed()["sandboxId"]
    path = f"/v1/sandboxes/{sandbox}/executions"
    wait_for(lambda: any(e["state"] == "running" for e in s.json("GET", path, key=c.key)["items"]))
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow", "reason": "test"}}
    assert s.call("POST", "/mcp", note, c.key, c.headers).status == 202
    slow.join(10)
    assert answers and answers[0].messages == [], answers and answers[0].text
    wait_for(lambda: all(e["state"] == "ended" for e in s.json("GET", path, key=c.key)["items"]))
    assert c.shell("echo on") == "on"


@case
def a_stream_that_broke_is_resumed_with_the_id_of_its_last_event(s):
    c = s.client()
    c.shell("true")
    message = {"jsonrpc": "2.0", "id": 77, "method": "tools/call",
               "params": {"name": "bash", "arguments": {"command": "sleep 0.7; echo done"}}}
    connection = s.connect()
    connection.request("POST", "/mcp", json.dumps(message), {"Authorization": f"Bearer {c.key}", "Content-Type": "application/json",
                                                             "Accept": BOTH, **c.headers})
    response = connection.getresponse()
    primed = b""
    while b"data:" not in primed:
        primed += response.readline()
    last = events_of(primed.decode() + "\n\n")[0][0]
    response.close()
    connection.sock and connection.sock.close()
    connection.close()
    again = s.call("GET", "/mcp", None, c.key, {**c.headers, "Last-Event-ID": last})
    assert again.result["structuredContent"]["stdout"] == "done\n", again.text
    more = s.call("GET", "/mcp", None, c.key, {**c.headers, "Last-Event-ID": again.events[-1][0]})
    assert more.status == 200 and more.messages == []
    assert s.call("GET", "/mcp", None, c.key, {**c.headers, "Last-Event-ID": "9999-1"}).status == 404
    assert s.call("GET", "/mcp", None, c.key, {**c.headers, "Last-Event-ID": "x"}).status == 400
    other = s.client(c.key)
    assert s.call("GET", "/mcp", None, c.key, {**other.headers, "Last-Event-ID": last}).status == 404


@case
def a_session_may_end_while_its_calls_are_on_their_streams(s):
    for end in ("protocol", "api"):
        c = s.client()
        c.shell("true")
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "bash", "arguments": {"command": "sleep 300"}}}
        connection, events = open_stream(s, "POST", c.key, c.headers, message)
        read_until(events, b"data:")
        if end == "protocol":
            assert s.call("DELETE", "/mcp", None, c.key, c.headers).status == 204
        else:
            assert s.call("DELETE", f"/v1/mcp/sessions/{c.listed()['id']}", key=c.key).status == 204
        assert b"result" not in events.read()
        connection.close()
    assert s.client().send("ping").result == {}


# --- the modern era ---


@case
def a_modern_request_stands_alone(s):
    key = s.tenant()
    found = modern(s, key, "server/discover").result
    assert found["resultType"] == "complete" and MODERN in found["supportedVersions"] and found["ttlMs"] >= 0
    assert modern(s, key, "tools/list", headers={"Mcp-Session-Id": "nonsense", "Last-Event-ID": "1"}).result["cacheScope"] == "private"
    assert modern_tool(s, key, "bash", {"command": "true"}).result["isError"]
    said = text_of(modern_tool(s, key, "bash", {"command": "true"}).result)
    assert all(name in said for name in ("create_sandbox", "list_sandboxes", "delete_sandbox")), said
    made = modern_tool(s, key, "create_sandbox", {"name": "mine", "lifetimeMs": 60000}).result["structuredContent"]
    assert made["state"] == "running" and made["expiresAt"]
    done = modern_tool(s, key, "bash", {"command": "echo $((6*7))", "sandbox": made["sandbox"]}).result
    assert done["structuredContent"]["stdout"] == "42\n" and done["resultType"] == "complete"
    listed = modern_tool(s, key, "list_sandboxes").result["structuredContent"]["sandboxes"]
    assert [x["sandbox"] for x in listed] == [made["sandbox"]]
    other = s.tenant()
    assert "not_found" in text_of(modern_tool(s, other, "bash", {"command": "id", "sandbox": made["sandbox"]}).result)
    assert modern_tool(s, other, "list_sandboxes").result["structuredContent"]["sandboxes"] == []
    assert modern_tool(s, other, "delete_sandbox", {"sandbox": made["sandbox"]}).result["isError"]
    assert modern_tool(s, key, "delete_sandbox", {"sandbox": made["sandbox"]}).result["structuredContent"]["state"] == "ended"
    assert s.json("GET", "/v1/mcp/sessions", key=key)["items"] == []


@case
def a_modern_request_is_refused_by_the_header_that_differs(s):
    key = s.tenant()
    right = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "bash"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bash", "arguments": {}, "_meta": META}}
    for name in right:
        for headers in ({k: v for k, v in right.items() if k != name}, {**right, name: "other"}):
            a = s.call("POST", "/mcp", message, key, headers)
            assert a.status == 400 and a.error["code"] == -32020 and a.messages[0]["id"] == 1, (name, a.text)
    assert s.call("POST", "/mcp", message, key, {**right, "Mcp-Name": " =?base64?YmFzaA==?= "}).status == 200
    assert s.call("POST", "/mcp", message, key, {**right, "Mcp-Name": "=?base64?YmFzaA?="}).status == 400
    assert s.call("POST", "/mcp", message, key, {**right, "Mcp-Name": "=?base64?YmFzaABlZGl0?="}).status == 400, "JS03: a NUL ended the name"
    for name in (*right, "Mcp-Session-Id", "Cove-Session", "Last-Event-ID"):  # a proxy may read the other one
        connection = s.connect()
        connection.putrequest("POST", "/mcp")
        for header, value in {**right, name: right.get(name, "x"), "Authorization": f"Bearer {key}", "Content-Length": "0"}.items():
            connection.putheader(header, value)
        connection.putheader(name, "other")
        connection.endheaders()
        refused = connection.getresponse()
        assert refused.status == 400 and b"more than once" in refused.read(), (name, refused.status)
        connection.close()
    message["params"]["_meta"] = {**META, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    a = s.call("POST", "/mcp", message, key, {**right, "MCP-Protocol-Version": "2030-01-01"})
    assert a.status == 400 and a.error["code"] == -32022 and a.error["data"]["requested"] == "2030-01-01"
    assert modern(s, key, "initialize").status == 404 and modern(s, key, "ping").error["code"] == -32601
    for method in ("GET", "DELETE"):
        assert s.call(method, "/mcp", None, key, {"MCP-Protocol-Version": MODERN}).status == 405


@case
def a_modern_client_that_disconnects_cancels_its_call(s):
    key = s.tenant()
    sandbox = modern_tool(s, key, "create_sandbox").result["structuredContent"]["sandbox"]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": {"name": "bash", "arguments": {"command": "sleep 300", "sandbox": sandbox}, "_meta": META}}
    connection = s.connect()
    connection.request("POST", "/mcp", json.dumps(message), {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Accept": BOTH,
                                                             "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "bash"})
    path = f"/v1/sandboxes/{sandbox}/executions"
    wait_for(lambda: any(e["state"] == "running" for e in s.json("GET", path, key=key)["items"]))
    connection.close()
    wait_for(lambda: all(e["state"] == "ended" for e in s.json("GET", path, key=key)["items"]))


@case
def both_eras_share_the_sandbox_of_a_bridge(s):
    key = s.tenant()
    made = s.json("POST", "/v1/mcp/sessions", key=key, status=201)
    bridge = {"Cove-Session": made["secret"]}
    done = modern_tool(s, key, "bash", {"command": "echo shared > /workspace/f"}, headers=bridge).result
    assert done["isError"] is False, done
    c = s.client(key, headers=bridge)
    assert c.secret == made["secret"] and c.shell("cat /workspace/f") == "shared"
    shown = s.json("GET", f"/v1/mcp/sessions/{made['id']}", key=key)
    assert shown["kind"] == "bridge" and shown["sandboxId"] and "secret" not in shown
    assert s.call("DELETE", f"/v1/mcp/sessions/{made['id']}", key=key).status == 204
    wait_for(lambda: state(s, key, shown["sandboxId"]) == "ended")
    gone = modern_tool(s, key, "bash", {"command": "true"}, headers=bridge)
    assert gone.status == 404 and "POST /v1/mcp/sessions" in gone.error["message"]


@case
def a_bridge_may_name_a_sandbox_or_a_template(s):
    key = s.tenant()
    made = s.json("POST", "/v1/sandboxes", {"runtime": "bash"}, key, 201)["id"]
    session = s.json("POST", "/v1/mcp/sessions", {"sandbox": made}, key, 201)
    bridge = {"Cove-Session": session["secret"]}
    ran = modern_tool(s, key, "bash", {"command": "true"}, headers=bridge).result["structuredContent"]
    assert session["sandboxId"] == ran["sandboxId"] == made
    assert s.call("DELETE", f"/v1/mcp/sessions/{session['id']}", key=key).status == 204
    assert state(s, key, made) == "running", "a sandbox ended with a session that did not create it"
    s.json("PUT", "/v1/templates/small", {"runtime": "bash", "resources": {"pids": 40}})
    session = s.json("POST", "/v1/mcp/sessions", {"template": "small"}, key, 201)
    ran = modern_tool(s, key, "bash", {"command": "true"}, headers={"Cove-Session": session["secret"]}).result["structuredContent"]
    assert s.json("GET", f"/v1/sandboxes/{ran['sandboxId']}", key=key)["template"] == "small"
    for body, status in (({"sandbox": made, "template": "small"}, 400), ({"sandbox": "sb" + "a" * 20}, 404), ({"sandbox": "x"}, 404),
                         ({"template": "none"}, 404), ({"tmplate": "small"}, 400), ([], 400)):
        s.json("POST", "/v1/mcp/sessions", body, key, status)
    other = s.tenant()
    s.json("POST", "/v1/mcp/sessions", {"sandbox": made}, other, 404)
    s.json("DELETE", f"/v1/sandboxes/{made}", key=key)
    s.json("POST", "/v1/mcp/sessions", {"sandbox": made}, key, 410)


@case
def a_token_for_one_sandbox_acts_only_there(s):
    key = s.tenant()
    mine, other = (s.json("POST", "/v1/sandboxes", {"runtime": "bash"}, key, 201)["id"] for _ in range(2))
    token, second = (s.json("POST", f"/v1/sandboxes/{x}/tokens", {"operations": ["executions", "files"]}, key, 201)["token"] for x in (mine, other))
    c = s.client(token)
    names = {t["name"] for t in c.send("tools/list").result["tools"]}
    assert "bash" in names and not names & {"create_sandbox", "list_sandboxes", "delete_sandbox"}, names
    assert c.tool("bash", {"command": "true"}).result["structuredContent"]["sandboxId"] == mine
    assert c.tool("bash", {"command": "true", "sandbox": other}).status == 404
    assert c.tool("delete_sandbox", {"sandbox": mine}).status == 403
    assert c.tool("bash", {"command": "true", "sandbox": ""}).status == 403
    assert s.call("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, second, c.headers).status == 404
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    opened = [s.call("POST", "/mcp", opening, token).status for _ in range(16)]
    assert opened == [200] * 15 + [409], (opened, "AU08: a sandbox uses up the sessions of its tenant")
    assert s.client(second) and s.client(key)
    s.json("DELETE", f"/v1/sandboxes/{mine}", key=key)
    assert s.call("POST", "/mcp", opening, token).status == 401, "AU06: a token outlives its sandbox"
    assert c.send("tools/list").status == 401


@case
def a_bridge_with_a_token_for_one_sandbox_uses_that_one_and_leaves_it(s):
    key = s.tenant()
    mine, other = (s.json("POST", "/v1/sandboxes", {"runtime": "bash"}, key, 201)["id"] for _ in range(2))
    token = s.json("POST", f"/v1/sandboxes/{mine}/tokens", {"operations": ["executions", "files"]}, key, 201)["token"]
    s.json("POST", "/v1/mcp/sessions", {"sandbox": other}, token, 404)
    s.json("POST", "/v1/mcp/sessions", {"template": "python"}, token, 403)
    s.json("GET", "/v1/mcp/sessions", key=token, status=403)
    opened = s.json("POST", "/v1/mcp/sessions", {"sandbox": mine}, token, 201)
    assert opened["sandboxId"] == mine == s.json("POST", "/v1/mcp/sessions", None, token, 201)["sandboxId"]
    c = s.client(token, headers={"Cove-Session": opened["secret"]})
    assert c.tool("bash", {"command": "echo 1 > /workspace/a"}).result["structuredContent"]["sandboxId"] == mine
    assert [r["name"] for r in c.send("resources/list").result["resources"]] == ["a"]
    assert modern_tool(s, token, "bash", {"command": "true"}, headers={"Cove-Session": opened["secret"]}).result["structuredContent"]["sandboxId"] == mine
    for path, status in ((f"cove://sandboxes/{mine}/files/workspace/a", 200), (f"cove://sandboxes/{other}/files/workspace/a", 404),
                         ("cove://executions/ex" + "a" * 20 + "/receipt", 403)):
        assert c.send("resources/read", {"uri": path}).status == status, path
    assert s.call("DELETE", "/mcp", None, token, {"Mcp-Session-Id": opened["secret"]}).status == 204
    assert c.send("ping").status == 404 and state(s, key, mine) == "running"
    s.json("DELETE", f"/v1/sandboxes/{mine}", key=key)
    s.json("POST", "/v1/mcp/sessions", None, token, 401)


# --- resources, prompts, subscriptions ---


@case
def files_and_receipts_are_resources(s):
    c = s.client()
    assert c.send("resources/list").result["resources"] == []
    run = c.tool("bash", {"command": "cd /workspace; mkdir d; echo hello > 'a b.txt'; printf '\\0\\377' > bin; head -c 2000000 /dev/zero > big; ln -s /etc/passwd link"}).result
    listed = {r["name"]: r["uri"] for r in c.send("resources/list").result["resources"]}
    assert set(listed) == {"a b.txt", "bin", "big"} and "a%20b.txt" in listed["a b.txt"], listed
    assert c.send("resources/read", {"uri": listed["a b.txt"]}).result["contents"][0]["text"] == "hello\n"
    assert c.send("resources/read", {"uri": listed["bin"]}).result["contents"][0]["blob"] == "AP8="
    assert "1 MiB" in c.send("resources/read", {"uri": listed["big"]}).error["message"]
    base = listed["bin"][:-len("workspace/bin")]
    for path in ("workspace/none", "workspace/d", "workspace/%00", "workspace/%2", "", "proc/self/root/etc/shadow"):
        a = c.send("resources/read", {"uri": base + path})
        assert a.error["code"] == -32002 and a.error["data"]["uri"] == base + path, (path, a.text)
    a = modern(s, c.key, "resources/read", {"uri": base + "workspace/none"})
    assert a.error["code"] == -32602
    receipt = f"cove://executions/{run['structuredContent']['id']}/receipt"
    read = json.loads(c.send("resources/read", {"uri": receipt}).result["contents"][0]["text"])
    assert read["execution"] == run["structuredContent"]["id"], read
    other = s.client()
    for uri in (receipt, listed["bin"]):
        assert other.send("resources/read", {"uri": uri}).error["code"] == -32002
    assert len(c.send("resources/templates/list").result["resourceTemplates"]) == 2


def read_until(response, wanted):
    text = b""
    while wanted not in text:
        line = response.readline()
        assert line, text
        text += line
    return text.decode()


def open_stream(s, method, key, headers, body=None):
    connection = s.connect()
    connection.request(method, "/mcp", body and json.dumps(body), {"Authorization": f"Bearer {key}", "Accept": BOTH,
                                                                   "Content-Type": "application/json", **headers})
    return connection, connection.getresponse()


@case
def changes_of_a_file_are_reported_to_its_subscribers(s):
    c = s.client()
    c.shell("echo 1 > /workspace/watched")
    uri = c.send("resources/list").result["resources"][0]["uri"]
    listening, events = open_stream(s, "GET", c.key, c.headers)
    assert events.status == 200
    older, (listening, events) = listening, open_stream(s, "GET", c.key, c.headers)
    older.close()  # a second stream replaces the first
    assert c.send("resources/subscribe", {"uri": uri}).result == {}
    body = {"jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen",
            "params": {"_meta": META, "notifications": {"resourceSubscriptions": [uri], "toolsListChanged": True}}}
    modern_listening, modern_events = open_stream(s, "POST", c.key, {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}, body)
    first = read_until(modern_events, b"\n\n")
    assert "notifications/subscriptions/acknowledged" in first and '"subscriptionId":"L"' in first.replace("io.modelcontextprotocol/", ""), first
    time.sleep(0.2)  # until the sandbox watches the file
    c.shell("echo 2 > /workspace/watched")
    assert uri in read_until(events, b"resources/updated") and '"L"' in read_until(modern_events, b"resources/updated")
    for n in range(2):  # a file that is replaced is watched again
        c.tool("write_file", {"file_path": "/workspace/watched", "content": f"{n}"})
        assert uri in read_until(events, b"resources/updated")
        time.sleep(0.3)
    assert c.send("resources/unsubscribe", {"uri": uri}).result == {}
    assert c.send("resources/subscribe", {"uri": "cove://executions/none"}).error["code"] == -32002
    for connection in (listening, modern_listening):
        connection.close()


@case
def prompts_take_arguments_and_complete_them(s):
    c = s.client()
    prompts = {p["name"]: p for p in c.send("prompts/list").result["prompts"]}
    assert {"analyse_file", "debug_failure"} <= set(prompts)
    said = c.send("prompts/get", {"name": "analyse_file", "arguments": {"path": "/workspace/x.csv", "question": "a {path}?"}}).result
    text = said["messages"][0]["content"]["text"]
    assert "/workspace/x.csv" in text and "a {path}?" in text
    assert c.send("prompts/get", {"name": "analyse_file"}).error["code"] == -32602
    assert c.send("prompts/get", {"name": "none"}).error["code"] == -32602
    ref = {"ref": {"type": "ref/prompt", "name": "run_script"}, "argument": {"name": "language", "value": "p"}}
    assert c.send("completion/complete", ref).result["completion"]["values"] == ["python"]
    assert c.send("completion/complete", {"ref": {}}).error["code"] == -32602


# --- hostile clients ---


@case
def hostile_messages_are_refused_and_cost_nothing(s):
    c = s.client()
    head = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":'
    for body, status, code in ((b"{", 400, -32700), (b"", 400, -32700), (b"\xff\xfe", 400, -32700), (b"[]", 400, -32600),
                               (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
                               (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400, -32600),
                               (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
                               (b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}', 400, -32700),
                               (b'{"jsonrpc":"2.0","id":"' + b"i" * 300 + b'","method":"ping"}', 400, -32600),
                               (head + b"[" * 100 + b"]" * 100 + b"}}", 400, -32700),
                               (head + b"[" + b"[]," * 100000 + b"1]}}", 400, -32700),
                               (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}', 400, -32700)):
        a = s.call("POST", "/mcp", body, c.key, c.headers)
        assert a.status == status and a.error["code"] == code, (body[:60], a.text)
    assert s.call("POST", "/mcp", b"", c.key, {**c.headers, "Content-Length": str(9 << 20)}).status == 413
    assert s.call("POST", "/mcp", b"{}", c.key, {**c.headers, "Content-Type": "text/plain"}).status == 415
    assert s.call("PUT", "/mcp", b"{}", c.key, c.headers).status == 405
    assert s.call("POST", "/mcp?x=1", b"{}", c.key, c.headers).status == 400
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        assert s.call("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, c.key, {**c.headers, **headers}).status in (403, 421)
    assert c.send("ping").result == {}
    reply = {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert s.call("POST", "/mcp", reply, c.key, c.headers).status == 202, "an answer to nothing is ignored"
    for params in ({"level": 7}, {"level": "loud"}):
        assert c.send("logging/setLevel", params).error["code"] == -32602
    large = c.tool("write_file", {"file_path": "/workspace/l", "content": "é" * 500000}).result
    assert large["isError"] is False, text_of(large)


@case
def sessions_and_open_calls_keep_a_limited_amount_of_memory(s):
    c = s.client()
    c.shell("true")
    opening = {"protocolVersion": "2025-11-25", "capabilities": {"experimental": {"x": "a" * 20000}}}
    assert "16 KiB" in c.send("initialize", opening).error["message"]
    sleep = {"name": "bash", "arguments": {"command": "sleep 300"}, "_meta": {"x": "a" * 7_000_000}}
    refused = None
    for n in range(20):  # the connection breaks, and the call goes on
        connection, answer = open_stream(s, "POST", c.key, c.headers, {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": sleep})
        if answer.status != 200:
            refused = (n, answer.status, answer.read())
            break
        read_until(answer, b"data:")
        answer.close()
        connection.close()
    assert refused and refused[:2] == (9, 429) and b"not answered" in refused[2], refused
    assert s.call("DELETE", "/mcp", None, c.key, c.headers).status == 204
    assert s.client(c.key).send("tools/list").status == 200


@case
def streams_that_are_not_read_use_a_limited_amount_of_memory(s):
    c = s.client()
    large = {"name": "code_executor", "arguments": {"code": "open('/workspace/o', 'wb').write(b'a' * 7000000)", "output_files": ["/workspace/o"]}}
    assert len(c.send("tools/call", large).text) > 7000000
    before = executions(s)
    body, unread = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": large}), []
    head = {"Authorization": f"Bearer {c.key}", "Content-Type": "application/json", "Accept": BOTH, "Content-Length": len(body), **c.headers}
    for n in range(20):  # HT09: 64 MiB, and what the kernel takes of each
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        one.connect(s.address)
        one.sendall(("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + f"\r\n{body}").encode())
        unread.append(one)
        one.settimeout(30)
        if b" 429 " in one.recv(60):
            break
        wait_for(lambda n=n: executions(s) > before + n)
    for one in unread:
        one.close()
    assert 8 < len(unread) < 20, len(unread)
    wait_for(lambda: c.send("tools/call", {"name": "code_executor", "arguments": {"code": "1"}}).status == 200)


def executions(s):
    text = s.call("GET", "/metrics").text
    return int(float(next(l.split()[1] for l in text.splitlines() if l.startswith('cove_tool_calls_total{tool="code_executor"') and "success" in l)))


@case
def a_tenant_has_a_limited_number_of_sessions(s):
    key, other = s.tenant(), s.tenant()
    connection = s.connect()
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Accept": BOTH}
    for n in range(1001):
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        text = response.read()
        assert response.status == (200 if n < 1000 else 409), (n, text)
    refused = json.loads(text)["error"]
    assert refused["code"] == "limit_reached" and "mcp.sessions" in refused["message"], refused
    s.client(other)
    page = s.json("GET", "/v1/mcp/sessions?limit=600", key=key)
    rest = s.json("GET", f"/v1/mcp/sessions?limit=600&cursor={page['nextCursor']}", key=key)
    ids = [i["id"] for i in page["items"] + rest["items"]]
    assert len(ids) == len(set(ids)) == 1000 and "nextCursor" not in rest
    assert s.call("DELETE", f"/v1/mcp/sessions/{ids[0]}", key=key).status == 204
    s.client(key)
    row = s.json("GET", "/v1/capabilities")["mcp"]
    assert row["path"] == "/mcp" and row["sessionsPerTenant"] == 1000 and row["revisions"][:2] == [MODERN, "2025-11-25"]
    metrics = s.call("GET", "/metrics").text
    assert 'cove_mcp_requests_total{method="initialize",outcome="answered"}' in metrics and "cove_mcp_sessions " in metrics


@case
def a_call_leaves_an_audit_record_with_the_tool(s):
    c = s.client()
    c.shell("true")
    c.send("tools/list")
    reader = s.client(s.key_of(f"t{s.names}", ["sandboxes:read"]))
    reader.tool("bash", {"command": "id"})
    path = f"/v1/audit?tenant=t{s.names}&limit=1000"
    wait_for(lambda: any(r["outcome"] == "refused" for r in s.json("GET", path)["items"]), 10)  # written lazily
    rows = s.json("GET", path)["items"]
    done = [r for r in rows if r["action"] == "tool.call_in_sandbox"]
    assert [r["outcome"] for r in done] == ["accepted", "success", "refused"], [(r["action"], r["outcome"]) for r in rows]
    assert done[0]["target"]["tool"] == "bash" and done[0]["target"]["sandbox"].startswith("sb")
    assert done[0]["details"]["argumentsBytes"] > 0
    assert not [r for r in rows if r["action"].startswith("mcp.")], "messages without effect are recorded"
    made = next(r for r in rows if r["action"] == "sandbox.create" and r["target"]["sandbox"] == done[0]["target"]["sandbox"])
    assert made["requestId"] == done[0]["requestId"], (made, "AL: no request is named that made the sandbox")


@case
def a_failed_or_refused_call_is_recorded_as_such_with_its_tool(s):
    key, tenant = s.tenant(), f"t{s.names}"
    foreign = s.json("POST", "/v1/sandboxes", {"runtime": "bash"}, s.key, 201)["id"]
    reader, runner = s.client(s.key_of(tenant, ["sandboxes:read"])), s.client(s.key_of(tenant, ["executions"]))
    c = s.client(key)
    calls = [(c, "delete_sandbox", {"sandbox": foreign}, "refused", "not_found"),
             (c, "create_sandbox", {"template": "none"}, "refused", "not_found"),
             (c, "create_sandbox", {"name": "A B"}, "failed", "invalid_request"),
             (c, "read_file", {"sandbox": foreign, "file_path": "/etc/hostname"}, "refused", "not_found"),
             (runner, "bash", {"command": "id"}, "refused", "forbidden"),
             (reader, "write_file", {"sandbox": foreign, "file_path": "/workspace/x", "content": ""}, "refused", "forbidden")]
    for client, tool, arguments, _, _ in calls:
        client.tool(tool, arguments)
    path = f"/v1/audit?tenant={tenant}&limit=1000"
    found = []

    def recorded():
        found[:] = [(r["target"].get("tool"), r["outcome"], r.get("error")) for r in s.json("GET", path)["items"]
                    if r["action"].startswith("tool.") and r["outcome"] != "accepted"]
        return len(found) >= len(calls)

    wait_for(recorded, 10)
    assert sorted(found) == sorted((tool, outcome, error) for _, tool, _, outcome, error in calls), found
    s.json("DELETE", f"/v1/sandboxes/{foreign}")


@case
def a_revoked_key_ends_its_streams(s):
    c = s.client()
    key_id = s.json("GET", "/v1/keys?limit=1000")["items"]
    mine = [k["id"] for k in key_id if k.get("tenant") == f"t{s.names}"]
    connection, events = open_stream(s, "GET", c.key, c.headers)
    for one in mine:
        assert s.call("DELETE", f"/v1/keys/{one}").status in (200, 204)
    assert b"resources" not in events.read(), "the stream did not end"
    connection.close()
    assert c.send("ping").status == 401


def stored_sandboxes(directory):
    """(id, endedBy) of all sandboxes in the database of a server that has stopped."""
    path = next(os.path.join(where, "cove.db") for where, _, names in os.walk(directory) if "cove.db" in names)
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT id, ended_by FROM sandboxes").fetchall()


@case
def unused_sessions_expire_and_a_stopped_server_leaves_no_sandbox(_):
    s = Server("--mcp-idle-timeout", "1s", "--pools-default", "off")
    try:
        c, d = s.client(s.key), s.client(s.key)
        c.shell("true")
        d.tool("bash", {"command": "true"})
        kept = {i["id"] for i in s.json("GET", "/v1/mcp/sessions")["items"]}
        assert len(kept) == 2
        wait_for(lambda: s.json("GET", "/v1/mcp/sessions")["items"] == [])
        assert c.send("ping").status == 404
        wait_for(lambda: all(x["state"] == "ended" for x in s.json("GET", "/v1/sandboxes")["items"]))
        e, f = s.client(s.key), s.client(s.key)
        e.shell("true")
        open_streams = [open_stream(s, "GET", e.key, e.headers)]
        sleep = {"name": "bash", "arguments": {"command": "sleep 300"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": sleep}
        open_streams.append(open_stream(s, "POST", e.key, e.headers, body))
        unstarted = s.connect()  # its sandbox is being created when the server stops
        unstarted.request("POST", "/mcp", json.dumps(body), {"Authorization": f"Bearer {f.key}", "Content-Type": "application/json", **f.headers})
        body = {"jsonrpc": "2.0", "id": 2, "method": "subscriptions/listen", "params": {"_meta": META, "notifications": {}}}
        open_streams.append(open_stream(s, "POST", s.key, {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}, body))
    finally:
        assert s.launched.stop() == 0
        rows = stored_sandboxes(s.dir)
        log = s.stop()
    assert len(rows) >= 3 and {ended_by for _, ended_by in rows} == {"killed"}, (rows, log[-2000:])


@case
def tools_count_against_the_rate_limits_of_rest(_):
    s = Server("--rate-limit-execute", "1/m burst 3", "--rate-limit-create", "1/m burst 2", "--pools-default", "off")
    try:
        made = s.json("POST", "/v1/sandboxes", {"runtime": "bash"}, status=201)["id"]
        path = f"/v1/sandboxes/{made}/tools/bash"
        assert s.json("POST", path, {"command": "true"})["isError"] is False
        answers = [modern_tool(s, s.key, "bash", {"command": "true", "sandbox": made}) for _ in range(3)]
        assert [a.status for a in answers] == [200, 200, 429] and int(answers[2].headers["Retry-After"]) > 1, [a.status for a in answers]
        assert s.call("POST", path, {"command": "true"}).status == 429
        assert modern_tool(s, s.key, "read_file", {"file_path": "/etc/hostname", "sandbox": made}).status == 200, "it executes nothing"
        created = [modern_tool(s, s.key, "create_sandbox").result for _ in range(2)]
        assert [r["isError"] for r in created] == [False, True] and "rate_limited" in text_of(created[1]), created
    finally:
        s.stop()


@case
def the_sandbox_of_a_session_outlives_its_calls(_):
    s = Server("--mcp-idle-timeout", "3s", "--pools-default", "off")
    try:
        s.json("PUT", "/v1/templates/brief", {"runtime": "bash", "lifetimeMs": 3000})
        opened = s.json("POST", "/v1/mcp/sessions", {"template": "brief"}, status=201)
        c = s.client(s.key, headers={"Cove-Session": opened["secret"]})
        result = c.tool("bash", {"command": "sleep 7; echo awake"}).result
        assert result["isError"] is False and result["structuredContent"]["stdout"] == "awake\n", result
        sandbox = result["structuredContent"]["sandboxId"]
        wait_for(lambda: state(s, s.key, sandbox) == "ended", 15)
    finally:
        s.stop()


def main():
    failed = 0
    s = Server()
    print(f"1..{len(CASES)}")
    try:
        for n, fn in enumerate(CASES, 1):
            try:
                fn(s)
                print(f"ok {n} - {fn.__name__}", flush=True)
            except Exception:  # pylint: disable=broad-except
                failed += 1
                print(f"not ok {n} - {fn.__name__}", flush=True)
                for line in traceback.format_exc().splitlines():
                    print("# " + line[:2000], flush=True)
    finally:
        s.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
