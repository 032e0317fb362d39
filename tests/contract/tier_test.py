#!/usr/bin/env python3
"""tier_test.py API_TESTD RUNTIME - POST /v1/validate and the tiers of POST /v1/execute, over the
same real server as api_test.py; prints TAP. Needs root.
"""
import base64
import sys

import api_test
from execute_test import figure, nothing_is_left

CASES = []


def case(function):
    CASES.append(function)
    return function


def run(s, code, status=200, tier="simple", **body):
    a = s.call("POST", "/v1/execute", {"code": code, "tier": tier, **body})
    assert a.status == status, (code, a.status, a.body)
    return a.json


def validate(s, code, status=200, **body):
    a = s.call("POST", "/v1/validate", {"code": code, **body})
    assert a.status == status, (code, a.status, a.body)
    return a.json


# Ways around a list of forbidden words: the code, the rule that reports it, and text of the error
# with which a wall stops it when it runs all the same.
BYPASSES = [
    ("import  os\nos.listdir('/root')", "import_process", "Error"),
    ("from subprocess import run\nrun(['mount', '-t', 'tmpfs', 'x', '/mnt'], check=True)", "import_process", "CalledProcessError"),
    ("import importlib\nimportlib.import_module('o' + 's').setuid(0)", "import_dynamic", "PermissionError"),
    ("import ctypes\nassert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0", "import_native", "AssertionError"),
    ("import http.client\nhttp.client.HTTPConnection('192.0.2.1', timeout=5).connect()", "import_network", "PermissionError"),
    ("from pathlib import Path\nPath('/etc/shadow').read_text()", "import_files", "Error"),
    ("getattr(__builtins__, 'op' + 'en')('/etc/passwd2', 'w')", "interpreter_state", "Error"),
    ("found = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]\n"
     "assert found.__init__.__globals__['system']('mount -t tmpfs x /mnt') == 0", "dunder_walk", "AssertionError"),
]


@case
def every_bypass_is_reported_and_stopped_by_the_walls_when_it_runs(s):
    for code, rule, error in BYPASSES:
        a = run(s, code)
        assert a["answeredBy"] == "check" and a["error"]["code"] == "code_refused" and a["outcome"] == "error", (code, a)
        assert rule in [v["type"] for v in a["report"]["violations"]], (code, a["report"])
        assert a["exitCode"] is None and a["stdout"] == "" and "startedAt" not in a and "full" in a["hint"], (code, a)
        a = run(s, code, tier="full")
        assert a["outcome"] == "error" and error in a["exception"]["name"], (code, a)
    nothing_is_left(s)


@case
def code_that_only_looks_dangerous_runs(s):
    for code, value in (("def profile(x): return x\nprofile(1)", "1"), ("def reopen(): return 2\nreopen()", "2"), ("3  # eval()", "3"),
                        ("len('import os; exec(open(x))')", "24"), ("import re\nbool(re.compile('a').match('a'))", "True")):
        a = run(s, code)
        assert a["outcome"] == "success" and a["value"] == value and a["answeredBy"] == "simple", (code, a)
        assert a["report"]["isSafe"] and a["report"]["violations"] == [], (code, a["report"])


@case
def a_report_names_place_severity_and_alternative(s):
    r = validate(s, "x = 1\nfor n in [1]:\n    open('a')")
    assert (r["isSafe"], r["risk"], r["tier"], r["checked"], r["complexity"]) == (False, "high", "full", "rules", 2), r
    v = r["violations"][0]
    assert (v["type"], v["severity"], v["line"], v["column"]) == ("call_open", "high", 3, 5), v
    assert v["recommendation"] in r["recommendations"] and "StringIO" in r["safeAlternative"] and "boundary" in r["note"], r
    r = validate(s, "import math\nmath.sqrt(2)")
    assert (r["isSafe"], r["risk"], r["tier"], r["pure"], r["imports"]) == (True, "low", "simple", True, ["math"]), r
    assert validate(s, "6 * 7")["tier"] == "calculate"
    assert validate(s, "#!/bin/sh\nls")["violations"][0]["type"] == "not_python"
    assert validate(s, "import numpy")["violations"][0]["type"] == "import_data"
    assert validate(s, "import numpy", template="python-data")["isSafe"]
    nothing_is_left(s)


