#!/usr/bin/env python3
"""scripts_test.py API_TESTD RUNTIME - the tools run_sandbox and search_tools, and the scripts that
they keep and find, against the same real server as tools_test.py. It keeps 3 scripts and 256 KiB of
code for a tenant. Prints TAP; needs root.
"""
import base64
import hashlib
import http.client
import json
import sys
import time

import api_test
from tools_test import answered, figure, refused, shared, use

CASES = []
SCRIPTS_MAX, BYTES_MAX = 3, 256 << 10  # quota of API_TESTD
OUTPUT_MAX = 8 << 10


def case(function):
    CASES.append(function)
    return function


def run(s, sandbox, /, **arguments):
    return use(s, sandbox, "run_sandbox", **arguments)


def script_of(answer):
    return answer["result"]["script"]


def search(s, key=True, **arguments):
    a = s.call("POST", "/v1/tools/search_tools", arguments, key=key)
    return answered(s, "search_tools", a)["result"]


def scripts(s, query="", key=True):
    a = s.call("GET", "/v1/scripts" + query, key=key)
    assert a.status == 200, a.body
    return a.json["items"]


def forget_all(s):
    for script in scripts(s):
        assert s.call("DELETE", f"/v1/scripts/{script['id']}").status == 204


def tenant(s, name):
    """The key of a new tenant."""
    assert s.call("POST", "/v1/tenants", {"name": name}).status == 201
    a = s.call("POST", "/v1/users", {"name": "dev", "role": "developer", "tenant": name})
    assert a.status == 201, a.body
    a = s.call("POST", "/v1/keys", {"name": "k", "user": a.json["id"], "tenant": name})
    assert a.status == 201, a.body
    return a.json["key"]


@case
def code_that_succeeds_is_kept_and_runs_again_from_the_cache(s):
    sb = shared(s)
    forget_all(s)
    code = "# Prints a product.\nprint(6 * 7)\n"
    a = run(s, sb, code=code)
    r = a["result"]
    assert not a["isError"] and r["state"] == "completed" and r["stdout"] == "42\n" and r["exitCode"] == 0, a
    assert a["executionId"] == r["executionId"] and r["script"]["kept"] and r["script"]["id"] in a["text"], a
    kept = s.call("GET", f"/v1/scripts/{r['script']['id']}").json
    assert kept["code"] == code and kept["language"] == "python" and kept["description"] == "Prints a product.", kept
    assert kept["digest"] == hashlib.sha256(b"python\0" + code.encode()).hexdigest() and kept["sizeBytes"] == len(code), kept
    assert kept["uses"] == 1 and kept["lastExecutionId"] == r["executionId"] and kept["createdBy"], kept
    for cached in (kept["id"], kept["digest"]):
        again = run(s, sb, cached=cached)["result"]
        assert again["stdout"] == "42\n" and again["script"]["id"] == kept["id"], again
    assert scripts(s)[0]["uses"] == 3 and "code" not in scripts(s)[0]
    row = s.call("GET", f"/v1/sandboxes/{sb}/executions/{again['executionId']}").json  # an execution like any other
    assert row["outcome"] == "success" and row["stdout"] == "42\n", row
    assert not run(s, sb, code="x = 1")["isError"]
    assert run(s, sb, code="print(x)")["result"]["state"] == "failed"  # a process of its own: x is gone


@case
def code_that_fails_is_not_kept(s):
    sb = shared(s)
    forget_all(s)
    a = run(s, sb, code="import sys; print('out'); sys.exit(3)")
    assert a["isError"] and a["result"]["state"] == "failed" and a["result"]["exitCode"] == 3 and "script" not in a["result"], a
    a = run(s, sb, code="while True: pass", timeout_ms=300)
    assert a["isError"] and a["result"]["state"] == "timeout", a
    a = run(s, sb, code="1 +")
    assert a["result"]["state"] == "failed" and "SyntaxError" in a["result"]["stderr"], a
    assert scripts(s) == []


