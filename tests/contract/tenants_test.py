#!/usr/bin/env python3
"""tenants_test.py API_TESTD RUNTIME - tenants, users, roles and quotas over the REST interface;
prints TAP.

Every route of api/openapi.yaml has a row in roles.txt that says which roles may use it; a route
without a row fails. A case whose name begins with AUnn is a case of the attack catalogue. Needs
root.
"""
import json
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import api_test
from api_test import PATHS, Feed

HERE = os.path.dirname(os.path.abspath(__file__))
ROLES = ("viewer", "developer", "admin", "operator")
CASES = []
GIVEN = {"sandboxId": "sb", "executionId": "ex", "keyId": "ky", "userId": "us"}


def case(function):
    CASES.append(function)
    return function


def matrix():
    """{(method, path): {role: expectation}}"""
    rows = {}
    with open(os.path.join(HERE, "roles.txt"), encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if words and not line.startswith("#"):
                assert len(words) == 2 + len(ROLES) and (words[0], words[1]) not in rows, line
                rows[words[0], words[1]] = dict(zip(ROLES, words[2:]))
    return rows


def contract():
    """All operations of openapi.yaml: {(method, path): whether it takes JSON}"""
    import yaml
    with open(os.path.join(HERE, "../../api/openapi.yaml"), encoding="utf-8") as f:
        doc = yaml.safe_load(f)
    return {(m.upper(), path): "application/json" in operation.get("requestBody", {}).get("content", {})
            for path, item in doc["paths"].items() for m, operation in item.items()
            if m in ("get", "put", "post", "patch", "delete")}


OPERATIONS = contract() if PATHS else {}


def fill(path, values):
    """The path with a valid id that does not exist, or with the given one."""
    def one(match):
        name = match.group(1)
        return values.get(name) or (GIVEN[name] + "a" * 20 if name in GIVEN else "nothing-of-the-kind")
    path = re.sub(r"\{(\w+)\}", one, path)
    return path + ("?path=/workspace/f" if "/files" in path else "")


def ask(s, method, path, values, key, headers=None):
    """A request that is complete enough to be authorized, and has no effect on missing objects."""
    body = {} if OPERATIONS.get((method, path)) else None
    path = fill(path, values)
    c, r = s.open(method, path, body, headers, key=key, timeout=60)
    answer = api_test.Answer(r, b"" if path == "/v1/maintenance/backup" and r.status == 200 else r.read())
    c.close()
    return answer


def tenant(s, name, quota=None):
    a = s.call("POST", "/v1/tenants", {"name": name, **({"quota": quota} if quota else {})})
    assert a.status == 201, a.body
    return a.json


def user(s, of, name, role, key=True):
    a = s.call("POST", "/v1/users", {"name": name, "role": role, "tenant": of}, key=key)
    assert a.status == 201, a.body
    made = a.json
    a = s.call("POST", "/v1/keys", {"name": name, "user": made["id"], "tenant": of})
    assert a.status == 201, a.body
    return {**made, "key": a.json["key"], "keyId": a.json["id"]}


class Team:
    """A tenant with one user of every role."""

    def __init__(self, s, name):
        self.s, self.name = s, name
        tenant(s, name)
        self.users = {role: user(s, name, f"{role}@{name}", role) for role in ROLES[:3]}

    def key(self, role):
        return self.s.key if role == "operator" else self.users[role]["key"]


ids = iter(range(10**6))


def fresh(prefix):
    return f"{prefix}{next(ids)}"


def error_text(answer):
    """An error without the fields that differ from request to request."""
    error = answer.json["error"]
    error.pop("requestId", None)
    return re.sub(r"\b(sb|ex|ky|us)[a-z2-7]{20}\b|'[^']*'", "ID", json.dumps(error, sort_keys=True))


# --- the matrix ---

@case
def AU05_every_role_may_do_what_its_row_says_on_every_route_and_every_route_has_a_row(s):
    rows = matrix()
    assert set(rows) == set(OPERATIONS), (f"no row in roles.txt: {sorted(set(OPERATIONS) - set(rows))}; "
                                          f"a row without a route: {sorted(set(rows) - set(OPERATIONS))}")
    team, wrong = Team(s, fresh("team")), []
    for (method, path), row in rows.items():
        for role in ROLES:
            answer = ask(s, method, path, {}, team.key(role))
            refused = answer.status in (401, 403)
            if refused != (row[role] == "no"):
                wrong.append(f"{method} {path} by {role}: {answer.status}, but the row says {row[role]}")
            if answer.status >= 500 and path != "/ready":
                wrong.append(f"{method} {path} by {role}: {answer.status}")
            if refused and answer.json["error"]["code"] != "forbidden":
                wrong.append(f"{method} {path} by {role}: {answer.body}")
    assert not wrong, "\n".join(wrong)


@case
def AU01_only_the_open_routes_answer_without_a_complete_valid_key(s):
    bad = [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer "},
           {"Authorization": s.key}, {"Authorization": f"Basic {s.key}"}, {"Authorization": f"Bearer {s.key[:-1]}"},
           {"Authorization": f"Bearer {s.key}0"}, {"Authorization": f"Bearer {s.key} {s.key}"},
           {"Authorization": f"Bearer {s.key.upper()}"}, {"X-API-Key": s.key[:20]}, {"Cookie": f"key={s.key}"},
           {"Authorization": f"Bearer {s.key}", "X-API-Key": "cove_" + "0" * 40}]
    wrong = []
    for (method, path), row in matrix().items():
        for headers in bad:
            answer = ask(s, method, path, {}, False, headers)
            if (answer.status == 401) != (row["viewer"] != "open"):
                wrong.append(f"{method} {path} with {headers}: {answer.status}")
            if answer.status == 401 and (answer.json["error"]["code"] != "unauthorized" or
                                         not answer.headers["WWW-Authenticate"]):
                wrong.append(f"{method} {path} with {headers}: {answer.body}")
    assert not wrong, "\n".join(wrong)


def furnish(s, team):
    """Creates one object of every kind in a tenant."""
    key = team.key("admin")
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "sh", "metadata": {"who": team.name}}, key=key).json["id"]
    ex = s.call("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["echo", "secret"]}, key=key).json["id"]
    assert s.call("PUT", f"/v1/sandboxes/{sb}/files?path=/workspace/f", b"mine", key=key).status in (200, 201)
    role = s.call("POST", "/v1/roles", {"name": f"role-{team.name}", "permissions": ["files:read"]}, key=key).json["name"]
    assert role == f"role-{team.name}"
    return {"sandboxId": sb, "executionId": ex, "keyId": team.users["viewer"]["keyId"],
            "userId": team.users["viewer"]["id"], "role": role, "tenant": team.name}


@case
def AU02_objects_of_another_tenant_are_not_found_on_any_route(s):
    mine, theirs = Team(s, fresh("mine")), Team(s, fresh("theirs"))
    things, own = furnish(s, mine), furnish(s, theirs)
    machine = s.call("POST", "/v1/keys", {"name": "all", "user": None, "tenant": theirs.name, "scopes": [
        "sandboxes:read", "sandboxes:write", "executions", "files", "keys", "tenant", "audit", "usage"]}).json["key"]
    shared = {"runtime", "template", "policy", "pool"}
    wrong, tried = [], 0
    for method, path in sorted(matrix()):
        names = set(re.findall(r"\{(\w+)\}", path)) - shared
        for key in (theirs.key("admin"), machine):
            for values in ([things] + ([{**things, "sandboxId": own["sandboxId"]}] if "executionId" in names else [])):
                if not names:
                    continue
                tried += 1
                there, nowhere = (ask(s, method, path, v, key) for v in (values, {}))
                if there.status != nowhere.status or error_text(there) != error_text(nowhere):
                    wrong.append(f"{method} {path}: {there.status} {there.body} and {nowhere.status} {nowhere.body}")
                if there.status not in (404, 403) and not (there.status == 400 and nowhere.status == 400):
                    wrong.append(f"{method} {path}: {there.status}")
    assert not wrong, "\n".join(wrong)
    assert tried > 60, tried
    key = mine.key("admin")
    assert s.call("GET", f"/v1/sandboxes/{things['sandboxId']}", key=key).json["state"] == "running"
    assert s.call("GET", f"/v1/sandboxes/{things['sandboxId']}/files?path=/workspace/f", key=key).body == b"mine"
    assert s.call("GET", f"/v1/tenants/{mine.name}", key=mine.key("viewer")).json["name"] == mine.name
    assert s.call("GET", f"/v1/tenants/{theirs.name}", key=mine.key("admin")).status == 404
    for name in ("sandboxId", "keyId", "userId", "executionId"):
        path = {"sandboxId": "/v1/sandboxes/{}", "keyId": "/v1/keys/{}", "userId": "/v1/users/{}",
                "executionId": "/v1/sandboxes/" + things["sandboxId"] + "/executions/{}"}[name].format(things[name])
        assert s.call("GET", path, key=key).status == 200, path  # its own tenant sees it
        assert s.call("GET", path).status == 200, path           # the operator sees it too
    for t, v in ((mine, things), (theirs, own)):
        assert s.call("DELETE", f"/v1/sandboxes/{v['sandboxId']}", key=t.key("admin")).status == 200


@case
def AU03_no_list_filter_cursor_or_replay_shows_another_tenants_rows(s):
    mine, theirs = Team(s, fresh("mine")), Team(s, fresh("theirs"))
    things, own = furnish(s, mine), furnish(s, theirs)
    key, foreign = theirs.key("admin"), json.dumps(list(things.values()))
    cursors = {}
    for path in ("/v1/sandboxes", "/v1/keys", "/v1/users", "/v1/events"):
        cursors[path] = s.call("GET", path + "?limit=1", key=mine.key("admin")).json.get("nextCursor")
    queries = ["/v1/sandboxes", f"/v1/sandboxes?metadata=who={mine.name}", "/v1/sandboxes?state=running",
               f"/v1/sandboxes/{own['sandboxId']}/executions", f"/v1/sandboxes/{own['sandboxId']}/events",
               "/v1/keys", "/v1/users", "/v1/roles", "/v1/events", "/v1/events?after=0"]
    queries += [f"{path}?limit=1000&cursor={cursor}" for path, cursor in cursors.items() if cursor]
    for query in queries:
        answer = s.call("GET", query, key=key)
        assert answer.status == 200, (query, answer.body)
        for one in json.loads(foreign):
            assert f'"{one}"'.encode() not in answer.body, (query, one)
    assert s.call("GET", f"/v1/events?sandbox={things['sandboxId']}", key=key).status == 404
    feed = Feed(s, "?after=0", key=key)
    s.call("DELETE", f"/v1/sandboxes/{things['sandboxId']}", key=mine.key("admin"))
    s.call("DELETE", f"/v1/sandboxes/{own['sandboxId']}", key=key)
    seen = feed.until("sandbox_ended", own["sandboxId"])
    assert {e["sandboxId"] for e in seen if "sandboxId" in e} == {own["sandboxId"]}, seen
    feed.close()


@case
def AU04_an_idempotency_key_and_an_entity_tag_belong_to_their_tenant(s):
    mine, theirs = Team(s, fresh("mine")), Team(s, fresh("theirs"))
    same = {"Idempotency-Key": fresh("same")}
    made = [s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, same, key=t.key("developer")) for t in (mine, theirs)]
    assert [a.status for a in made] == [201, 201], [a.body for a in made]
    assert made[0].json["id"] != made[1].json["id"] and not made[1].headers["Idempotency-Replayed"]
    again = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, same, key=mine.key("admin"))
    assert again.json["id"] == made[0].json["id"] and again.headers["Idempotency-Replayed"] == "true"
    path = f"/v1/sandboxes/{made[0].json['id']}/files?path=/workspace/f"
    assert s.call("PUT", path, b"x", key=mine.key("developer")).status in (200, 201)
    tag = s.call("GET", path, key=mine.key("viewer")).headers["ETag"]
    assert s.call("GET", path, None, {"If-None-Match": tag or '"x"'}, key=theirs.key("admin")).status == 404
    for t, a in zip((mine, theirs), made):
        assert s.call("DELETE", f"/v1/sandboxes/{a.json['id']}", key=t.key("developer")).status == 200


