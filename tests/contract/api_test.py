#!/usr/bin/env python3
"""api_test.py API_TESTD RUNTIME [--shard I/N] [CASE...] - the REST interface over real sandboxes,
checked against api/openapi.yaml; prints TAP.

A case whose name begins with JSnn or FAnn is a case of the attack catalogue. Needs root.
"""
import base64
import collections
import datetime
import glob
import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
import urllib.parse

import yaml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from choice import Choice  # noqa: E402
import ws_test  # noqa: E402

TESTD, RUNTIME = sys.argv[1], sys.argv[2]
CASES = []


def case(function):
    CASES.append(function)
    return function


class Answer:
    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json["error"]["code"]


class Server:
    """The server and its jailer."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="cove-test-", dir="/run")
        self.key = None
        self.jailer = subprocess.Popen([TESTD, "jailer", self.dir, RUNTIME])
        while not os.path.exists(os.path.join(self.dir, "jailer.sock")):
            time.sleep(0.01)
        self.start()

    def start(self):
        self.process = subprocess.Popen([TESTD, "serve", self.dir], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        key = self.process.stdout.readline().split()[1]
        if key != "-":
            self.key = key
        self.wait_ready()

    def wait_ready(self):
        end = time.monotonic() + 60
        while self.call("GET", "/ready").status != 200:
            assert time.monotonic() < end, "never ready"
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.terminate()
        server = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.jailer.terminate()  # stop the jailer in every case: a running one keeps our output open and blocks its reader
        jailer = self.jailer.wait(timeout=60)
        shutil.rmtree(self.dir)
        assert server == 0, "the server did not exit with status 0"
        assert jailer == 0, "the jailer did not exit with status 0"

    def connect(self, timeout=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def open(self, method, path, body=None, headers=None, key=True, timeout=120):
        """(connection, response); the body is not read yet."""
        head = dict(headers or {})
        if key:
            head.setdefault("Authorization", "Bearer " + (key if isinstance(key, str) else self.key or ""))
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            head.setdefault("Content-Type", "application/json")
        elif isinstance(body, (bytes, str)) and method in ("POST", "PATCH"):
            head.setdefault("Content-Type", "application/json")
        c = self.connect(timeout)
        try:
            c.request(method, path, body, head)
        except BrokenPipeError:
            pass  # the answer arrived before the body was sent completely
        return c, c.getresponse()

    def call(self, method, path, body=None, headers=None, key=True, timeout=120):
        c, r = self.open(method, path, body, headers, key, timeout)
        answer = Answer(r, r.read())
        c.close()
        check_contract(method, path, answer)
        return answer

    def create(self, body=None, **more):
        a = self.call("POST", "/v1/sandboxes", dict({"runtime": "python"}, **(body or {}), **more))
        assert a.status == 201, a.body
        return a.json["id"]

    def execute(self, sandbox, body, **more):
        return self.call("POST", f"/v1/sandboxes/{sandbox}/executions", body, **more)

    def delete(self, sandbox):
        a = self.call("DELETE", f"/v1/sandboxes/{sandbox}")
        assert a.status == 200, a.body
        return a.json

    def files(self, sandbox, method="GET", verb="", body=None, headers=None, **query):
        path = f"/v1/sandboxes/{sandbox}/files{verb}"
        if query:
            path += "?" + urllib.parse.urlencode(query)
        return self.call(method, path, body, headers)


# --- the contract ---

def load_contract():
    """The paths of openapi.yaml: {(method, regex): operation}, and its schemas."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../../api/openapi.yaml"), encoding="utf-8") as f:
        doc = yaml.load(f, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # five times as fast, if available
    paths = {}
    for path, item in doc["paths"].items():
        pattern = re.compile("^" + re.sub(r"\{[^}]+\}", "[^/]+", path) + "$")
        for method in ("get", "put", "post", "patch", "delete"):
            if method in item:
                paths[(method.upper(), pattern)] = item[method]
    return paths, doc["components"]


PATHS, COMPONENTS = load_contract()


def resolve(node):
    while "$ref" in node:
        target = COMPONENTS
        for part in node["$ref"].split("/")[2:]:
            target = target[part]
        node = target
    if "allOf" not in node:
        return node
    parts = [resolve(part) for part in node["allOf"]]
    return {"type": "object", "required": [name for part in parts for name in part.get("required", [])],
            "properties": {name: inner for part in parts for name, inner in part["properties"].items()}}


TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)}


def conforms(value, schema, where):
    """Complaints about a value: kinds, required fields, unknown fields, enums and patterns."""
    schema = resolve(schema)
    if "anyOf" in schema:
        found = [conforms(value, one, where) for one in schema["anyOf"]]
        return [] if [] in found else found[-1]
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds or []
    if kinds and not any(isinstance(value, TYPES[k]) and not (k == "integer" and isinstance(value, bool)) for k in kinds):
        return [f"{where}: {value!r} is not of kind {kinds}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is not in {schema['enum']}")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{where}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        found += [f"{where}: no {name}" for name in schema.get("required", []) if name not in value]
        for name, inner in value.items():
            if name in properties:
                found += conforms(inner, properties[name], f"{where}.{name}")
            elif isinstance(rest, dict):
                found += conforms(inner, rest, f"{where}.{name}")
            elif properties:
                found.append(f"{where}.{name}: the field is not in the contract")
    if isinstance(value, list) and "items" in schema:
        for i, inner in enumerate(value):
            found += conforms(inner, schema["items"], f"{where}[{i}]")
    return found


def check_contract(method, path, answer):
    path = path.split("?")[0]
    for (verb, pattern), operation in PATHS.items():
        if verb != method or not pattern.match(path):
            continue
        responses = operation["responses"]
        assert answer.status < 500 or answer.status in (501, 503, 504, 507), f"{method} {path}: {answer.status} {answer.body}"
        described = responses.get(str(answer.status)) or responses.get(f"{answer.status // 100}XX")
        assert described, f"{method} {path}: {answer.status} is not in the contract: {answer.body[:300]}"
        response = resolve(described)
        if answer.status == 429:
            told = {name for name in answer.headers if name == "Retry-After" or "RateLimit" in name}
            assert "Retry-After" in told, f"{method} {path}: 429 without Retry-After"
            assert told <= set(response["headers"]), f"{method} {path}: {told} with 429"
        kind = (answer.headers.get("Content-Type") or "").split(";")[0]
        content = response.get("content")
        if not content:
            assert not answer.body, f"{method} {path}: a body with {answer.status}"
            return
        assert kind in content, f"{method} {path}: {answer.status} with {kind}: {answer.body[:200]}"
        if kind == "application/json":
            wrong = conforms(json.loads(answer.body), content[kind]["schema"], f"{method} {path} {answer.status}")
            assert not wrong, "; ".join(wrong[:5])
        return


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def ndjson(response):
    """Events as they arrive."""
    for line in response:
        yield json.loads(line)


# --- sandboxes ---

@case
def a_sandbox_lives_and_its_end_stays_readable(s):
    a = s.call("POST", "/v1/sandboxes", {"runtime": "python", "metadata": {"task": "42"}, "lifetimeMs": 60000})
    assert a.status == 201, a.body
    sb = a.json["id"]
    assert a.headers["Location"] == f"/v1/sandboxes/{sb}"
    assert a.json["state"] == "running" and a.json["metadata"] == {"task": "42"}
    assert a.json["resources"]["memoryBytes"] == 512 << 20
    got = s.call("GET", f"/v1/sandboxes/{sb}").json
    assert got == a.json, (got, a.json)
    assert s.delete(sb)["state"] == "ended"
    dead = s.call("GET", f"/v1/sandboxes/{sb}")
    assert dead.status == 200 and dead.json["endedBy"] == "killed" and dead.json["reason"]["message"]
    late = s.execute(sb, {"code": "1"})
    assert late.status == 410 and late.code == "sandbox_ended", late.body
    assert s.delete(sb)["endedBy"] == "killed"


@case
def sandboxes_are_listed_by_state_and_metadata_page_by_page(s):
    ids = [s.create({"runtime": "sh", "metadata": {"list": "yes", "n": str(i)}}) for i in range(3)]
    a = s.call("GET", "/v1/sandboxes?metadata=list%3Dyes&state=running&limit=2").json
    assert [x["id"] for x in a["items"]] == ids[:0:-1] and a["nextCursor"]
    b = s.call("GET", f"/v1/sandboxes?metadata=list%3Dyes&limit=2&cursor={a['nextCursor']}").json
    assert [x["id"] for x in b["items"]] == ids[:1] and "nextCursor" not in b
    assert [x["id"] for x in s.call("GET", "/v1/sandboxes?metadata=n%3D1").json["items"]] == [ids[1]]
    one = s.call("GET", "/v1/sandboxes?metadata=list%3Dyes&metadata=n%3D1").json["items"]
    assert [x["id"] for x in one] == [ids[1]]
    assert s.call("GET", "/v1/sandboxes?metadata=list%3Dyes&metadata=n%3D9").json["items"] == []
    s.call("POST", f"/v1/sandboxes/{ids[0]}/pause")
    s.delete(ids[1])

    def states(query):
        found = s.call("GET", f"/v1/sandboxes?metadata=list%3Dyes&{query}").json["items"]
        return {x["id"]: x["state"] for x in found}

    assert states("state=running&state=paused") == {ids[0]: "paused", ids[2]: "running"}
    assert states("state=!ended") == states("state=running&state=paused")
    assert states("state=ended&state=!ended") == {}
    assert states("state=!ended&state=!paused") == {ids[2]: "running"}
    for bad in ("state=dead", "state=!dead", "name=A", "template=", "limit=1&limit=2", "state=ended&state=x", "limit=0",
                "limit=1001", "limit=x", "cursor=%27%20OR%201", "metadata=x", "colour=red"):
        answer = s.call("GET", "/v1/sandboxes?" + bad)
        assert answer.status == 400, (bad, answer.status, answer.body)
    for sb in ids:
        s.delete(sb)


@case
def executions_of_all_sandboxes_are_listed_by_state_and_outcome(s):
    first, second = s.create(), s.create({"runtime": "sh"})
    done = s.execute(first, {"code": "1"}).json["id"]
    failed = s.execute(second, {"command": ["false"]}).json["id"]
    raised = s.execute(first, {"code": "1/0"}).json["id"]
    absent = s.execute(second, {"command": ["no-such-program"]}).json["id"]
    late = s.execute(first, {"command": ["sleep", "60"], "timeoutMs": 200}).json["id"]
    runs = s.execute(second, {"command": ["sleep", "60"], "background": True}).json["id"]
    every = [runs, late, absent, raised, failed, done]

    def listed(query="", path="/v1/executions", **who):
        page = s.call("GET", f"{path}?{query}", **who)
        assert page.status == 200, page.body
        assert set(page.json) <= {"items", "nextCursor"}, page.json
        return [x["id"] for x in page.json["items"] if x["sandboxId"] in (first, second)]

    assert listed() == every
    assert listed("state=starting&state=running") == [runs]
    until(lambda: listed("state=running") == [runs], "it runs")
    assert listed("state=!running") == every[1:]
    assert listed("state=!ended") == [runs]
    assert listed("state=ended") == every[1:]
    assert listed("outcome=success") == [done]
    assert listed("outcome=timeout&outcome=success") == [late, done]
    assert listed("outcome=error") == [absent, raised, failed]
    assert listed("outcome=!error") == [late, done]
    assert listed("outcome=error&state=!ended") == []
    assert listed("outcome=success&outcome=!success") == []
    assert listed(f"sandboxId={first}") == [late, raised, done]
    assert listed(f"sandboxId={second}&outcome=!success") == [absent, failed]
    assert listed("outcome=error", f"/v1/sandboxes/{first}/executions") == [raised]
    assert listed("state=!ended", f"/v1/sandboxes/{second}/executions") == [runs]
    by_id = {x["id"]: x for x in s.call("GET", "/v1/executions").json["items"]}
    for id in (done, failed, raised, absent, late):  # the list shows the outcome that it selects by
        of = by_id[id]["sandboxId"]
        assert by_id[id]["outcome"] == s.call("GET", f"/v1/sandboxes/{of}/executions/{id}").json["outcome"], id
    pages, cursor = [], ""
    while cursor is not None:
        page = s.call("GET", f"/v1/executions?outcome=error&outcome=timeout&limit=1{cursor}").json
        pages += [x["id"] for x in page["items"]]
        cursor = f"&cursor={page['nextCursor']}" if "nextCursor" in page else None
    assert [x for x in pages if x in every] == every[1:5] and len(set(pages)) == len(pages), pages
    for bad in ("state=failed", "outcome=ok", "outcome=", "sandboxId=x", f"sandboxId={done}", "contextId=x", "limit=0", "cursor=x"):
        answer = s.call("GET", "/v1/executions?" + bad)
        assert answer.status == 400, (bad, answer.status, answer.body)
    s.delete(first)
    assert listed(f"sandboxId={first}") == [late, raised, done]
    s.delete(second)
    assert listed("outcome=killed") == [runs]


@case
def a_name_belongs_to_one_living_sandbox_of_the_tenant(s):
    a = s.call("POST", "/v1/sandboxes", {"runtime": "sh", "name": "build-1.x"})
    assert a.status == 201 and a.json["name"] == "build-1.x", a.body
    again = s.call("POST", "/v1/sandboxes", {"runtime": "sh", "name": "build-1.x"})
    assert again.status == 409 and again.code == "conflict" and a.json["id"] not in str(again.json), again.body
    s.kill()
    s.start()
    assert s.call("GET", f"/v1/sandboxes/{a.json['id']}").json["name"] == "build-1.x"
    assert s.call("POST", "/v1/sandboxes", {"runtime": "sh", "name": "build-1.x"}).status == 409
    s.delete(a.json["id"])
    b = s.call("POST", "/v1/sandboxes", {"runtime": "sh", "name": "build-1.x"})
    assert b.status == 201, b.body
    named = s.call("GET", "/v1/sandboxes?name=build-1.x").json["items"]
    assert [x["id"] for x in named] == [b.json["id"], a.json["id"]]
    assert [x["id"] for x in s.call("GET", "/v1/sandboxes?name=build-1.x&state=!ended").json["items"]] == [b.json["id"]]
    assert s.call("GET", "/v1/sandboxes?name=nobody").json["items"] == []
    for bad in ("", "Big", "-x", ".x", "a b", "a/b", "x" * 64, b.json["id"], 5, None):
        assert s.call("POST", "/v1/sandboxes", {"runtime": "sh", "name": bad}).status == 400, bad
    assert s.call("PUT", "/v1/templates/named", {"runtime": "sh", "name": "x"}).status == 400
    s.delete(b.json["id"])


@case
def a_sandbox_is_paused_resumed_and_updated(s):
    sb = s.create({"runtime": "sh"})
    assert s.call("POST", f"/v1/sandboxes/{sb}/pause").json["state"] == "paused"
    refused = s.execute(sb, {"command": ["true"]})
    assert refused.status == 409 and refused.code == "sandbox_paused"
    assert s.call("POST", f"/v1/sandboxes/{sb}/resume").json["state"] == "running"
    a = s.call("PATCH", f"/v1/sandboxes/{sb}", {"lifetimeMs": 3600000}).json
    assert a["lifetimeMs"] == 3600000
    for body in ({}, {"lifetimeMs": 0}, {"lifetimeMs": "1h"}, {"lifetime": 5}, {"lifetimeMs": None}, {"idleAction": "stop"}, {"name": "A"},
                 {"metadata": {"a": 1}}, {"metadata": {"": "x"}}, {"metadata": {str(i): "x" for i in range(33)}}, {"runtime": "sh"}):
        assert s.call("PATCH", f"/v1/sandboxes/{sb}", body).status == 400, body
    usage = s.call("GET", f"/v1/sandboxes/{sb}/usage").json
    assert usage["memoryBytes"] > 0 and usage["sandboxId"] == sb
    kinds = [e["kind"] for e in s.call("GET", f"/v1/sandboxes/{sb}/events").json["items"]]
    assert kinds == ["sandbox_created", "sandbox_paused", "sandbox_resumed", "sandbox_updated"], kinds
    page = s.call("GET", f"/v1/sandboxes/{sb}/events?limit=3").json
    rest = s.call("GET", f"/v1/sandboxes/{sb}/events?limit=3&cursor={page['nextCursor']}").json
    assert [e["kind"] for e in rest["items"]] == kinds[3:]
    s.delete(sb)


