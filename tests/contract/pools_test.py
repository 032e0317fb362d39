#!/usr/bin/env python3
"""pools_test.py API_TESTD RUNTIME - warm pools over the same real server as api_test.py; prints
TAP. Needs root.
"""
import glob
import os
import re
import sys
import threading
import time

import api_test

CASES = []
PARENT = os.environ.get("COVE_CGROUP_PARENT", "cove")
LONG = 180  # seconds; a loaded machine may need this long


def case(function):
    CASES.append(function)
    return function


def template(s, name, **spec):
    a = s.call("PUT", f"/v1/templates/{name}", {"runtime": "sh", **spec})
    assert a.status == 200, a.body
    return a.json


def put(s, name, **spec):
    a = s.call("PUT", f"/v1/pools/{name}", spec)
    assert a.status == 200, a.body
    return a.json


def status(s, name):
    a = s.call("GET", f"/v1/pools/{name}/status")
    assert a.status == 200, a.body
    return a.json


def until(s, name, condition):
    """The first status for which the condition holds."""
    end = time.monotonic() + LONG
    while True:
        now = status(s, name)
        if condition(now):
            return now
        assert time.monotonic() < end, now
        time.sleep(0.02)


def full(s, name, n):
    return until(s, name, lambda t: t.get("ready") == n and t["starting"] == 0 and t["phase"] == "ready")


def adds_up(t):
    assert t["claims"] == t["hits"] + t["partial"] + t["misses"], t


def remove(s, name):
    assert s.call("DELETE", f"/v1/pools/{name}").status == 204
    assert s.call("GET", f"/v1/pools/{name}").status == 404


def at_once(s, n, body):
    """n creations at the same time; the sandboxes are unsorted."""
    made, start = [], threading.Barrier(n)

    def one():
        start.wait()
        made.append(s.call("POST", "/v1/sandboxes", body))

    threads = [threading.Thread(target=one) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LONG)
    assert len(made) == n and all(a.status == 201 for a in made), [a.body for a in made if a.status != 201]
    return [a.json for a in made]


@case
def a_pool_is_created_read_changed_and_removed(s):
    template(s, "one")
    a = s.call("POST", "/v1/pools", {"name": "life", "template": "one", "min": 1, "max": 3})
    assert a.status == 201 and a.headers["Location"] == "/v1/pools/life", a.body
    assert a.json["autoscale"] == {"enabled": True, "targetHitRate": 0.95, "scaleDownDelayMs": 300000}, a.json
    assert a.json["generation"] == 1 and a.json["builtin"] is False, a.json
    assert s.call("POST", "/v1/pools", {"name": "life", "template": "one"}).status == 409
    b = s.call("PATCH", "/v1/pools/life", {"max": 5, "autoscale": {"targetHitRate": 0.9}})
    assert b.status == 200, b.body
    assert (b.json["min"], b.json["max"], b.json["generation"]) == (1, 5, 2), b.json
    assert b.json["autoscale"] == {"enabled": True, "targetHitRate": 0.9, "scaleDownDelayMs": 300000}, b.json
    c = put(s, "life", template="one", min=2, autoscale={"enabled": False})
    assert (c["min"], c["max"], c["generation"], c["createdAt"]) == (2, 8, 3, a.json["createdAt"]), c
    full(s, "life", 2)
    listed = s.call("GET", "/v1/pools").json["items"]
    assert "life" in [p["name"] for p in listed], listed
    assert s.call("GET", "/compat/v1/warmpools").json["items"][0]["name"] == listed[0]["name"]
    assert s.call("GET", "/compat/v1/warmpools/life").json["template"] == "one"
    assert s.call("PATCH", "/compat/v1/warmpools/life", {"min": 0, "max": 0}).json["max"] == 0
    until(s, "life", lambda t: t["phase"] == "off")
    remove(s, "life")
    assert s.call("DELETE", "/v1/pools/life").status == 404