@case
def the_least_recently_used_script_is_evicted(s):
    sb = shared(s)
    forget_all(s)
    evicted = figure(s, "cove_scripts_evicted_total")
    ids = [script_of(run(s, sb, language="sh", code=f"echo {i}"))["id"] for i in range(SCRIPTS_MAX)]
    run(s, sb, cached=ids[0])
    new = script_of(run(s, sb, language="sh", code="echo new"))["id"]
    assert {x["id"] for x in scripts(s)} == {ids[0], ids[2], new}
    assert figure(s, "cove_scripts_evicted_total") == evicted + 1
    assert "no such script" in refused(s, sb, "run_sandbox", status=404, cached=ids[1])


@case
def a_script_over_the_limit_is_run_and_not_kept_and_the_answer_says_so(s):
    sb = shared(s)
    forget_all(s)
    keep = script_of(run(s, sb, language="sh", code="echo small"))["id"]
    code = "#" + "x" * BYTES_MAX + "\nprint('big')\n"
    a = run(s, sb, code=code)
    assert not a["isError"] and a["result"]["stdout"] == "big\n", a
    assert not script_of(a)["kept"] and "may keep" in script_of(a)["reason"] and "not kept" in a["text"], a
    assert [x["id"] for x in scripts(s)] == [keep]


@case
def async_runs_are_asked_for_cancelled_and_listed(s):
    sb = s.create({"runtime": "python"})
    forget_all(s)
    began = time.monotonic()
    a = run(s, sb, mode="async", code="import time\nprint('begun', flush=True)\ntime.sleep(0.5)\nprint('done')\n")
    one = a["result"]["executionId"]
    assert a["result"]["state"] in ("pending", "running") and not a["isError"], a
    now = run(s, sb, mode="status", execution_id=one)["result"]
    assert now["state"] in ("pending", "running") and time.monotonic() - began < 0.5, now
    end = run(s, sb, mode="status", execution_id=one, wait_ms=20000)["result"]
    assert end["state"] == "completed" and end["stdout"] == "begun\ndone\n" and end["script"]["kept"], end
    assert run(s, sb, mode="status", execution_id=one, output_offset=6)["result"]["stdout"] == "done\n"
    assert run(s, sb, mode="status", execution_id=one)["result"]["script"] == end["script"]
    assert scripts(s)[0]["uses"] == 1  # asking is not using
    long = run(s, sb, mode="async", code="import time; time.sleep(600)", timeout_ms=700000)["result"]["executionId"]
    began = time.monotonic()
    assert run(s, sb, mode="status", execution_id=long, wait_ms=200)["result"]["state"] == "running"
    assert 0.15 < time.monotonic() - began < 10
    found = run(s, sb, mode="list", states=["running", "pending"])["result"]
    assert [x["executionId"] for x in found["executions"]] == [long] and not found["hasMore"], found
    assert run(s, sb, mode="cancel", execution_id=long)["result"]["state"] == "cancelled"
    assert run(s, sb, mode="cancel", execution_id=long)["result"]["state"] == "cancelled"
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{long}").json["outcome"] == "killed"
    found = run(s, sb, mode="list", limit=1)["result"]
    assert [x["executionId"] for x in found["executions"]] == [long] and found["hasMore"], found
    assert [x["state"] for x in run(s, sb, mode="list")["result"]["executions"]] == ["cancelled", "completed"]
    assert run(s, sb, mode="list", states=["failed"])["result"]["executions"] == []
    other = s.create({"runtime": "sh"})
    refused(s, other, "run_sandbox", status=404, mode="status", execution_id=one)
    refused(s, other, "run_sandbox", status=404, mode="cancel", execution_id=one)
    s.delete(other)
    s.delete(sb)


@case
def an_async_run_is_kept_without_being_asked_for(s):
    sb = shared(s)
    forget_all(s)
    id = run(s, sb, mode="async", language="sh", code="echo kept")["result"]["executionId"]
    end = time.monotonic() + 20
    while not scripts(s):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert scripts(s)[0]["lastExecutionId"] == id