@case
def a_network_is_read_shown_and_refused_without_a_proxy(s):
    def refused(method, path, network, code, says):
        a = s.call(method, path, {"network": network} if method == "PATCH" else {"runtime": "sh", "network": network})
        assert a.code == code and says in a.json["error"]["message"], (network, a.body)
    sb = s.create({"runtime": "sh"})
    path = f"/v1/sandboxes/{sb}"
    assert s.call("GET", path).json["network"] == "none"
    for network, says in (("all", "network: must be"), ({"allow": "pypi.org"}, "network.allow"), ({"alow": []}, "did you mean allow"),
                          ({"allow": ["pypi.org"], "egress": []}, "short form")):
        for method, where in (("POST", "/v1/sandboxes"), ("PATCH", path), ("PUT", "/v1/templates/net")):
            refused(method, where, network, "invalid_request", says)
    for network, says in (({"allow": ["pypi.org", "http://x/"]}, "network.allow[1]: "), ({"egress": [{"deny": "*", "allow": "*"}]}, "network.egress[0]"),
                          ({"allow": ["169.254.169.254"]}, "closed (metadata)"), ({"egress": [{"allow": "a.example:443", "path": "/"}]}, "network.egress[0]")):
        for method, where in (("POST", "/v1/sandboxes"), ("PATCH", path), ("PUT", "/v1/templates/net")):
            refused(method, where, network, "egress_rule_invalid", says)
    refused("POST", "/v1/sandboxes", {"allow": ["pypi.org"]}, "network_unavailable", "cove-egress")  # this server has no proxy
    a = s.call("POST", "/v1/execute", {"code": "1", "network": {"egress": []}})
    assert a.status == 503 and a.code == "network_unavailable", a.body
    assert s.call("POST", "/v1/execute", {"code": "1", "network": "none"}).json["value"] == "1"
    assert s.call("POST", "/v1/execute", {"code": "1", "tier": "simple", "network": "none"}).code == "not_supported"
    refused("PATCH", path, {"egress": []}, "network_not_enabled", "created without a network")
    assert s.call("PATCH", path, {"network": "none"}).json["network"] == "none"
    network = {"deny": ["files.example.org"], "egress": []}
    refused("PUT", "/v1/templates/net", network, "invalid_request", "short form")
    del network["egress"]
    a = s.call("PUT", "/v1/templates/net", {"runtime": "sh", "network": network})
    assert a.status == 200 and a.json["spec"]["network"] == network, a.body
    s.call("DELETE", "/v1/templates/net")
    egress = s.call("GET", "/v1/capabilities").json["network"]["egress"]
    assert egress["available"] is False and "cove-egress" in egress["reason"] and egress["openRanges"] == [], egress
    s.delete(sb)


@case
def connections_and_decisions_of_a_sandbox_without_a_network_are_answered(s):
    sb = s.create({"runtime": "sh"})
    path = f"/v1/sandboxes/{sb}"
    assert s.call("GET", f"{path}/connections").json == {"items": [], "more": 0}
    assert s.call("GET", f"{path}/connections?limit=5").status == 200
    for query in ("host=x", "cursor=x", "limit=0"):
        assert s.call("GET", f"{path}/connections?{query}").status == 400, query
    a = s.call("GET", f"{path}/network/why?url=https://pypi.org/x").json
    assert (a["host"], a["port"], a["allowed"], a["fix"]) == ("pypi.org", 443, False, "create a sandbox with the rule: allow pypi.org:443"), a
    for query in ("", "?url=", "?url=ftp://pypi.org/", "?url=https://u@pypi.org/", "?url=https://pypi.org/&method=get", "?url=https://pypi.org/&x=1"):
        assert s.call("GET", f"{path}/network/why{query}").status == 400, query
    assert s.call("GET", "/v1/sandboxes/sbaaaaaaaaaaaaaaaaaaaa/network/why?url=https://pypi.org/").status == 404
    assert s.call("GET", "/v1/sandboxes/sbaaaaaaaaaaaaaaaaaaaa/connections").status == 404
    s.delete(sb)
    assert s.call("GET", f"{path}/connections").code == "sandbox_ended"
    assert s.call("GET", f"{path}/network/why?url=https://pypi.org/").json["allowed"] is False  # ended sandboxes stay readable


@case
def an_update_changes_only_what_it_names_and_survives_a_restart(s):
    other = s.create({"runtime": "sh", "name": "taken"})
    sb = s.create({"runtime": "sh", "name": "first", "metadata": {"a": "1", "b": "2"}, "idleTimeoutMs": 500000})
    path = f"/v1/sandboxes/{sb}"
    a = s.call("PATCH", path, {"metadata": {"a": None, "c": "3"}}).json
    assert a["metadata"] == {"b": "2", "c": "3"} and a["name"] == "first" and a["idleTimeoutMs"] == 500000, a
    refused = s.call("PATCH", path, {"name": "taken", "metadata": {"d": "4"}, "lifetimeMs": 5000})
    assert refused.status == 409 and other not in str(refused.json), refused.body
    assert s.call("GET", path).json == a
    b = s.call("PATCH", path, {"name": "second", "lifetimeMs": 3600000, "idleTimeoutMs": 400000, "idleAction": "pause"}).json
    assert (b["name"], b["lifetimeMs"], b["idleTimeoutMs"], b["idleAction"]) == ("second", 3600000, 400000, "pause"), b
    assert b["metadata"] == a["metadata"] and b["expiresAt"] > a["expiresAt"]
    s.kill()
    s.start()
    assert s.call("GET", path).json == b
    c = s.call("PATCH", path, {"metadata": {"e": "5"}}).json
    assert c["metadata"] == {"b": "2", "c": "3", "e": "5"} and c["name"] == "second" and c["idleAction"] == "pause", c
    d = s.call("PATCH", path, {"metadata": None, "name": None, "idleTimeoutMs": 0}).json
    assert d["metadata"] == {} and "name" not in d and d["idleTimeoutMs"] == 0, d
    bodies = [e["body"] for e in s.call("GET", f"{path}/events").json["items"] if e["kind"] == "sandbox_updated"]
    assert bodies[0] == {"metadata": {"b": "2", "c": "3"}}, bodies
    assert bodies[1] == {"name": "second", "lifetimeMs": 3600000, "idleTimeoutMs": 400000, "idleAction": "pause"}, bodies
    assert s.call("PATCH", path, {"idleTimeoutMs": 300}).status == 200
    until(lambda: s.call("GET", path).json["state"] == "paused", "the new idle timeout has no effect")
    assert s.call("PATCH", path, {"lifetimeMs": 300}).status == 200
    until(lambda: s.call("GET", path).json.get("endedBy") == "lifetime", "the new lifetime has no effect")
    assert s.call("PATCH", path, {"name": "x"}).status == 410
    s.delete(other)


@case
def an_empty_request_creates_a_python_sandbox(s):
    for body in ({}, {"template": "python"}, {"runtime": "py"}):
        a = s.call("POST", "/v1/sandboxes", body)
        assert a.status == 201 and a.json["runtime"] == "python" and a.json.get("template") == body.get("template"), a.body
        assert s.execute(a.json["id"], {"code": "print(6 * 7)"}).json["stdout"] == "42\n"
        s.delete(a.json["id"])


@case
def a_sandbox_takes_its_defaults_from_its_template(s):
    spec = {"runtime": "sh", "resources": {"pids": 33}, "env": {"FROM": "template", "SECRET": "s3cr3t"}}
    a = s.call("PUT", "/v1/templates/small", spec)
    assert a.status == 200 and a.json["generation"] == 1, a.body
    assert b"s3cr3t" not in a.body + s.call("GET", "/v1/templates").body + s.call("GET", "/v1/templates/small").body
    b = s.call("POST", "/v1/sandboxes", {"template": "small", "env": {"FROM": "request"}})
    assert b.status == 201 and b.json["resources"]["pids"] == 33 and b.json["template"] == "small", b.body
    out = s.execute(b.json["id"], {"command": ["sh", "-c", "echo $FROM $SECRET"]}).json
    assert out["stdout"] == "request s3cr3t\n", out
    unknown = s.call("POST", "/v1/sandboxes", {"template": "absent"})
    assert unknown.status == 404, unknown.body
    assert unknown.json["error"]["message"] == "template 'absent': does not exist; use bash, node, python, python-data, snippet or small", unknown.body
    near = s.call("POST", "/v1/sandboxes", {"template": "pythn"}).json["error"]["message"]
    assert near == "template 'pythn': does not exist; did you mean python?", near
    for name in ("python-data", "small"):
        wrong = s.call("POST", "/v1/sandboxes", {"runtime": name})
        assert wrong.status == 404 and wrong.code == "runtime_not_found", wrong.body
        assert wrong.json["error"]["message"] == f"runtime: '{name}' is a template; use \"template\": \"{name}\"", wrong.body
    assert s.call("PUT", "/v1/templates/UPPER", {}).status == 400
    assert s.call("PUT", "/v1/templates/x", {"template": "small"}).status == 400
    assert s.call("DELETE", "/v1/templates/small").status == 204
    assert s.call("GET", "/v1/templates/small").status == 404
    s.delete(b.json["id"])


@case
def a_policy_in_the_request_is_applied_and_other_fields_override_it(s):
    policy = {"version": 1, "name": "mine", "extends": "debug", "syscalls": {"deny": ["inotify_init1"]},
              "limits": {"memoryBytes": "128M", "pids": 20, "timeoutMs": "2m", "cpuTimeMs": 900},
              "environment": {"set": {"GREETING": "s3cr3t"}}}
    a = s.call("POST", "/v1/sandboxes", {"runtime": "python", "policy": policy, "resources": {"pids": 30}})
    assert a.status == 201, a.body
    sb = a.json["id"]
    assert a.json["level"] == "custom" and a.json["timeoutMs"] == 120000, a.body
    assert a.json["resources"]["memoryBytes"] == 128 << 20 and a.json["resources"]["pids"] == 30
    assert b"s3cr3t" not in a.body and a.json["policy"]["environment"]["set"] == {"GREETING": ""}
    code = ("import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(os.environ['GREETING'], libc.ptrace(0, 0, 0, 0),"
            " libc.inotify_init1(0), ctypes.get_errno())")
    assert s.execute(sb, {"code": code, "isolated": True}).json["stdout"] == "s3cr3t 0 -1 1\n"  # it is traced from then on
    burned = s.execute(sb, {"code": "while True: pass"}, timeout=150).json
    assert burned.get("endedBy") == "cpu", burned
    receipt = s.call("GET", f"/v1/sandboxes/{sb}/executions/{burned['id']}/receipt").json
    assert (receipt["level"], receipt["policy"]) == ("custom", "mine"), receipt
    s.kill()
    s.start()
    assert s.call("GET", f"/v1/sandboxes/{sb}").json["policy"] == a.json["policy"]
    burned = s.execute(sb, {"code": "while True: pass"}, timeout=150).json
    assert burned["endedBy"] == "cpu", burned
    s.delete(sb)


@case
def an_error_in_a_policy_is_reported_with_its_path(s):
    def refused(policy, **more):
        return s.call("POST", "/v1/sandboxes", dict({"runtime": "sh", "policy": policy}, **more))
    a = refused({"version": 1, "limits": {"memryBytes": 1, "pids": 2}, "syscalls": {"deny": ["ptrace", "nope"]}})
    assert a.status == 400 and a.code == "policy_unknown_key", a.body
    assert a.json["error"]["message"].startswith("policy.limits.memryBytes: "), a.body
    paths = [e["path"] for e in a.json["error"]["details"]["errors"]]
    assert paths == ["policy.limits.memryBytes", "policy.limits.pids", "policy.syscalls.deny[1]"], a.body
    assert "memoryBytes" in a.json["error"]["details"]["errors"][0]["message"]
    for policy, path in (({"version": 1, "filesystem": {"readOnly": ["/etc"]}}, "policy.filesystem.readOnly[0]"),
                         ({"version": 1, "filesystem": {"workspace": {"mode": "readWrite", "path": "/srv"}}}, "policy.filesystem.workspace"),
                         ({"version": 1, "environment": {"pass": ["HOME"]}}, "policy.environment.pass[0]"),
                         ({"version": 1, "extends": "high"}, "policy")):
        b = refused(policy)
        assert b.status == 422 and b.json["error"]["details"]["errors"][0]["path"].startswith(path), b.body
    a = refused({"version": 1, "network": {"egress": ["pypi.org", "http://x/"]}})
    assert a.status == 400 and a.json["error"]["details"]["errors"][0]["path"] == "policy.network.egress[1]", a.body
    for body in ({"level": "custom"}, {"level": "standard", "policy": {"version": 1}}, {"policy": {"version": 1, "network": "all"}}, {"policy": "standard"}, {"policy": {}},
                 {"policy": {"version": 2}}, {"policy": None}):
        assert s.call("POST", "/v1/sandboxes", dict({"runtime": "sh"}, **body)).status == 400, body
    assert s.call("PUT", "/v1/templates/bad", {"policy": {"version": 1, "limits": {"pids": 1}}}).status == 400
    a = s.call("POST", "/v1/sandboxes", {"runtime": "sh", "policy": {"version": 1, "environment": {"set": {"A": None}}}})
    assert a.status == 400 and "policy.environment.set.A" in a.json["error"]["message"], a.body
    assert s.call("PUT", "/v1/templates/tight", {"policy": {"version": 1, "limits": {"pids": 17}}, "runtime": "sh"}).status == 200
    sb = s.call("POST", "/v1/sandboxes", {"template": "tight"}).json
    assert sb["level"] == "custom" and sb["resources"]["pids"] == 17, sb
    assert s.call("GET", "/compat/v1/profiles/tight").json["spec"]["policy"]["limits"] == {"pids": 17}
    s.delete(sb["id"])
    s.call("DELETE", "/v1/templates/tight")
    assert [p["name"] for p in s.call("GET", "/v1/policies").json["items"]] == ["standard", "high", "debug"]
    assert s.call("GET", "/v1/policies/debug").json["policy"]["syscalls"]["grant"] == ["debug"]
    missing = s.call("GET", "/v1/policies/none")
    assert missing.status == 404 and missing.json["error"]["message"] == "there is no policy 'none'; the policies are standard, high, debug", missing.body


@case
def the_server_documents_itself(s):
    for path in ("/", "/v1"):
        a = s.call("GET", path, key=False)
        assert a.json["name"] == "cove" and a.json["links"]["docs"] == "/docs", a.body
    contract = s.call("GET", "/v1/openapi.json", key=False).json
    assert contract == yaml.safe_load(s.call("GET", "/v1/openapi.yaml", key=False).body.decode())
    pages = {path: s.call("GET", path, key=False) for path in ("/docs", "/docs/errors", "/docs/style.css")}
    for path, a in pages.items():
        policy = a.headers["Content-Security-Policy"]
        assert a.status == 200 and "default-src 'none'" in policy and "unsafe" not in policy, (path, policy)
        assert not re.search(rb"<script|url\(|@import|(src|href)=.https?:", a.body), path
    reference = pages["/docs"].body.decode()
    for method in (m for item in contract["paths"].values() for m in item.values() if "operationId" in m):
        assert f'<section id="{method["operationId"]}">' in reference, method["operationId"]
    links = set(re.findall('href="#([^"]+)"', reference))
    assert len(links) > 100 and not links - set(re.findall('id="([^"]+)"', reference))
    error = s.call("GET", "/v1/sandboxes/none").json["error"]
    assert error["docs"] == "/docs/errors#not_found" and b'<section id="not_found">' in pages["/docs/errors"].body, error


@case
def a_wrong_path_is_never_answered_with_a_path_that_changes_something(s):
    for path, near in (("/v1/sandboxs", "/v1/sandboxes"), ("/v1/cg", None), ("/v1/maintenance/gb", None), ("/v1/execut", None)):
        message = s.call("GET", path).json["error"]["message"]
        assert ("did you mean " + near in message) if near else ("did you mean" not in message), message