# --- users and roles ---

@case
def AU17_no_user_can_gain_permissions_and_the_last_admin_stays(s):
    team = Team(s, fresh("team"))
    admin, dev = team.users["admin"], team.users["developer"]

    def call(method, path, body=None, key=admin["key"]):
        return s.call(method, path, body, key=key)

    for body in ({"role": "viewer"}, {"disabled": True}):
        assert call("PATCH", f"/v1/users/{admin['id']}", body).code == "last_admin"
    assert call("DELETE", f"/v1/users/{admin['id']}").code == "last_admin"
    weak = call("POST", "/v1/keys", {"name": "weak", "scopes": ["tenant", "keys", "files"]}).json
    assert weak["user"] == admin["id"] and weak["tenant"] == team.name
    for method, path, body in (("POST", "/v1/users", {"name": "x", "role": "developer"}),
                               ("PATCH", f"/v1/users/{dev['id']}", {"role": "admin"}),
                               ("PATCH", f"/v1/users/{dev['id']}", {"disabled": True}),
                               ("DELETE", f"/v1/users/{dev['id']}", None),
                               ("POST", "/v1/roles", {"name": "x", "permissions": ["executions"]}),
                               ("POST", "/v1/keys", {"name": "x", "scopes": ["executions"]}),
                               ("POST", f"/v1/keys/{dev['keyId']}/rotate", None)):
        assert call(method, path, body, weak["key"]).status == 403, (method, path)
    assert call("POST", "/v1/keys", {"name": "x", "scopes": ["admin"], "user": None}).status == 403
    assert call("POST", "/v1/roles", {"name": "x", "permissions": ["admin"]}).status == 403
    assert s.call("POST", "/v1/roles", {"name": "x", "permissions": ["metrics"], "tenant": team.name}).status == 400
    assert call("POST", "/v1/roles", {"name": "viewer", "permissions": ["files"]}).status == 409
    # A developer can manage their own keys and no others.
    assert call("POST", "/v1/keys", {"name": "x", "user": None, "scopes": ["files"]}, dev["key"]).status == 403
    assert call("POST", "/v1/keys", {"name": "x", "user": admin["id"], "scopes": ["files"]}, dev["key"]).status == 403
    assert {k["user"] for k in call("GET", "/v1/keys", key=dev["key"]).json["items"]} == {dev["id"]}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/rotate")):
        assert call(method, f"/v1/keys/{admin['keyId']}{path}", key=dev["key"]).status == 404
    # Two admins that demote each other at the same time: one stays.
    second = user(s, team.name, "second", "admin")
    answers = []
    threads = [threading.Thread(target=lambda who, by: answers.append(
        s.call("PATCH", f"/v1/users/{who}", {"role": "viewer"}, key=by).status), args=pair)
        for pair in ((admin["id"], second["key"]), (second["id"], admin["key"]))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    users = s.call("GET", f"/v1/users?tenant={team.name}").json["items"]
    assert sum(u["role"] == "admin" for u in users) == 1, (answers, users)


@case
def a_custom_role_has_exactly_its_permissions_and_a_change_applies_at_once(s):
    team = Team(s, fresh("team"))
    key = team.key("admin")
    made = s.call("POST", "/v1/roles", {"name": "runner", "permissions": ["executions", "sandboxes:read"]}, key=key).json
    assert made["permissions"] == ["sandboxes:read", "executions", "executions:read"] and not made["builtIn"]
    runner = user(s, team.name, "runner", "runner")
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key).json["id"]
    run = f"/v1/sandboxes/{sb}/executions"
    done = s.call("POST", run, {"command": ["true"]}, key=runner["key"])
    assert done.status == 200 and done.json["createdBy"] == runner["id"], done.body
    assert s.call("GET", f"{run}/{done.json['id']}", key=key).json["createdBy"] == runner["id"]
    assert s.call("GET", f"/v1/sandboxes/{sb}/files?path=/workspace/f", key=runner["key"]).status == 403
    assert s.call("DELETE", "/v1/roles/runner", key=key).status == 409
    assert s.call("PATCH", f"/v1/users/{runner['id']}", {"role": "viewer"}, key=key).status == 200
    assert s.call("POST", run, {"command": ["true"]}, key=runner["key"]).status == 403
    assert s.call("DELETE", "/v1/roles/runner", key=key).status == 204
    assert s.call("PATCH", f"/v1/users/{runner['id']}", {"role": "runner"}, key=key).status == 404
    feed = Feed(s, key=runner["key"])
    assert s.call("PATCH", f"/v1/users/{runner['id']}", {"disabled": True}, key=key).status == 200
    end = feed.next()
    while end["type"] == "event":
        end = feed.next()
    assert end["type"] == "end", end
    feed.close()
    refused = s.call("GET", "/v1/sandboxes", key=runner["key"])
    assert refused.status == 401 and "disabled" in refused.json["error"]["message"]
    assert s.call("DELETE", f"/v1/users/{runner['id']}", key=key).status == 204
    assert s.call("GET", "/v1/sandboxes", key=runner["key"]).status == 401
    s.call("DELETE", f"/v1/sandboxes/{sb}", key=key)


