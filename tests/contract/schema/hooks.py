"""Loaded into schemathesis by schema_test.py. A random id does not exist, so most requests would
end at 404: strings that look like ids are replaced by ids of existing objects. An object that an
operation uses up (a sandbox to delete, a key to revoke) is created for it.
"""
import collections
import json
import os
import random
import re
import threading

import requests
import schemathesis

URL, KEY = os.environ["COVE_URL"], os.environ["COVE_API_KEY"]
KEEP = 12  # sandboxes made by requests that are kept for later requests
WORDS = random.Random(int(os.environ.get("COVE_SCHEMA_SEED", "1")))
NETWORKS = ["none", {"egress": []}, {"allow": ["pypi.org", "preset:npm"], "deny": ["*.example.org:443"]},
            {"egress": [{"allow": "example.org:80", "methods": ["GET"], "path": "/v1/*"}, "deny *"]}]
LOCK = threading.RLock()
MADE = []
VALID_PATH = re.compile(r"(?=.{1,1000}\Z)/?[^/\0]{0,255}(/[^/\0]{0,255})*", re.S)  # others are sent as they are


def own(method, path, body=None, **options):
    return requests.request(method, URL + path, json=body, timeout=60, headers={"Authorization": f"Bearer {KEY}"}, **options)


def must(answer):
    if answer.status_code >= 300:
        raise RuntimeError(f"{answer.request.method} {answer.request.path_url}: {answer.status_code} {answer.text[:300]}")
    return answer.json()


def sandbox():
    return must(own("POST", "/v1/sandboxes", {"runtime": "sh", "lifetimeMs": 3600000}))["id"]


def tenant():
    return must(own("POST", "/v1/tenants", {"name": f"t{WORDS.randrange(10 ** 12)}"}))["name"]


def user():
    return must(own("POST", "/v1/users", {"name": f"u{WORDS.randrange(10 ** 12)}", "role": "viewer"}))["id"]


def terminal(where):
    """A terminal that ends soon: its id may be used by a request that waits for its end."""
    return must(own("POST", f"/v1/sandboxes/{where}/executions", {
        "command": ["sleep", "600"], "background": True, "tty": True, "timeoutMs": 1500}))["id"]


def execution(where, background=False):
    words = ["sleep", "600"] if background else ["sh", "-c", "echo out; echo err >&2; echo text > /workspace/data.csv"]
    return must(own("POST", f"/v1/sandboxes/{where}/executions", {
        "command": words, "background": background, "stdinOpen": background, "timeoutMs": 600000}))["id"]


def context(where):
    return must(own("POST", f"/v1/sandboxes/{where}/contexts", {"language": "python"}))["id"]


def script(where):
    """The id of new code that ran successfully."""
    answer = must(own("POST", f"/v1/sandboxes/{where}/tools/run_sandbox", {"code": f"echo {WORDS.randrange(10 ** 12)}"}))
    return answer["result"]["script"]["id"]


def asking(where, context):
    """An execution that waits for a line."""
    given = must(own("POST", f"/v1/sandboxes/{where}/contexts/{context}/execute", {
        "code": "input()", "background": True, "timeoutMs": 3000}))["id"]
    with own("GET", f"/v1/sandboxes/{where}/executions/{given}/stream", stream=True) as told:
        for line in told.iter_lines():
            if b'"type":"input"' in line:
                break
    return given


class Kept:
    """Objects that are created once and shared by all requests that only read."""

    def __init__(self):
        self.sandbox = sandbox()
        self.execution = execution(self.sandbox)
        self.running = execution(self.sandbox, True)
        self.context, self.asker = context(self.sandbox), context(self.sandbox)
        self.key = must(own("GET", "/v1/keys"))["items"][-1]["id"]


KEPT = []


def kept():
    with LOCK:
        if not KEPT:
            KEPT.append(Kept())
        return KEPT[0]


USES_UP = {"deleteSandbox", "pauseSandbox", "updateSandbox", "createContext", "deleteContext", "forkContext"}


TURNS = collections.Counter()


def turn(what):
    """True the first time and every second time: the first request of an operation is one that can
    succeed."""
    TURNS[what] += 1
    return TURNS[what] % 2 == 1


def looks(value, kind):
    return isinstance(value, str) and re.fullmatch(kind + "[a-z2-7]{20}", value) is not None