@case
def warmpools_accept_the_names_of_other_clients_and_name_unsupported_fields(s):
    template(s, "one")
    a = s.call("POST", "/compat/v1/warmpools", {"name": "theirs", "runtime": "one", "minSize": 1, "maxSize": 3, "ttl": 60,
                                         "autoScaling": {"enabled": False, "scaleDownDelay": 5}})
    assert a.status == 201, a.body
    assert (a.json["minSize"], a.json["maxSize"], a.json["ttl"], a.json["template"]) == (1, 3, 60, "one"), a.json
    assert a.json["autoScaling"] == {"enabled": False, "scaleDownDelay": 5}, a.json
    ours = s.call("GET", "/v1/pools/theirs").json
    assert (ours["min"], ours["max"], ours["ttlMs"], ours["autoscale"]["scaleDownDelayMs"]) == (1, 3, 60000, 5000), ours
    assert "minSize" not in ours and "availablePods" not in ours["status"], ours
    full(s, "theirs", 1)
    told = s.call("GET", "/compat/v1/warmpools/theirs/status").json
    assert (told["availablePods"], told["pendingPods"]) == (1, 0), told
    assert {c["type"]: c["status"] for c in told["conditions"]} == {"PoolReady": "True", "ScalingUp": "False", "ScalingDown": "False"}, told
    b = s.call("PATCH", "/compat/v1/warmpools/theirs", {"maxSize": 4, "ttlMs": 1000})
    assert b.status == 200 and (b.json["max"], b.json["ttl"]) == (4, 1), b.body
    for body in ({"maxSize": 0}, {"minSize": "1"}, {"minSize": 1, "min": 1}, {"ttl": -1}, {"autoScaling": {"targetUtilization": 80}},
                 {"autoScaling": {"scaleDownDelay": 0}}, {"autoScaling": {"delay": 1}}, {"autoScaling": 1}, {"securityLevel": "high"},
                 {"resources": {}}, {"profileRef": {}}, {"preloadPackages": ["numpy"]}, {"preloadScripts": []}, {"runtime": "python:3.10"},
                 {"runtime": "one", "template": "one"}):
        bad = s.call("PATCH", "/compat/v1/warmpools/theirs", body)
        assert bad.status == 400 and next(iter(body)) in bad.json["error"]["message"], (body, bad.status, bad.body)
    assert s.call("PATCH", "/v1/pools/theirs", {"minSize": 1}).status == 400  # there it is not a field
    remove(s, "theirs")


@case
def invalid_settings_are_refused_and_nothing_is_stored(s):
    template(s, "one")
    bad = [({"template": "one", "min": 3, "max": 2}, 400), ({"template": "none"}, 404), ({}, 400), ({"template": "one", "mim": 1}, 400),
           ({"template": "one", "min": -1}, 400), ({"template": "one", "max": 16385}, 400), ({"template": "one", "min": 2, "max": 2, "recycle": True}, 400),
           ({"template": "one", "autoscale": {"targetHitRate": 1}}, 400), ({"template": "one", "autoscale": {"targetHitRate": "0.9"}}, 400),
           ({"template": "one", "name": "other"}, 400), ({"template": "one", "autoscale": {"scaleDownDelayMs": 0}}, 400)]
    for body, want in bad:
        a = s.call("PUT", "/v1/pools/bad", body)
        assert a.status == want and a.json["error"]["message"], (body, a.status, a.body)
    for name in ("UP", "a b", "-x"):
        assert s.call("POST", "/v1/pools", {"name": name, "template": "one"}).status == 400, name
    assert s.call("GET", "/v1/pools/bad").status == 404
    a = s.call("PUT", "/v1/templates/norun", {"resources": {"pids": 20}})
    assert a.status == 200 and s.call("PUT", "/v1/pools/bad", {"template": "norun"}).status == 400
    hiding = {"version": 1, "extends": "standard", "filesystem": {"hide": ["/usr/share"]}}
    template(s, "hides", policy=hiding)
    assert s.call("PUT", "/v1/pools/bad", {"template": "hides"}).status == 422