@case
def every_list_answers_items_and_a_cursor(s):
    sb = s.create()
    of_sandbox = [f"/v1/sandboxes/{sb}/{name}" for name in ("executions", "contexts", "events", "files/list?path=/workspace")]
    for path in of_sandbox + ["/v1/sandboxes", "/v1/events", "/v1/runtimes", "/v1/templates", "/v1/policies", "/v1/pools", "/v1/keys",
                              "/v1/tenants", "/v1/users", "/v1/roles"]:
        page = s.call("GET", path).json
        assert isinstance(page["items"], list) and set(page) <= {"items", "nextCursor"}, (path, list(page))


@case
def paths_that_a_policy_hides_appear_empty(s):
    script = "ls /usr/share/doc | wc -l; wc -c < /etc/passwd; ls /usr/bin | grep -c '^env$'; echo new > /workspace/note; cat /workspace/note; rmdir /usr/share/doc 2>/dev/null || echo stays"
    policy = {"version": 1, "filesystem": {"hide": ["/usr/share/doc", "/etc/passwd", "/usr/nothing-of-this-name", "/workspace/note"]}}
    plain = s.create(runtime="sh")
    shown = s.execute(plain, {"code": script}).json["stdout"].split("\n")
    assert shown[1] != "0" and shown[2] == "1", shown
    for template in (False, True):
        if template:
            assert s.call("PUT", "/v1/templates/hiding", {"policy": policy, "runtime": "sh"}).status == 200
        sb = s.call("POST", "/v1/sandboxes", {"template": "hiding"} if template else {"runtime": "sh", "policy": policy})
        assert sb.status == 201 and sb.json["policy"]["filesystem"]["hide"] == policy["filesystem"]["hide"], sb.body
        a = s.execute(sb.json["id"], {"code": script}).json
        assert a["stdout"] == "0\n0\n1\nnew\nstays\n", a
        s.delete(sb.json["id"])
    s.call("DELETE", "/v1/templates/hiding")
    s.delete(plain)


def processors(s, sandbox):
    """The CPUs that the sandbox may use, as the kernel reports them."""
    return s.execute(sandbox, {"command": ["grep", "Cpus_allowed_list", "/proc/self/status"]}).json["stdout"].split()[1]


@case
def a_pinned_sandbox_uses_as_many_cpus_as_its_share_needs(s):
    mine = os.sched_getaffinity(0)
    free = s.create(runtime="sh")
    assert len(mine) == 1 or not processors(s, free).isdigit()
    made = s.call("POST", "/v1/sandboxes", {"runtime": "sh", "resources": {"cpuPinning": True, "cpuMillis": 300}}).json
    assert made["resources"]["cpuPinning"] is True and s.call("GET", f"/v1/sandboxes/{free}").json["resources"]["cpuPinning"] is False
    assert int(processors(s, made["id"])) in mine
    other = s.create(runtime="sh", resources={"cpuPinning": True})
    assert len(mine) == 1 or processors(s, other) != processors(s, made["id"])
    whole = s.create(runtime="sh", resources={"cpuPinning": True, "cpuMillis": 1000 * len(mine)})
    assert processors(s, whole) == processors(s, free)
    for sb in (free, made["id"], other, whole):
        s.delete(sb)


@case
def cpus_are_those_of_the_policy_pinned_or_not(s):
    last = str(max(os.sched_getaffinity(0)))
    policy = {"version": 1, "name": "last", "limits": {"cpuSet": last}}
    boxes = [s.create(policy=policy, resources=r) for r in ({}, {"cpuPinning": True}, {"cpuPinning": True})]
    assert [processors(s, sb) for sb in boxes] == [last] * 3
    s.kill()
    s.start()
    for sb in boxes:
        ran = s.execute(sb, {"command": ["true"]}).json
        receipt = s.call("GET", f"/v1/sandboxes/{sb}/executions/{ran['id']}/receipt").json
        assert receipt["limits"]["cpuSet"] == {"value": last, "state": "enforced"}, receipt
        s.delete(sb)
    for pinning in (False, True):
        nowhere = s.call("POST", "/v1/sandboxes", {"runtime": "sh", "policy": dict(policy, limits={"cpuSet": "63"}),
                                                   "resources": {"cpuPinning": pinning}})
        assert (nowhere.status, nowhere.code) == (400, "invalid_request"), nowhere.body
        assert "this host has" in nowhere.json["error"]["message"], nowhere.body


@case
def a_restarted_server_knows_which_cpus_are_taken(s):
    first = s.create(runtime="sh", resources={"cpuPinning": True})
    s.kill()
    s.start()
    second = s.create(runtime="sh", resources={"cpuPinning": True})
    if len(os.sched_getaffinity(0)) > 1:
        assert processors(s, first) != processors(s, second)
    s.delete(first)
    s.delete(second)


# --- executions ---

@case
def code_and_commands_are_answered_with_their_output(s):
    sb = s.create()
    a = s.execute(sb, {"code": "import sys\nprint(6 * 7)\nprint('e', file=sys.stderr)"}).json
    assert (a["state"], a["exitCode"], a["signal"], a["endedBy"]) == ("ended", 0, None, "exit"), a
    assert (a["stdout"], a["stderr"], a["stdoutBytes"], a["truncated"]) == ("42\n", "e\n", 3, False), a
    b = s.execute(sb, {"command": ["sh", "-c", "cat; echo $X; pwd; exit 3"], "stdin": "in ", "env": {"X": "1"}, "cwd": "/tmp"}).json
    assert b["exitCode"] == 3 and b["stdout"] == "in 1\n/tmp\n", b
    c = s.execute(sb, {"command": ["no-such-program"]}).json
    assert c["state"] == "ended" and c["outcome"] == "error" and c["error"]["code"] == "program_not_found", c
    d = s.execute(sb, {"command": ["sleep", "60"], "timeoutMs": 200}).json
    assert d["endedBy"] == "timeout", d
    rows = s.call("GET", f"/v1/sandboxes/{sb}/executions").json["items"]
    assert [r["id"] for r in rows] == [x["id"] for x in (d, c, b, a)]
    assert [r["id"] for r in s.call("GET", f"/v1/sandboxes/{sb}/executions?state=ended").json["items"] if r["outcome"] == "error" and "error" in r] == [c["id"]]
    receipt = s.call("GET", f"/v1/sandboxes/{sb}/executions/{b['id']}/receipt").json
    assert receipt["exitCode"] == 3 and receipt["final"] is True
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{c['id']}/receipt").status == 404
    s.delete(sb)
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}/receipt").json["final"] is True
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json["stdout"] == "42\n"


@case
def a_receipt_names_the_request_that_started_it_also_after_a_restart(s):
    sb = s.create(runtime="sh")
    receipt = lambda ex: s.call("GET", f"/v1/sandboxes/{sb}/executions/{ex}/receipt").json
    a = s.execute(sb, {"command": ["true"]})
    b = s.execute(sb, {"command": ["true"]}, headers={"X-Request-Id": "job-17.b"})
    assert a.headers["X-Request-Id"] and receipt(a.json["id"])["requestId"] == a.headers["X-Request-Id"], a.headers
    assert b.headers["X-Request-Id"] == receipt(b.json["id"])["requestId"] == "job-17.b"
    c = s.execute(sb, {"command": ["sh", "-c", "read line"], "stdinOpen": True, "background": True}, headers={"X-Request-Id": "job-17.c"})
    assert c.status == 202, c.body
    s.kill()
    s.start()
    ended = s.call("POST", f"/v1/sandboxes/{sb}/executions/{c.json['id']}/cancel", headers={"X-Request-Id": "other"})
    assert ended.status == 200, ended.body
    assert receipt(c.json["id"])["requestId"] == "job-17.c"
    s.delete(sb)
    sb = s.create(runtime="sh")
    last = s.execute(sb, {"command": ["true"]}, headers={"X-Request-Id": "job-17.d"}).json["id"]
    s.delete(sb)
    until(lambda: receipt(last)["final"], "the receipt did not become final")
    assert receipt(last)["requestId"] == "job-17.d"


@case
def a_cancel_right_after_the_start_kills_that_execution_and_no_other(s):
    sb = s.create({"runtime": "sh"})
    other = s.execute(sb, {"command": ["sleep", "600"], "background": True, "timeoutMs": 600000}).json["id"]
    for _ in range(15):
        ex = s.execute(sb, {"command": ["sleep", "600"], "background": True, "timeoutMs": 600000}).json["id"]
        a = s.call("POST", f"/v1/sandboxes/{sb}/executions/{ex}/cancel").json
        assert (a["state"], a["endedBy"]) == ("ended", "killed"), a
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{other}").json["state"] == "running"
    assert s.call("GET", f"/v1/sandboxes/{sb}").json["state"] == "running"
    s.delete(sb)


@case
def a_stream_delivers_output_as_it_is_written_and_then_the_end(s):
    sb = s.create({"runtime": "sh"})
    script = "echo one; read go; echo two >&2; read go; printf '\\377\\376'; printf '\\303'; sleep 0.1; printf '\\244'"
    c, r = s.open("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["sh", "-c", script], "stdinOpen": True},
                  {"Accept": "application/x-ndjson"})
    assert r.status == 200 and r.headers["Content-Type"] == "application/x-ndjson"
    events = []
    for e in ndjson(r):
        events.append(e)
        if e.get("data") in ("one\n", "two\n"):  # the program continues after its line has arrived
            path = f"/v1/sandboxes/{sb}/executions/{events[0]['execution']['id']}/stdin"
            assert s.call("POST", path, b"go\n", {"Content-Type": "text/plain"}).status == 200
    c.close()
    assert events[0]["type"] == "started" and events[0]["execution"]["sandboxId"] == sb
    out = b"".join(base64.b64decode(e["base64"]) if "base64" in e else e["data"].encode()
                   for e in events if e["type"] == "output" and e["stream"] == "stdout")
    assert out == b"one\n\xff\xfe\xc3\xa4", out
    assert [e["data"] for e in events if e.get("stream") == "stderr"] == ["two\n"]
    assert events[-1]["type"] == "end" and events[-1]["execution"]["exitCode"] == 0
    for e in events:
        wrong = conforms(e, {"$ref": "#/components/schemas/StreamEvent"}, "event") if PATHS else []
        assert not wrong, wrong
    s.delete(sb)


@case
def server_sent_events_carry_ids_that_resume(s):
    sb = s.create({"runtime": "sh"})
    c, r = s.open("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["sh", "-c", "echo abc; sleep 0.2; echo def"]},
                  {"Accept": "text/event-stream"})
    assert r.headers["Content-Type"].startswith("text/event-stream")
    text = r.read().decode()
    c.close()
    ids = re.findall(r"^id: (.*)$", text, re.M)
    assert ids[-1] == "8-0", ids
    ex = json.loads(re.search(r"^data: (.*)$", text, re.M).group(1))["execution"]["id"]
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/executions/{ex}/stream", None,
                  {"Accept": "text/event-stream", "Last-Event-ID": "4-0"})
    again = r.read().decode()
    c.close()
    assert "def" in again and "abc" not in again
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{ex}/stream", None, {"Last-Event-ID": "x"}).status == 400
    s.delete(sb)


@case
def a_follower_may_be_ahead_of_the_written_output(s):
    sb = s.create({"runtime": "sh"})
    for offset, expected in ((4, b"45"), (7, None)):
        ex = s.execute(sb, {"command": ["sh", "-c", "read line; printf 012345"], "background": True, "stdinOpen": True}).json
        base = f"/v1/sandboxes/{sb}/executions/{ex['id']}"
        c, r = s.open("GET", f"{base}/output?offset={offset}&follow=true")
        assert r.status == 200, r.read()
        assert s.call("POST", base + "/stdin?offset=0&close=true", b"go\n").status < 300
        try:
            assert r.read() == expected
        except http.client.IncompleteRead as cut:
            assert expected is None and cut.partial == b""
        c.close()
    s.delete(sb)


@case
def output_is_read_from_any_byte_and_followed_live(s):
    sb = s.create({"runtime": "sh"})
    ex = s.execute(sb, {"command": ["sh", "-c", "printf 0123456789; sleep 0.4; printf abc; printf err >&2"],
                        "background": True})
    assert ex.status == 202 and ex.json["background"] is True, ex.body
    base = f"/v1/sandboxes/{sb}/executions/{ex.json['id']}"
    assert ex.headers["Location"] == base
    while s.call("GET", base).json["stdoutBytes"] < 10:
        time.sleep(0.01)
    c, r = s.open("GET", base + "/output?offset=4&follow=true")
    assert r.headers["Cove-Offset"] == "4"
    assert r.read() == b"456789abc"
    c.close()
    assert s.call("GET", base + "/output").body == b"0123456789abc"
    assert s.call("GET", base + "/output?stream=stderr&offset=1").body == b"rr"
    assert s.call("GET", base + "/output?offset=13").body == b""
    assert s.call("GET", base + "/output?offset=14").status == 416
    for bad in ("offset=-1", "offset=x", "stream=stdin", "follow=maybe", "from=3"):
        assert s.call("GET", f"{base}/output?{bad}").status == 400, bad
    s.delete(sb)
    assert s.call("GET", base + "/output?offset=10").body == b"abc"


@case
def output_that_is_not_utf8_is_sent_without_waiting_for_more(s):
    sb = s.create({"runtime": "sh"})
    c, r = s.open("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["cat"], "stdinOpen": True},
                  {"Accept": "application/x-ndjson"})
    events = ndjson(r)
    ex = next(events)["execution"]["id"]
    for piece, told in ((b"a\0\xff\n", b"a\0\xff\n"), (b"\xc3", b""), (b"\xa9!", b"\xc3\xa9!"), (b"\xc3\n", b"\xc3\n")):
        assert s.call("POST", f"/v1/sandboxes/{sb}/executions/{ex}/stdin", piece).status == 200
        got = b""
        while got != told:
            e = next(events)
            got += e["data"].encode() if "data" in e else base64.b64decode(e.get("base64", ""))
            assert told.startswith(got), (got, told)
    r.close(), c.close()
    s.delete(sb)


@case
def standard_input_is_written_while_the_program_runs(s):
    sb = s.create({"runtime": "python"})
    assert s.execute(sb, {"command": ["cat"], "stdin": "a", "stdinOpen": True}).status == 400
    ex = s.execute(sb, {"command": ["cat"], "stdinOpen": True, "background": True}).json["id"]
    here = f"/v1/sandboxes/{sb}/executions/{ex}"

    def write(data, **query):
        headers = {"Content-Type": "application/octet-stream"}
        return s.call("POST", f"{here}/stdin?{urllib.parse.urlencode(query)}", data, headers, timeout=60)
    assert write(b"one\n").json == {"stdinBytes": 4, "stdinOpen": True}
    with s.open("GET", here + "/output?follow=true")[1] as out:
        assert out.readline() == b"one\n"  # the program runs and has read the line
        assert write(b"ne\ntwo\0\n", offset=1).json["stdinBytes"] == 9  # the piece that arrived before is skipped
        assert out.readline() == b"two\0\n"
        gap = write(b"x", offset=11)
        assert gap.status == 409 and gap.json["error"]["details"] == {"stdinBytes": 9}, gap.body
        assert write(b"three", close="true").json == {"stdinBytes": 14, "stdinOpen": False}
        assert out.read() == b"three"
    assert s.call("GET", here).json["state"] in ("ended", "running")
    assert write(b"more").status == 409
    shut = s.execute(sb, {"command": ["sleep", "60"], "background": True}).json["id"]
    refused = s.call("POST", f"/v1/sandboxes/{sb}/executions/{shut}/stdin", b"x", {"Content-Type": "text/plain"})
    assert refused.status == 409 and "stdinOpen" in refused.json["error"]["message"], refused.body
    assert s.call("POST", f"/v1/sandboxes/{sb}/executions/ex{'a' * 20}/stdin", b"").status == 404
    s.delete(sb)