def exchange_ids(case, operation):
    ids = case.path_parameters or {}
    if looks(ids.get("sandboxId"), "sb"):
        ids["sandboxId"] = sandbox() if operation in USES_UP else kept().sandbox
    if looks(ids.get("executionId"), "ex"):
        if operation == "cancelExecution":
            ids["executionId"] = execution(kept().sandbox, True)
        elif operation == "answerInput" and not negative(case):
            ids["executionId"] = asking(kept().sandbox, kept().asker)
        elif operation in ("resizeExecution", "signalExecution") and not negative(case):
            ids["executionId"] = terminal(kept().sandbox)
        else:
            ids["executionId"] = kept().running if operation == "writeStdin" else kept().execution
    if looks(ids.get("contextId"), "cx"):
        ids["contextId"] = context(ids["sandboxId"]) if operation in ("deleteContext", "forkContext") and looks(ids.get("sandboxId"), "sb") \
            else kept().context
    if looks(ids.get("scriptId"), "sc"):
        ids["scriptId"] = script(kept().sandbox)
    if looks(ids.get("mcpSessionId"), "[a-z]{2}"):
        ids["mcpSessionId"] = must(own("POST", "/v1/mcp/sessions", {}))["id"]
    if looks(ids.get("keyId"), "[a-z]{2}"):
        spare = operation in ("revokeApiKey", "rotateApiKey")
        ids["keyId"] = must(own("POST", "/v1/keys", {"name": "spare", "scopes": ["files"]}))["id"] if spare else kept().key
    if looks(ids.get("userId"), "[a-z]{2}"):
        ids["userId"] = user()
    if operation not in ("getTenant", "getBudget") and isinstance(ids.get("tenant"), str):
        ids["tenant"] = tenant()  # never the tenant of this run


def exchange_cursor(case, operation):
    """Replaces the cursor by one of a real list."""
    cursor = (case.query or {}).get("cursor")
    if not isinstance(cursor, str) or not 1 <= len(cursor) <= (344 if operation == "listFiles" else 200):
        return
    path = {"listSandboxes": "/v1/sandboxes", "listApiKeys": "/v1/keys", "listTemplates": "/v1/templates",
            "listScripts": "/v1/scripts", "listTenants": "/v1/tenants", "listUsers": "/v1/users", "listRoles": "/v1/roles"}.get(
        operation, f"/v1/sandboxes/{case.path_parameters.get('sandboxId')}/" +
        ("events" if operation == "listSandboxEvents" else "executions"))
    if operation == "listFiles":
        case.query["cursor"] = "YQ"
        return
    given = own("GET", path + "?limit=1")
    fresh = given.json().get("nextCursor") if given.ok else None
    if fresh:
        case.query["cursor"] = fresh
    else:
        del case.query["cursor"]


def exchange_paths(case, operation):
    """A file to read or to use up, a directory to list, or at least a writable directory."""
    moved = operation == "moveFile" and isinstance(case.body, dict)
    holder, names = (case.body, ("from", "to")) if moved else (case.query or {}, ("path",))
    real = turn(operation + " path")
    for name in names:
        value = holder.get(name)
        if not isinstance(value, str) or not VALID_PATH.fullmatch(value):
            continue
        if real and operation in ("listFiles", "readTree"):
            holder[name] = "/workspace"
        elif real and name != "to" and operation in ("readFile", "statFile", "deleteFile", "moveFile"):
            holder[name] = f"/workspace/f{WORDS.randrange(10 ** 9)}"
            must(own("PUT", f"/v1/sandboxes/{case.path_parameters['sandboxId']}/files?path={holder[name]}", data=b"text"))
        elif value.startswith("/") and not value.startswith("/workspace"):
            holder[name] = "/workspace" + value


def make_room():
    """Removes pools: a server has at most 64 pools, and this run creates more."""
    TURNS["pools"] += 1
    if TURNS["pools"] % 20 == 1:
        for found in must(own("GET", "/v1/pools"))["items"]:
            if found["name"] != "pooled" and not found["builtin"]:
                own("DELETE", f"/v1/pools/{found['name']}")


def pool(spare=False):
    """The name of an existing pool."""
    make_room()
    must(own("PUT", "/v1/templates/pooled", {"runtime": "sh"}))
    name = f"p{WORDS.randrange(10 ** 12)}" if spare else "pooled"
    must(own("PUT", f"/v1/pools/{name}", {"template": "pooled", "max": 1}))
    return name