@case
def hostile_code_ends_neither_the_check_nor_the_server(s):
    for code in ("(" * 500, "-" * 65000 + "1", "a" + ".a" * 32000, "+".join(["1"] * 32000), "x = " + "[" * 150 + "]" * 150, "f(" * 20000,
                 "lambda: " * 8000 + "1", "1" + "0" * 60000, "'" + "\\N{DIGIT ONE}" * 5000 + "'"):
        r = validate(s, code)
        assert r["language"] == "python" and (r["isSafe"] or r["violations"]), (code[:40], r)
    assert validate(s, "x" * 65537, status=400)["error"]["code"] == "invalid_request"


@case
def the_syntax_of_other_languages_is_checked(s):
    for language, good, bad, line in (("bash", "echo $((1 + 1))", "echo\nif true; then", 3), ("node", "let x = 1;", "let x = 1;\nlet y = ;", 2)):
        r = validate(s, good, language=language)
        assert (r["language"], r["checked"], r["isSafe"], r["violations"]) == (language, "syntax", None, []), r
        r = validate(s, bad, language=language)
        assert r["violations"][0]["type"] == "syntax_error" and r["violations"][0]["line"] == line, r
    assert validate(s, "puts 1", language="ruby", status=422)["error"]["code"] == "unsupported_language"


@case
def tier_auto_calculates_runs_or_refuses(s):
    before = s.call("GET", "/metrics").body.decode()
    a = run(s, "What is 2.5 + 1?", tier="auto")
    assert a["answeredBy"] == "calculate" and a["value"] == "3.5" and a["calculation"]["exact"] and "sandboxId" not in a, a
    a = run(s, "[n * n for n in range(4)]", tier="auto")
    assert a["answeredBy"] == "simple" and a["value"] == "[0, 1, 4, 9]", a
    a = run(s, "import socket", tier="auto")
    assert a["answeredBy"] == "check" and '"tier": "full"' in a["hint"], a
    assert run(s, "import socket\n1", tier="full")["answeredBy"] == "full"
    assert "answeredBy" not in s.call("POST", "/v1/execute", {"code": "1"}).json
    after = s.call("GET", "/metrics").body.decode()
    for name in ('tier_answers_total{tier="calculate"}', 'tier_answers_total{tier="simple"}', 'tier_answers_total{tier="check"}',
                 'tier_answers_total{tier="full"}', 'code_checks_refused_total{reason="import_network"}'):
        count = [float(line.split()[1]) for text in (before, after) for line in text.splitlines() if line.startswith(f"cove_{name} ")]
        assert count[1] == count[0] + 1, (name, count)


@case
def the_simple_tier_has_small_limits_and_no_other_fields(s):
    a = run(s, "x = bytearray(200 << 20)")
    assert a["outcome"] == "out_of_memory", a
    a = run(s, "while True: pass", timeoutMs=200)
    assert a["outcome"] == "timeout" and a["report"]["violations"][0]["type"] == "infinite_loop", a
    assert run(s, "input() + '!'", stdin="hi\n")["value"] == "'hi!'"
    for field, value in (("files", []), ("outputs", []), ("env", {}), ("cwd", "/"), ("resources", {}), ("level", "standard"), ("driver", "native"),
                         ("policy", {}), ("timeoutMs", 10001), ("template", "python")):
        e = run(s, "1", status=422, **{field: value})["error"]
        assert e["code"] == "not_supported" and field in e["message"] and "full" in e["message"], e
    a = s.call("POST", "/v1/execute", {"command": "true", "tier": "simple"})
    assert a.status == 422 and "command" in a.json["error"]["message"], a.body
    assert run(s, "1", status=422, language="node")["error"]["code"] == "unsupported_language"
    assert run(s, "1", status=400, tier="fast")["error"]["code"] == "invalid_request"
    t = s.call("GET", "/v1/templates/snippet").json
    assert t["builtin"] and t["spec"]["resources"] == {"cpuMillis": 1000, "memoryBytes": 100 << 20, "storageBytes": 16 << 20, "pids": 32,
                                                        "tmpBytes": 16 << 20, "shmBytes": 8 << 20}, t
    assert [t["name"] for t in s.call("GET", "/v1/capabilities").json["tiers"]] == ["calculate", "simple", "full"]


