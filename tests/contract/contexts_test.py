#!/usr/bin/env python3
"""contexts_test.py API_TESTD RUNTIME - contexts over the same real server as api_test.py, with the
language kernels of the build that RUNTIME belongs to; prints TAP. Needs root.
"""
import json
import os
import sys
import threading
import time

import api_test
from stream_test import Stream, piece

CASES = []


def case(function):
    CASES.append(function)
    return function


def where(sandbox, context="", verb=""):
    return f"/v1/sandboxes/{sandbox}/contexts" + (f"/{context}" if context else "") + (f"/{verb}" if verb else "")


def context(s, sandbox, **body):
    a = s.call("POST", where(sandbox), body)
    assert a.status == 201, a.body
    assert a.json["state"] == "idle" and a.headers["Location"].endswith(a.json["id"]), a.body
    return a.json["id"]


def run(s, sandbox, cx, code, **more):
    a = s.call("POST", where(sandbox, cx, "execute"), {"code": code, **more})
    assert a.status == 200, a.body
    return a.json


def lines(response):
    for line in response:
        yield json.loads(line)


def until(what, seconds=120):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.02)


@case
def state_is_kept_between_executions(s):
    sb = s.create()
    cx = context(s, sb)
    first = run(s, sb, cx, "x = 6\nprint('hello')")
    assert first["outcome"] == "success" and first["stdout"] == "hello\n" and first["results"] == [], first
    second = run(s, sb, cx, "x * 7")
    assert [r["data"]["text/plain"] for r in second["results"]] == ["42"], second
    assert second["results"][0]["type"] == "result" and second["exitCode"] == 0 and second["contextId"] == cx
    receipt = s.call("GET", f"/v1/sandboxes/{sb}/executions/{second['id']}/receipt")
    assert receipt.status == 200 and receipt.json["execution"] == second["id"], receipt.body
    assert receipt.json["final"] is True, receipt.json  # no figure is still to come:
    for name in ("memoryPeakBytes", "pidsPeak", "pidsRefused", "oomKills", "throttledMs"):
        assert name not in receipt.json and name not in receipt.json["used"] and "one process for all" in receipt.json["absent"][name], (name, receipt.json)
    assert receipt.json["absent"]["denials"] == "no monitor watches this sandbox", receipt.json
    third = s.call("POST", where(sb, cx) + "/execute", {"code": "x"}, headers={"X-Request-Id": "cell-3"})
    receipt = s.call("GET", f"/v1/sandboxes/{sb}/executions/{third.json['id']}/receipt")
    assert receipt.json["requestId"] == "cell-3", receipt.body
    again = s.call("GET", f"/v1/sandboxes/{sb}/executions/{second['id']}").json
    assert again["results"] == second["results"] and again["outcome"] == "success", again
    seen = s.call("GET", where(sb, cx)).json
    assert seen["executions"] == 3 and seen["language"] == "python" and seen["version"], seen
    s.delete(sb)


def run_code(s, sandbox, code, **more):
    a = s.execute(sandbox, {"code": code, **more})
    assert a.status == 200, a.body
    return a.json


def last(result):
    found = [r["data"]["text/plain"] for r in result["results"] if r["type"] == "result"]
    return found[0] if found else None


def contexts(s, sandbox):
    return s.call("GET", where(sandbox)).json["items"]


@case
def code_runs_in_the_default_context_of_its_language(s):
    sb = s.create()
    assert last(run_code(s, sb, "x = 1")) is None and contexts(s, sb)[0]["default"] is True
    second = run_code(s, sb, "x += 1; x")
    [default] = contexts(s, sb)
    assert last(second) == "2" and second["contextId"] == default["id"] and default["language"] == "python", second
    own = run_code(s, sb, "print('x' in globals())", isolated=True)
    assert own["stdout"] == "False\n" and "contextId" not in own, own
    assert s.execute(sb, {"command": ["echo", "1"]}).json["stdout"] == "1\n"
    for language, code, shown in (("bash", "y=3; echo $y", "3\n"), ("sh", "echo again $y", "again 3\n"), ("js", "console.log(6 * 7)", "42\n")):
        done = run_code(s, sb, code, language=language)
        assert done["stdout"] == shown, done
    assert sorted(c["language"] for c in contexts(s, sb)) == ["bash", "node", "python"]
    assert all(c["default"] for c in contexts(s, sb))
    other = context(s, sb, language="python")
    assert run(s, sb, other, "'x' in globals()")["results"][0]["data"]["text/plain"] == "False"
    assert [c["default"] for c in contexts(s, sb) if c["id"] == other] == [False]
    fork = s.call("POST", where(sb, default["id"], "fork"))
    assert fork.status == 201 and fork.json["default"] is False and fork.json["forkedFrom"] == default["id"], fork.body
    assert last(run(s, sb, fork.json["id"], "x * 10")) == "20"
    deleted = s.call("DELETE", where(sb, default["id"]))
    assert deleted.status == 200 and "reason" not in deleted.json, deleted
    assert run_code(s, sb, "x")["exception"]["name"] == "NameError"
    assert default["id"] not in [c["id"] for c in contexts(s, sb)]


@case
def env_cwd_and_stdin_belong_to_one_execution_of_the_default_context(s):
    sb = s.create()
    look = "import os; print(os.environ.get('A'), os.getcwd())"
    assert run_code(s, sb, look, env={"A": "1"}, cwd="/tmp")["stdout"] == "1 /tmp\n"
    assert run_code(s, sb, look)["stdout"] == "None /workspace\n"
    both = "[input('a? '), input()]"
    assert last(run_code(s, sb, both, stdin="one\ntwo\nthree\n")) == "['one', 'two']"
    assert run_code(s, sb, both, stdin="one")["exception"]["name"] == "EOFError"
    assert run_code(s, sb, "input()")["exception"]["name"] == "EOFError"
    assert run_code(s, sb, "read a; read b; echo $b-$a", language="bash", stdin="1\n2\n")["stdout"] == "2-1\n"
    assert run_code(s, sb, "await input()", language="node", stdin="x")["results"][0]["data"]["text/plain"] == "'x'"
    long = "e" + "ñ" * 50000  # longer than one answer, whose limit is inside a character
    assert last(run_code(s, sb, "import sys\nsys.stdin.read() == 'e' + 'ñ' * 50000", stdin=long)) == "True"
    assert last(run_code(s, sb, "sys.stdin.read() == ('e' + 'ñ' * 50000 + chr(10)) * 2", stdin=f"{long}\n{long}\n")) == "True"
    assert last(run_code(s, sb, "sys.stdin.read(3), input(), sys.stdin.read(2)", stdin="abcdef\ngh\n")) == "('abc', 'def', 'gh')"
    assert last(run_code(s, sb, "sys.stdin.read()", stdin="new")) == "'new'"
    assert run_code(s, sb, "(await input()).length", language="node", stdin=long)["results"][0]["data"]["text/plain"] == "50001"
    assert run_code(s, sb, "read a; echo ${#a} $?; read a; echo [$a] $?", language="bash", stdin=long)["stdout"] in ("50001 0\n[] 1\n", "100001 0\n[] 1\n")
    asking = s.execute(sb, {"code": "'hi ' + input('name? ')", "stdinOpen": True, "background": True})
    assert asking.status == 202, asking.body
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/executions/{asking.json['id']}/stream", headers={"Accept": "application/x-ndjson"})
    for line in lines(r):
        if line["type"] == "input":
            assert line["prompt"] == "name? ", line
            refused = s.call("POST", f"/v1/sandboxes/{sb}/executions/{asking.json['id']}/stdin", b"Ada", {"Content-Type": "application/octet-stream"})
            assert refused.status == 409 and "input" in refused.json["error"]["message"], refused.body
            assert s.call("POST", f"/v1/sandboxes/{sb}/executions/{asking.json['id']}/input", {"text": "Ada"}).status == 200
        if line["type"] == "result":
            assert line["data"]["text/plain"] == "'hi Ada'", line
            break
    c.close()