@case
def a_run_whose_client_leaves_is_killed(s):
    sb = s.create({"runtime": "sh"})
    leave(s, sb)
    end = time.monotonic() + 20
    while True:
        states = [x["outcome"] for x in s.call("GET", f"/v1/sandboxes/{sb}/executions").json["items"] if "outcome" in x]
        if states == ["killed"]:
            break
        assert time.monotonic() < end, states
        time.sleep(0.05)
    s.delete(sb)


def leave(s, sandbox):
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30)
    c.request("POST", f"/v1/sandboxes/{sandbox}/tools/run_sandbox", json.dumps({"code": "sleep 600"}),
              {"Authorization": f"Bearer {s.key}", "Content-Type": "application/json"})
    while not any(x["state"] == "running" for x in s.call("GET", f"/v1/sandboxes/{sandbox}/executions").json["items"]):
        time.sleep(0.02)
    c.sock.close()


@case
def output_is_bounded_and_continues_at_an_offset(s):
    sb = shared(s)
    a = run(s, sb, code="for i in range(3000): print(f'{i:05d} \u00e9')")
    r, whole = a["result"], "".join(f"{i:05d} \u00e9\n" for i in range(3000)).encode()
    assert a["truncated"] and r["truncated"] and len(r["stdout"].encode()) <= OUTPUT_MAX, r["truncation"]
    assert r["stdoutBytes"] == len(whole) and str(r["nextOutputOffset"]) in a["text"], r
    assert r["truncation"]["maxLines"] == 5000 and r["truncation"]["missingBytes"] == len(whole) - r["nextOutputOffset"], r
    text = r["stdout"]
    while r["nextOutputOffset"] < r["stdoutBytes"]:
        assert r["outputOffset"] + len(r["stdout"].encode()) == r["nextOutputOffset"], r
        r = run(s, sb, mode="status", execution_id=r["executionId"], output_offset=r["nextOutputOffset"])["result"]
        text += r["stdout"]
    assert text.encode() == whole
    past = run(s, sb, mode="status", execution_id=r["executionId"], output_offset=10 ** 12)["result"]
    assert past["stdout"] == "" and past["outputOffset"] == len(whole), past
    r = run(s, sb, code="print('\\n' * 9000, end='')")["result"]
    assert r["stdout"].count("\n") == 5000 and r["nextOutputOffset"] == 5000 and r["truncated"], r["truncation"]
    r = run(s, sb, code="import sys\nfor i in range(9000): print(i, file=sys.stderr)\nprint('out')\nsys.exit(1)")["result"]
    assert r["stdout"] == "out\n" and r["stderr"].endswith("8999\n") and r["stderrOffset"] > 0, r["stderr"][-50:]
    r = run(s, sb, mode="status", execution_id=r["executionId"], stderr_offset=0)["result"]
    assert r["stderr"].startswith("0\n1\n") and r["stderrOffset"] == 0, r["stderr"][:50]


@case
def another_tenant_cannot_find_run_or_remove_a_script(s):
    sb = shared(s)
    forget_all(s)
    mine = script_of(run(s, sb, code="# Secret recipe.\nprint('secret')"))["id"]
    digest = s.call("GET", f"/v1/scripts/{mine}").json["digest"]
    key = tenant(s, "strangers")
    theirs = s.call("POST", "/v1/sandboxes", {"runtime": "python"}, key=key).json["id"]
    assert scripts(s, "?search=secret", key=key) == [] and search(s, key=key, query="secret")["scripts"] == []
    assert s.call("GET", f"/v1/scripts/{mine}", key=key).status == 404
    assert s.call("DELETE", f"/v1/scripts/{mine}", key=key).status == 404
    for cached in (mine, digest):
        a = s.call("POST", f"/v1/sandboxes/{theirs}/tools/run_sandbox", {"cached": cached}, key=key)
        assert a.status == 404, a.body
    a = s.call("POST", f"/v1/sandboxes/{sb}/tools/run_sandbox", {"code": "1"}, key=key)
    assert a.status == 404, a.body
    a = s.call("POST", f"/v1/sandboxes/{theirs}/tools/run_sandbox", {"code": "print('secret')"}, key=key).json
    assert a["result"]["script"]["kept"], a
    assert [x["id"] for x in scripts(s, key=key)] == [a["result"]["script"]["id"]]
    # The operator sees both; the script belongs to the tenant whose sandbox ran it.
    assert {x["id"] for x in scripts(s, "?search=secret")} == {mine, a["result"]["script"]["id"]}
    assert s.call("DELETE", f"/v1/sandboxes/{theirs}").status in (200, 204)
    assert s.call("DELETE", "/v1/tenants/strangers").status == 204
    assert {x["id"] for x in scripts(s)} == {mine}