@case
def a_program_that_does_not_read_blocks_its_writer_and_no_other_client(s):
    sb = s.create({"runtime": "sh"})
    ex = s.execute(sb, {"command": ["sh", "-c", "head -c 1; exec sleep 600"], "stdinOpen": True, "background": True, "timeoutMs": 900000}).json["id"]
    here = f"/v1/sandboxes/{sb}/executions/{ex}"
    answers = []

    def write():
        try:
            answers.append(s.call("POST", here + "/stdin", b"x" * (2 << 20), {"Content-Type": "text/plain"}, timeout=120))
        except (BrokenPipeError, ConnectionResetError):  # a client that reads only after it has sent everything may be too slow
            answers.append(None)
    writer = threading.Thread(target=write)
    writer.start()
    with s.open("GET", here + "/output?follow=true", timeout=60)[1] as out:
        assert out.read(1) == b"x"  # the head of a request may arrive long before its body: this byte has arrived
    other = s.call("POST", here + "/stdin", b"y")
    assert other.status == 409 and "another request" in other.json["error"]["message"], other.body
    assert not answers and s.execute(sb, {"command": ["echo", "on"]}).json["stdout"] == "on\n"
    s.call("POST", here + "/cancel", timeout=60)
    writer.join(120)
    assert len(answers) == 1
    if answers[0]:
        told = answers[0].json["error"]
        assert answers[0].status == 409 and 0 < told["details"]["stdinBytes"] < 2 << 20, told
    s.delete(sb)


@case
def a_cancel_kills_every_process_of_the_execution(s):
    sb = s.create({"runtime": "sh"})
    ex = s.execute(sb, {"command": ["sh", "-c", "sleep 60 & sleep 60"], "background": True, "timeoutMs": 60000}).json["id"]
    a = s.call("POST", f"/v1/sandboxes/{sb}/executions/{ex}/cancel").json
    assert a["state"] == "ended" and a["endedBy"] == "killed", a
    assert s.call("POST", f"/v1/sandboxes/{sb}/executions/{ex}/cancel").json == a
    out = s.execute(sb, {"command": ["sh", "-c", "ps ax | grep -c [s]leep; true"]}).json["stdout"]
    assert out.strip() in ("0", ""), out
    s.delete(sb)


@case
def a_client_that_disconnects_ends_no_execution(s):
    sb = s.create({"runtime": "sh"})
    c, r = s.open("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["sh", "-c", "echo 1; sleep 0.5; echo 2"]},
                  {"Accept": "application/x-ndjson"})
    ex = json.loads(r.readline())["execution"]["id"]
    c.close()
    end = time.monotonic() + 60
    while (a := s.call("GET", f"/v1/sandboxes/{sb}/executions/{ex}").json)["state"] != "ended":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert a["stdout"] == "1\n2\n" and a["exitCode"] == 0
    s.delete(sb)


@case
def the_same_idempotency_key_creates_one_object(s):
    head = {"Idempotency-Key": "key-1"}
    body = {"runtime": "sh"}
    a, b = s.call("POST", "/v1/sandboxes", body, head), s.call("POST", "/v1/sandboxes", body, head)
    assert a.status == b.status == 201 and a.json["id"] == b.json["id"]
    assert b.headers["Idempotency-Replayed"] == "true" and "Idempotency-Replayed" not in a.headers
    other = s.call("POST", "/v1/sandboxes", {"runtime": "bash"}, head)
    assert other.status == 409 and other.code == "idempotency_conflict"
    assert s.call("POST", "/v1/sandboxes", body, {"Idempotency-Key": "a b"}).status == 400
    sb = a.json["id"]
    run = {"command": ["sh", "-c", "echo x >> /workspace/f; cat /workspace/f"]}
    x = s.execute(sb, run, headers={"Idempotency-Key": "key-2"}).json
    y = s.execute(sb, run, headers={"Idempotency-Key": "key-2"}).json
    assert x == y and x["stdout"] == "x\n", (x, y)
    z = s.execute(sb, dict(run, background=True), headers={"Idempotency-Key": "key-3"})
    again = s.execute(sb, dict(run, background=True), headers={"Idempotency-Key": "key-3"})
    assert z.status == again.status == 202 and z.json["id"] == again.json["id"]
    refused = s.call("POST", "/v1/sandboxes", {"runtime": "sh", "resources": {"memoryBytes": 1}}, {"Idempotency-Key": "key-4"})
    assert refused.status == 400
    assert s.call("POST", "/v1/sandboxes", body, {"Idempotency-Key": "key-4"}).status == 201
    for row in s.call("GET", "/v1/sandboxes?state=running").json["items"]:
        s.delete(row["id"])


@case
def requests_that_race_with_one_idempotency_key_create_one_object(s):
    answers = []

    def ask():
        a = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, {"Idempotency-Key": "race-1"}, timeout=120)
        while a.status == 409:
            assert a.code == "idempotency_conflict" and int(a.headers["Retry-After"]) >= 1, a.body
            time.sleep(0.05)
            a = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, {"Idempotency-Key": "race-1"}, timeout=120)
        answers.append((a.status, a.json.get("id")))

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for t in askers:
        t.start()
    for t in askers:
        t.join()
    assert len(answers) == 8 and len(set(answers)) == 1 and answers[0][0] == 201, answers
    assert "Retry-After" not in s.call("POST", "/v1/sandboxes", {"runtime": "bash"}, {"Idempotency-Key": "race-1"}).headers
    s.delete(answers[0][1])


# --- bodies and ids ---

@case
def JS01_JS08_malformed_bodies_are_refused_by_name(s):
    sb = s.create({"runtime": "sh"})
    create, execute = "/v1/sandboxes", f"/v1/sandboxes/{sb}/executions"
    cases = [
        (create, b"[" * 100000), (create, b'{"runtime":' * 50), (create, b'{"runtime":"sh","runtime":"sh"}'),
        (create, b'{"runtime":"sh","metadata":{"a":"1","\\u0061":"2"}}'), (create, b'{"runtime":"s\xff"}'),
        (create, b'{"runtime":"sh\\u0000"}'), (create, b'\xef\xbb\xbf{"runtime":"sh"}'), (create, b'{"runtime":"\\ud800"}'),
        (create, b'{"runtime":"sh","lifetimeMs":1e400}'), (create, b'{"runtime":"sh","lifetimeMs":18446744073709551617}'),
        (create, b'{"runtime":"sh","resources":{"memoryBytes":9223372036854775808}}'),
        (create, b'{"runtime":"sh","resources":{"pids":0}}'), (create, b'{"runtime":"sh","resources":{"pids":null}}'),
        (create, b'{"runtime":"sh","owner":"root"}'), (create, b'{"runtime":"sh","isolation":"none"}'),
        (create, b'{"runtime":"sh"}x'), (create, b""), (create, b"[]"), (create, b"null"),
        (execute, b"{}"), (execute, b'{"code":""}'), (execute, b'{"command":[]}'), (execute, b'{"command":[""]}'),
        (execute, b'{"command":7}'), (execute, b'{"command":[1]}'), (execute, b'{"code":"1","command":["ls"]}'),
        (execute, b'{"command":["ls"],"timeoutMs":0}'), (execute, b'{"command":["ls"],"tty":1}'), (execute, b'{"command":["ls"],"rows":5}'), (execute, b'{"tty":true,"stdin":"x"}'),
        (execute, b'{"command":["ls"],"env":{"A B":"1"}}'), (execute, b'{"command":["l\\u0000s"]}'),
        (execute, json.dumps({"command": ["x" * 40000]}).encode()),
        (execute, json.dumps({"command": ["echo"] + ["x" * 1000] * 100}).encode()),
        (execute, json.dumps({"command": ["x"] * 2000}).encode()),
        (execute, json.dumps({"command": ["ls"], "env": {f"V{i}": "" for i in range(300)}}).encode()),
    ]
    for path, body in cases:
        a = s.call("POST", path, body)
        assert a.status == 400 and a.code == "invalid_request", (body[:80], a.status, a.body[:200])
    a = s.call("POST", create, {"runtime": "sh", "resources": {"memory": 1}})
    assert "did you mean memoryBytes?" in a.json["error"]["message"], a.body
    assert s.call("POST", create, b'{"runtime":"sh"}', {"Content-Type": "text/plain"}).status == 415
    assert s.call("POST", create, b"x" * (300 * 1024)).status == 413
    s.delete(sb)


@case
def JS10_malformed_ids_are_not_found(s):
    sb = s.create({"runtime": "sh"})
    ex = s.execute(sb, {"command": ["true"]}).json["id"]
    bad = ["x", "sb" + "a" * 20, "%27%20OR%201%3D1", "sb" + "A" * 20, ex, "sb%2e%2e%2fetc", "a" * 2000, "*"]
    for one in bad:
        for path in ("", "/usage", "/events", "/executions", "/files?path=/workspace/x", f"/executions/{ex}"):
            a = s.call("GET", f"/v1/sandboxes/{one}{path}")
            assert a.status == 404, (one, path, a.status, a.body)
        assert s.call("DELETE", f"/v1/sandboxes/{one}").status == 404
        assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{one if one != ex else sb}").status == 404
    s.delete(sb)


# --- files ---

@case
def files_are_written_read_in_ranges_moved_and_removed(s):
    sb = s.create({"runtime": "sh"})
    data = os.urandom(300000)
    a = s.files(sb, "PUT", body=data, path="/workspace/d/f.bin", parents="false")
    assert a.status == 404, a.body
    a = s.files(sb, "PUT", body=data, path="/workspace/d/f.bin", mode="0600")
    assert a.status == 200 and a.json == {"path": "/workspace/d/f.bin", "sizeBytes": len(data)}, a.body
    got = s.files(sb, path="/workspace/d/f.bin")
    assert got.body == data and got.headers["Content-Length"] == str(len(data))
    assert got.headers["X-Content-Type-Options"] == "nosniff" and "attachment" in got.headers["Content-Disposition"]
    tag = got.headers["ETag"]
    part = s.files(sb, headers={"Range": "bytes=100-199"}, path="/workspace/d/f.bin")
    assert part.status == 206 and part.body == data[100:200] and part.headers["Content-Range"].endswith(f"/{len(data)}")
    assert s.files(sb, headers={"Range": "bytes=-5"}, path="/workspace/d/f.bin").body == data[-5:]
    assert s.files(sb, headers={"Range": "bytes=999999-"}, path="/workspace/d/f.bin").status == 416
    assert s.files(sb, headers={"If-None-Match": tag}, path="/workspace/d/f.bin").status == 304
    assert s.files(sb, "PUT", body=b"", path="/workspace/empty").json["sizeBytes"] == 0
    assert s.files(sb, path="/workspace/empty").body == b""
    assert s.files(sb, "PUT", body=b"x", headers={"If-None-Match": "*"}, path="/workspace/empty").code == "precondition_failed"
    assert s.files(sb, "PUT", body=b"x", headers={"If-None-Match": "*"}, path="/workspace/empty").status == 412
    st = s.files(sb, verb="/stat", path="/workspace/d/f.bin").json
    assert (st["kind"], st["mode"], st["sizeBytes"]) == ("file", "0600", len(data)), st
    assert s.files(sb, "POST", "/mkdir", {"path": "/workspace/a/b", "parents": False}).status == 404
    assert s.files(sb, "POST", "/mkdir", {"path": "/workspace/a/b"}).status == 204
    assert s.files(sb, "POST", "/move", {"from": "/workspace/d/f.bin", "to": "/workspace/a/b/g"}).status == 204
    assert s.files(sb, path="/workspace/d/f.bin").status == 404
    names = [e["name"] for e in s.files(sb, verb="/list", path="/workspace").json["items"]]
    assert names == ["a", "d", "empty"], names
    pages, more = [], {}
    while more is not None:
        page = s.files(sb, verb="/list", path="/workspace", limit=2, **more).json
        pages.append([e["name"] for e in page["items"]])
        more = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
    assert pages == [["a", "d"], ["empty"]], pages
    assert s.files(sb, verb="/list", path="/workspace", cursor="ZW1wdHk").json["items"] == []
    assert s.files(sb, verb="/list", path="/workspace", cursor="!").status == 400
    assert s.files(sb, "DELETE", path="/workspace/a").status >= 400
    assert s.files(sb, "DELETE", path="/workspace/a", recursive="true").status == 204
    assert s.files(sb, verb="/stat", path="/workspace/a").status == 404
    s.delete(sb)
    assert s.files(sb, path="/workspace/empty").status == 410


@case
def a_relative_path_starts_at_workspace(s):
    sb = s.create({"runtime": "sh"})
    a = s.files(sb, "PUT", body=b"text", path="d/f")
    assert a.status == 200 and a.json == {"path": "/workspace/d/f", "sizeBytes": 4}, a.body
    assert s.files(sb, path="d/f").body == s.files(sb, path="/workspace/d/f").body == b"text"
    assert s.files(sb, verb="/stat", path="d/f").json["sizeBytes"] == 4
    assert [e["name"] for e in s.files(sb, verb="/list", path="d").json["items"]] == ["f"]
    assert s.files(sb, "POST", "/mkdir", {"path": "e"}).status == 204
    assert s.files(sb, verb="/stat", path="/workspace/e").json["kind"] == "directory"
    assert s.files(sb, "POST", "/move", {"from": "d/f", "to": "e/g"}).status == 204
    assert s.files(sb, path="/workspace/e/g").body == b"text"
    with tarfile.open(fileobj=io.BytesIO(s.files(sb, verb="/tar", path="e").body)) as t:
        assert [m.name.split("/")[-1] for m in t.getmembers() if m.isfile()] == ["g"]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        info = tarfile.TarInfo("one")
        info.size = 1
        t.addfile(info, io.BytesIO(b"1"))
    a = s.files(sb, "PUT", "/tar", out.getvalue(), {"Content-Type": "application/x-tar"}, path="d")
    assert a.status == 200 and s.files(sb, path="/workspace/d/one").body == b"1", a.body
    w = Watch(s, sb, "d", told="/workspace/d")
    assert s.files(sb, "DELETE", path="d/one").status == 204
    w.until("removed", "/workspace/d/one")
    w.close()
    assert s.files(sb, "DELETE", path="e", recursive="true").status == 204
    assert s.files(sb, verb="/stat", path="/workspace/e").status == 404
    a = s.files(sb, path="x/" * 1996)  # 4003 bytes with /workspace/
    assert a.status == 400 and "longer than 4000 bytes" in a.json["error"]["message"], a.body
    for verb, body, name in (("/mkdir", {"path": ""}, "path"), ("/move", {"from": "", "to": "f"}, "from"), ("/move", {"from": "f", "to": ""}, "to")):
        a = s.files(sb, "POST", verb, body)
        assert a.status == 400 and a.json["error"]["message"].startswith(name + ": "), a.body
    s.delete(sb)


@case
def trees_are_transferred_as_archives(s):
    sb = s.create({"runtime": "sh"})
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, text in (("x/one", b"1"), ("x/y/two", b"22")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            t.addfile(info, io.BytesIO(text))
    a = s.files(sb, "PUT", "/tar", out.getvalue(), {"Content-Type": "application/x-tar"}, path="/workspace")
    assert a.status == 200 and a.json["sizeBytes"] == 3, a.body
    assert s.execute(sb, {"command": ["cat", "x/one", "x/y/two"]}).json["stdout"] == "122"
    b = s.files(sb, verb="/tar", path="/workspace/x")
    assert b.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(b.body)) as t:
        assert sorted(m.name.split("/")[-1] for m in t.getmembers() if m.isfile()) == ["one", "two"]
    s.delete(sb)


@case
def FA01_FA04_paths_and_archives_cannot_leave_the_sandbox(s):
    sb = s.create({"runtime": "sh"})
    assert s.files(sb, path="").status == 400 and s.files(sb).status == 400
    # A relative path is only a short form of an absolute one, so it reaches nothing else.
    for path in ("etc/passwd", "../x", "workspace/f", "../../etc/shadow", ".."):
        a, b = s.files(sb, path=path), s.files(sb, path="/workspace/" + path)
        assert a.status >= 400 and (a.status, a.json["error"]["message"]) == (b.status, b.json["error"]["message"]), (path, a.body, b.body)
    shadow = s.files(sb, path="/workspace/../../etc/shadow")
    assert shadow.status in (400, 403, 404), shadow.status
    s.execute(sb, {"command": ["sh", "-c", "ln -s /etc/hostname l; ln -s loop loop; ln -s /nowhere d"]})
    with open("/etc/hostname", "rb") as f:
        hostname = f.read()
    for name in ("l", "loop", "d"):
        a = s.files(sb, path=f"/workspace/{name}")
        assert a.status >= 400 or hostname not in a.body, (name, a.status)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        info = tarfile.TarInfo("../../tmp/slipped")
        info.size = 1
        t.addfile(info, io.BytesIO(b"x"))
    a = s.files(sb, "PUT", "/tar", out.getvalue(), {"Content-Type": "application/x-tar"}, path="/workspace")
    assert a.status >= 400, a.body
    assert s.files(sb, verb="/stat", path="/tmp/slipped").status == 404 and not os.path.exists("/tmp/slipped")
    s.delete(sb)