@case
def what_the_default_context_cannot_do_is_refused_with_the_way_out(s):
    sb = s.create()
    for body, status, word in (({"code": "1", "changes": True}, 400, "isolated"), ({"code": "1", "language": "ruby"}, 404, "python, node or bash"),
                               ({"command": ["true"], "language": "python"}, 400, "code"), ({"code": "1", "isolated": "yes"}, 400, "isolated"),
                               ({"code": "\\" * (1 << 20)}, 400, "file")):
        a = s.execute(sb, body)
        assert a.status == status and word in a.json["error"]["message"], a.body
    assert contexts(s, sb) == []


@case
def executions_of_the_default_context_queue_and_commands_run_beside_them(s):
    sb = s.create()
    waits = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nz = 1"
    first = s.execute(sb, {"code": waits, "background": True}).json["id"]
    rest = [s.execute(sb, {"code": f"z += {i}", "background": True}) for i in range(15)]
    assert all(a.status == 202 for a in rest)
    full = s.execute(sb, {"code": "1"})
    assert full.status == 409 and full.json["error"]["code"] == "context_busy", full.body
    assert run_code(s, sb, "print(1)", isolated=True)["stdout"] == "1\n"
    assert s.execute(sb, {"command": ["touch", "go"]}).json["exitCode"] == 0
    ids = [first] + [a.json["id"] for a in rest]
    until(lambda: all(s.call("GET", f"/v1/sandboxes/{sb}/executions/{i}").json["state"] == "ended" for i in ids))
    assert last(run_code(s, sb, "z")) == str(1 + sum(range(15)))


@case
def an_idempotency_key_runs_default_code_once(s):
    sb = s.create()
    run_code(s, sb, "n = 0")
    key = {"Idempotency-Key": "once-" + sb}
    answers = [s.call("POST", f"/v1/sandboxes/{sb}/executions", {"code": "n += 1; n"}, key) for _ in range(2)]
    assert answers[0].json["id"] == answers[1].json["id"] and last(run_code(s, sb, "n")) == "1", answers[1].body


@case
def a_default_context_that_died_is_restarted_by_the_next_code(s):
    sb = s.create()
    run_code(s, sb, "x = 1")
    died = run_code(s, sb, "import os; os._exit(7)")
    assert died["error"]["code"] == "context_dead", died
    assert contexts(s, sb)[0]["state"] == "dead"
    again = run_code(s, sb, "'x' in globals()")
    assert last(again) == "False" and again["contextId"] == died["contextId"] and again["contextReset"] is True, again
    assert contexts(s, sb)[0]["restarts"] == 1
    began = time.monotonic()
    stuck = run_code(s, sb, "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass", timeoutMs=200)
    assert stuck["endedBy"] == "timeout" and stuck["contextReset"] is True and time.monotonic() - began < 30, stuck
    after = run_code(s, sb, "1 + 1")
    assert last(after) == "2" and "contextReset" not in after, after
    slow = run_code(s, sb, "y = 5\nimport time; time.sleep(60)", timeoutMs=200)
    assert slow["endedBy"] == "timeout" and last(run_code(s, sb, "y")) == "5", slow


@case
def a_default_context_survives_a_restart_of_the_server_and_a_pause(s):
    sb = s.create()
    run_code(s, sb, "x = 41")
    before = contexts(s, sb)
    s.kill()
    s.start()
    assert s.call("POST", f"/v1/sandboxes/{sb}/pause").status == 200
    assert s.execute(sb, {"code": "1"}).json["error"]["code"] == "sandbox_paused"
    assert s.call("POST", f"/v1/sandboxes/{sb}/resume").status == 200
    after = run_code(s, sb, "x + 1")
    assert last(after) == "42", after
    assert [(c["id"], c["default"]) for c in contexts(s, sb)] == [(before[0]["id"], True)]


@case
def a_cpu_time_limit_holds_in_the_default_context(s):
    sb = s.create()
    burned = run_code(s, sb, "while True: pass", cpuTimeMs=300, timeoutMs=60000)
    assert burned["endedBy"] == "cpu" and burned["exception"]["name"] == "TimeoutError", burned
    assert last(run_code(s, sb, "6 * 7", cpuTimeMs=300)) == "42"


@case
def default_code_over_the_websocket_keeps_its_state(s):
    sb = s.create()
    with Stream(s, sb) as c:
        for label, code, more in (("a", "w = 20", {}), ("b", "w + 1", {}), ("c", "v=3; echo $v", {"language": "bash"})):
            c.send("execute", label=label, code=code, **more)
            c.until("started")
            seen = []
            while (m := c.receive())["type"] != "end":
                seen.append(m)
            assert m["execution"]["outcome"] == "success" and m["execution"]["contextId"], m
            if label == "b":
                assert m["execution"]["value"] == "21" and [e["data"]["text/plain"] for e in seen if e["type"] == "result"] == ["21"], (m, seen)
            if label == "c":
                assert b"".join(piece(e) for e in seen if e["type"] == "output") == b"3\n", seen
    assert last(run_code(s, sb, "w")) == "20"


@case
def an_exception_is_reported_with_name_value_and_traceback(s):
    sb = s.create()
    cx = context(s, sb)
    a = run(s, sb, cx, "print('before')\n1 / 0")
    assert a["outcome"] == "error" and a["exitCode"] == 1 and a["stdout"] == "before\n", a
    assert a["exception"]["name"] == "ZeroDivisionError" and a["exception"]["traceback"], a
    assert run(s, sb, cx, "'alive'")["results"], "the context does not answer after an exception"
    s.delete(sb)


@case
def a_stream_delivers_events_after_the_preceding_output_and_resumes(s):
    sb = s.create()
    cx = context(s, sb)
    code = "for i in range(3):\n    print('line', i, flush=True)\n    display(i)\n'last'"
    c, r = s.open("POST", where(sb, cx, "execute"), {"code": code}, {"Accept": "application/x-ndjson"})
    assert r.status == 200
    told = [m for m in lines(r) if m["type"] != "heartbeat"]
    c.close()
    kinds = [m["type"] for m in told]
    assert kinds[0] == "started" and kinds[-1] == "end" and kinds[-2] == "result", kinds
    text = ""
    for m in told:
        if m["type"] == "output":
            text += m["data"]
        elif m["type"] == "display":
            assert f"line {m['data']['text/plain']}\n" in text, told
    ex = told[0]["execution"]["id"]
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/executions/{ex}/stream", headers={"Accept": "text/event-stream"})
    ids = [line.decode().split(":", 1)[1].strip() for line in r if line.startswith(b"id:")]
    c.close()
    after = [i for i in ids if i.count("-") == 2][-2]
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/executions/{ex}/stream", headers={"Last-Event-ID": after})
    rest = [m["type"] for m in lines(r)]
    c.close()
    assert rest[-1] == "end" and rest.count("display") == 0 and len(rest) <= 3, (after, rest)
    s.delete(sb)