@case
def AU18_only_the_operator_can_choose_a_tenant_by_header_query_or_body(s):
    mine, theirs = Team(s, fresh("mine")), Team(s, fresh("theirs"))
    key = theirs.key("admin")
    for header in ("X-Tenant-Id", "X-Tenant", "X-Owner", "X-Forwarded-User", "X-User-Id"):
        answer = s.call("GET", "/v1/whoami", None, {header: mine.name}, key=key)
        assert answer.json["tenant"] == theirs.name, header
    for body in ({"runtime": "sh", "tenant": mine.name}, {"runtime": "sh", "owner": mine.name}):
        assert s.call("POST", "/v1/sandboxes", body, key=key).status == 400
    there, nowhere = ({} for _ in range(2))
    for name, said in ((mine.name, there), ("nobody-at-all", nowhere)):
        said["users"] = s.call("GET", f"/v1/users?tenant={name}", key=key)
        said["roles"] = s.call("GET", f"/v1/roles?tenant={name}", key=key)
        said["role"] = s.call("DELETE", f"/v1/roles/viewer?tenant={name}", key=key)
        said["user"] = s.call("POST", "/v1/users", {"name": "x", "role": "viewer", "tenant": name}, key=key)
        said["key"] = s.call("POST", "/v1/keys", {"name": "x", "scopes": ["files"], "tenant": name}, key=key)
    for what, answer in there.items():
        assert answer.status == 403 and error_text(answer) == error_text(nowhere[what]), (what, answer.body)
    assert s.call("GET", f"/v1/sandboxes?tenant={mine.name}", key=key).status == 400
    assert {u["tenant"] for u in s.call("GET", f"/v1/users?tenant={mine.name}").json["items"]} == {mine.name}
    assert s.call("POST", "/v1/users", {"name": "x", "role": "viewer", "tenant": "nobody-at-all"}).status == 404