@case
def FA06_FA10_a_write_beyond_the_quota_keeps_the_old_file(s):
    sb = s.create({"runtime": "sh", "resources": {"storageBytes": 1 << 20}})
    assert s.files(sb, "PUT", body=b"old", path="/workspace/f").status == 200
    a = s.files(sb, "PUT", body=b"x" * (4 << 20), path="/workspace/f")
    assert a.status == 507 and a.code == "sandbox_full", (a.status, a.body)
    assert s.files(sb, path="/workspace/f").body == b"old"
    s.delete(sb)


@case
def FA07_an_interrupted_upload_changes_nothing(s):
    sb = s.create({"runtime": "sh"})
    assert s.files(sb, "PUT", body=b"old", path="/workspace/f").status == 200
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall((f"PUT /v1/sandboxes/{sb}/files?path=/workspace/f HTTP/1.1\r\nHost: localhost\r\n"
                   f"Authorization: Bearer {s.key}\r\nContent-Length: 1000000\r\n\r\n").encode() + b"n" * 5000)
        time.sleep(0.1)
    until(lambda: [e["name"] for e in s.files(sb, verb="/list", path="/workspace").json["items"]] == ["f"], "the interrupted upload left a file")
    assert s.files(sb, path="/workspace/f").body == b"old"
    s.delete(sb)


@case
def FA08_FA09_special_files_do_not_hang_and_unusual_names_survive(s):
    sb = s.create({"runtime": "python"})
    s.execute(sb, {"code": "import os\nos.mkfifo('p')\nopen(b'\\xff\\n','w').close()\nos.truncate(os.open('s',65),1<<30)"})
    for odd in ("/workspace/p", "/workspace"):
        a = s.files(sb, path=odd)
        assert a.status == 409 and a.code == "wrong_file_kind", (odd, a.body)
    entries = s.files(sb, verb="/list", path="/workspace").json["items"]
    odd = [e for e in entries if "nameBase64" in e]
    assert len(odd) == 1 and base64.b64decode(odd[0]["nameBase64"]) == b"\xff\n", entries
    assert s.files(sb, headers={"Range": "bytes=1073741820-"}, path="/workspace/s").body == b"\0" * 4
    s.delete(sb)


class Watch:
    """GET .../files/watch, read line by line, after its `watching` event."""

    def __init__(self, s, sandbox, path="/workspace", told=None, **query):
        query = urllib.parse.urlencode(dict(path=path, **query))
        self.connection, self.response = s.open("GET", f"/v1/sandboxes/{sandbox}/files/watch?{query}")
        assert self.response.status == 200, self.response.read()
        first = self.next()
        assert first["type"] == "watching" and first["path"] == (told or path), first

    def next(self):
        while True:
            event = json.loads(self.response.readline())
            assert not conforms(event, COMPONENTS["schemas"]["FileEvent"], "watch"), event
            if event["type"] != "heartbeat":
                return event

    def until(self, kind, path):
        """All events up to and including that one."""
        seen = []
        while not seen or (seen[-1]["type"], seen[-1].get("path")) != (kind, path):
            seen.append(self.next())
        return seen

    def close(self):
        self.response.close()
        self.connection.close()


@case
def a_watch_reports_changes_of_files_in_order(s):
    sb = s.create({"runtime": "sh"})
    w = Watch(s, sb)
    s.execute(sb, {"command": ["sh", "-c", "mkdir d; echo 1 >f; mv f g; echo 2 >d/hidden; chmod 600 g; rm g; >last"]})
    seen = [(e["type"], e.get("from"), e["path"], e["directory"]) for e in w.until("created", "/workspace/last")]
    assert seen == [("created", None, "/workspace/d", True), ("created", None, "/workspace/f", False),
                    ("modified", None, "/workspace/f", False), ("moved", "/workspace/f", "/workspace/g", False),
                    ("modified", None, "/workspace/g", False), ("removed", None, "/workspace/g", False),
                    ("created", None, "/workspace/last", False)], seen
    w.close()
    # A single name in its directory, and the file that replaces it; as server-sent events.
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/files/watch?path=/workspace/last", headers={"Accept": "text/event-stream"})
    assert r.headers["Content-Type"] == "text/event-stream" and r.readline() == b"event: watching\n"
    assert json.loads(r.readline()[6:])["directory"] is False and r.readline() == b"\n"
    s.execute(sb, {"command": ["sh", "-c", "echo 3 >other; mv other last"]})
    assert r.readline() == b"event: moved\n"
    assert json.loads(r.readline()[6:])["from"] == "/workspace/other"
    r.close(), c.close()
    s.delete(sb)


@case
def a_recursive_watch_misses_nothing_in_directories_that_are_created_later(s):
    sb = s.create({"runtime": "sh"})
    w = Watch(s, sb, recursive="true")
    script = "for i in 1 2 3 4 5 6 7 8; do mkdir -p t$i/a/b; echo x >t$i/a/b/f; done; >all"
    assert s.execute(sb, {"command": ["sh", "-c", script]}).json["exitCode"] == 0
    made = [e["path"] for e in w.until("created", "/workspace/all") if e["type"] == "created"]
    for i in range(1, 9):
        for name in ("", "/a", "/a/b", "/a/b/f"):
            assert made.count(f"/workspace/t{i}{name}") == 1, (i, name, made)
    # A directory that is moved before it was scanned is reported at its new path, so it is scanned
    # here first.
    script = "ln -s /usr t1/link; rm -r t2; mv t3 t1/a/; >t1/a/t3/a/z; >last"
    assert s.execute(sb, {"command": ["sh", "-c", script]}).json["exitCode"] == 0
    seen = w.until("created", "/workspace/last")
    made = [e["path"] for e in seen if e["type"] == "created"]
    assert not [p for p in made if p.startswith("/workspace/t1/link/")]
    assert [(e["from"], e["path"]) for e in seen if e["type"] == "moved"] == [("/workspace/t3", "/workspace/t1/a/t3")]
    assert "/workspace/t1/a/t3/a/z" in made, made
    assert "/workspace/t2" in [e["path"] for e in seen if e["type"] == "removed"]
    w.close()
    s.delete(sb)


@case
def a_bad_watch_is_refused_and_a_watch_ends_with_its_path(s):
    sb = s.create({"runtime": "sh"})
    assert s.files(sb, verb="/watch", path="/workspace/none").status == 404
    assert s.files(sb, verb="/watch", path="workspace").status == 404
    assert s.files(sb, verb="/watch", path="/workspace", recursive="maybe").status == 400
    assert s.files(sb, "POST", "/mkdir", {"path": "/workspace/d"}).status == 204
    w = Watch(s, sb, "/workspace/d")
    assert s.files(sb, "DELETE", path="/workspace/d").status == 204
    assert (w.next()["type"], w.next()) == ("removed", {"type": "end"}) and w.response.read() == b""
    w.close()
    many = [Watch(s, sb) for _ in range(16)]
    refused = s.files(sb, verb="/watch", path="/workspace")
    assert refused.status == 409 and refused.code == "limit_reached", refused.body
    assert refused.headers.get("Retry-After") is None, refused.headers
    many.pop().close()
    end = time.monotonic() + 60
    while True:  # the client's slot is free as soon as the server notices
        c, r = s.open("GET", f"/v1/sandboxes/{sb}/files/watch?path=/workspace")
        if r.status == 200:
            break
        assert time.monotonic() < end
        c.close()
    s.delete(sb)
    event = json.loads(r.readline())
    event = json.loads(r.readline()) if event["type"] == "watching" else event
    assert event["type"] == "end" and event["error"]["code"] == "sandbox_ended", event
    r.close(), c.close()
    for w in many:
        assert w.next()["type"] == "end"
        w.close()


@case
def a_flood_of_file_events_costs_bounded_memory_and_is_reported_as_an_overflow(s):
    def resident():
        with open(f"/proc/{s.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * 4096
    sb = s.create({"runtime": "python"})
    w = Watch(s, sb)
    before = resident()
    flood = "import os\nfor i in range(60000):\n  n = 'n%d' % i + 'x' * 200\n  open(n, 'w').close()\n  os.unlink(n)"
    assert s.execute(sb, {"code": flood, "timeoutMs": 120000}, timeout=150).json["exitCode"] == 0
    with open(TESTD, "rb") as f:
        sanitized = b"__asan_init" in f.read()  # memory that a sanitized server has freed still counts as its own
    assert sanitized or resident() - before < 16 << 20, resident() - before
    while w.next()["type"] != "overflow":
        pass
    s.execute(sb, {"command": ["touch", "after"]})
    w.until("created", "/workspace/after")
    w.close()
    s.delete(sb)


# --- events, keys and access ---

class Feed:
    """A stream of /v1/events, as NDJSON."""

    def __init__(self, s, query="", key=True, timeout=60):
        self.connection, self.response = s.open("GET", "/v1/events" + query, None, {"Accept": "application/x-ndjson"},
                                                key=key, timeout=timeout)
        assert self.response.status == 200, self.response.read()
        self.ready = self.line()
        assert self.ready["type"] == "ready", self.ready

    def line(self):
        line = json.loads(self.response.readline())
        wrong = conforms(line, {"$ref": "#/components/schemas/EventLine"}, "event") if PATHS else []
        assert not wrong, wrong
        return line

    def next(self):
        while True:
            line = self.line()
            if line["type"] != "heartbeat":
                return line

    def until(self, kind, sandbox):
        """All events up to and including this one."""
        seen = [self.next()]
        while (seen[-1].get("kind"), seen[-1].get("sandboxId")) != (kind, sandbox):
            seen.append(self.next())
        return seen

    def close(self):
        self.connection.close()


def stranger(s, *scopes):
    """A key of another tenant."""
    s.call("POST", "/v1/tenants", {"name": "strangers"})
    return s.call("POST", "/v1/keys", {"name": "t", "scopes": list(scopes), "tenant": "strangers"}).json


@case
def events_of_all_sandboxes_arrive_as_they_happen_and_resume_without_a_gap(s):
    feed = Feed(s)
    sb = s.create({"runtime": "sh"})
    assert feed.next()["kind"] == "sandbox_created"
    ex = s.execute(sb, {"command": ["true"]}).json["id"]
    other = s.create({"runtime": "sh"})
    s.delete(sb)
    seen = feed.until("sandbox_ended", sb)
    assert {"execution_started", "execution_ended", "sandbox_created"} <= {e["kind"] for e in seen}, seen
    assert [e["seq"] for e in seen] == sorted({e["seq"] for e in seen})
    assert all(e["tenant"] == "local" for e in seen)
    assert {e["executionId"] for e in seen if "executionId" in e} == {ex}
    middle = seen[1]["seq"]
    again = Feed(s, f"?after={middle}")
    assert again.until("sandbox_ended", sb) == [e for e in seen if e["seq"] > middle]
    again.close()
    everything, cursor = [], f"after={feed.ready['after']}"
    while cursor:
        page = s.call("GET", f"/v1/events?limit=2&{cursor}").json
        everything += page["items"]
        cursor = "cursor=" + page["nextCursor"] if "nextCursor" in page else None
    told = {e["seq"] for e in everything}
    assert {e["seq"] for e in seen} <= told and len(told) == len(everything)
    only = Feed(s, f"?after={feed.ready['after']}&sandbox={other}&kind=sandbox_created,sandbox_ended")
    assert only.next()["sandboxId"] == other
    s.delete(other)
    assert only.next()["kind"] == "sandbox_ended"
    only.close()
    feed.close()


@case
def server_sent_events_of_all_sandboxes_resume_by_their_id(s):
    c, r = s.open("GET", "/v1/events", None, {"Accept": "text/event-stream"})
    assert r.headers["Content-Type"].startswith("text/event-stream")
    assert r.readline().startswith(b"id: ")
    sb = s.create({"runtime": "sh"})
    text = b""
    while b"event: sandbox_created" not in text or not text.endswith(b"\n\n"):
        text += r.readline()
    last = re.findall(rb"^id: (\d+)$", text, re.M)[-1].decode()
    c.close()
    s.delete(sb)
    c, r = s.open("GET", "/v1/events?after=0", None, {"Accept": "text/event-stream", "Last-Event-ID": last})
    text = b""
    while b"event: sandbox_ended" not in text or not text.endswith(b"\n\n"):
        text += r.readline()
    c.close()
    assert b"sandbox_created" not in text, text
    data = [json.loads(x) for x in re.findall(rb"^data: (.*)$", text, re.M)]
    assert data[0] == {"type": "ready", "after": int(last)}, data
    assert data[-1]["sandboxId"] == sb


@case
def events_resume_after_the_server_was_killed(s):
    feed = Feed(s)
    sb = s.create({"runtime": "sh"})
    created = feed.until("sandbox_created", sb)[-1]
    s.kill()
    s.start()
    feed.close()
    s.delete(sb)
    feed = Feed(s, f"?after={created['seq']}")
    assert feed.ready["after"] == created["seq"]
    seen = feed.until("sandbox_ended", sb)
    assert len({e["seq"] for e in seen}) == len(seen) and min(e["seq"] for e in seen) > created["seq"]
    feed.close()


@case
def deleted_events_are_reported_as_a_gap(s):
    sb = s.create({"runtime": "sh"})
    s.delete(sb)
    first = s.call("GET", "/v1/events?limit=1").json["items"][0]["seq"]
    s.call("POST", "/v1/maintenance/gc", {})
    feed = Feed(s, f"?after={first}")
    gap = feed.next()
    assert gap["type"] == "gap" and gap["next"] > first, gap
    feed.close()
    last = feed.ready["after"]
    feed = Feed(s, f"?after={2 ** 62}")
    assert feed.next()["type"] == "gap"
    assert feed.ready["after"] >= last
    feed.close()
    feed = Feed(s, "?after=0")
    sb = s.create({"runtime": "sh"})
    assert feed.next()["kind"] == "sandbox_created"
    feed.close()
    s.delete(sb)


@case
def AU03_events_of_another_tenant_are_never_seen(s):
    key = stranger(s, "sandboxes:read", "sandboxes:write")
    feed = Feed(s, key=key["key"])
    everything = Feed(s)
    mine = s.create({"runtime": "sh"})
    theirs = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key["key"])
    assert theirs.status == 201, theirs.body
    s.delete(mine)
    s.call("DELETE", f"/v1/sandboxes/{theirs.json['id']}", key=key["key"])
    seen = feed.until("sandbox_ended", theirs.json["id"])
    assert {e["sandboxId"] for e in seen} == {theirs.json["id"]}, seen
    assert {e["tenant"] for e in everything.until("sandbox_ended", theirs.json["id"])} == {"local", "strangers"}
    page = s.call("GET", "/v1/events", key=key["key"]).json["items"]
    assert {e["sandboxId"] for e in page} == {theirs.json["id"]}
    assert s.call("GET", f"/v1/events?sandbox={mine}", key=key["key"]).status == 404
    assert s.call("GET", f"/v1/events?sandbox={mine}", None, {"Accept": "text/event-stream"}, key=key["key"]).status == 404
    feed.close()
    everything.close()
    s.call("DELETE", f"/v1/keys/{key['id']}")


@case
def a_revoked_key_ends_its_open_streams(s):
    key = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["sandboxes:read", "executions", "files"]}).json
    sb = s.create({"runtime": "sh"})
    feed = Feed(s, key=key["key"])
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/files/watch?path=/workspace", None, {"Accept": "application/x-ndjson"},
                  key=key["key"])
    assert json.loads(r.readline())["type"] == "watching"
    d, q = s.open("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["sleep", "300"]},
                  {"Accept": "application/x-ndjson"}, key=key["key"])
    assert json.loads(q.readline())["type"] == "started"
    assert s.call("DELETE", f"/v1/keys/{key['id']}").status == 204
    end = feed.next()
    while end["type"] == "event":
        end = feed.next()
    assert end["type"] == "end" and end["error"]["code"] == "unauthorized", end
    assert feed.response.read() == b""
    end = json.loads(r.read().splitlines()[-1])
    assert end["type"] == "end" and end["error"]["code"] == "unauthorized", end
    try:
        rest = q.read()
        raise AssertionError(f"the stream ended as if it were complete: {rest}")
    except http.client.IncompleteRead as cut:
        assert b'"end"' not in cut.partial
    c.close()
    d.close()
    feed.close()
    s.delete(sb)