def events_until_the_end(c, name, text=b""):
    """Messages of a WebSocket about one execution, up to its end: the events, where each of them
    ended, and the end."""
    events, offsets = [], []
    while True:
        m = c.until("output", "display", "result", "exception", "input", "end", label=name)
        if m["type"] == "end":
            return text.decode(), events, offsets, m
        if m["type"] == "output":
            text += piece(m)
            continue
        assert m["type"] != "display" or f"line {m['data']['text/plain']}\n" in text.decode(), (text, m)
        events.append(m)
        offsets.append(m["eventsOffset"])


@case
def a_websocket_runs_code_in_a_context_and_delivers_its_events(s):
    sb = s.create()
    cx = context(s, sb)
    with Stream(s, sb) as c:
        c.send("execute", label="one", contextId=cx, code="for i in range(3):\n    print('line', i, flush=True)\n    display(i)\nx = 'kept'\nx")
        start = c.until("started")
        assert start["eventsOffset"] == 0 and start["execution"]["contextId"] == cx, start
        text, events, offsets, end = events_until_the_end(c, "one")
        assert [e["type"] for e in events] == ["display"] * 3 + ["result"], events
        assert text == "line 0\nline 1\nline 2\n" and end["execution"]["outcome"] == "success", (text, end)
        c.send("execute", label="two", contextId=cx, code="[x][1]")
        _, events, _, end = events_until_the_end(c, "two")
        assert [e["name"] for e in events] == ["IndexError"] and end["execution"]["outcome"] == "error", (events, end)
    with Stream(s, sb) as c:
        ex = start["execution"]["id"]
        c.send("resume", executionId=ex, label="again", stdoutOffset=len(text), eventsOffset=offsets[1])
        text, events, rest, _ = events_until_the_end(c, "again", b"line 2\n")
        assert text == "line 2\n" and [e["type"] for e in events] == ["display", "result"] and rest == offsets[2:], (text, events)
        c.send("resume", executionId=ex, label="late", eventsOffset=offsets[-1] + 1)
        assert c.until("error", "started")["error"]["code"] == "range_not_satisfiable"
    s.delete(sb)


@case
def a_websocket_answers_input_requests_and_names_what_it_refuses(s):
    sb = s.create()
    cx = context(s, sb)
    with Stream(s, sb) as c:
        c.send("execute", label="ask", contextId=cx, code="name = input('who? ')\nprint('hi', name)")
        asked = c.until("input")
        assert asked["prompt"] == "who? " and not asked["password"], asked
        c.send("input", label="ask", text="Ada", eof=True)
        assert c.until("error")["error"]["code"] == "invalid_request"
        c.send("input", label="ask", text="Ada")
        text, _, _, end = events_until_the_end(c, "ask")
        assert text.endswith("hi Ada\n") and end["execution"]["outcome"] == "success", (text, end)
        for fields, code in ((dict(command=["true"]), "invalid_request"),
                             (dict(code="1", contextId="cx" + "a" * 20), "not_found"), (dict(code="1", contextId="one"), "not_found"),
                             (dict(code="1", tty=True), "invalid_request"), (dict(), "invalid_request")):
            c.send("execute", label="bad", **{"contextId": cx, **fields})
            told = c.until("error", "started")
            assert told["type"] == "error" and told["error"]["code"] == code and told["label"] == "bad", (fields, told)
        c.send("execute", label="busy", contextId=cx, code="print('on', flush=True)\nwhile True: pass")
        c.until("output")
        c.send("input", label="busy", text="x")
        assert c.until("error")["error"]["code"] == "conflict"
        c.send("signal", label="busy", signal="INT")
        _, events, _, end = events_until_the_end(c, "busy")
        assert events[-1]["name"] == "KeyboardInterrupt" and end["execution"]["outcome"] == "killed", (events, end)
    assert run(s, sb, cx, "name")["results"][0]["data"]["text/plain"] == "'Ada'"
    s.delete(sb)


@case
def executions_are_queued_and_run_in_order(s):
    sb = s.create()
    cx = context(s, sb)
    path = where(sb, cx, "execute")
    first = s.call("POST", path, {"code": "import time; seen = []\nwhile not __import__('os').path.exists('go'): time.sleep(0.02)",
                                  "background": True})
    assert first.status == 202, first.body
    ids = [s.call("POST", path, {"code": f"seen.append({i})", "background": True}).json["id"] for i in range(5)]
    seen = s.call("GET", where(sb, cx)).json
    assert seen["state"] == "busy" and seen["queued"] == 5 and seen["executionId"] == first.json["id"], seen
    for i in range(10):
        assert s.call("POST", path, {"code": "0", "background": True}).status == 202
    full = s.call("POST", path, {"code": "0"})
    assert full.status == 409 and full.code == "context_busy", full.body
    assert s.call("POST", where(sb, cx, "complete"), {"code": "se", "cursor": 2}).status == 409
    cancelled = s.call("POST", f"/v1/sandboxes/{sb}/executions/{ids[4]}/cancel")
    assert cancelled.json["endedBy"] == "killed" and cancelled.json["outcome"] == "killed", cancelled.body
    assert s.files(sb, "PUT", body=b"", path="/workspace/go").status in (200, 201)
    until(lambda: s.call("GET", where(sb, cx)).json["state"] == "idle")
    assert run(s, sb, cx, "seen")["results"][0]["data"]["text/plain"] == "[0, 1, 2, 3]"
    s.delete(sb)


@case
def input_is_requested_and_answered(s):
    sb = s.create()
    cx = context(s, sb)
    c, r = s.open("POST", where(sb, cx, "execute"), {"code": "name = input('who? ')\nprint('hi', name)"},
                  {"Accept": "application/x-ndjson"})
    text, ex = "", None
    for m in lines(r):
        if m["type"] == "started":
            ex = m["execution"]["id"]
            assert s.call("POST", f"/v1/sandboxes/{sb}/executions/{ex}/input", {"text": "a", "eof": True}).status == 400
        elif m["type"] == "input":
            assert m["prompt"] == "who? ", m
            assert s.call("POST", f"/v1/sandboxes/{sb}/executions/{ex}/input", {"text": "Ada"}).status == 200
        elif m["type"] == "output":
            text += m["data"]
        elif m["type"] == "end":
            assert m["execution"]["outcome"] == "success", m
    c.close()
    assert "hi Ada\n" in text, text
    late = s.call("POST", f"/v1/sandboxes/{sb}/executions/{ex}/input", {"text": "x"})
    assert late.status == 409, late.body
    s.delete(sb)


SHARED = ("outcome", "exitCode", "signal", "endedBy", "value", "results", "stdout", "stderr", "truncated", "droppedBytes")


def shared_part(a):
    assert a["id"] and a["startedAt"] <= a["endedAt"] and a["receipt"]["used"]["wallMs"] > 0, a
    return {name: [(r["type"], r["data"]) for r in a[name]] if name == "results" else a[name] for name in SHARED if name in a} | {
        "exception": (a["exception"]["name"], a["exception"]["value"]) if "exception" in a else None}