@case
def a_suspended_tenant_is_refused_and_its_sandboxes_are_ended(s):
    team = Team(s, fresh("team"))
    key = team.key("developer")
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key).json["id"]
    feed = Feed(s, key=key)
    assert s.call("PATCH", f"/v1/tenants/{team.name}", {"suspended": True}).json["suspended"]
    refused = s.call("GET", "/v1/sandboxes", key=key)
    assert refused.status == 403 and refused.code == "tenant_suspended", refused.body
    feed.response.read()  # it ends
    feed.close()
    end = time.monotonic() + 60
    while (row := s.call("GET", f"/v1/sandboxes/{sb}").json)["state"] != "ended":
        assert time.monotonic() < end, row
        time.sleep(0.05)
    assert row["reason"]["code"] == "tenant_suspended", row
    s.kill()
    s.start()
    assert s.call("GET", "/v1/sandboxes", key=key).code == "tenant_suspended"
    assert not s.call("PATCH", f"/v1/tenants/{team.name}", {"suspended": False}).json["suspended"]
    assert s.call("GET", f"/v1/sandboxes/{sb}", key=key).json["state"] == "ended"
    again = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key)
    assert again.status == 201, again.body
    assert s.call("DELETE", f"/v1/tenants/{team.name}").status == 204
    assert s.call("GET", "/v1/sandboxes", key=key).status == 401
    assert s.call("POST", "/v1/tenants", {"name": team.name}).status == 409
    assert s.call("PATCH", f"/v1/tenants/{team.name}", {"suspended": False}).status == 409
    assert s.call("GET", f"/v1/tenants/{team.name}").json["removedAt"]
    for body in ({"suspended": True}, {}):
        assert s.call("PATCH", "/v1/tenants/local", body).status == 400
    assert s.call("DELETE", "/v1/tenants/local").status == 403