class Slow:
    """A client that reads as little as it can, so that most of an answer waits in the server."""

    def __init__(self, s, head, key):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", s.port))
        self.socket.sendall(f"{head}\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n".encode())

    def rest(self):
        """All bytes until the server closes the connection, which may be a reset."""
        data = b""
        try:
            while piece := self.socket.recv(65536):
                data += piece
        except ConnectionResetError:
            pass
        self.socket.close()
        return data


@case
def AU12_a_revoked_key_stops_its_uploads_and_downloads(s):
    sb = s.create({"runtime": "sh"})
    s.files(sb, "PUT", "", b"old", path="/workspace/kept")
    assert s.execute(sb, {"command": ["sh", "-c", "head -c 48000000 /dev/zero >/workspace/large"]}).json["exitCode"] == 0
    for how in ("revoke", "rotate"):
        key = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["files"]}).json
        base = f"/v1/sandboxes/{sb}/files"
        up = Slow(s, f"PUT {base}?path=/workspace/kept HTTP/1.1", key["key"])
        up.socket.sendall(b"Content-Length: 1000000\r\n\r\n" + b"n" * 1000)
        tar = Slow(s, f"PUT {base}/tar?path=/workspace HTTP/1.1", key["key"])
        tar.socket.sendall(b"Transfer-Encoding: chunked\r\nContent-Type: application/x-tar\r\n\r\n")
        down = Slow(s, f"GET {base}?path=/workspace/large HTTP/1.1", key["key"])
        down.socket.sendall(b"\r\n")
        archive = Slow(s, f"GET {base}/tar?path=/workspace HTTP/1.1", key["key"])
        archive.socket.sendall(b"\r\n")
        first = [c.socket.recv(16) for c in (down, archive)]  # both answers have begun
        assert all(f.startswith(b"HTTP/1.1 200") for f in first), first
        end = time.monotonic() + 60
        while int(re.search(r"^cove_api_requests_active (\d+)$", s.call("GET", "/metrics").body.decode(), re.M)[1]) < 5:
            assert time.monotonic() < end  # all four requests, and this one
            time.sleep(0.02)
        if how == "revoke":
            assert s.call("DELETE", f"/v1/keys/{key['id']}").status == 204
        else:
            assert s.call("POST", f"/v1/keys/{key['id']}/rotate").status == 200
        for c in (up, tar):
            told = c.rest()
            assert told.startswith(b"HTTP/1.1 401") and b'"unauthorized"' in told, told
        assert len(down.rest()) < 48000000
        assert not archive.rest().endswith(b"0\r\n\r\n"), "the archive ended as if it were complete"
        assert s.files(sb, path="/workspace/kept").body == b"old"
    s.delete(sb)


@case
def AU12_a_revoked_key_stops_its_backup(s):
    def change(*statements):  # only one process may open the database, so the server is stopped first
        s.kill()
        db = sqlite3.connect(os.path.join(s.dir, "db/cove.db"))
        for statement in statements:
            db.execute(statement)
            db.commit()
        db.close()
        s.start()

    change("CREATE TABLE filler (x)", "INSERT INTO filler VALUES (zeroblob(32000000))")
    try:
        key = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["admin"]}).json
        copy = Slow(s, "GET /v1/maintenance/backup HTTP/1.1", key["key"])
        copy.socket.sendall(b"\r\n")
        assert copy.socket.recv(12) == b"HTTP/1.1 200"
        assert s.call("DELETE", f"/v1/keys/{key['id']}").status == 204
        rest = copy.rest()
        assert b"Content-Length: " in rest and len(rest) < 32000000, len(rest)
        whole = s.call("GET", "/v1/maintenance/backup", timeout=120)
        assert whole.status == 200 and len(whole.body) > 32000000
    finally:
        change("DROP TABLE filler", "VACUUM")


@case
def a_key_that_expires_ends_its_stream_at_that_moment(s):
    for seconds in (2, 15, 60):  # on a slow machine it may expire before the stream is open
        at = time.time() + seconds
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".%03dZ" % int(at % 1 * 1000)
        key = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["sandboxes:read"], "expiresAt": text})
        if key.status != 201 or s.call("GET", "/v1/sandboxes", key=key.json["key"]).status != 200:
            continue
        try:
            feed = Feed(s, key=key.json["key"], timeout=120)
            break
        except AssertionError:
            assert seconds < 60
    end = feed.next()
    while end["type"] == "event":
        end = feed.next()
    assert end["type"] == "end" and end["error"]["code"] == "unauthorized", end
    assert time.time() >= at - 0.1
    feed.close()


@case
def a_client_that_does_not_read_costs_bounded_memory_and_misses_no_event(s):
    def resident():
        with open(f"/proc/{s.process.pid}/statm", encoding="utf-8") as f:
            return int(f.read().split()[1]) * 4096

    key = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["sandboxes:read", "sandboxes:write", "executions"]}).json
    head = f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n" \
           f"Authorization: Bearer {key['key']}\r\n\r\n"
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", s.port))
    slow.sendall(head.encode())
    feed = Feed(s)
    sb = s.create({"runtime": "sh"})
    feed.until("sandbox_created", sb)
    before = resident()
    for _ in range(1200):
        s.call("POST", f"/v1/sandboxes/{sb}/pause")
        s.call("POST", f"/v1/sandboxes/{sb}/resume")
    s.delete(sb)
    seen = feed.until("sandbox_ended", sb)
    assert len(seen) >= 2400
    assert resident() - before < 16 << 20 or ws_test.SLACK, resident() - before
    slow.settimeout(120)
    text = b""
    while b"sandbox_ended" not in text:
        piece = slow.recv(65536)
        assert piece, text[-500:]
        text += piece
    numbers = [int(n) for n in re.findall(rb'"seq":(\d+)', text)]
    assert numbers == sorted(set(numbers))
    assert {e["seq"] for e in seen} <= set(numbers)
    slow.close()
    feed.close()
    s.call("DELETE", f"/v1/keys/{key['id']}")


@case
def event_streams_refuse_invalid_parameters(s):
    for query, code in (("after=x", 400), ("after=-1", 400), ("after=99999999999999999999", 400), ("kind=", 400), ("kind=A", 400),
                        ("kind=a,,b", 400), ("kind=" + ",".join(["a"] * 17), 400), ("sandbox=x", 404), ("nothing=1", 400)):
        a = s.call("GET", f"/v1/events?{query}")
        assert a.status == code, (query, a.status, a.body)
    stream = {"Accept": "text/event-stream"}
    assert s.call("GET", "/v1/events?limit=3", None, stream).status == 400
    assert s.call("GET", "/v1/events", None, dict(stream, **{"Last-Event-ID": "1-1"})).status == 400
    assert s.call("GET", "/v1/events", key="cove_" + "0" * 40).status == 401
    c, r = s.open("HEAD", "/v1/events", None, stream)
    assert r.status == 200 and r.read() == b""
    c.close()


@case
def keys_are_limited_to_their_scopes_and_objects_of_other_tenants_are_hidden(s):
    def make(*scopes):
        a = s.call("POST", "/v1/keys", {"name": "t", "scopes": list(scopes)})
        assert a.status == 201 and a.json["key"].startswith("cove_"), a.body
        return a.json
    reader, runner = make("sandboxes:read"), make("sandboxes:read", "sandboxes:write", "executions", "files")
    assert s.call("GET", "/v1/sandboxes", key=False).status == 401
    assert s.call("GET", "/v1/sandboxes", key="cove_" + "0" * 40).status == 401
    denied = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=reader["key"])
    assert denied.status == 403 and "sandboxes:write" in denied.json["error"]["message"], denied.body
    for path in ("/v1/keys", "/metrics"):
        assert s.call("GET", path, key=runner["key"]).status == 403
    shown = s.call("GET", f"/v1/keys/{runner['id']}")
    assert shown.status == 200 and runner["key"].encode() not in shown.body
    rotated = s.call("POST", f"/v1/keys/{runner['id']}/rotate").json
    assert s.call("GET", "/v1/sandboxes", key=runner["key"]).status == 401
    assert s.call("GET", "/v1/sandboxes", key=rotated["key"]).status == 200
    assert s.call("DELETE", f"/v1/keys/{runner['id']}").status == 204
    assert s.call("GET", "/v1/sandboxes", key=rotated["key"]).status == 401
    for body in ({}, {"name": "x", "scopes": []}, {"name": "x", "scopes": ["root"]}, {"name": "", "scopes": ["files"]},
                 {"name": "x", "scopes": ["files"], "expiresAt": "2001-01-01T00:00:00Z"},
                 {"name": "x", "scopes": ["files"], "expiresAt": "tomorrow"}):
        assert s.call("POST", "/v1/keys", body).status == 400, body
    assert s.call("GET", "/v1/keys?limit=1").json["nextCursor"]


@case
def the_server_reports_its_capabilities_and_its_state(s):
    names = [r["name"] for r in s.call("GET", "/v1/runtimes").json["items"]]
    assert names == ["python", "node", "bash", "sh"]
    assert s.call("GET", "/v1/runtimes/sh").json["available"] is True
    assert s.call("GET", "/v1/runtimes/perl").status == 404
    told = s.call("GET", "/v1/capabilities").json
    assert told["limits"]["memoryBytes"]["default"] == 512 << 20
    drivers = {d["name"]: d for d in told["drivers"]}
    assert list(drivers) == ["native", "bwrap"] and all(d["allowed"] and d["summary"] for d in told["drivers"]), told
    assert drivers["native"]["available"] is True and drivers["native"]["default"] is True, told
    assert drivers["bwrap"]["default"] is False, told
    assert drivers["bwrap"]["available"] or (drivers["bwrap"]["reason"] and drivers["bwrap"]["fix"]), told
    assert s.call("GET", "/health", key=False).json["status"] == "ok"
    entrance = s.call("GET", "/", key=False)
    assert entrance.json["name"] == "cove" and entrance.json["version"], entrance.body
    for path in entrance.json["links"].values():  # every link can be followed
        assert s.call("GET", path).status == 200, path
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../api/openapi.yaml"), "rb") as f:
        assert s.call("GET", "/v1/openapi.yaml", key=False).body == f.read()
    assert s.call("GET", "/?x=1", key=False).status == 400
    assert s.call("GET", "/ready", key=False).json["status"] == "ready"
    text = s.call("GET", "/metrics").body.decode()
    for family in ("cove_sandboxes_created_total", "cove_executions_ended_total", "cove_api_requests_total"):
        assert f"# TYPE {family} " in text, family
    assert re.search(r'cove_api_requests_total\{method="POST",route="/v1/sandboxes",status="2xx"\} [1-9]', text)


@case
def metrics_count_usage_and_limit_hits_of_executions(s):
    def figures():
        lines = s.call("GET", "/metrics").body.decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}
    sb = s.create({"runtime": "sh"})
    before = figures()
    a = s.execute(sb, {"command": ["sh", "-c", "head -c 80000000 /dev/zero >/dev/shm/a; sleep 0.2"]})
    assert a.json["exitCode"] == 0, a.body
    after = figures()
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    assert grown["cove_execution_seconds_count"] == 1 and grown["cove_execution_seconds_sum"] >= 0.2, grown
    assert 0 < grown["cove_execution_cpu_seconds_total"] and "cove_refused_calls_total" in after
    assert {name for name, value in grown.items() if name.startswith("cove_limits_met") and value} == {
        'cove_limits_met_total{limit="shmBytes"}'}
    s.delete(sb)


@case
def garbage_collection_removes_old_rows_and_reports_them(s):
    sb = s.create({"runtime": "sh"})
    ex = s.execute(sb, {"command": ["echo", "old"]}).json["id"]
    live = s.create({"runtime": "sh"})
    s.delete(sb)
    stray = os.path.join(s.dir, "output", "ex" + "a" * 20 + ".1")
    with open(stray, "w", encoding="ascii") as f:
        f.write("12345")
    assert s.call("POST", "/v1/maintenance/gc", {"dryrun": True}).status == 400
    dry = s.call("POST", "/v1/maintenance/gc", {"dryRun": True}).json
    assert dry["dryRun"] and dry["executions"] >= 1 and dry["outputBytes"] >= 4 and dry["sandboxes"] >= 1, dry
    assert (dry["strayFiles"], dry["strayBytes"]) == (1, 5) and os.path.exists(stray), dry
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{ex}").json["stdout"] == "old\n"  # a dry run removes nothing
    done = s.call("POST", "/v1/maintenance/gc").json
    assert {k: v for k, v in done.items() if k not in ("dryRun", "events", "usageRows")} == \
        {k: v for k, v in dry.items() if k not in ("dryRun", "events", "usageRows")}, (dry, done)
    assert dry["usageRows"] >= 1 and done["usageRows"] >= 1, (dry, done)  # the usage of the sandbox is now part of its user's row
    assert s.call("GET", f"/v1/sandboxes/{sb}").status == 404 and not os.path.exists(stray)
    assert not [n for n in os.listdir(os.path.join(s.dir, "output")) if n.startswith(ex)]
    assert s.call("GET", f"/v1/sandboxes/{live}").json["state"] == "running"
    s.delete(live)


@case
def a_backup_is_a_complete_database(s):
    a = s.call("GET", "/v1/maintenance/backup")
    assert a.status == 200 and a.headers["Content-Type"] == "application/vnd.sqlite3", a.headers
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "copy.db")
        with open(path, "wb") as f:
            f.write(a.body)
        db = sqlite3.connect(path)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM keys").fetchone()[0] >= 1
        db.close()
    assert not [n for n in os.listdir(os.path.join(s.dir, "output")) if n.startswith("backup")]
    for path, method in (("/v1/maintenance/backup", "GET"), ("/v1/maintenance/gc", "POST")):
        key = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["sandboxes:read", "metrics"]}).json["key"]
        assert s.call(method, path, key=key).status == 403


@case
def every_route_is_in_the_contract_and_every_path_of_it_in_the_code(s):
    listed = set()
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/server")
    defines = {}
    for name in sorted(glob.glob(source + "/api/*.[ch]") + glob.glob(source + "/mcp/*.[ch]")):
        with open(name, encoding="utf-8") as f:
            text = f.read()
        defines = dict(re.findall(r'^#define ([A-Z]+) ((?:"[^"]*"|[A-Z]+)(?: "[^"]*")*)$', text, re.M))
        for method, pattern in re.findall(r'\{ "(GET|PUT|POST|PATCH|DELETE)",\s*((?:[A-Z]+ )?(?:"[^"]*"|[A-Z]+)),', text):
            for _ in range(3):
                pattern = re.sub(r"\b([A-Z]{3,})\b", lambda m: defines.get(m.group(1), m.group(1)), pattern)
            path = "".join(re.findall(r'"([^"]*)"', pattern))
            listed.add((method, re.sub(r"\{[^}]+\}", "{}", path)))
    known = {(m, p.pattern.strip("^$").replace("[^/]+", "{}")) for m, p in PATHS}
    assert listed == known, f"only in the code: {listed - known}; only in the contract: {known - listed}"


def made_up(method, pattern, operation):
    """A request of that operation with ids that do not exist: (path, body)."""
    path = pattern.pattern.strip("^$").replace("[^/]+", "zz" + "a" * 20)
    given = [resolve(p) for p in operation.get("parameters", [])]
    query = {p["name"]: "/workspace/x" if p["name"] == "path" else p.get("example", "x") for p in given if p["in"] == "query" and p.get("required")}
    content = resolve(operation.get("requestBody", {})).get("content", {})
    body = {"noSuchField": 1} if "application/json" in content else b"x" if content else None
    return path + ("?" + urllib.parse.urlencode(query) if query else ""), body


def head_of(s, method, path, body, key):
    """Like s.call, for an answer that may never end."""
    c, r = s.open(method, path, body, key=key)
    answer = Answer(r, b"" if r.status == 200 and not r.length else r.read())
    c.close()
    if answer.status != 200:
        check_contract(method, path, answer)
    return answer