def pool_body(case):
    """The body of a small pool of an existing template: many sandboxes of all sizes do not test the
    contract."""
    make_room()
    must(own("PUT", "/v1/templates/pooled", {"runtime": "sh"}))
    for name in ("template", "runtime"):
        if name in case.body:
            case.body[name] = "pooled"
    if "template" in case.body:
        case.body.pop("runtime", None)  # both fields mean the same
    theirs = "warmpools" in case.operation.path
    case.body.update({"minSize": 0, "maxSize": 1} if theirs else {"min": 0, "max": 1})
    if "name" in case.body and "pool" in (case.path_parameters or {}):
        case.body.pop("name")  # the name is in the path
    elif "name" in case.body:
        case.body["name"] = f"p{WORDS.randrange(10 ** 12)}"


def exchange_rest(case, operation):
    if operation == "createApiKey" and "expiresAt" in case.body:
        case.body["expiresAt"] = WORDS.choice(["2099-01-01T00:00:00Z", "2098-12-31T23:59:59.25+14:00"])
    if operation in ("createSandbox", "putTemplate", "execute") and "policy" in case.body:
        case.body["policy"] = {"version": 1, "limits": {"pids": 40}}  # random names of calls and limits would not be valid
        case.body["level"] = "custom"
    elif operation in ("createSandbox", "putTemplate", "execute") and case.body.get("level") == "custom":
        del case.body["level"]
    if operation == "putTemplate" and "preload" in case.body:
        case.body["preload"] = WORDS.choice([[], ["json"], ["os.path", "re"]])  # the names together are bounded too
        case.body["runtime"] = "python"
    if operation == "createExecution":
        if case.body.get("tty"):
            case.body.pop("stdin", None)
        if case.body.get("command", ["x"])[:1] == [""]:
            case.body["command"][0] = "true"  # a program has a name
        if "stdin" in case.body:
            case.body.pop("stdinOpen", None)  # these two exclude each other
        if case.body.get("changes") and "command" not in case.body:
            case.body["isolated"] = True  # a context does not list changes
        case.body["timeoutMs"] = min(case.body.get("timeoutMs", 2000), 2000)  # a program that waits for input stops after this time
    if operation == "createContext":
        case.body["language"] = "python"  # other languages may be missing
        case.body.pop("cwd", None)
    if operation in ("completeInContext", "inspectInContext"):
        case.body["cursor"] = min(case.body["cursor"], len(case.body["code"]))
    if operation == "executeInContext":
        case.body["timeoutMs"] = min(case.body.get("timeoutMs", 2000), 2000)
        case.body["code"] = "1"
    if operation == "execute":
        if case.body.get("command", ["x"])[:1] == [""]:
            case.body["command"][0] = "true"
        if "code" in case.body:
            case.body.update({"code": "1", "language": "python"})  # other languages may be missing
        case.body.pop("cwd", None)
        for i, f in enumerate(case.body.get("files") or []):
            f["path"] = f"f{i}"  # paths must differ
        (case.body.get("resources") or {}).pop("cpuPinning", None)  # true is refused on this host
        case.body["timeoutMs"] = min(case.body.get("timeoutMs", 2000), 2000)
    if operation in ("createSandbox", "putTemplate", "execute"):
        for name in ("storageBytes", "tmpBytes", "shmBytes"):
            (case.body.get("resources") or {}).pop(name, None)  # they would have to fit into the memory
    if isinstance(case.body, dict) and "network" in case.body:
        case.body["network"] = WORDS.choice(NETWORKS)  # a rule has a grammar that a schema cannot describe
    if operation == "explainUrl":
        case.query["url"] = "https://pypi.org/simple/"
    if operation in ("listAudit", "listSecurityEvents") and "latest" in case.query:
        case.query.pop("format", None)  # these two exclude each other
    if operation == "getUsage":
        for name in {"from", "to"} & set(case.query):
            case.query[name] = {"from": "2020-01-31", "to": "2020-02-01T12:00:00Z"}[name]
    if operation in ("createUser", "createRole", "createApiKey") and turn(operation):
        case.body.pop("tenant", None)
        case.body.pop("user", None)
        if operation == "createUser":
            case.body["role"] = "viewer"
        if "name" in case.body:
            case.body["name"] = f"n{WORDS.randrange(10 ** 12)}"
    if operation == "createApiKey":
        case.body.setdefault("scopes", ["files"])  # required if the principal is not a user
    if operation == "callTool" and turn(operation):
        case.path_parameters["tool"], case.body = "search_tools", {}
    if operation == "callToolInSandbox" and turn(operation):
        case.path_parameters["tool"], case.body = "bash", {"command": "true"}
    if operation == "setUser" and turn(operation):
        case.body["role"] = "developer"
    if operation == "getTenant" and turn(operation):
        case.path_parameters["tenant"] = "local"
    if operation == "getRole" and turn(operation):
        case.path_parameters["role"] = "viewer"
    if operation == "removeRole" and turn(operation):
        case.path_parameters["role"] = f"r{WORDS.randrange(10 ** 12)}"
        must(own("POST", "/v1/roles", {"name": case.path_parameters["role"], "permissions": ["files"]}))
        (case.query or {}).pop("tenant", None)
    if operation in ("listUsers", "listRoles", "getRole") and turn(operation + " tenant"):
        (case.query or {}).pop("tenant", None)
    if operation == "getRuntime" and turn(operation):
        case.path_parameters["runtime"] = "sh"
    if operation == "getPolicy" and turn(operation):
        case.path_parameters["policy"] = "debug"
    if operation in ("getProfile", "getTemplate") and turn(operation):
        must(own("PUT", "/v1/templates/known", {"runtime": "sh"}))
        case.path_parameters["template"] = "known"
    if operation.removesuffix("WarmPool").removesuffix("Pool") in ("create", "put", "update"):
        pool_body(case)
    if "{pool}" in case.operation.path and turn(operation):
        case.path_parameters["pool"] = pool(spare="delete" in operation)
    if operation == "streamExecution":
        case.headers.pop("Last-Event-ID", None)  # the generated value does not follow its pattern
        if turn(operation):
            case.query.clear()
    if operation == "writeStdin" and turn(operation):
        case.query.clear()
    if case.headers and "Idempotency-Key" in case.headers and turn(f"key of {operation}"):
        case.headers["Idempotency-Key"] = f"{operation}-{TURNS[f'key of {operation}']}"  # another operation may have used the key before