@case
def a_sandbox_from_a_pool_has_the_settings_of_its_request(s):
    template(s, "bound", resources={"pids": 33}, env={"FROM": "template"})
    put(s, "bound", template="bound", min=1, max=1, autoscale={"enabled": False})
    full(s, "bound", 1)
    sb = s.call("POST", "/v1/sandboxes", {"template": "bound", "env": {"LATE": "yes"}, "metadata": {"a": "b"}, "lifetimeMs": 600000})
    assert sb.status == 201 and sb.json["resources"]["pids"] == 33 and sb.json["metadata"] == {"a": "b"}, sb.body
    out = s.execute(sb.json["id"], {"command": ["sh", "-c", "echo $FROM $LATE"]}).json
    assert out["stdout"] == "template yes\n", out
    t = full(s, "bound", 1)
    assert (t["claims"], t["hits"], t["misses"]) == (1, 1, 0) and t["hitRate"] == 1, t
    other = s.create({"resources": {"pids": 34}}, runtime="sh")  # another spec
    assert status(s, "bound")["claims"] == 1
    s.delete(sb.json["id"])
    s.delete(other)
    remove(s, "bound")


@case
def a_changed_template_produces_members_of_the_new_generation_only(s):
    before = template(s, "turns", resources={"pids": 41})
    put(s, "turns", template="turns", min=2, max=2, autoscale={"enabled": False})
    old = full(s, "turns", 2)
    assert old["templateGeneration"] == before["generation"], old
    after = template(s, "turns", resources={"pids": 42})
    new = until(s, "turns", lambda t: t["generation"] > old["generation"] and t["ready"] == 2)
    assert new["templateGeneration"] == after["generation"] == before["generation"] + 1, new
    made = at_once(s, 4, {"template": "turns"})
    for sb in made:
        assert sb["resources"]["pids"] == 42, sb
        held = {open(f, encoding="ascii").read() for f in glob.glob(f"/sys/fs/cgroup/**/{PARENT}/{sb['id']}/pids.max", recursive=True)}
        assert held == {"42\n"}, (sb, held)  # in the kernel too
    adds_up(status(s, "turns"))
    for sb in made:
        s.delete(sb["id"])
    remove(s, "turns")


@case
def a_repeated_idempotency_key_finds_the_same_member(s):
    template(s, "keyed", resources={"pids": 43})
    put(s, "keyed", template="keyed", min=1, max=1, autoscale={"enabled": False})
    full(s, "keyed", 1)
    head = {"Idempotency-Key": "pooled-once"}
    a = s.call("POST", "/v1/sandboxes", {"template": "keyed"}, head)
    b = s.call("POST", "/v1/sandboxes", {"template": "keyed"}, head)
    assert (a.status, b.status) == (201, 201) and a.json["id"] == b.json["id"], (a.body, b.body)
    assert b.headers["Idempotency-Replayed"] == "true" and a.headers["Location"].endswith(a.json["id"])
    t = status(s, "keyed")
    assert (t["claims"], t["hits"]) == (1, 1), t
    s.delete(a.json["id"])
    remove(s, "keyed")


@case
def members_of_a_pool_of_a_built_in_template_have_interpreters(s):
    put(s, "snake", template="python", min=1, max=1, autoscale={"enabled": False})
    t = full(s, "snake", 1)
    assert "templateGeneration" not in t and (t["zygote"]["state"], t["zygote"]["members"]) == ("ready", 1), t
    sb = s.call("POST", "/v1/sandboxes", {"template": "python"}).json
    out = s.execute(sb["id"], {"code": "print(6 * 7)"}).json
    assert out["stdout"] == "42\n", out
    a = s.call("POST", f"/v1/sandboxes/{sb['id']}/contexts", {"language": "python"})
    assert a.status == 201, a.body
    born = s.call("POST", f"/v1/sandboxes/{sb['id']}/contexts/{a.json['id']}/execute", {"code": "print(open('/proc/self/comm').read(), end='')"})
    assert born.json["stdout"] == "zygote\n", born.body  # it was forked, not started
    t = status(s, "snake")
    assert (t["claims"], t["hits"]) == (1, 1), t
    adds_up(t)
    s.delete(sb["id"])
    remove(s, "snake")


@case
def a_template_in_use_cannot_be_removed_and_the_error_names_the_pool(s):
    template(s, "used")
    put(s, "user", template="used", max=0)
    a = s.call("DELETE", "/v1/templates/used")
    assert a.status == 409 and a.json["error"]["code"] == "template_in_use" and "user" in a.json["error"]["message"], a.body
    remove(s, "user")
    assert s.call("DELETE", "/v1/templates/used").status == 204