@case
def every_operation_answers_with_and_without_a_key_as_the_contract_says(s):
    """s.call checks each answer against the contract: its status, its kind and every field of its
    body."""
    seen = collections.Counter()
    for (method, pattern), operation in PATHS.items():
        path, body = made_up(method, pattern, operation)
        where = f"{method} {path}"
        endless = "text/event-stream" in resolve(operation["responses"].get("200", {})).get("content", {})
        ask = head_of if endless else s.call
        bare = ask(method=method, path=path, body=body, key=False) if ask == s.call else ask(s, method, path, body, False)
        if operation.get("security") == []:
            assert bare.status not in (401, 403), (where, bare.status, bare.body)
        else:
            assert bare.status == 401 and bare.code == "unauthorized" and bare.headers["WWW-Authenticate"], (where, bare.status, bare.body)
        answer = ask(method=method, path=path, body=body) if ask == s.call else ask(s, method, path, body, True)
        if "[^/]+" in pattern.pattern:  # an unknown id is not found; a malformed request may be reported first
            assert answer.status in (400, 404, 405, 409, 410, 415, 426), (where, answer.status, answer.body)
        elif isinstance(body, dict) and "jsonrpc" in answer.json:
            assert answer.status == 400 and answer.json["error"]["code"] == -32600 and answer.json["error"]["message"], (where, answer.body)
        elif isinstance(body, dict):
            assert answer.status == 400 and answer.code.startswith(("invalid", "bad")), (where, answer.status, answer.body)
        else:
            assert answer.status < 500 and answer.status not in (401, 403, 404, 405), (where, answer.status, answer.body)
        if answer.status >= 400 and "jsonrpc" not in answer.json:
            error = answer.json["error"]
            assert error["message"] and error["docs"] and error.get("fix", "-") and error["requestId"] == answer.headers["X-Request-Id"], (where, error)
        seen[answer.status] += 1
    assert sum(seen.values()) == len(PATHS) > 80 and seen[404] > 30 and seen[200] > 10, seen


# --- recovery ---

def usage(s, query="", **more):
    a = s.call("GET", "/v1/usage" + query, **more)
    assert a.status == 200, a.body
    return a.json


BURN = "import time\nend = time.process_time() + %s\nwhile time.process_time() < end: pass"


@case
def usage_matches_receipts_by_user_sandbox_and_hour(s):
    key = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["sandboxes:read", "sandboxes:write", "executions", "usage"]}).json
    mine = {"key": key["key"]}
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "python"}, **mine).json["id"]
    of = f"?sandbox={sb}"
    assert usage(s, of)["total"]["executions"] == 0
    cpu = 0
    for _ in range(2):
        ex = s.execute(sb, {"code": BURN % 0.3 + "\nprint('x' * 99)"}, **mine).json
        receipt = s.call("GET", f"/v1/sandboxes/{sb}/executions/{ex['id']}/receipt").json
        cpu += receipt["used"]["cpuMs"]
    s.execute(sb, {"command": ["/no/such/program"]})
    knows_peak = "memoryPeakBytes" in s.call("GET", f"/v1/sandboxes/{sb}/usage").json
    living = usage(s, of)["total"]
    assert living["executions"] == 3 and living["outputBytes"] == 200, living
    assert living["sandboxMs"] > 500 and abs(living["memoryMibSeconds"] - 0.512 * living["sandboxMs"]) < 1, living
    s.delete(sb)
    total = usage(s, of)["total"]
    assert total["cpuMs"] >= cpu >= 600, (total, cpu)
    assert total["cpuMs"] < cpu + 1000, (total, cpu)
    assert not knows_peak or total["memoryPeakBytes"] > 1 << 20, total
    assert total["sandboxMs"] >= living["sandboxMs"]
    row = s.call("GET", f"/v1/sandboxes/{sb}").json
    times = [time.mktime(time.strptime(row[n][:19], "%Y-%m-%dT%H:%M:%S")) + float(row[n][19:23]) for n in ("createdAt", "endedAt")]
    assert abs(total["sandboxMs"] - 1000 * (times[1] - times[0])) < 2, (total, row)
    by_user = usage(s, of + "&group=user")["usage"]
    assert {r["user"]: r["executions"] for r in by_user}[key["id"]] == 2, by_user
    hours = usage(s, of + "&group=hour,sandbox")
    assert sum(r["executions"] for r in hours["usage"]) == 3
    assert all(r["sandboxId"] == sb and r["hour"].endswith(":00:00.000Z") for r in hours["usage"])
    assert hours["from"].endswith(":00:00.000Z") and hours["to"].endswith(":00:00.000Z")
    a = s.call("GET", "/v1/usage" + of + "&group=sandbox", None, {"Accept": "text/csv"})
    lines = a.body.decode().split("\r\n")
    assert lines[0].startswith("sandboxId,executions,failedExecutions,cpuMs,executionMs,sandboxMs,memoryMibSeconds,"), lines
    assert lines[1].startswith(f"{sb},3,") and lines[2:] == [""], lines
    assert s.call("GET", "/v1/usage" + of + "&format=csv").body.startswith(b"executions,")
    s.call("POST", "/v1/maintenance/gc", {})
    assert usage(s, of)["total"]["executions"] == 0  # the usage of a deleted sandbox is counted for its user
    assert usage(s, f"?user={key['id']}")["total"]["executions"] == 2
    s.call("DELETE", f"/v1/keys/{key['id']}")


@case
def AU03_usage_of_another_tenant_is_never_seen(s):
    key = stranger(s, "sandboxes:write", "usage")
    mine = s.create({"runtime": "sh"})
    theirs = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key["key"]).json["id"]
    seen = usage(s, "?group=tenant,sandbox", key=key["key"])
    assert {r["tenant"] for r in seen["usage"]} == {"strangers"}, seen
    told = {r.get("sandboxId") for r in seen["usage"]}
    assert theirs in told and mine not in told, seen
    assert usage(s, f"?sandbox={mine}", key=key["key"])["total"]["sandboxMs"] == 0
    assert s.call("GET", "/v1/usage?tenant=local", key=key["key"]).status == 404
    everything = usage(s, "?group=tenant")["usage"]
    assert {"local", "strangers"} <= {r["tenant"] for r in everything}
    assert [r["tenant"] for r in usage(s, "?group=tenant&tenant=strangers")["usage"]] == ["strangers"]
    reader = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["sandboxes:read"]}).json
    assert s.call("GET", "/v1/usage", key=reader["key"]).status == 403
    s.delete(mine)
    s.call("DELETE", f"/v1/sandboxes/{theirs}", key=key["key"])


@case
def times_far_in_the_past_and_future_are_returned_unchanged(s):
    told = s.call("GET", "/v1/usage?from=1970-01-01&to=9999-12-31").json
    assert (told["from"], told["to"]) == ("1970-01-01T00:00:00.000Z", "9999-12-31T00:00:00.000Z"), told
    made = s.call("POST", "/v1/keys", {"name": "far", "scopes": ["files"], "expiresAt": "9999-12-31T00:00:00Z"}).json
    assert made["expiresAt"] == "9999-12-31T00:00:00.000Z", made
    s.call("DELETE", "/v1/keys/" + made["id"])


@case
def usage_refuses_invalid_parameters(s):
    for query in ("from=yesterday", "to=2027", "from=2027-13-01", "group=month", "group=hour,", "format=xml", "x=1",
                  "from=2026-02-02&to=2026-02-01"):
        assert s.call("GET", "/v1/usage?" + query).status == 400, query
    assert usage(s, "?from=2026-01-01&to=2026-01-01T00:30:00Z") == dict(
        usage(s, "?from=2026-01-01T00:00:00.000Z&to=2026-01-01T01:00:00%2B00:00"))
    assert usage(s, "?from=2001-01-01&to=2001-01-02&group=hour")["usage"] == []


@case
def usage_is_counted_once_if_the_server_is_killed(s):
    key = s.call("POST", "/v1/keys", {"name": "t", "scopes": ["executions"]}).json
    before = usage(s, f"?user={key['id']}")["total"]["executions"]
    assert before == 0
    boxes = [s.create({"runtime": "sh"}) for _ in range(3)]

    answered = []

    def work(box, stop):
        while not stop.is_set():
            try:
                answered.append(s.call("POST", f"/v1/sandboxes/{box}/executions", {"command": ["sh", "-c", "echo hello"]},
                                       key=key["key"]).status)
            except (OSError, http.client.HTTPException, ValueError, AssertionError):
                time.sleep(0.01)

    for _ in range(4):
        stop = threading.Event()
        threads = [threading.Thread(target=work, args=(box, stop)) for box in boxes]
        for t in threads:
            t.start()
        time.sleep(0.3)
        had = len(answered)
        until(lambda: len(answered) > had + 3, "no request is answered any more")  # pylint: disable=cell-var-from-loop
        s.kill()
        stop.set()
        for t in threads:
            t.join()
        s.start()
    def executions():
        rows = []
        for box in boxes:
            cursor = ""
            while cursor is not None:
                page = s.call("GET", f"/v1/sandboxes/{box}/executions?limit=1000{cursor}").json
                rows += page["items"]
                cursor = "&cursor=" + page["nextCursor"] if "nextCursor" in page else None
        return rows
    until(lambda: all(e["state"] == "ended" for e in executions()), "some executions never end")
    known = len(executions())
    total = usage(s, f"?user={key['id']}")["total"]
    assert known > 0 and total["executions"] == known, (total, known)
    for box in boxes:
        s.delete(box)
    whole = sum(usage(s, f"?sandbox={box}")["total"]["executions"] for box in boxes)
    assert whole == known, (whole, known)
    s.call("DELETE", f"/v1/keys/{key['id']}")


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def not_across_midnight():
    """Waits if midnight is near: a new day would reset the usage in the middle of a test."""
    left = 86400 - time.time() % 86400
    if left < 300:
        time.sleep(left + 1)


@case
def a_budget_refuses_new_work_and_stops_running_work_when_it_is_used_up(s):
    not_across_midnight()
    key = stranger(s, "sandboxes:read", "sandboxes:write", "executions", "usage")
    mine = {"key": key["key"]}
    here = "/v1/tenants/strangers/budget"

    def used():
        return s.call("GET", here, **mine).json["day"].get("used")

    def wait_used():
        end = time.monotonic() + 60
        while used() is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        return used()

    def bound(**day):
        a = s.call("PUT", here, {"day": day})
        assert a.status == 200, a.body
        wait_used()

    def allow():
        assert s.call("PUT", here, {}).status == 200

    allow()
    assert used() is None
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "python", "lifetimeMs": 900000}, **mine).json["id"]
    bound(executions=10 ** 6)
    start = wait_used()["executions"]
    bound(executions=start + 2)
    for _ in range(2):
        assert s.execute(sb, {"command": ["true"]}, **mine).status == 200
    refused = s.execute(sb, {"command": ["true"]}, **mine)
    assert refused.status == 402 and refused.code == "budget_exceeded", refused.body
    message = refused.json["error"]["message"]
    assert f"{start + 2} of {start + 2} executions" in message and "renews at 20" in message, message
    s.kill()
    s.start()  # the budget and the usage are restored
    wait_used()
    assert s.execute(sb, {"command": ["true"]}, **mine).status == 402
    bound(executions=start + 3)
    assert s.execute(sb, {"command": ["true"]}, **mine).status == 200

    bound(cpuMs=wait_used()["cpuMs"] + 2000)
    ended = s.execute(sb, {"code": "while True: pass", "timeoutMs": 120000}, timeout=120, **mine).json
    assert ended["endedBy"] == "budget", ended
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{ended['id']}/receipt", **mine).json["endedBy"] == "budget"
    assert "cpuMs" in s.execute(sb, {"command": ["true"]}, **mine).json["error"]["message"]
    assert s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, **mine).status == 402
    assert s.call("GET", f"/v1/sandboxes/{sb}", **mine).json["state"] == "running"
    bound(cpuMs=wait_used()["cpuMs"] + 1000)  # a second time: usage in between was allowed, and ends nothing
    assert s.execute(sb, {"code": "while True: pass", "timeoutMs": 120000}, timeout=120, **mine).json["endedBy"] == "budget"
    time.sleep(3)
    assert s.call("GET", f"/v1/sandboxes/{sb}", **mine).json["state"] == "running"

    bound(sandboxMs=wait_used()["sandboxMs"] + 2000)
    end = time.monotonic() + 60
    while s.call("GET", f"/v1/sandboxes/{sb}", **mine).json["state"] != "ended":
        assert time.monotonic() < end
        time.sleep(0.1)
    row = s.call("GET", f"/v1/sandboxes/{sb}", **mine).json
    assert row["endedBy"] == "budget" and "sandboxMs" in row["reason"]["message"], row
    assert s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, **mine).code == "budget_exceeded"
    other = s.create({"runtime": "sh"})  # in another tenant
    s.delete(other)
    allow()
    again = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, **mine)
    assert again.status == 201
    s.call("DELETE", f"/v1/sandboxes/{again.json['id']}", **mine)


@case
def work_beyond_a_budget_stops_soon(s):
    """The server promises two seconds. The test allows ten times that for machines that are slow or
    busy, and prints the measured value."""
    not_across_midnight()
    key = stranger(s, "sandboxes:read", "sandboxes:write", "executions", "usage")
    mine = {"key": key["key"]}
    here = "/v1/tenants/strangers/budget"
    assert s.call("PUT", here, {"day": {"executions": 10 ** 6}}).status == 200
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "python", "lifetimeMs": 900000}, **mine).json["id"]
    end = time.monotonic() + 60
    while "used" not in s.call("GET", here, **mine).json["day"]:
        assert time.monotonic() < end
        time.sleep(0.02)
    bound = s.call("GET", here, **mine).json["day"]["used"]["cpuMs"] + 2000
    assert s.call("PUT", here, {"day": {"cpuMs": bound}}).status == 200
    ended = s.execute(sb, {"code": "while True: pass", "timeoutMs": 120000}, timeout=120, **mine).json
    assert ended["endedBy"] == "budget", ended
    over = (s.call("GET", here, **mine).json["day"]["used"]["cpuMs"] - bound) / 1000
    assert 0 <= over < 20, over

    # The same by elapsed time: the moment of exhaustion is known, and the time of the end is in the
    # row.
    used = s.call("PUT", here, {"day": {"sandboxMs": 10 ** 12}}).json["day"]["used"]["sandboxMs"]
    told = time.time()
    assert s.call("PUT", here, {"day": {"sandboxMs": used + 3000}}).status == 200
    end = time.monotonic() + 120
    while s.call("GET", f"/v1/sandboxes/{sb}", **mine).json["state"] != "ended":
        assert time.monotonic() < end
        time.sleep(0.1)
    row = s.call("GET", f"/v1/sandboxes/{sb}", **mine).json
    late = moment(row["endedAt"]) - (told + 3)
    assert row["endedBy"] == "budget" and -4 < late < 20, (row, late)
    print(f"# a hard budget: CPU time ended {over} s beyond it, elapsed time {late:.2f} s after it")
    assert s.call("PUT", here, {}).status == 200


@case
def a_slow_background_process_does_not_outlive_a_budget(s):
    not_across_midnight()
    key = stranger(s, "sandboxes:read", "sandboxes:write", "executions", "usage")
    mine = {"key": key["key"]}
    here = "/v1/tenants/strangers/budget"
    slow = ("import time\nwhile True:\n e = time.process_time() + 0.05\n while time.process_time() < e: pass\n"
            " time.sleep(0.95)")  # less CPU time per second than the sampling notices
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "python", "lifetimeMs": 900000}, **mine).json["id"]
    left = f"setsid python3 -c '{slow}' >/dev/null 2>&1 </dev/null & sleep 0.2"
    assert s.execute(sb, {"command": ["sh", "-c", left]}, **mine).json["endedBy"] == "exit"
    spend = "import time\ne = time.process_time() + 1.2\nwhile time.process_time() < e: pass"
    assert s.execute(sb, {"code": spend, "timeoutMs": 120000}, timeout=120, **mine).json["endedBy"] == "exit"
    assert s.call("PUT", here, {"day": {"cpuMs": 1000}}).status == 200
    end = time.monotonic() + 200
    while s.call("GET", f"/v1/sandboxes/{sb}", **mine).json["state"] != "ended":
        assert time.monotonic() < end, s.call("GET", here, **mine).json
        time.sleep(0.2)
    assert s.call("GET", f"/v1/sandboxes/{sb}", **mine).json["endedBy"] == "budget"
    assert s.call("PUT", here, {}).status == 200