# --- quotas ---

def at_once(n, function):
    """The answers of n calls at the same time."""
    answers, ready = [], threading.Barrier(n)

    def run():
        ready.wait()
        answers.append(function())

    threads = [threading.Thread(target=run) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


@case
def AU19_of_a_hundred_concurrent_creations_at_the_limit_exactly_one_succeeds(s):
    team = Team(s, fresh("team"))
    key = team.key("developer")
    s.call("PATCH", f"/v1/tenants/{team.name}", {"quota": {"sandboxes": 3}})
    made = [s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key).json["id"] for _ in range(2)]
    answers = at_once(100, lambda: s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key, timeout=120))
    good = [a for a in answers if a.status == 201]
    assert len(good) == 1, [a.status for a in answers]
    for a in answers:
        if a.status != 201:
            assert a.status == 409 and a.code == "quota_exceeded", a.body
            assert a.json["error"]["details"] == {"limit": "sandboxes", "max": 3, "used": 3, "requested": 1}, a.body
    used = s.call("GET", f"/v1/tenants/{team.name}", key=team.key("viewer")).json
    assert used["used"]["sandboxes"] == 3 and used["quota"] == {"sandboxes": 3}, used
    s.kill()
    s.start()
    assert s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key).code == "quota_exceeded"
    for sb in made + [good[0].json["id"]]:
        assert s.call("DELETE", f"/v1/sandboxes/{sb}", key=key).status == 200
    assert s.call("GET", f"/v1/tenants/{team.name}", key=key).json["used"]["sandboxes"] == 0
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key)
    assert sb.status == 201, sb.body
    s.call("DELETE", f"/v1/sandboxes/{sb.json['id']}", key=key)