@case
def a_burst_claims_each_member_once_and_the_counters_add_up(s):
    size, burst, rounds = 4, 9, 3
    template(s, "burst", resources={"pids": 37})
    put(s, "burst", template="burst", min=size, max=size, autoscale={"enabled": False})
    ids, claims = set(), 0
    for turn in range(rounds):
        before = full(s, "burst", size)
        made = at_once(s, burst, {"template": "burst"})
        claims += burst
        for sb in made:
            assert sb["id"] not in ids, "one member was claimed twice"
            ids.add(sb["id"])
            assert sb["level"] == "standard" and sb["resources"]["pids"] == 37, sb
        after = status(s, "burst")
        adds_up(after)
        assert after["claims"] == claims, (claims, after)
        assert after["hits"] - before["hits"] >= size, (before, after)  # all prepared members were claimed
        marks = set()
        for i, sb in enumerate(made):  # each sandbox is alone: no file of another is visible
            out = s.execute(sb["id"], {"command": ["sh", "-c", f"ls /workspace; echo {turn}.{i} > /workspace/mark; cat /workspace/mark"]}).json
            assert out["exitCode"] == 0, out
            marks.add(out["stdout"])
        assert marks == {f"{turn}.{i}\n" for i in range(burst)}, marks
        for sb in made:
            s.delete(sb["id"])
    end = full(s, "burst", size)
    assert end["claims"] == claims and end["failed"] == 0 and end["lost"] == 0, end
    remove(s, "burst")


@case
def a_pool_that_scales_grows_with_a_burst_up_to_its_max(s):
    template(s, "grows", resources={"pids": 38})
    put(s, "grows", template="grows", min=0, max=5, autoscale={"enabled": True, "targetHitRate": 0.95, "scaleDownDelayMs": 600000})
    made = at_once(s, 8, {"template": "grows"})
    t = until(s, "grows", lambda t: t["ready"] == t["target"] and t["target"] >= 1 and t["starting"] == 0)
    assert t["target"] <= 5 and t["claims"] == 8, t
    adds_up(t)
    for sb in made:
        s.delete(sb["id"])
    remove(s, "grows")


@case
def pools_exist_again_after_a_restart(s):
    template(s, "stays", resources={"pids": 39})
    put(s, "stays", template="stays", min=2, max=2, autoscale={"enabled": False})
    full(s, "stays", 2)
    s.kill()
    s.start()
    full(s, "stays", 2)
    t = status(s, "stays")
    assert t["claims"] == 0, t  # counters start at 0 with the server
    remove(s, "stays")


@case
def the_capabilities_of_pools_are_reported(s):
    can = s.call("GET", "/v1/capabilities").json["pools"]
    assert can["recycle"] is True and can["max"] >= 1, can
    template(s, "one")
    assert s.call("PUT", "/v1/pools/most", {"template": "one", "max": can["maxMembers"] + 1}).status == 400


def figure(s, name):
    text = s.call("GET", "/metrics").body.decode()
    found = re.search(rf"^cove_{re.escape(name)} (\d+)$", text, re.M)
    return int(found[1]) if found else 0


@case
def metrics_report_zygotes_and_members_without_an_interpreter(s):
    def told(name):
        states = {state: figure(s, f'pool_zygote{{pool="{name}",state="{state}"}}') for state in ("none", "starting", "ready", "failed")}
        return figure(s, f'pool_bare{{pool="{name}"}}'), states
    template(s, "told")
    template(s, "lacks", runtime="python", preload=["json.no_such_module"])
    for name, of in (("told", "told"), ("has", "python"), ("lacks", "lacks")):
        put(s, name, template=of, min=1, max=1, autoscale={"enabled": False})
    full(s, "told", 1)
    full(s, "has", 1)
    until(s, "lacks", lambda t: t.get("ready") == 1 and t["zygote"]["state"] == "failed")
    assert told("told") == (0, {"none": 1, "starting": 0, "ready": 0, "failed": 0}), told("told")
    assert told("has") == (0, {"none": 0, "starting": 0, "ready": 1, "failed": 0}), told("has")
    assert told("lacks") == (1, {"none": 0, "starting": 0, "ready": 0, "failed": 1}), told("lacks")
    for name in ("told", "has", "lacks"):
        remove(s, name)