@case
def usage_and_budget_metrics_name_no_user_and_never_decrease(s):
    def figures():
        text = s.call("GET", "/metrics").body.decode()
        assert "strangers" not in text
        return {name: float(value) for name, value in
                re.findall(r"^cove_((?:usage|budget)_[^ ]*) ([0-9.]+)$", text, re.M)}

    not_across_midnight()
    key = stranger(s, "sandboxes:read", "sandboxes:write", "executions", "usage")
    mine = {"key": key["key"]}
    here = "/v1/tenants/strangers/budget"
    assert s.call("PUT", here, {}).status == 200
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "python"}, **mine).json["id"]
    before = figures()
    assert s.execute(sb, {"code": "sum(range(10 ** 7))"}, **mine).json["endedBy"] == "exit"
    living = figures()
    assert living["usage_executions_total"] >= before["usage_executions_total"] + 1, (before, living)
    for name in ("usage_cpu_seconds_total", "usage_sandbox_seconds_total"):
        assert living[name] > before[name], (before, living)
    assert s.call("PUT", here, {"day": {"executions": 10 ** 6}, "month": {"executions": 1}}).status == 200
    end = time.monotonic() + 60
    while figures() == living or figures()['budget_bounds{period="month",of="executions",state="spent"}'] == 0:
        assert time.monotonic() < end, figures()
        time.sleep(0.05)
    assert figures()['budget_bounds{period="day",of="executions",state="open"}'] == 1, figures()
    assert s.execute(sb, {"command": ["true"]}, **mine).status == 402
    s.call("DELETE", f"/v1/sandboxes/{sb}", **mine)
    after = figures()
    assert after["budget_refusals_total"] == before["budget_refusals_total"] + 1, (before, after)
    assert all(after[name] >= living[name] for name in living if name.endswith("total")), (living, after)
    assert s.call("PUT", here, {}).status == 200
    assert sum(value for name, value in figures().items() if "budget_bounds" in name) == 0


@case
def a_budget_is_changed_by_the_operator_and_visible_to_its_tenant_only(s):
    key = stranger(s, "usage")
    assert s.call("PUT", "/v1/tenants/strangers/budget", {}, key=key["key"]).status == 403
    assert s.call("GET", "/v1/tenants/strangers/budget", key=key["key"]).status == 200
    assert s.call("GET", "/v1/tenants/local/budget", key=key["key"]).status == 404
    assert s.call("GET", "/v1/tenants/nobody/budget").status == 404
    assert s.call("PUT", "/v1/tenants/nobody/budget", {}).status == 404
    for body in ({"week": {}}, {"day": {"cpuMs": 0}}, {"day": {"x": 1}}, {"day": 5}, {"month": {"executions": -1}},
                 {"month": {"executions": "1"}}):
        assert s.call("PUT", "/v1/tenants/local/budget", body).status == 400, body


@case
def live_usage_lists_all_sandboxes_and_does_not_reset_idle_timeouts(s):
    key = stranger(s, "sandboxes:read", "sandboxes:write")
    theirs = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key["key"]).json["id"]
    busy = s.create({"runtime": "python"})
    ex = s.execute(busy, {"code": "while True: pass", "background": True, "timeoutMs": 600000}).json["id"]

    def look(**more):
        return {x["id"]: x for x in s.call("GET", "/v1/usage/live", **more).json["sandboxes"]}

    assert set(look(key=key["key"])) == {theirs}
    idle = s.create({"runtime": "sh", "idleTimeoutMs": 5000})
    first = look()
    end = time.monotonic() + 120
    assert {theirs, idle, busy} <= set(first) and first[busy]["executions"] == 1, first
    assert first[busy]["limits"]["memoryBytes"] == 512 << 20 and first[busy]["state"] == "running"
    while look()[busy].get("cpuMs", 0) < first[busy].get("cpuMs", 0) + 100 and "cpuMs" in first[busy]:
        assert time.monotonic() < end
    while idle in look() or s.call("GET", f"/v1/sandboxes/{idle}").json["state"] != "ended":  # polled all the time
        assert time.monotonic() < end
        time.sleep(0.1)
    assert s.call("GET", f"/v1/sandboxes/{idle}").json["endedBy"] == "idle"
    s.call("POST", f"/v1/sandboxes/{busy}/executions/{ex}/cancel")
    s.delete(busy)
    s.call("DELETE", f"/v1/sandboxes/{theirs}", key=key["key"])


@case
def a_server_resumes_its_sandboxes_after_it_was_killed(s):
    sb, paused, doomed = s.create({"runtime": "sh"}), s.create({"runtime": "sh"}), s.create({"runtime": "sh"})
    s.call("POST", f"/v1/sandboxes/{paused}/pause")
    s.delete(doomed)
    script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done; exit 9"
    c, r = s.open("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["sh", "-c", script]},
                  {"Accept": "application/x-ndjson"})
    ex, seen = json.loads(r.readline())["execution"]["id"], b""
    while len(seen) < 4:
        e = json.loads(r.readline())
        seen += e["data"].encode()
    s.kill()
    c.close()
    s.start()
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/executions/{ex}/stream?stdoutOffset={len(seen)}")
    assert r.status == 200, r.read()
    events = list(ndjson(r))
    c.close()
    seen += b"".join(e["data"].encode() for e in events if e["type"] == "output")
    assert seen == b"1\n2\n3\n4\n5\n6\n7\n8\n", seen
    assert events[-1]["execution"]["exitCode"] == 9, events[-1]
    assert s.call("GET", f"/v1/sandboxes/{paused}").json["state"] == "paused"
    assert s.call("GET", f"/v1/sandboxes/{doomed}").json["state"] == "ended"
    assert s.call("POST", f"/v1/sandboxes/{paused}/resume").json["state"] == "running"
    for one in (sb, paused):
        assert s.execute(one, {"command": ["echo", "alive"]}).json["stdout"] == "alive\n"
        s.delete(one)


@case
def standard_input_resumes_after_a_killed_server_without_repeated_bytes(s):
    sb = s.create({"runtime": "sh"})
    ex = s.execute(sb, {"command": ["cat"], "stdinOpen": True, "background": True}).json["id"]
    here, kind = f"/v1/sandboxes/{sb}/executions/{ex}", {"Content-Type": "application/octet-stream"}
    assert s.call("POST", here + "/stdin?offset=0", b"one\n", kind).status == 200
    s.kill()
    s.start()
    end = time.monotonic() + 60
    while True:
        a = s.call("POST", here + "/stdin?offset=0&close=true", b"one\ntwo\n", kind)
        if a.status != 503:
            break
        assert time.monotonic() < end, a.body
    assert a.json == {"stdinBytes": 8, "stdinOpen": False}, a.body
    assert s.call("GET", here + "/output?follow=true").body == b"one\ntwo\n"
    s.delete(sb)


@case
def a_server_killed_under_load_loses_nothing_that_it_acknowledged(s):
    told, stop = {}, threading.Event()

    def work(n):
        while not stop.is_set():
            try:
                a = s.call("POST", "/v1/sandboxes", {"runtime": "sh"})
                if a.status != 201:
                    continue
                told[a.json["id"]] = "running"
                x = s.execute(a.json["id"], {"command": ["echo", str(n)]})
                if x.status == 200:
                    assert x.json["stdout"] == f"{n}\n", x.body
                told[a.json["id"]] = "ending"
                if s.call("DELETE", f"/v1/sandboxes/{a.json['id']}").status == 200:
                    told[a.json["id"]] = "ended"
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.01)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for i in range(5):
        time.sleep(0.25 + 0.07 * i)
        had = len(told)
        until(lambda: len(told) > had, "no sandbox is created any more")  # pylint: disable=cell-var-from-loop
        s.kill()
        s.start()
    stop.set()
    for t in threads:
        t.join()
    def rows():
        found, cursor = {}, ""
        while cursor is not None:
            page = s.call("GET", f"/v1/sandboxes?limit=1000{cursor}").json
            found.update((r["id"], r) for r in page["items"])
            cursor = "&cursor=" + page["nextCursor"] if "nextCursor" in page else None
        return found
    until(lambda: all(row["state"] in ("running", "ended") for row in rows().values()), "some sandboxes are neither running nor ended")
    known = rows()
    for sb, state in told.items():
        assert sb in known, f"{sb} was acknowledged and is unknown"
        if state in ("running", "ended"):
            assert known[sb]["state"] == state, known[sb]
    for row in known.values():
        if row["state"] == "running":
            s.delete(row["id"])
    kept = os.path.join(s.dir, "kept")
    until(lambda: not os.path.isdir(kept) or not os.listdir(kept), "some journal files are still there")


@case
def recovery_finishes_or_undoes_half_done_work(s):
    def make(key):
        return s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, {"Idempotency-Key": key})

    frozen, unmade, unclaimed = s.create({"runtime": "sh"}), make("half-1").json["id"], make("half-2").json["id"]
    assert s.call("POST", f"/v1/sandboxes/{frozen}/pause").status == 200
    s.kill()
    db = sqlite3.connect(os.path.join(s.dir, "db/cove.db"))
    with db:  # as if each had been interrupted one commit earlier
        db.execute("UPDATE sandboxes SET state = 'running' WHERE id = ?", (frozen,))
        db.execute("UPDATE sandboxes SET state = 'creating', expires_ms = 0 WHERE id = ?", (unmade,))
        db.execute("DELETE FROM sandboxes WHERE id = ?", (unclaimed,))
    db.close()
    strays = [os.path.join(s.dir, "output", f"exaaaaaaaaaaaaaaaaaaaa.{i}.new") for i in (1, 2)]
    for stray in strays:
        with open(stray, "w", encoding="utf-8") as f:
            f.write("of an execution without a row")
    s.start()
    assert s.call("GET", f"/v1/sandboxes/{frozen}").json["state"] == "running"
    assert s.execute(frozen, {"command": ["echo", "thawed"]}).json["stdout"] == "thawed\n"
    a = s.call("GET", f"/v1/sandboxes/{unmade}").json
    assert a["state"] == "ended" and a["endedBy"] == "lost", a
    made = [make("half-1"), make("half-2")]
    for again in made:
        assert again.status == 201 and again.json["state"] == "running", again.body
    assert made[0].json["id"] != unmade
    end = time.monotonic() + 60
    while any(map(os.path.exists, strays)):
        assert time.monotonic() < end, "orphaned output is still there"
        time.sleep(0.02)
    for sb in (frozen, made[0].json["id"], made[1].json["id"]):
        s.delete(sb)


@case
def RC06_timeouts_continue_over_a_restart_however_the_wall_clock_is_set(s):
    sb = s.create({"runtime": "python"})
    program = ("import os, time\nwhile time.process_time() < 0.7: pass\nopen('burnt', 'w').close()\n"
               "while not os.path.exists('go'): time.sleep(0.05)\nwhile True: pass\n")
    ex = s.execute(sb, {"code": program, "isolated": True, "background": True, "cpuTimeMs": 1000, "timeoutMs": 600000}).json["id"]
    flood = s.execute(sb, {"command": ["head", "-c", "5000", "/dev/zero"], "outputBytes": 1000}).json
    assert (flood["stdoutBytes"], flood["droppedBytes"]) == (1000, 4000), flood
    end = time.monotonic() + 120
    while s.files(sb, verb="/stat", path="/workspace/burnt").status != 200:
        assert time.monotonic() < end
        time.sleep(0.02)
    s.kill()
    db = sqlite3.connect(os.path.join(s.dir, "db/cove.db"))
    with db:  # as if the wall clock had jumped ahead by many years
        dropped = db.execute("SELECT dropped1, dropped2 FROM executions WHERE id = ?", (flood["id"],)).fetchone()
        db.execute("UPDATE sandboxes SET created_ms = 1, expires_ms = 2 WHERE id = ?", (sb,))
        db.execute("UPDATE executions SET created_ms = 1, started_ms = 2 WHERE id = ?", (ex,))
    db.close()
    assert dropped == (4000, 0), dropped
    s.start()
    assert s.call("GET", f"/v1/sandboxes/{sb}").json["state"] == "running"
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{ex}").json["state"] == "running"
    assert s.files(sb, "PUT", body=b"", path="/workspace/go").status == 200
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/executions/{ex}/stream", timeout=120)
    last = list(ndjson(r))[-1]["execution"]
    c.close()
    assert last["endedBy"] == "cpu", last
    used = s.call("GET", f"/v1/sandboxes/{sb}/usage").json
    assert used.get("cpuMs", 0) < 1600, used  # a CPU limit that restarted from 0 would have allowed 1.7 s and more
    s.delete(sb)


@case
def a_stopping_server_answers_or_closes_every_waiting_request(s):
    """A request without an answer would be a leak, and a sanitized server reports it with its exit
    status."""
    sb = s.create({"runtime": "sh"})
    here = f"/v1/sandboxes/{sb}/executions"
    sleep = {"command": ["sleep", "600"], "timeoutMs": 900000}
    held = []

    def ask(method, path, body=None, head=""):
        text = json.dumps(body).encode() if body is not None else b""
        c = socket.create_connection(("127.0.0.1", s.port), 120)
        c.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {s.key}\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(text)}\r\n{head}\r\n".encode() + text)
        held.append(c)

    ask("POST", here, sleep)
    ask("POST", here, sleep, "Idempotency-Key: stop-1\r\n")
    ask("POST", here, sleep, "Accept: application/x-ndjson\r\n")
    until(lambda: len(s.call("GET", here + "?state=running").json["items"]) == 3, "three run")
    s.jailer.send_signal(signal.SIGSTOP)  # so these requests get no answer
    try:
        for method, path in (("POST", "/v1/sandboxes"), ("GET", f"/v1/sandboxes/{sb}/usage"), ("POST", f"/v1/sandboxes/{sb}/pause"),
                             ("GET", f"/v1/sandboxes/{sb}/usage")):
            ask(method, path, {"runtime": "sh"} if path == "/v1/sandboxes" else None)
        until(lambda: len(s.call("GET", "/v1/sandboxes?state=creating").json["items"]) == 1, "no sandbox is being created")
        s.process.terminate()
        code = s.process.wait(120)
        s.process.stdout.close()
    finally:
        s.jailer.send_signal(signal.SIGCONT)
    for c in held:
        c.close()
    s.start()
    assert code == 0, code
    assert s.execute(sb, {"command": ["echo", "on"]}).json["stdout"] == "on\n"
    s.delete(sb)


@case
def a_killed_jailer_ends_sandboxes_and_the_server_continues(s):
    sb = s.create({"runtime": "sh"})
    ex = s.execute(sb, {"command": ["sleep", "60"], "background": True, "timeoutMs": 60000}).json["id"]
    s.jailer.kill()
    s.jailer.wait()
    end = time.monotonic() + 60
    while (a := s.call("GET", f"/v1/sandboxes/{sb}").json)["state"] != "ended":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert a["endedBy"] == "lost", a
    x = s.call("GET", f"/v1/sandboxes/{sb}/executions/{ex}").json
    assert x["outcome"] == "lost" and x["endedBy"] == "lost", x
    late = s.call("POST", "/v1/sandboxes", {"runtime": "sh"})
    assert late.status == 503, late.body
    s.jailer = subprocess.Popen([TESTD, "jailer", s.dir, RUNTIME])
    s.wait_ready()
    s.delete(s.create({"runtime": "sh"}))


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP the native driver needs root")
        return 0
    chosen = Choice(sys.argv[3:]).of(CASES, lambda function: function.__name__)
    print(f"1..{len(chosen)}")
    server, failed = Server(), 0
    for n, function in enumerate(chosen, 1):
        try:
            function(server)
            print(f"ok {n} - {function.__name__}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {n} - {function.__name__}")
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
            sys.stdout.flush()
            if server.process.poll() is not None:
                print(f"# the server ended with {server.process.returncode}", flush=True)
                server.start()
    if failed:
        server.process.kill()
        server.jailer.send_signal(signal.SIGTERM)
        server.jailer.wait()
    else:
        server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