@case
def a_quota_without_names_changes_nothing(s):
    name = tenant(s, fresh("team"), {"sandboxes": 3})["name"]
    same = s.call("PATCH", f"/v1/tenants/{name}", {"quota": {}})
    assert same.status == 200 and same.json["quota"] == {"sandboxes": 3} and not same.json["suspended"], same.body
    nothing = s.call("PATCH", f"/v1/tenants/{name}", {})
    assert nothing.status == 400 and nothing.code == "invalid_request", nothing.body


@case
def sums_of_cpu_memory_and_storage_are_each_bounded(s):
    team = Team(s, fresh("team"))
    key = team.key("developer")
    for name, resource, unit in (("cpuMillis", "cpuMillis", 100), ("memoryBytes", "memoryBytes", 64 << 20),
                                 ("storageBytes", "storageBytes", 16 << 20)):
        s.call("PATCH", f"/v1/tenants/{team.name}",
               {"quota": {"cpuMillis": None, "memoryBytes": None, "storageBytes": None, name: 2 * unit}})
        body = {"runtime": "sh", "resources": {"memoryBytes": 128 << 20, "storageBytes": 1 << 20, resource: unit}}
        made = [s.call("POST", "/v1/sandboxes", body, key=key) for _ in range(3)]
        assert [a.status for a in made] == [201, 201, 409], [a.body for a in made]
        assert made[2].json["error"]["details"] == {"limit": name, "max": 2 * unit, "used": 2 * unit, "requested": unit}
        assert s.call("GET", f"/v1/tenants/{team.name}", key=key).json["used"][name] == 2 * unit
        for a in made[:2]:
            s.call("DELETE", f"/v1/sandboxes/{a.json['id']}", key=key)
        assert s.call("GET", f"/v1/tenants/{team.name}", key=key).json["used"][name] == 0
    for bad in ({"sandboxes": 0}, {"sandboxes": -1}, {"sandboxes": "3"}, {"sandbox": 3}, {"sandboxes": 2**61}):
        assert s.call("PATCH", f"/v1/tenants/{team.name}", {"quota": bad}).status == 400, bad