@case
def metrics_report_every_pool(s):
    template(s, "told", resources={"pids": 40})
    put(s, "told", template="told", min=1, max=1, autoscale={"enabled": False})
    full(s, "told", 1)
    text = s.call("GET", "/metrics").body.decode()
    assert 'cove_pool_size{pool="told"} 1\n' in text and 'cove_pool_target{pool="told"} 1\n' in text, text[-2000:]
    for family in ("claims_total", "hits_total", "misses_total", "claim_seconds_sum", "claim_seconds_count", "joins_total",
                   "zygote_starts_total"):
        assert re.search(rf'^cove_pool_{family}{{pool="told"}} [\d.]+$', text, re.M), family
    for name in set(re.findall(r"^cove_(pool_\w+?)(?:_sum|_count)?\{", text, re.M)):
        assert text.count(f"# TYPE cove_{name} ") == 1, name
    remove(s, "told")


@case
def metrics_report_start_times_by_runtime_and_source(s):
    def count(warm):
        text = s.call("GET", "/metrics").body.decode()
        found = re.search(rf'^cove_sandbox_startup_seconds_count{{runtime="sh",warm="{warm}"}} (\d+)$', text, re.M)
        most = re.search(rf'^cove_sandbox_startup_seconds_bucket{{runtime="sh",warm="{warm}",le="\+Inf"}} (\d+)$', text, re.M)
        assert (found and found[1]) == (most and most[1]), text[-2000:]
        return int(found[1]) if found else 0
    template(s, "starts", resources={"pids": 41})
    cold = count("false")
    s.delete(s.create({"runtime": "sh", "resources": {"pids": 42}}))
    assert count("false") == cold + 1
    put(s, "starts", template="starts", min=1, max=1, autoscale={"enabled": False})
    full(s, "starts", 1)
    warm = count("true")
    s.delete(s.create({"template": "starts"}, runtime="sh"))
    assert count("true") == warm + 1
    remove(s, "starts")


@case
def a_member_without_its_interpreter_does_not_count_as_a_hit(s):
    hits, partial = 'executor_sandboxes_total{pool="hit"}', 'executor_sandboxes_total{pool="partial"}'
    template(s, "bare", runtime="python", preload=["json.no_such_module"])
    put(s, "bare", template="bare", min=1, max=1, autoscale={"enabled": False})
    t = until(s, "bare", lambda t: t.get("ready") == 1 and t["zygote"]["state"] == "failed")
    assert "preload json.no_such_module" in t["zygote"]["message"] and t["phase"] == "degraded", t
    before, warm = (figure(s, hits), figure(s, partial)), figure(s, 'sandbox_startup_seconds_count{runtime="python",warm="true"}')
    a = s.call("POST", "/v1/execute", {"code": "6 * 7", "template": "bare"}).json
    assert (a["outcome"], a["pool"]) == ("success", "partial"), a
    assert (figure(s, hits), figure(s, partial)) == (before[0], before[1] + 1)
    until(s, "bare", lambda t: t["ready"] == 1)
    s.delete(s.create({"template": "bare"}, runtime="python"))
    assert figure(s, 'sandbox_startup_seconds_count{runtime="python",warm="true"}') == warm
    t = status(s, "bare")
    assert (t["hits"], t["partial"]) == (0, 2), t
    remove(s, "bare")


@case
def only_the_scope_pools_write_allows_changes_to_pools(s):
    template(s, "one")
    reader = s.call("POST", "/v1/keys", {"name": "r", "scopes": ["sandboxes:read", "sandboxes:write"]}).json
    writer = s.call("POST", "/v1/keys", {"name": "w", "scopes": ["pools:write"]}).json
    assert s.call("PUT", "/v1/pools/right", {"template": "one"}, key=reader["key"]).status == 403
    assert s.call("PUT", "/v1/pools/right", {"template": "one", "max": 0}, key=writer["key"]).status == 200
    assert s.call("GET", "/v1/pools/right", key=reader["key"]).status == 200
    assert s.call("DELETE", "/v1/pools/right", key=reader["key"]).status == 403
    assert s.call("DELETE", "/v1/pools/right", key=writer["key"]).status == 204


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