@case
def the_calculator_leaves_text_to_python_that_means_something_else_there(s):
    for code, value in (("2^10", "8"), ("1,000", "(1, 0)"), ("7\n+1", "1"), ("max(2^3, 0)", "1")):
        a = run(s, code, tier="auto")
        assert (a["answeredBy"], a["value"]) == ("simple", value), (code, "Python got another meaning", a)
    for code, value in (("what is 2^10", "1024"), ("1,000 times 3", "3000")):
        assert (a := run(s, code, tier="auto"))["answeredBy"] == "calculate" and a["value"] == value, (code, a)


@case
def only_pure_code_is_cached_unless_the_client_says_so(s):
    for code, body, cached in (("1 + len('pure')", {}, True), ("import random\n1 + len('b')", {}, False), ("1 + len('never')", {"cache": False}, False),
                               ("import random\n1 + len('always')", {"cache": True}, True)):
        first, second = run(s, code, **body), run(s, code, **body)
        assert (first["cached"], second["cached"], second["answeredBy"]) == (False, cached, "simple"), (code, second)
        assert second["report"] == first["report"] and (second["id"] == first["id"]) == cached, (code, second)
    other = run(s, "import random\n1 + len('always')")
    assert not other["cached"], "a client that did not ask for it got an impure result of the cache"


@case
def figures_are_returned_as_png(s):
    a = run(s, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", template="python-data")
    assert a["outcome"] == "success" and a["report"]["violations"][0]["type"] == "call_show", a["report"]
    assert base64.b64decode(a["results"][0]["data"]["image/png"]).startswith(b"\x89PNG"), a["results"][0]["data"].keys()


@case
def a_stream_has_the_report_at_its_end(s):
    for code, outcome, answered in (("print(1)", "success", "simple"), ("import os", "error", "check")):
        a = s.call("POST", "/v1/execute", {"code": code, "tier": "simple", "stream": True})
        lines = [api_test.json.loads(line) for line in a.body.splitlines()]
        assert lines[0]["type"] == "started" and lines[-1]["type"] == "end", lines
        end = lines[-1]["execution"]
        assert (end["outcome"], end["answeredBy"], end["report"]["isSafe"]) == (outcome, answered, outcome == "success"), end


@case
def the_tool_has_the_keys_that_agents_know(s):
    def call(status=200, **arguments):
        a = s.call("POST", "/v1/tools/simple_execute_code", arguments)
        assert a.status == status, (arguments, a.status, a.body)
        return a.json

    a = call(code="print('hi')\n[1]")
    assert not a["isError"] and a["result"] == {"output": "hi\n", "error": "", "success": True, "exit_code": 0, "execution_mode": "sandbox",
                                                "value": "[1]", "truncated": False}, a
    assert call(code="print('hi')\n[1]")["result"]["execution_mode"] == "cache"
    a = call(code="1 / 0")
    assert a["isError"] and "ZeroDivisionError" in a["result"]["error"] and a["result"]["exit_code"] == 1, a
    a = call(code="f(")
    assert a["isError"] and a["result"]["exit_code"] == 1 and a["result"]["execution_mode"] == "refused", a
    a = call(code="open('x')")["result"]
    assert not a["success"] and "StringIO" in a["safe_alternative"] and a["report"]["risk"] == "high" and a["exit_code"] is None, a
    for language in ("javascript", "shell", "ruby"):
        a = call(code="1", language=language)
        assert a["isError"] and not a["result"]["success"] and "only Python" in a["result"]["error"], a
    call(status=400, code="1", lang="python")
    call(status=400)


@case
def a_check_is_an_execution_of_its_tenant_and_is_recorded(s):
    runs, passed = figure(s, "executor_runs_total"), figure(s, "code_checks_passed_total")
    validate(s, "x = 1")
    assert figure(s, "executor_runs_total") == runs + 1 and figure(s, "code_checks_passed_total") == passed + 1
    viewer = s.call("POST", "/v1/keys", {"name": "reads", "scopes": ["executions:read"]}).json["key"]
    assert s.call("POST", "/v1/validate", {"code": "1"}, key=viewer).status == 403
    assert s.call("POST", "/v1/validate", {"code": "1"}, key=False).status == 401
    nothing_is_left(s)


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