@case
def one_program_has_the_same_result_over_every_way_to_run_it(s):
    sb = s.create()
    cx = context(s, sb)
    for code, outcome in (("print('out')\n6 * 7", "success"), ("print('out')\n1 / 0", "error"), ("import sys; print('out'); sys.exit(3)", "error"),
                          ("import time\nprint('out', flush=True)\ntime.sleep(60)", "timeout")):
        body = {"code": code, "timeoutMs": 2000}
        first = run(s, sb, cx, code, timeoutMs=2000)
        same = shared_part(first)
        assert same["outcome"] == outcome and same["stdout"] == "out\n", same
        answers = [s.call("GET", f"/v1/sandboxes/{sb}/executions/{first['id']}").json, s.call("POST", "/v1/execute", body).json]
        for a in answers:
            assert shared_part(a) == same, (code, a, same)
        streamed = {k: v for k, v in same.items() if k not in ("stdout", "stderr", "results")}
        for path in (where(sb, cx, "execute"), "/v1/execute"):
            c, r = s.open("POST", path, {**body, "stream": True})
            end = [m for m in lines(r)][-1]
            c.close()
            assert end["type"] == "end" and shared_part(end["execution"]) == streamed, (path, end, streamed)
        with Stream(s, sb) as c:
            c.send("execute", label="one", contextId=cx, **body)
            assert shared_part(c.until("end")["execution"]) == streamed
    s.delete(sb)


@case
def a_command_has_the_same_result_in_a_sandbox_and_without_one(s):
    sb = s.create()
    for command, outcome in (("echo out", "success"), ("echo out; exit 3", "error"), ("echo out; kill -9 $$", "error"), ("echo out; sleep 60", "timeout")):
        body = {"command": command, "timeoutMs": 1000}
        a = s.call("POST", f"/v1/sandboxes/{sb}/executions", body).json
        b = s.call("POST", "/v1/execute", body).json
        assert a["outcome"] == outcome and shared_part(a) == shared_part(b), (a, b)
    s.delete(sb)


@case
def an_interrupt_keeps_the_state(s):
    sb = s.create()
    cx = context(s, sb)
    run(s, sb, cx, "x = 1")
    a = s.call("POST", where(sb, cx, "execute"), {"code": "print('on', flush=True)\nwhile True: pass", "background": True}).json
    until(lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json["stdoutBytes"] > 0)
    told = s.call("POST", where(sb, cx, "interrupt"))
    assert told.status == 200 and told.json["outcome"] == "interrupted", told.body
    ended = s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json
    assert ended["outcome"] == "killed" and ended["endedBy"] == "killed" and ended["signal"] == 2, ended
    assert "contextReset" not in ended, ended
    assert run(s, sb, cx, "x")["results"][0]["data"]["text/plain"] == "1"
    assert s.call("POST", where(sb, cx, "interrupt")).json["outcome"] == "idle"
    s.delete(sb)


@case
def code_that_ignores_an_interrupt_is_killed_and_reported(s):
    sb = s.create()
    cx = context(s, sb)
    run(s, sb, cx, "x = 1")
    deaf = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\nprint('on', flush=True)\nwhile True: pass"
    a = s.call("POST", where(sb, cx, "execute"), {"code": deaf, "background": True}).json
    until(lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json["stdoutBytes"] > 0)
    waiting = s.call("POST", where(sb, cx, "execute"), {"code": "x", "background": True}).json
    told = s.call("POST", where(sb, cx, "interrupt"))
    assert told.json["outcome"] == "killed", told.body
    ended = s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json
    assert ended["outcome"] == "killed" and ended["endedBy"] == "killed" and ended["contextReset"] is True, ended
    path = f"/v1/sandboxes/{sb}/executions/{waiting['id']}"
    until(lambda: s.call("GET", path).json["state"] == "ended")
    queued = s.call("GET", path).json  # it runs in the new kernel
    assert queued["exception"]["name"] == "NameError" and queued["contextReset"] is True and "error" not in queued, queued
    fresh = run(s, sb, cx, "x")
    assert fresh["exception"]["name"] == "NameError" and "contextReset" not in fresh, fresh
    assert s.call("GET", where(sb, cx)).json["restarts"] == 1
    s.delete(sb)


@case
def an_interrupt_inside_a_loop_of_c_reports_its_real_outcome(s):
    sb = s.create()
    for code in ("import re; re.match(r'(a+)+$', 'a' * 64 + 'b')", "sum(range(10**12))", "n = 10**9; 7 ** n"):
        cx = context(s, sb)
        run(s, sb, cx, "x = 1")
        a = s.call("POST", where(sb, cx, "execute"), {"code": f"print('on', flush=True)\n{code}", "background": True}).json
        until(lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json["stdoutBytes"] > 0)
        told = s.call("POST", where(sb, cx, "interrupt"))
        assert told.status == 200 and told.json["outcome"] in ("interrupted", "killed"), (code, told.body)
        ended = s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json
        until(lambda: s.call("GET", where(sb, cx)).json["state"] == "idle")
        after, x = s.call("GET", where(sb, cx)).json, run(s, sb, cx, "x")
        if told.json["outcome"] == "interrupted":
            assert (ended["outcome"], ended["signal"], after["restarts"]) == ("killed", 2, 0), (code, ended, after)
            assert x["results"][0]["data"]["text/plain"] == "1", x
        else:
            assert (ended["outcome"], ended.get("contextReset"), after["restarts"]) == ("killed", True, 1), (code, ended, after)
            assert x["exception"]["name"] == "NameError", x
    s.delete(sb)


@case
def a_timeout_interrupts_the_code(s):
    sb = s.create()
    cx = context(s, sb)
    a = run(s, sb, cx, "import time\nx = 1\ntime.sleep(1000)", timeoutMs=1000)
    assert a["endedBy"] == "timeout" and a["outcome"] == "timeout" and "contextReset" not in a, a
    raised = a["exception"]
    assert (raised["name"], raised["value"]) == ("TimeoutError", "stopped after 1000 ms"), raised
    assert "time.sleep(1000)" in raised["traceback"] and "KeyboardInterrupt" not in raised["traceback"], raised
    assert raised["traceback"].splitlines()[-1] == "TimeoutError: stopped after 1000 ms", raised
    assert run(s, sb, cx, "x")["results"], "the state was lost"
    caught = run(s, sb, cx, "try:\n    time.sleep(1000)\nexcept BaseException: print('caught')", timeoutMs=500)
    assert (caught["outcome"], caught["exitCode"], caught["stdout"]) == ("timeout", None, "caught\n"), caught
    s.delete(sb)


@case
def a_language_kernel_that_dies_leaves_a_dead_context_with_the_reason(s):
    sb = s.create()
    cx = context(s, sb)
    a = run(s, sb, cx, "import os\nos._exit(7)")
    assert a["state"] == "ended" and a["outcome"] == "error" and a["error"]["code"] == "context_dead", a
    assert "status 7" in a["error"]["message"], a
    seen = s.call("GET", where(sb, cx)).json
    assert seen["state"] == "dead" and "status 7" in seen["reason"]["message"], seen
    refused = s.call("POST", where(sb, cx, "execute"), {"code": "1"})
    assert refused.status == 409 and refused.code == "context_dead", refused.body
    again = s.call("POST", where(sb, cx, "restart"))
    assert again.status == 200 and again.json["state"] == "idle", again.body
    assert run(s, sb, cx, "1 + 1")["outcome"] == "success"
    s.delete(sb)