@case
def a_credential_of_one_sandbox_neither_sees_nor_adds_scripts(s):
    sb = shared(s)
    forget_all(s)
    mine = script_of(run(s, sb, language="sh", code="echo mine"))["id"]
    token = s.call("POST", f"/v1/sandboxes/{sb}/tokens", {"operations": ["executions"]}).json["token"]
    call = lambda body: s.call("POST", f"/v1/sandboxes/{sb}/tools/run_sandbox", body, key=token)
    assert call({"cached": mine}).status == 404
    a = call({"language": "sh", "code": "echo token"})
    assert a.status == 200 and a.json["result"]["state"] == "completed" and "script" not in a.json["result"], a.body
    assert s.call("GET", "/v1/scripts", key=token).status in (403, 404)
    assert [x["id"] for x in scripts(s)] == [mine]


@case
def scripts_are_ranked_by_matches_then_by_use(s):
    sb = shared(s)
    forget_all(s)
    ids = [script_of(run(s, sb, language="sh", code=code))["id"] for code in (
        "# Counts lines of a table\nwc -l /etc/passwd", "# Table, table\nwc -l /etc/group", "echo other")]
    order = lambda items: [ids.index(x["id"]) for x in items]
    assert order(scripts(s, "?search=TABLE")) == [1, 0] and order(scripts(s)) == [2, 1, 0]
    assert order(scripts(s, "?search=table%20passwd")) == [0] and scripts(s, "?search=absent") == []
    assert order(scripts(s, "?language=sh")) == [2, 1, 0] and scripts(s, "?language=python") == []
    page = s.call("GET", "/v1/scripts?search=wc&limit=1").json
    assert order(page["items"] + scripts(s, f"?search=wc&limit=1&cursor={page['nextCursor']}")) == [1, 0]
    found = search(s, query="table", type="script")
    assert order(found["scripts"]) == [1, 0] and found["totalMatches"] == 2 and found["facets"]["languages"] == {"sh": 2}, found
    assert found["tools"] == [] and not found["pagination"]["hasMore"]
    page = search(s, type="script", limit=2, offset=1)
    assert order(page["scripts"]) == [1, 0] and page["totalMatches"] == 3, page
    assert search(s, type="script", exclude=["sh"])["totalMatches"] == 0
    for query in ("?search=" + "a%20" * 20, "?search=" + "a" * 300, "?cursor=x", "?sort=uses", "?language=" + "x" * 40):
        assert s.call("GET", "/v1/scripts" + query).status == 400, query


@case
def old_scripts_are_removed_and_reported(s):
    sb = shared(s)
    forget_all(s)
    run(s, sb, language="sh", code="echo old")
    time.sleep(0.002)
    assert s.call("POST", "/v1/maintenance/gc", {"dryRun": True}).json["scripts"] == 1 and len(scripts(s)) == 1
    assert s.call("POST", "/v1/maintenance/gc", {}).json["scripts"] == 1 and scripts(s) == []