@case
def executions_per_hour_are_bounded_also_concurrently_and_over_a_restart(s):
    team = Team(s, fresh("team"))
    key = team.key("developer")
    s.call("PATCH", f"/v1/tenants/{team.name}", {"quota": {"executionsPerHour": 5}})
    sb = s.call("POST", "/v1/sandboxes", {"runtime": "sh"}, key=key).json["id"]
    answers = at_once(20, lambda: s.call("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["true"]}, key=key,
                                         timeout=120))
    assert sorted(a.status for a in answers) == [200] * 5 + [409] * 15, [a.body for a in answers]
    late = next(a for a in answers if a.status == 409)
    assert late.code == "quota_exceeded" and 0 < int(late.headers["Retry-After"]) <= 3600, late.body
    assert late.json["error"]["details"]["limit"] == "executionsPerHour"
    s.kill()
    s.start()
    assert s.call("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["true"]}, key=key).code == "quota_exceeded"
    assert s.call("GET", f"/v1/tenants/{team.name}", key=key).json["used"]["executionsPerHour"] == 5
    s.call("PATCH", f"/v1/tenants/{team.name}", {"quota": {"executionsPerHour": None}})
    assert s.call("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["true"]}, key=key).status == 200
    s.call("DELETE", f"/v1/sandboxes/{sb}", key=key)


@case
def AU11_guessed_keys_do_not_lock_out_other_clients_of_the_same_address(s):
    """Runs last of the cases that send wrong keys: a later request from this address with a wrong
    key has to wait."""
    team = fresh("team")
    tenant(s, team)
    for i in range(30):
        answer = s.call("GET", "/v1/whoami", key=f"cove_{i:040x}")
        assert answer.status in (401, 429), answer.body
    assert answer.status == 429 and int(answer.headers["Retry-After"]) >= 1, answer.headers
    key = s.call("POST", "/v1/keys", {"name": "new", "scopes": ["files"], "tenant": team}).json["key"]
    assert s.call("GET", "/v1/whoami", key=key).status == 200


if __name__ == "__main__":
    api_test.CASES[:] = CASES
    sys.exit(api_test.main())