@case
def forged_events_of_the_code_are_refused_and_counted(s):
    sb = s.create()
    cx = context(s, sb)
    forged = ["{\"event\":\"finished\",\"id\":\"exaaaaaaaaaaaaaaaaaaaa\",\"status\":\"ok\"}", "rubbish", "[" * 4000, "{}"]
    code = "import os\n" + "\n".join(f"os.write(3, {(line + chr(10)).encode()!r})" for line in forged) + "\n'fine'"
    a = run(s, sb, cx, code)
    assert a["outcome"] == "success" and a["results"][0]["data"]["text/plain"] == "'fine'", a
    assert s.call("GET", where(sb, cx)).json["refusedEvents"] == len(forged)
    s.delete(sb)


def usable(s, sb, cx):
    """Runs code in the context, which may need a restart first."""
    until(lambda: s.call("GET", where(sb, cx)).json["state"] in ("idle", "dead"))
    if s.call("GET", where(sb, cx)).json["state"] == "dead":
        again = s.call("POST", where(sb, cx, "restart"))
        assert again.status == 200 and again.json["state"] == "idle", again.body
    assert run(s, sb, cx, "6 * 7")["results"][0]["data"]["text/plain"] == "42"


@case
def a_flood_of_lines_is_refused_and_other_contexts_are_served(s):
    sb, other = s.create(), s.create()
    cx, theirs = context(s, sb), context(s, other)
    flood = "import os\nfor i in range(200): os.write(3, b'{\"event\":\"x\"}\\n' * 100)\n"
    flood += "os.write(3, b'[' * 5000 + b'\\n')\n"
    flood += "for i in range(48): os.write(3, b'x' * 65536)\nos.write(3, b'\\n')\n'through'"
    a = s.call("POST", where(sb, cx, "execute"), {"code": flood, "background": True}).json
    assert run(s, other, theirs, "1 + 1")["outcome"] == "success"
    until(lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json.get("endedAt"))
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json["outcome"] == "success"
    refused = s.call("GET", where(sb, cx)).json["refusedEvents"]
    assert refused == 20002, refused
    usable(s, sb, cx)
    s.delete(sb)
    s.delete(other)


@case
def a_flood_of_displays_is_cut_off_and_reported(s):
    sb = s.create()
    cx = context(s, sb)
    a = run(s, sb, cx, "for i in range(3000): display('x' * 20000)\n'end'", timeoutMs=110000)
    assert a["outcome"] == "success" and a["droppedBytes"] > 40 << 20, {k: v for k, v in a.items() if k != "results"}
    assert sum(len(json.dumps(r)) for r in a["results"]) < 20 << 20
    assert a["stdoutBytes"] == a["stderrBytes"] == 0, {k: v for k, v in a.items() if k != "results"}
    usable(s, sb, cx)
    s.delete(sb)


@case
def events_count_as_kept_output_and_are_deleted_with_it(s):
    sb = s.create()
    cx = context(s, sb)
    s.call("POST", "/v1/maintenance/gc", {})
    ex = run(s, sb, cx, "display('x' * 50000)")["id"]
    path = os.path.join(s.dir, "output", ex + ".3")
    size = os.path.getsize(path)
    s.delete(sb)
    dry = s.call("POST", "/v1/maintenance/gc", {"dryRun": True}).json
    assert dry["executions"] >= 1 and dry["outputBytes"] >= size > 50000, (dry, size)
    done = s.call("POST", "/v1/maintenance/gc").json
    assert done["outputBytes"] >= size and not os.path.exists(path), done


@case
def code_that_detaches_stops_or_outlives_its_kernel_ends_in_a_bounded_time(s):
    sb = s.create()
    cx = context(s, sb)
    for code in ("import os\nos.close(3)", "import os\nos.closerange(0, 20)", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
                 "import os, time\nif os.fork() == 0:\n  time.sleep(1000)\nos._exit(3)",
                 "import os, time\nif os.fork() == 0:\n  os.kill(os.getppid(), 9)\n  time.sleep(1000)\ntime.sleep(1000)",
                 "import ctypes\nctypes.string_at(0)", "import os\nos.dup2(os.open('/dev/null', os.O_RDWR), 3)"):
        a = s.call("POST", where(sb, cx, "execute"), {"code": code, "timeoutMs": 3000})
        assert a.status == 200 and a.json["endedAt"], (code, a.body)
        usable(s, sb, cx)
    s.delete(sb)