@case
def tools_are_found_in_steps(s):
    table = s.call("GET", "/v1/tools").json["items"]
    found = search(s, type="tool", limit=50)
    assert [t["name"] for t in found["tools"]] == [t["name"] for t in table] and found["totalMatches"] == len(table), found
    assert not any("inputSchema" in t or "\n" in t["description"] for t in found["tools"])
    assert sum(found["facets"]["categories"].values()) == len(table)
    found = search(s, query="read_file", limit=50)
    best, real = found["tools"][0], next(t for t in table if t["name"] == "read_file")
    assert best["name"] == "read_file" and best["inputSchema"] == real["inputSchema"] and best["outputSchema"] == real["outputSchema"]
    for tool in table:
        best = search(s, query=tool["name"], type="tool", limit=50)["tools"][0]
        required = set(tool["inputSchema"].get("required", ()))
        assert best["name"] == tool["name"] and set(best.get("example", required)) == required, (tool["name"], best)
    assert {t["category"] for t in search(s, category="files")["tools"]} == {"files"}
    names = {t["name"] for t in search(s, category="code", exclude=["run_code"], limit=50)["tools"]}
    assert "run_sandbox" in names and "run_code" not in names and search(s, query="nothing like it")["totalMatches"] == 0
    page = search(s, type="tool", limit=2, offset=len(table) - 1)
    assert [t["name"] for t in page["tools"]] == [table[-1]["name"]] and not page["pagination"]["hasMore"], page
    for arguments in ({"limit": 51}, {"type": "skill"}, {"exclude": [1]}, {"offset": -1}, {"query": "a" * 257}, {"words": 1}):
        refused(s, None, "search_tools", **arguments)


@case
def arguments_that_do_not_fit_are_refused(s):
    sb = shared(s)
    for arguments, word in (
            ({}, "code"), ({"mode": "run"}, "mode"), ({"code": ""}, "code"), ({"code": "1", "cached": "sc" + "a" * 20}, "code"),
            ({"cached": "x"}, "cached"), ({"mode": "status"}, "execution_id"),
            ({"mode": "status", "execution_id": "ex" + "a" * 20, "code": "1"}, "code"), ({"code": "1", "wait_ms": 1}, "wait_ms"),
            ({"mode": "list", "states": ["gone"]}, "states"), ({"mode": "list", "limit": 0}, "limit"),
            ({"mode": "status", "execution_id": "ex" + "a" * 20, "wait_ms": 60001}, "wait_ms")):
        assert word in refused(s, sb, "run_sandbox", **arguments), arguments
    assert "cobol" in refused(s, sb, "run_sandbox", status=404, code="1", language="cobol")
    for arguments in ({"mode": "status", "execution_id": "ex" + "a" * 20}, {"mode": "cancel", "execution_id": "../x"}, {"cached": "sc" + "a" * 20},
                      {"cached": "0" * 64}):
        refused(s, sb, "run_sandbox", status=404, **arguments)
    refused(s, "sb" + "a" * 20, "run_sandbox", status=404, code="1")
    refused(s, "sb" + "a" * 20, "run_sandbox", status=404, mode="list")


@case
def hostile_code_is_text(s):
    sb = shared(s)
    forget_all(s)
    code = "# \x1b]0;title\x07 \u202e\u00e9\nprint(ascii('\x01\x7f\u2028'))"
    kept = s.call("GET", f"/v1/scripts/{script_of(run(s, sb, code=code))['id']}").json
    assert kept["code"] == code and "\x1b" not in kept["description"] and "\u202e" not in kept["description"], kept
    a = s.call("POST", f"/v1/sandboxes/{sb}/tools/run_sandbox", {"code": "print(1)\0print(2)"})
    assert a.status == 400, a.body
    full = "#" + "x" * ((1 << 20) - 1)
    assert run(s, sb, code=full)["result"]["state"] == "completed"
    assert "code" in refused(s, sb, "run_sandbox", code=full + "x")
    a = s.call("POST", f"/v1/sandboxes/{sb}/tools/run_sandbox", b'{"code": "\xff"}', headers={"Content-Type": "application/json"})
    assert a.status == 400, a.body
    binary = base64.b64encode(bytes(range(256))).decode()
    r = run(s, sb, code=f"import base64, sys; sys.stdout.buffer.write(base64.b64decode('{binary}'))")["result"]
    assert r["state"] == "completed" and r["stdoutBytes"] == 256 and "\0" not in r["stdout"], r


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