def negative(case):
    """Whether the case is wrong as a whole or in one of its parts, or its validity is unknown."""
    meta = case.meta
    return meta is None or meta.generation.mode.is_negative or any(c.mode.is_negative for c in meta.components.values())


def in_sequence(case):
    """Whether the case uses an object that an earlier request of the sequence created."""
    return case.meta is not None and case.meta.phase.name.value == "stateful"


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation.definition.raw.get("operationId", "")
    ids = case.path_parameters or {}
    with LOCK:
        TURNS["strangers"] += 1
        known = in_sequence(case) and ids.get("sandboxId") in MADE
        if {"keyId", "tenant", "userId"} & set(ids) or not (known or TURNS["strangers"] % 10 == 0):  # never the key of this run
            exchange_ids(case, operation)
            known = True
        exchange_cursor(case, operation)
        if not negative(case):
            exchange_rest(case, operation)
            if known and "sandboxId" in ids:
                exchange_paths(case, operation)
        if operation in ("createExecution", "streamExecution") and WORDS.random() < 0.5:
            case.headers["Accept"] = WORDS.choice(["application/x-ndjson", "text/event-stream"])


@schemathesis.hook
def after_call(context, case, response):
    if "pools" in case.operation.path and case.operation.method.upper() in ("POST", "PUT") and response.status_code in (200, 201):
        name = json.loads(response.content).get("name", "pooled")
        if name != "pooled":  # the server has space for so many
            own("DELETE", f"/v1/pools/{name}")
    if case.operation.definition.raw.get("operationId") != "createSandbox" or response.status_code != 201:
        return
    with LOCK:
        MADE.append(json.loads(response.content)["id"])
        old = MADE.pop(0) if len(MADE) > KEEP else None
    if old:
        own("DELETE", f"/v1/sandboxes/{old}")


@schemathesis.serializer("application/x-tar", "application/octet-stream")
def plain_bytes(ctx, value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@schemathesis.deserializer("application/x-ndjson")
def last_line(ctx, response):
    """api_test.py checks each line against the schema; here it is enough that the last one is an
    event."""
    return json.loads(response.content.splitlines()[-1])