@case
def code_that_imitates_its_kernel_harms_its_own_context_only(s):
    sb = s.create()
    cx, apart = context(s, sb), context(s, sb)
    tell = "def tell(**event): os.write(3, (json.dumps(event) + chr(10)).encode())\n"
    wait = "import json, os, time\nwhile not os.path.exists('/workspace/go'): time.sleep(0.01)\nme, them = open('/workspace/go').read().split()\n"
    code = (wait + tell + "tell(event='input', id=me, prompt='?', password=False)\ntell(event='finished', id=them, status='ok')\n"
            "tell(event='display', id=them, data={'text/plain': 'forged'})\ntell(event='finished', id=me, status='ok')\n"
            "tell(event='display', id=me, data={'text/plain': 'late'})\ntell(event='ready', language='python', version='0', protocol=1)\n")
    mine = s.call("POST", where(sb, cx, "execute"), {"code": code, "background": True}).json["id"]
    other = s.call("POST", where(sb, apart, "execute"), {"code": "import os, time\nwhile not os.path.exists('/workspace/end'): time.sleep(0.01)\n'true'",
                                                         "background": True}).json["id"]
    put = s.call("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["sh", "-c", f"echo {mine} {other} >/workspace/.go; mv /workspace/.go /workspace/go"]})
    assert put.status in (200, 201), put.body
    until(lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions/{mine}").json.get("endedAt"))
    until(lambda: s.call("GET", where(sb, cx)).json["refusedEvents"] >= 4)  # both events for the other context, the late one, the second ready
    assert not s.call("GET", f"/v1/sandboxes/{sb}/executions/{other}").json.get("endedAt")
    s.call("POST", f"/v1/sandboxes/{sb}/executions", {"command": ["touch", "/workspace/end"]})
    until(lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions/{other}").json.get("endedAt"))
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{other}").json["outcome"] == "success"
    assert s.call("GET", where(sb, apart)).json["refusedEvents"] == 0
    usable(s, sb, cx)
    usable(s, sb, apart)
    s.delete(sb)


@case
def contexts_have_their_own_variables_and_directories(s):
    sb = s.create()
    s.call("POST", f"/v1/sandboxes/{sb}/files/mkdir", {"path": "/workspace/sub"})
    one = context(s, sb, language="py", cwd="sub", env={"COLOUR": "red"})
    two = context(s, sb)
    a = run(s, sb, one, "import os\nx = 1\n(os.getcwd(), os.environ['COLOUR'])")
    assert a["results"][0]["data"]["text/plain"] == "('/workspace/sub', 'red')", a
    assert run(s, sb, two, "x")["exception"]["name"] == "NameError"
    listed = s.call("GET", where(sb)).json["items"]
    assert [c["id"] for c in listed] == [one, two] and listed[0]["cwd"] == "/workspace/sub", listed
    for _ in range(6):
        context(s, sb)
    full = s.call("POST", where(sb), {})
    assert full.status == 409 and full.json["error"]["details"] == {"limit": "contexts", "max": 8, "used": 8, "requested": 1}, full.body
    assert s.call("DELETE", where(sb, two)).status == 200
    assert s.call("GET", where(sb, two)).status == 404
    assert len(s.call("GET", where(sb)).json["items"]) == 7
    s.delete(sb)


@case
def completions_and_inspections_are_answered(s):
    sb = s.create()
    cx = context(s, sb)
    run(s, sb, cx, "wonderful = 3")
    a = s.call("POST", where(sb, cx, "complete"), {"code": "wonder", "cursor": 6})
    assert a.status == 200 and any("wonderful" in m for m in a.json["matches"]), a.body
    b = s.call("POST", where(sb, cx, "inspect"), {"code": "len", "cursor": 2})
    assert b.status == 200 and b.json["found"], b.body
    s.delete(sb)


@case
def invalid_requests_are_refused_by_name(s):
    sb = s.create()
    cx = context(s, sb)
    for body in ({"language": "cobol"}, {"lang": "python"}, {"env": {"A": 1}}, {"cwd": ""}):
        assert s.call("POST", where(sb), body).status == 400, body
    for body in ({}, {"code": 1}, {"code": "1", "timeoutMs": 0}, {"code": "1", "language": "python"}):
        assert s.call("POST", where(sb, cx, "execute"), body).status == 400, body
    nobody = "cx" + "a" * 20
    assert s.call("POST", where(sb, nobody, "execute"), {"code": "1"}).status == 404
    assert s.call("DELETE", where(sb, nobody)).status == 404
    assert s.call("GET", where("sb" + "a" * 20)).status == 404
    s.delete(sb)


def begun(s, sb, cx, code, timeoutMs=600000):
    """Starts code in the background and returns after its first output."""
    a = s.call("POST", where(sb, cx, "execute"),
               {"code": "print('on', flush=True)\n" + code, "background": True, "timeoutMs": timeoutMs}).json
    until(lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json["stdoutBytes"] > 0)
    return f"/v1/sandboxes/{sb}/executions/{a['id']}"


@case
def contexts_survive_the_server_and_their_running_code_is_reported_as_lost(s):
    sb = s.create()
    idle, busy = context(s, sb), context(s, sb)
    run(s, sb, idle, "x = 'kept'")
    path = begun(s, sb, busy, "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nx = 'done'")
    waits = s.call("POST", where(sb, busy, "execute"), {"code": "x = 'no'", "background": True}).json
    s.kill()
    s.start()
    until(lambda: s.call("GET", where(sb, idle)).json["state"] == "idle")
    assert run(s, sb, idle, "x")["results"][0]["data"]["text/plain"] == "'kept'"
    until(lambda: s.call("GET", path).json["state"] == "ended")
    lost = s.call("GET", path).json
    assert lost["endedBy"] == "lost" and lost["outcome"] == "lost" and "while it ran" in lost["error"]["message"], lost
    lost = s.call("GET", f"/v1/sandboxes/{sb}/executions/{waits['id']}").json
    assert lost["endedBy"] == "lost" and "begun" in lost["error"]["message"], lost
    seen = s.call("GET", where(sb, busy)).json
    assert seen["state"] == "busy" and "executionId" not in seen and seen["queued"] == 0, seen
    assert s.files(sb, "PUT", body=b"", path="/workspace/go").status in (200, 201)
    assert run(s, sb, busy, "x")["results"][0]["data"]["text/plain"] == "'done'"  # queued after the running code
    s.delete(sb)


@case
def code_that_still_runs_after_a_server_restart_can_be_stopped(s):
    sb = s.create()
    heeds, ends, deaf = context(s, sb), context(s, sb), context(s, sb)
    run(s, sb, heeds, "x = 'kept'")
    begun(s, sb, heeds, "while True: pass")
    begun(s, sb, ends, "while True: pass", timeoutMs=3000)
    begun(s, sb, deaf, "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [2])\nwhile True: pass")
    s.kill()
    s.start()
    until(lambda: s.call("GET", where(sb, heeds)).json["state"] == "busy")
    stopped = s.call("POST", where(sb, heeds, "interrupt"))
    assert stopped.status == 200 and stopped.json["outcome"] == "interrupted", stopped.body
    assert run(s, sb, heeds, "x")["results"][0]["data"]["text/plain"] == "'kept'"
    until(lambda: s.call("GET", where(sb, ends)).json["state"] == "idle")  # its timeout has passed
    killed = s.call("POST", where(sb, deaf, "interrupt"))
    assert killed.status == 200 and killed.json["outcome"] == "killed", killed.body
    until(lambda: s.call("GET", where(sb, deaf)).json["state"] == "idle")
    s.delete(sb)


@case
def a_context_with_variables_keeps_them_but_cannot_restart_after_a_server_restart(s):
    sb = s.create()
    cx = context(s, sb, env={"TOKEN": "red"})
    s.kill()
    s.start()
    until(lambda: s.call("GET", where(sb, cx)).json["state"] == "idle")
    assert run(s, sb, cx, "import os; os.environ['TOKEN']")["results"][0]["data"]["text/plain"] == "'red'"
    run(s, sb, cx, "import os; os._exit(3)")
    again = s.call("POST", where(sb, cx, "restart"))
    assert again.status == 409 and again.code == "context_dead" and "not stored" in again.json["error"]["message"], again.body
    assert s.call("DELETE", where(sb, cx)).status == 200
    s.delete(sb)


@case
def a_sandbox_that_ends_ends_its_contexts_and_their_queued_requests(s):
    sb = s.create()
    cx = context(s, sb)
    a = s.call("POST", where(sb, cx, "execute"), {"code": "while True: pass", "background": True}).json
    answers = []
    t = threading.Thread(target=lambda: answers.append(
        s.call("POST", where(sb, cx, "execute"), {"code": "1"}).json))
    t.start()
    until(lambda: s.call("GET", where(sb, cx)).json["queued"] == 1)
    s.delete(sb)
    t.join(120)
    assert answers and answers[0]["error"]["code"], answers
    ended = s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json
    assert ended["endedAt"], ended
    assert s.call("GET", where(sb)).status in (404, 410)


def in_a_fork(s, template, code):
    """A context of that template that is a fork of its zygote, as `code` detects. Creates sandboxes
    until one is a fork, because the first sandboxes of a template are created before its zygote is
    ready."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        sb = s.call("POST", "/v1/sandboxes", {"template": template}).json["id"]
        cx = context(s, sb)
        if run(s, sb, cx, code)["results"][0]["data"]["text/plain"] == "True":
            return sb, cx
        s.delete(sb)
        time.sleep(0.2)
    raise AssertionError(f"no context of template {template} was a fork")


@case
def contexts_have_the_preloaded_modules_of_their_template(s):
    a = s.call("PUT", "/v1/templates/colours", {"runtime": "python", "preload": ["colorsys"]})
    assert a.status == 200 and a.json["spec"]["preload"] == ["colorsys"] and not a.json["builtin"], a.body
    sb, cx = in_a_fork(s, "colours", "import sys; 'colorsys' in sys.modules")
    assert run(s, sb, cx, "import os; os.getcwd(), os.getppid()")["results"][0]["data"]["text/plain"] == "('/workspace', 1)"
    other = context(s, sb, env={"COLOUR": "green"}, cwd="/tmp")  # a second context, whose interpreter is forked on request
    assert run(s, sb, other, "import os; os.environ['COLOUR'] + os.getcwd()")["results"][0]["data"]["text/plain"] == "'green/tmp'"
    again = s.call("POST", where(sb, cx, "restart"))
    assert again.status == 200 and run(s, sb, cx, "1 + 1")["results"], again.body
    s.delete(sb)
    s.call("DELETE", "/v1/templates/colours")


@case
def modules_that_cannot_be_preloaded_are_refused_by_name(s):
    for body in ({"runtime": "node", "preload": ["fs"]}, {"runtime": "python", "preload": ["os; rm"]},
                 {"runtime": "python", "preload": ["1x"]}, {"runtime": "python", "preload": "json"},
                 {"runtime": "python", "preload": ["a" * 300, "b" * 300]}):
        a = s.call("PUT", "/v1/templates/bad", body)
        assert a.status == 400 and "preload" in a.json["error"]["message"], (body, a.body)
    a = s.call("POST", "/v1/sandboxes", {"runtime": "python", "preload": ["json"]})
    assert a.status == 400 and "preload" in a.json["error"]["message"], a.body


@case
def a_template_whose_modules_the_host_lacks_is_unavailable_and_refused_early(s):
    a = s.call("PUT", "/v1/templates/lacking", {"runtime": "python", "preload": ["json", "no_such_module", "nor_this.one", "math"]})
    listed = [t for t in s.call("GET", "/v1/templates").json["items"] if t["name"] == "lacking"]
    for t in (a.json, s.call("GET", "/v1/templates/lacking").json, *listed):
        assert t["available"] is False and t["missing"] == ["no_such_module", "nor_this"], t
        assert "no_such_module and nor_this" in t["reason"], t
        assert t["fix"] == "apt-get install python3-no-such-module python3-nor-this", t
    for path, body in (("/v1/sandboxes", {}), ("/v1/execute", {"code": "1"})):
        a = s.call("POST", path, {"template": "lacking", **body})
        error = a.json["error"]
        assert (a.status, error["code"]) == (422, "template_unavailable"), a.body
        assert "no_such_module" in error["message"] and "apt-get install" in error["message"], error
        assert error["details"] == {"template": "lacking", "missing": ["no_such_module", "nor_this"],
                                    "fix": "apt-get install python3-no-such-module python3-nor-this"}, error
    a = s.call("PUT", "/v1/templates/lacking", {"runtime": "python", "preload": ["nor_this"], "env": {"PYTHONPATH": "/workspace"}})
    assert a.json["available"] is True, a.body  # the sandbox may bring it
    s.call("DELETE", "/v1/templates/lacking")
    python = s.call("GET", "/v1/templates/python").json
    assert python["available"] is True and "reason" not in python and "missing" not in python, python


@case
def built_in_templates_can_be_replaced_and_restored(s):
    names = {t["name"]: t["builtin"] for t in s.call("GET", "/v1/templates").json["items"]}
    assert all(names.get(n) for n in ("python", "python-data", "node", "bash")), names
    assert s.call("GET", "/v1/templates/node").json["spec"] == {"runtime": "node"}
    assert s.call("PUT", "/v1/templates/node", {"runtime": "node", "timeoutMs": 5000}).status == 200
    listed = [t for t in s.call("GET", "/v1/templates").json["items"] if t["name"] == "node"]
    assert len(listed) == 1 and not listed[0]["builtin"] and listed[0]["createdAt"], listed
    assert s.call("DELETE", "/v1/templates/node").status == 204
    assert s.call("GET", "/v1/templates/node").json["builtin"] is True
    kept = s.call("DELETE", "/v1/templates/node")
    assert kept.status == 409 and "built in" in kept.json["error"]["message"], kept.body


@case
def a_context_of_python_data_draws_a_figure(s):
    sb, cx = in_a_fork(s, "python-data", "import sys; 'pandas' in sys.modules and 'matplotlib' in sys.modules")
    told = run(s, sb, cx, "import numpy as np, pandas as pd, matplotlib.pyplot as plt\n"
               "plt.plot(np.arange(3), [1, 4, 9])\nplt.title('squares')\nplt.show()\npd.DataFrame({'a': [1, 2]})")
    assert told["outcome"] == "success", told
    kinds = [set(r["data"]) for r in told["results"]]
    assert any("image/png" in k for k in kinds) and any("text/html" in k for k in kinds), kinds
    place = run(s, sb, cx, "import matplotlib, os; d = matplotlib.get_cachedir(); open(os.path.join(d, 'x'), 'w').write('y')")
    assert place["outcome"] == "success" and place["results"][0]["data"]["text/plain"] == "1", place
    s.delete(sb)


def sandboxes_of(s):
    """The number of sandboxes in the jailer, including those that the server does not know: each
    has a PID 1."""
    children, names, found, todo = {}, {}, 0, [str(s.jailer.pid)]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                text = f.read()
        except OSError:
            continue
        names[pid] = text[text.index("(") + 1:text.rindex(")")]
        children.setdefault(text[text.rindex(")") + 1:].split()[1], []).append(pid)
    while todo:
        below = children.get(todo.pop(), [])
        found += sum(names[pid] == "runtime" for pid in below)
        todo += below
    return found


@case
def prepared_sandboxes_end_with_the_server_that_made_them(s):
    kept, _ = in_a_fork(s, "python", "import sys; 'statistics' in sys.modules")
    owned = len(s.call("GET", "/v1/sandboxes?state=running").json["items"])
    until(lambda: sandboxes_of(s) > owned)
    s.process.kill()
    s.process.wait()
    until(lambda: sandboxes_of(s) == owned)
    s.start()
    s.wait_ready()
    assert run(s, kept, context(s, kept), "6 * 7")["results"][0]["data"]["text/plain"] == "42"
    s.delete(kept)


def value(s, sb, cx, code):
    a = run(s, sb, cx, code)
    assert a["outcome"] == "success" and a["results"], a
    return a["results"][0]["data"]["text/plain"]


def fork(s, sb, cx):
    a = s.call("POST", where(sb, cx, "fork"))
    assert a.status == 201, a.body
    assert a.json["state"] == "idle" and a.json["forkedFrom"] == cx and a.headers["Location"].endswith(a.json["id"]), a.body
    return a.json["id"]


@case
def a_fork_starts_with_the_live_state_and_is_independent(s):
    sb = s.create()
    cx = context(s, sb, env={"COLOUR": "red"})
    run(s, sb, cx, "import os, random\nx = [1]\nopen('kept', 'w').write('line\\n')\nf = open('kept')\nos.makedirs('d'); os.chdir('d')\nrandom.seed(1)")
    two = fork(s, sb, cx)
    assert value(s, sb, two, "x.append(2); (x, os.getcwd(), os.environ['COLOUR'], f.readline())") == "([1, 2], '/workspace/d', 'red', 'line\\n')"
    assert value(s, sb, cx, "x") == "[1]"
    assert value(s, sb, cx, "random.random()") != value(s, sb, two, "random.random()")
    assert value(s, sb, cx, "os.getpid()") != value(s, sb, two, "os.getpid()")
    said = run(s, sb, two, "print('of the fork')")
    assert said["stdout"] == "of the fork\n" and said["contextId"] == two, said
    third = fork(s, sb, two)
    assert value(s, sb, third, "x") == "[1, 2]"
    listed = s.call("GET", where(sb)).json["items"]
    assert [c["id"] for c in listed] == [cx, two, third] and listed[1]["version"] == listed[0]["version"], listed
    for _ in range(5):
        fork(s, sb, cx)
    full = s.call("POST", where(sb, cx, "fork"))
    assert full.status == 409 and full.code == "limit_reached", full.body
    s.delete(sb)


@case
def an_idempotency_key_creates_one_context(s):
    sb = s.create()
    first = s.call("POST", where(sb), {"language": "python"}, {"Idempotency-Key": "one"})
    assert first.status == 201, first.body
    run(s, sb, first.json["id"], "x = 1")
    again = s.call("POST", where(sb), {"language": "python"}, {"Idempotency-Key": "one"})
    assert again.status == 201 and again.json["id"] == first.json["id"] and again.json["executions"] == 1, again.body
    assert again.headers["Idempotency-Replayed"] == "true"
    other = s.call("POST", where(sb), {"language": "bash"}, {"Idempotency-Key": "one"})
    assert other.status == 409 and other.code == "idempotency_conflict", other.body
    forks = [s.call("POST", where(sb, first.json["id"], "fork"), headers={"Idempotency-Key": "two"}) for _ in range(2)]
    assert forks[0].status == 201 and forks[0].json["id"] == forks[1].json["id"] != first.json["id"], [f.body for f in forks]
    assert len(s.call("GET", where(sb)).json["items"]) == 2
    bad = s.call("POST", where(sb), {"language": "python", "cwd": "/nowhere"}, {"Idempotency-Key": "three"})
    assert bad.status >= 400, bad.body
    good = s.call("POST", where(sb), {"language": "python"}, {"Idempotency-Key": "three"})
    assert good.status == 201, "a key whose request failed can be used again: %s" % good.body
    s.delete(sb)


@case
def a_fork_and_its_parent_live_and_die_independently(s):
    sb = s.create()
    cx = context(s, sb)
    run(s, sb, cx, "x = 'kept'")
    two, three = fork(s, sb, cx), fork(s, sb, cx)
    a = s.call("POST", where(sb, two, "execute"), {"code": "print('on', flush=True)\nwhile True: pass", "background": True}).json
    until(lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['id']}").json["stdoutBytes"] > 0)
    busy = s.call("POST", where(sb, two, "fork"))
    assert busy.status == 409 and busy.code == "conflict" and "idle" in busy.body.decode(), busy.body
    assert value(s, sb, cx, "x") == "'kept'"
    stopped = s.call("POST", where(sb, two, "interrupt"))
    assert stopped.status == 200 and stopped.json["outcome"] == "interrupted", stopped.body
    died = run(s, sb, three, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert died["outcome"] == "error" and died["error"]["code"] == "context_dead", died
    dead = s.call("POST", where(sb, three, "fork"))
    assert dead.status == 409 and dead.code == "context_dead", dead.body
    assert run(s, sb, cx, "import os; os._exit(3)")["error"]["code"] == "context_dead"
    assert value(s, sb, two, "x") == "'kept'"
    four = fork(s, sb, two)
    assert s.call("DELETE", where(sb, two)).status == 200
    assert value(s, sb, four, "x") == "'kept'"
    again = s.call("POST", where(sb, four, "restart"))
    assert again.status == 200 and "forkedFrom" not in again.json and again.json["restarts"] == 1, again.body
    assert run(s, sb, four, "x")["exception"]["name"] == "NameError"
    s.delete(sb)


@case
def a_refused_fork_says_why(s):
    sb = s.create()
    cx = context(s, sb)
    run(s, sb, cx, "import threading\ngo = threading.Event()\nt = threading.Thread(target=go.wait, name='poller')\nt.start()")
    a = s.call("POST", where(sb, cx, "fork"))
    assert a.status == 409 and a.code == "fork_unsupported" and "poller" in a.body.decode() and cx in a.body.decode(), a.body
    run(s, sb, cx, "go.set(); t.join()")
    fork(s, sb, cx)
    shell = context(s, sb, language="bash")
    a = s.call("POST", where(sb, shell, "fork"))
    assert a.status == 409 and a.code == "fork_unsupported" and "bash" in a.body.decode(), a.body
    assert s.call("POST", where(sb, "cx" + "a" * 20, "fork")).status == 404
    run(s, sb, cx, "import subprocess\nmore = []\ntry:\n    while True: more.append(subprocess.Popen(['sleep', '1000']))\nexcept OSError: pass")
    a = s.call("POST", where(sb, cx, "fork"))
    assert a.status == 409 and a.code == "process_limit_reached", a.body
    run(s, sb, cx, "for p in more: p.kill()\nfor p in more: p.wait()")
    fork(s, sb, cx)
    assert len(s.call("GET", where(sb)).json["items"]) == 4
    s.delete(sb)


@case
def a_kernel_that_lies_about_its_fork_harms_only_itself(s):
    sb = s.create()
    cx = context(s, sb)
    run(s, sb, cx, "import covekernel.session as k, os\nreal = k.Session.fork\n"
        "k.Session.fork = lambda self, id: (os.write(self.channel.given[0], b'j'), [os.close(f) for f in self.channel.take_given()])")
    a = s.call("POST", where(sb, cx, "fork"))
    assert a.status == 409 and a.code == "context_dead" and "another process answered" in a.body.decode(), a.body
    run(s, sb, cx, "kept = []\nk.Session.fork = lambda self, id: kept.append(self.channel.take_given())")
    answers = []
    t = threading.Thread(target=lambda: answers.append(s.call("POST", where(sb, cx, "fork"))))
    t.start()
    until(lambda: len(s.call("GET", where(sb)).json["items"]) == 2)
    new = s.call("GET", where(sb)).json["items"][1]
    assert new["state"] == "starting" and new["forkedFrom"] == cx, new
    assert s.call("DELETE", where(sb, new["id"])).status == 200
    t.join(120)
    assert answers and answers[0].status == 409, answers
    run(s, sb, cx, "k.Session.fork = real")
    assert value(s, sb, fork(s, sb, cx), "len(kept)") == "1"
    s.delete(sb)


@case
def a_fork_and_its_parent_survive_the_server(s):
    sb = s.create()
    cx = context(s, sb)
    run(s, sb, cx, "x = 'kept'")
    two = fork(s, sb, cx)
    run(s, sb, two, "x = 'changed'")
    s.kill()
    s.start()
    until(lambda: all(s.call("GET", where(sb, c)).json["state"] == "idle" for c in (cx, two)))
    assert value(s, sb, cx, "x") == "'kept'" and value(s, sb, two, "x") == "'changed'"
    assert s.call("GET", where(sb, two)).json["forkedFrom"] == cx
    assert value(s, sb, fork(s, sb, two), "x") == "'changed'"
    s.delete(sb)


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
