#!/usr/bin/env python3
"""execute_test.py API_TESTD RUNTIME - POST /v1/execute over the same real server as api_test.py,
which runs 4 requests at the same time and queues 8, with the language kernels of the build that
RUNTIME belongs to; prints TAP. Needs root.
"""
import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

import api_test

CASES = []


def case(function):
    CASES.append(function)
    return function


def until(what, seconds=120):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.02)


def run(s, status=200, **body):
    a = s.call("POST", "/v1/execute", body)
    assert a.status == status, (a.status, a.body)
    return a.json


def figure(s, name):
    text = s.call("GET", "/metrics").body.decode()
    for line in text.splitlines():
        if line.startswith(f"cove_{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def nothing_is_left(s):
    until(lambda: figure(s, "executor_running") == 0 and figure(s, "executor_ending") == 0)


@case
def python_code_is_answered_with_output_result_and_receipt(s):
    a = run(s, code="print('hello')\n6 * 7", receipt="full")
    assert a["outcome"] == "success" and a["exitCode"] == 0 and a["endedBy"] == "exit", a
    assert a["stdout"] == "hello\n" and a["stderr"] == "" and not a["truncated"], a
    assert a["value"] == a["results"][0]["data"]["text/plain"] == "42" and a["startedAt"] <= a["endedAt"] and not a["cached"], a
    assert a["receipt"]["sandbox"] == a["sandboxId"] and a["receipt"]["execution"] == a["id"], a
    assert a["receipt"]["used"]["wallMs"] > 0 and "memoryPeakBytes" in a["receipt"]["absent"], a["receipt"]
    assert "files" not in a and "exception" not in a, a
    for body in ({"code": "1", "receipt": "full"}, {"command": ["true"], "receipt": "full"}):
        b = s.call("POST", "/v1/execute", body, headers={"X-Request-Id": "run-7"})
        assert b.json["receipt"]["requestId"] == "run-7", b.body


@case
def the_answer_to_a_sum_is_small(s):
    a = s.call("POST", "/v1/execute", {"code": "6*7"})
    assert a.json["value"] == "42" and len(a.body) <= 600, (len(a.body), a.body)
    assert a.json["receipt"].keys() == {"used"} and a.json["receipt"]["used"]["wallMs"] > 0, a.json
    assert "receipt" not in run(s, code="1", receipt="none")
    refused = s.call("POST", "/v1/execute", {"code": "1", "receipt": "short"})
    assert refused.status == 400 and "receipt" in refused.json["error"]["message"], refused.body


@case
def the_receipt_of_an_answer_is_not_final(s):
    sums = ("memoryPeakBytes", "pidsPeak", "pidsRefused", "oomKills", "throttledMs")
    for body in ({"code": "1"}, {"code": "while True: pass", "timeoutMs": 200}, {"code": "import os; os._exit(3)"}, {"command": ["true"]}):
        receipt = run(s, receipt="full", **body)["receipt"]
        assert receipt["final"] is False, (body, receipt)  # its sandbox still lives
        for name in sums:
            assert name not in receipt["used"] and receipt["absent"][name], (body, name, receipt)


@case
def python_code_gets_a_prepared_interpreter(s):
    first = run(s, code="import sys\nlen(sys.modules)")
    until(lambda: run(s, code="1")["pool"] == "hit")  # after the second request a sandbox is kept ready
    a = run(s, code="import os, random\nprint(os.environ.get('A'), os.getcwd(), random.random())", env={"A": "given"}, cwd="/tmp")
    b = run(s, code="import os, random\nprint(os.environ.get('A'), os.getcwd(), random.random())", env={"A": "given"}, cwd="/tmp")
    assert a["stdout"].startswith("given /tmp ") and a["stdout"] != b["stdout"], (a["stdout"], b["stdout"])
    assert a["receipt"]["used"]["wallMs"] > 0 and first["outcome"] == "success", a["receipt"]
    named = run(s, code="1", template="python")
    unknown = s.call("POST", "/v1/execute", {"code": "1", "template": "pyton"})
    assert named["outcome"] == "success" and unknown.status == 404 and "did you mean python" in unknown.json["error"]["message"], unknown.body


@case
def every_run_has_a_fresh_sandbox(s):
    run(s, code="open('/workspace/left', 'w').write('x'); open('/tmp/left', 'w').write('x'); x = 1")
    a = run(s, code="import os\nprint(os.path.exists('/workspace/left'), os.path.exists('/tmp/left'), 'x' in globals())")
    assert a["stdout"] == "False False False\n", a
    ids = {run(s, code="1")["sandboxId"] for _ in range(3)}
    assert len(ids) == 3, ids
    assert all(s.call("GET", f"/v1/sandboxes/{sb}").status == 404 for sb in ids), "the sandbox has a row"


@case
def an_exception_is_reported_with_its_traceback(s):
    a = run(s, code="print('before')\n1 / 0")
    assert a["outcome"] == "error" and a["exitCode"] == 1 and a["stdout"] == "before\n", a
    assert a["exception"]["name"] == "ZeroDivisionError" and a["exception"]["traceback"], a


@case
def code_that_exits_has_a_status_and_no_exception(s):
    for language, code, status in (("python", "import sys; print('x'); sys.exit(0)", 0), ("python", "print('x'); exit()", 0),
                                   ("python", "print('x')\nraise SystemExit", 0), ("python", "import sys; print('x'); sys.exit(3)", 3),
                                   ("node", "console.log('x'); process.exit(4)", 4), ("node", "console.log('x'); process.exit(0)", 0),
                                   ("bash", "echo x; exit 5", 5), ("bash", "echo x; false", 1)):
        a = run(s, code=code, language=language, receipt="full")
        assert (a["exitCode"], a["outcome"], a["stdout"], a["endedBy"]) == (status, "error" if status else "success", "x\n", "exit"), (code, a)
        assert "exception" not in a and a["receipt"]["exitCode"] == status, (code, a)
    a = run(s, code="import sys; sys.exit('why')")
    assert a["exitCode"] == 1 and a["exception"]["value"] == "why", a
    a = run(s, code="class Exit(Exception): pass\nraise Exit(0)")
    assert a["exitCode"] == 1 and a["exception"]["name"] == "Exit", a


@case
def node_and_bash_code_and_commands_run_too(s):
    a = run(s, code="console.log('n'); [1, 2].length", language="node")
    assert a["outcome"] == "success" and a["stdout"] == "n\n" and a["results"][0]["data"]["text/plain"] == "2", a
    a = run(s, code="echo $X; exit 3", language="bash", env={"X": "given"})
    assert a["stdout"] == "given\n" and a["outcome"] == "error" and a["exitCode"] == 3 and "exception" not in a, a
    a = run(s, command=["sh", "-c", "echo $0 $1; exit 7", "a", "b"])
    assert a["stdout"] == "a b\n" and a["exitCode"] == 7 and a["outcome"] == "error" and a["results"] == [] and a["value"] is None, a
    a = run(s, command="echo one && pwd", cwd="/tmp")
    assert a["stdout"] == "one\n/tmp\n" and a["outcome"] == "success", a
    a = run(s, command="kill -9 $$")
    assert a["signal"] == 9 and a["exitCode"] is None and a["outcome"] == "error" and a["endedBy"] == "signal", a


@case
def standard_input_is_given_to_commands_and_line_by_line_to_code(s):
    assert run(s, command=["cat"], stdin="text\u00e9")["stdout"] == "text\u00e9"
    big = "0123456789abcdef\n" * 40000
    assert run(s, command="wc -c", stdin=big)["stdout"].strip() == str(len(big))
    a = run(s, code="print([input('a? '), input(), 'end'])\ntry:\n    input()\nexcept EOFError:\n    print('eof')", stdin="x\ny\n")
    assert a["stdout"].splitlines()[-2:] == ["['x', 'y', 'end']", "eof"], a
    assert run(s, command="cat; echo done")["stdout"] == "done\n", "a command without input did not read the end of its input"


@case
def files_are_uploaded_and_returned_by_path_and_pattern(s):
    blob = bytes(range(256)) * 10
    a = run(s, code="import os, pathlib\n"
            "for name in ('a.txt', 'b.txt', 'c.bin', '.hidden.txt'):\n"
            "    os.makedirs('out/deep', exist_ok=True)\n"
            "    pathlib.Path('out', name).write_bytes(pathlib.Path('in/data').read_bytes())\n"
            "pathlib.Path('out/deep/d.txt').write_text('deep')\n"
            "pathlib.Path('/tmp/t').write_text(pathlib.Path('/tmp/given/x').read_text())",
            files=[{"path": "in/data", "contentBase64": base64.b64encode(blob).decode()},
                   {"path": "/tmp/given/x", "content": "text"}, {"path": "/workspace/empty", "content": ""}],
            outputs=["out/*.txt", "out/*/d.*", "/tmp/t", "missing", "no*", "out/a.txt", "out/deep", "empty"])
    assert a["outcome"] == "success", a
    files = {f["path"]: f["content"].encode() if "content" in f else base64.b64decode(f["contentBase64"]) for f in a["files"]}
    assert files == {"out/a.txt": blob, "out/b.txt": blob, "out/deep/d.txt": b"deep", "/tmp/t": b"text", "empty": b""}, files
    assert len(a["files"]) == 5 and all(f["sizeBytes"] == len(files[f["path"]]) for f in a["files"]), a["files"]
    assert sorted(o["path"] for o in a["omitted"]) == ["missing", "out/deep"], a["omitted"]


@case
def files_that_are_too_large_or_too_many_are_named_and_the_rest_is_returned(s):
    a = run(s, command="head -c 9000000 /dev/zero > big; echo small > small; ln -s /etc/hostname link; mkfifo pipe",
            outputs=["big", "small", "pipe", "link"])
    assert [f["path"] for f in a["files"]][:1] == ["small"], a["files"]
    assert {"big", "pipe"} <= {o["path"] for o in a["omitted"]}, a["omitted"]
    a = run(s, command="for i in $(seq 150); do echo $i > f$i; done", outputs=["f*"])
    assert len(a["files"]) == 100 and a["omitted"], (len(a["files"]), a["omitted"][:2])


@case
def paths_outside_of_the_workspace_are_refused(s):
    for path in ("../x", "/etc/passwd", "a//b", "a/./b", "/workspace", "", "/workspace/../etc/x", "/tmpx/y"):
        for body in ({"files": [{"path": path, "content": ""}]}, {"outputs": [path]}):
            a = s.call("POST", "/v1/execute", {"code": "1", **body})
            assert a.status == 400 and ("files[0].path" in a.body.decode() or "outputs[0]" in a.body.decode()), (path, a.body)


@case
def an_invalid_request_is_refused_with_the_name_of_the_field(s):
    for body, word in (({}, "code or command is required"), ({"code": "1", "command": "x"}, "cannot be combined"), ({"cod": "1"}, "code"),
                       ({"code": 1}, "code"), ({"code": "1", "files": [{"path": "a"}]}, "files[0]"),
                       ({"code": "1", "files": [{"path": "a", "content": "", "contentBase64": ""}]}, "files[0]"),
                       ({"code": "1", "files": [{"path": "a", "contentBase64": "?"}]}, "base64"),
                       ({"code": "1", "outputs": [1]}, "outputs[0]"), ({"code": "1", "timeoutMs": 0}, "timeoutMs"),
                       ({"code": "1", "resources": {"cpuPinning": True}}, "cpuPinning"), ({"command": []}, "command")):
        a = s.call("POST", "/v1/execute", body)
        assert a.status == 400 and word in a.body.decode(), (body, a.body)
    a = s.call("POST", "/v1/execute", {"code": "1", "language": "cobol"})
    assert a.status == 404 and a.code == "runtime_not_found", a.body
    assert s.call("POST", "/v1/execute", {"code": "1", "template": "nowhere"}).status == 404
    a = s.call("POST", "/v1/execute", {"command": ["/no/such/program"]})
    assert a.status == 404 and a.code == "program_not_found", a.body


@case
def an_idempotency_key_is_refused_and_nothing_runs(s):
    before = figure(s, "executor_runs_total")
    for body in ({"code": "1"}, {"code": "1", "stream": True}, {"command": "true"}):
        a = s.call("POST", "/v1/execute", body, {"Idempotency-Key": "once"})
        message = a.json["error"]["message"]
        assert a.status == 400 and a.code == "invalid_request", a.body
        assert message.startswith("Idempotency-Key: ") and "/v1/sandboxes/{id}/executions" in message, a.body
    assert figure(s, "executor_runs_total") == before


@case
def a_timeout_interrupts_code_and_kills_code_that_ignores_it(s):
    a = run(s, code="print('begun', flush=True)\nimport time\ntime.sleep(600)", timeoutMs=3000)
    assert a["outcome"] == "timeout" and a["endedBy"] == "timeout" and a["exitCode"] is None, a
    assert a["stdout"] == "begun\n", a
    if "exception" in a:  # on a busy machine the interrupt may come too late, and the code is killed
        assert (a["exception"]["name"], a["exception"]["value"]) == ("TimeoutError", "stopped after 3000 ms"), a
        assert "KeyboardInterrupt" not in a["exception"]["traceback"], a
    a = run(s, code="import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeoutMs=3000)
    assert a["outcome"] == "timeout" and a["endedBy"] == "timeout" and "exception" not in a, a
    a = run(s, command="echo begun; sleep 600", timeoutMs=3000)
    assert a["outcome"] == "timeout" and a["endedBy"] == "timeout" and a["stdout"] == "begun\n", a


@case
def an_interpreter_that_dies_is_reported(s):
    a = run(s, code="import os\nprint('x', flush=True)\nos._exit(5)")
    assert a["outcome"] == "error" and a["exitCode"] == 5 and "status 5" in a["error"]["message"], a
    a = run(s, code="b = bytearray(400 << 20)", resources={"memoryBytes": 128 << 20})
    assert a["outcome"] in ("out_of_memory", "error") and (a["endedBy"] == "memory" or a["exception"]["name"] == "MemoryError"), a


@case
def output_is_bounded_and_dropped_bytes_are_reported(s):
    a = run(s, command="head -c 100000 /dev/zero | tr '\\0' x", outputBytes=1000)
    assert a["stdout"] == "x" * 1000 and a["truncated"] and a["droppedBytes"] == 99000, a["droppedBytes"]
    a = run(s, code="print('y' * 50000)", outputBytes=1000)
    assert a["stdout"] == "y" * 1000 and a["truncated"] and a["droppedBytes"] == 49001, a["droppedBytes"]
    a = run(s, code="import sys\nsys.stdout.buffer.write(b'\\xff\\n')")
    assert a["stdout"].startswith("\ufffd"), a


@case
def a_stream_delivers_the_same_result_as_it_happens(s):
    body = {"code": "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(1)\n2", "outputs": ["none"], "receipt": "full"}
    c, r = s.open("POST", "/v1/execute", body, {"Accept": "application/x-ndjson"})
    assert r.status == 200 and r.headers["Content-Type"].startswith("application/x-ndjson")
    told = [json.loads(line) for line in r]
    c.close()
    kinds = [e["type"] for e in told]
    assert kinds[0] == "started" and kinds[-1] == "end" and kinds.index("display") < kinds.index("result"), kinds
    assert {e["stream"]: e["data"] for e in told if e["type"] == "output"} == {"stdout": "out\n", "stderr": "err\n"}, told
    end = told[-1]["execution"]
    assert end["outcome"] == "success" and "stdout" not in end and end["id"] == told[0]["execution"]["id"], end
    assert end["omitted"][0]["path"] == "none" and end["receipt"]["stdoutBytes"] == 4, end
    c, r = s.open("POST", "/v1/execute", {"command": "printf 'a\\303'; sleep 0.3; printf '\\251b'", "stream": True})
    told = [json.loads(line) for line in r]
    c.close()
    assert "".join(e.get("data", "") for e in told if e["type"] == "output") == "a\u00e9b", told
    c, r = s.open("POST", "/v1/execute", {"code": "1"}, {"Accept": "text/event-stream"})
    text = r.read().decode()
    c.close()
    assert "event: started" in text and "event: result" in text and "event: end" in text, text
    a = s.call("POST", "/v1/execute", {"command": ["/no/such"], "stream": True})
    assert a.status == 404, "an execution that could not start must be an ordinary error"


@case
def a_slow_reader_slows_the_program_down_and_nothing_is_lost(s):
    c, r = s.open("POST", "/v1/execute", {"command": "head -c 6000000 /dev/zero | tr '\\0' x", "stream": True})
    time.sleep(0.5)
    n = 0
    for line in r:
        e = json.loads(line)
        n += len(e.get("data", "")) if e["type"] == "output" else 0
    c.close()
    assert n == 6000000, n


def send(s, body, key=None):
    """Sends a request without waiting for its answer."""
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
    c.request("POST", "/v1/execute", json.dumps(body).encode(),
              {"Authorization": "Bearer " + (key or s.key), "Content-Type": "application/json"})
    return c


@case
def excess_requests_are_queued_and_then_refused_with_retry_after(s):
    nothing_is_left(s)
    running = [send(s, {"command": "sleep 600", "timeoutMs": 600000}) for _ in range(4)]
    until(lambda: figure(s, "executor_running") == 4)
    waiting = [send(s, {"command": f"echo {i}"}) for i in range(4)]  # half of the queue: the maximum for one tenant
    until(lambda: figure(s, "executor_waiting") == 4)
    a = s.call("POST", "/v1/execute", {"code": "1"})
    assert a.status == 429 and a.code == "busy" and int(a.headers["Retry-After"]) >= 1, (a.status, a.body)
    waiting.pop(1).close()  # a queued request whose client disconnects is dropped
    until(lambda: figure(s, "executor_waiting") == 3)
    for c in running:  # a running one is killed
        c.close()
    answers = [json.loads(c.getresponse().read()) for c in waiting]
    assert [a["stdout"] for a in answers] == ["0\n", "2\n", "3\n"], answers
    assert all(a["queuedMs"] >= 0 for a in answers)
    for c in waiting:
        c.close()
    nothing_is_left(s)


@case
def the_queue_serves_tenants_in_rotation(s):
    nothing_is_left(s)
    made = s.call("POST", "/v1/tenants", {"name": "turns"})
    assert made.status == 201, made.body
    key = s.call("POST", "/v1/keys", {"name": "turns", "tenant": "turns", "scopes": ["executions"]})
    assert key.status == 201, key.body
    running = [send(s, {"command": "sleep 600", "timeoutMs": 600000}) for _ in range(4)]
    until(lambda: figure(s, "executor_running") == 4)
    order, lock = [], threading.Lock()

    def ask(name, secret):
        a = s.call("POST", "/v1/execute", {"command": ["true"]}, key=secret)
        with lock:
            order.append((a.status, name, a.json.get("queuedMs")))

    threads = []
    for i in range(4):
        threads.append(threading.Thread(target=ask, args=("first", s.key)))
        threads[-1].start()
        until(lambda n=i: figure(s, "executor_waiting") == n + 1)
    threads.append(threading.Thread(target=ask, args=("second", key.json["key"])))
    threads[-1].start()
    until(lambda: figure(s, "executor_waiting") == 5)
    running.pop().close()  # one slot: it goes to the first request of the first tenant, the next slot to the other tenant
    until(lambda: len(order) >= 3)
    names = [name for status, name, _ in order]
    assert all(status == 200 for status, _, _ in order) and "second" in names[:3], order
    for c in running:
        c.close()
    for t in threads:
        t.join(120)
    assert len(order) == 5, order
    nothing_is_left(s)


@case
def a_pure_run_is_answered_from_the_cache_and_every_field_is_part_of_its_key(s):
    base = {"code": "import time\ntime.time_ns()", "cache": True, "stdin": "a", "env": {"A": "1"}, "timeoutMs": 60000,
            "files": [{"path": "f", "content": "x"}], "outputs": ["f"]}
    first = run(s, **base)
    again = run(s, **base)
    assert not first["cached"] and again["cached"], (first["cached"], again["cached"])
    assert {**again, "cached": False, "queuedMs": 0, "pool": 0} == {**first, "queuedMs": 0, "pool": 0}, "a cached answer must have the same id and receipt"
    for change in ({"code": base["code"] + " "}, {"stdin": "b"}, {"env": {"A": "2"}}, {"env": {"B": "1"}}, {"timeoutMs": 60001},
                   {"files": [{"path": "f", "content": "y"}]}, {"files": [{"path": "g", "content": "x"}]}, {"outputs": ["g"]},
                   {"outputBytes": 1000}, {"cwd": "/tmp"}, {"resources": {"pids": 33}}):
        assert not run(s, **{**base, **change})["cached"], change
    assert not run(s, **{**base, "cache": False})["cached"]
    assert run(s, **base)["cached"]
    failing = {"code": "1 / 0", "cache": True}
    assert not run(s, **failing)["cached"] and not run(s, **failing)["cached"], "a failed run must not be cached"
    assert figure(s, "executor_cache_hits_total") == 2, "each cache hit must be counted"


@case
def templates_and_their_generations_determine_the_sandbox(s):
    generation = None
    for value in ("one", "two", "one"):  # the third is a new generation, although its contents equal the first
        made = s.call("PUT", "/v1/templates/exe", {"runtime": "node", "env": {"T": value}})
        assert made.status == 200 and made.json["generation"] == (generation or made.json["generation"]), made.body
        generation = made.json["generation"] + 1
        a = run(s, code="process.env.T", template="exe", cache=True)
        assert a["results"][0]["data"]["text/plain"] == f"'{value}'" and not a["cached"], a
        assert run(s, code="process.env.T", template="exe", cache=True)["cached"]


@case
def a_sandbox_in_teardown_holds_neither_a_slot_nor_quota(s):
    nothing_is_left(s)
    made = s.call("POST", "/v1/tenants", {"name": "narrow", "quota": {"sandboxes": 1}})
    assert made.status == 201, made.body
    key = s.call("POST", "/v1/keys", {"name": "narrow", "tenant": "narrow", "scopes": ["executions"]}).json["key"]
    running = [send(s, {"command": "sleep 600", "timeoutMs": 600000}) for _ in range(3)]  # so many that teardowns are deferred
    until(lambda: figure(s, "executor_running") == 3)
    for i in range(12):
        a = s.call("POST", "/v1/execute", {"command": ["echo", str(i)]}, key=key)
        assert a.status == 200 and a.json["stdout"] == f"{i}\n", a.body
    for c in running:
        c.close()
    nothing_is_left(s)


@case
def usage_is_counted_for_the_tenant_and_budgets_are_enforced(s):
    made = s.call("POST", "/v1/tenants", {"name": "spender"})
    assert made.status == 201, made.body
    key = s.call("POST", "/v1/keys", {"name": "spender", "tenant": "spender", "scopes": ["executions"]}).json["key"]
    ask = lambda **body: s.call("POST", "/v1/execute", body, key=key)
    a = ask(code="sum(i * i for i in range(300000))")
    assert a.status == 200, a.body

    def used():
        rows = s.call("GET", "/v1/usage?group=tenant").json["usage"]
        return next((r for r in rows if r.get("tenant") == "spender"), None)

    until(lambda: used() and used()["executions"] == 1 and used()["cpuMs"] > 0)
    put = s.call("PUT", "/v1/tenants/spender/budget", {"day": {"executions": 2}})
    assert put.status == 200, put.body
    answers = []

    def known():  # after a budget is set, the server first reads the usage, and reports that
        answers.append(ask(code="1"))
        return answers[-1].status != 503

    until(known)
    assert answers[-1].status == 200, answers[-1].body
    a = ask(code="1")
    assert a.status == 402 and a.code == "budget_exceeded", a.body
    viewer = s.call("POST", "/v1/keys", {"name": "viewer", "tenant": "spender", "scopes": ["sandboxes:read"]}).json["key"]
    assert s.call("POST", "/v1/execute", {"code": "1"}, key=viewer).status == 403
    assert s.call("POST", "/v1/execute", {"code": "1"}, key=False).status == 401


def sandboxes_of(s):
    """The number of sandboxes in the jailer: each has a runtime as its PID 1."""
    out = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    kids, todo, n = {}, [s.jailer.pid], 0
    for line in out.splitlines()[1:]:
        pid, parent, *words = line.split()
        kids.setdefault(int(parent), []).append((int(pid), " ".join(words)))
    while todo:
        for pid, words in kids.get(todo.pop(), []):
            todo.append(pid)
            n += "sleep 98765" in words and "sh" not in words
    return n


@case
def a_killed_server_leaves_no_sandbox(s):
    nothing_is_left(s)
    c = send(s, {"command": ["sleep", "98765"], "timeoutMs": 600000})
    until(lambda: sandboxes_of(s) == 1)
    s.kill()
    c.close()
    until(lambda: sandboxes_of(s) == 0)
    s.start()
    assert run(s, code="1")["outcome"] == "success"


def ask(s, body):
    """Sends a request without checking the answer against the contract: a lost sandbox is 502."""
    c, r = s.open("POST", "/v1/execute", body)
    answer = api_test.Answer(r, r.read())
    c.close()
    return answer


@case
def a_lost_jailer_is_reported_and_the_next_run_works(s):
    nothing_is_left(s)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = [pool.submit(lambda: ask(s, {"command": ["sleep", "98765"], "timeoutMs": 600000})) for _ in range(3)]
        until(lambda: sandboxes_of(s) == 3)
        assert run(s, command="echo 1")["stdout"] == "1\n"  # which may wait for its teardown while others run
        s.jailer.kill()
        s.jailer.wait()
        answers = [a.result(120) for a in answers]
    for a in answers:
        assert a.status in (502, 503) and a.code in ("sandbox_lost", "service_unavailable"), (a.status, a.body)
    nothing_is_left(s)
    a = s.call("POST", "/v1/execute", {"code": "1"})
    assert a.status == 503, a.body
    s.jailer = subprocess.Popen([api_test.TESTD, "jailer", s.dir, api_test.RUNTIME])
    s.wait_ready()
    assert run(s, code="1")["outcome"] == "success"
    nothing_is_left(s)  # a lost sandbox holds no slot


FORGE = """
import os, sys
f = sys._getframe()
while f and not str(f.f_locals.get("id", "")).startswith("ex"):
    f = f.f_back
ID = f.f_locals["id"].encode()
"""


@case
def input_requests_that_are_not_read_do_not_accumulate_answers(s):
    a = run(s, code=FORGE + """
import select
one = b'{"event":"input","id":"' + ID + b'","prompt":"","password":false}\\n'
for _ in range(250):
    os.write(3, one * 1000)
got = 0
while select.select([3], [], [], 5)[0]:
    got += len(os.read(3, 1 << 20))
print(got)
""", timeoutMs=600000)
    assert a["outcome"] == "success" and 0 < int(a["stdout"]) < 4 << 20, (a["outcome"], a["stdout"], a.get("exception"))


@case
def a_result_that_cannot_be_encoded_is_omitted_and_not_cached(s):
    body = {"code": "class Many:\n    def _repr_mimebundle_(self, **_):\n        return {f'text/x{i}': '' for i in range(200)}\nMany()",
            "cache": True}
    for _ in range(2):
        a = run(s, **body)
        assert a["outcome"] == "success" and a["results"] == [] and a["truncated"] and not a["cached"], a


@case
def kept_output_of_one_tenant_does_not_reduce_the_output_of_another(s):
    nothing_is_left(s)
    hogs = [send(s, {"command": "head -c 16000000 /dev/zero | tr '\\0' x; sleep 600", "outputBytes": 16 << 20, "timeoutMs": 600000})
            for _ in range(3)]
    until(lambda: figure(s, "executor_held_bytes") > 20 << 20)
    a = run(s, command="head -c 3000000 /dev/zero | tr '\\0' y")
    assert len(a["stdout"]) == 3000000 and not a["truncated"], (len(a["stdout"]), a["droppedBytes"])
    for c in hogs:
        c.close()
    nothing_is_left(s)
    assert figure(s, "executor_held_bytes") == 0


@case
def a_tenant_with_large_unread_answers_starts_nothing_more_until_they_are_read(s):
    nothing_is_left(s)
    made = s.call("POST", "/v1/tenants", {"name": "reader"})
    assert made.status == 201, made.body
    key = s.call("POST", "/v1/keys", {"name": "reader", "tenant": "reader", "scopes": ["executions"]}).json["key"]
    before = figure(s, "executor_run_seconds_count")
    unread = send(s, {"command": "head -c 12000000 /dev/zero", "outputBytes": 16 << 20}, key)  # each byte becomes six bytes of JSON
    until(lambda: figure(s, "executor_run_seconds_count") > before)
    a = s.call("POST", "/v1/execute", {"code": "1"}, key=key)
    assert a.status == 429 and a.code == "busy" and int(a.headers["Retry-After"]) >= 1, (a.status, a.body)
    assert run(s, code="1")["outcome"] == "success", "another tenant must not wait for these answers"
    assert len(json.loads(unread.getresponse().read())["stdout"]) == 12000000
    unread.close()
    until(lambda: s.call("POST", "/v1/execute", {"code": "1"}, key=key).status == 200)


@case
def a_tenant_suspended_while_its_clients_disconnect_gets_its_slots_back(s):
    nothing_is_left(s)
    assert s.call("POST", "/v1/tenants", {"name": "leaver"}).status == 201
    key = s.call("POST", "/v1/keys", {"name": "leaver", "tenant": "leaver", "scopes": ["executions"]}).json["key"]
    running = [send(s, {"command": "sleep 600", "timeoutMs": 600000}) for _ in range(4)]
    until(lambda: figure(s, "executor_running") == 4)
    for _ in range(5):
        waiting = [send(s, {"command": ["true"]}, key) for _ in range(4)]
        until(lambda: figure(s, "executor_waiting") == 4)
        change = s.connect()
        s.process.send_signal(signal.SIGSTOP)
        change.request("PATCH", "/v1/tenants/leaver", json.dumps({"suspended": True}),
                       {"Authorization": "Bearer " + s.key, "Content-Type": "application/json"})
        for c in waiting:
            c.close()
        s.process.send_signal(signal.SIGCONT)
        assert change.getresponse().status == 200
        change.close()
        until(lambda: figure(s, "executor_waiting") == 0)
        assert s.call("PATCH", "/v1/tenants/leaver", {"suspended": False}).status == 200
    waiting = [send(s, {"command": ["true"]}, key) for _ in range(4)]
    until(lambda: figure(s, "executor_waiting") == 4)
    for c in waiting + running:
        c.close()
    nothing_is_left(s)


def processes():
    """The pid and the command line of the children of each process."""
    out = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    kids = {}
    for line in out.splitlines()[1:]:
        pid, parent, *words = line.split()
        kids.setdefault(int(parent), []).append((int(pid), words))
    return kids


def children_of(pids):
    return {pid for parent, kids in processes().items() if parent in pids for pid, _ in kids}


def runtimes_of(s):
    """The PID 1 processes of the sandboxes in the jailer."""
    kids, todo, found = processes(), [s.jailer.pid], set()
    while todo:
        for pid, words in kids.get(todo.pop(), []):
            todo.append(pid)
            if words == ["cove-runtime"]:
                found.add(pid)
    return found


def with_a_member_that_dies(s, ask, whole=True):
    """The answer to a request that takes a pool member which dies, or whose interpreter dies,
    before it confirms its claim."""
    status = lambda: s.call("GET", "/v1/pools/dying/status").json
    nothing_is_left(s)
    until(lambda: status().get("ready") == 1 and status()["zygote"]["state"] == "ready")
    claims = status()["claims"]
    members = runtimes_of(s)
    dying = members if whole else children_of(members)
    for pid in members:  # a sandbox in teardown may be among them
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(ask)
        until(lambda: status()["claims"] > claims)
        for pid in dying:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in members - dying:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return answer.result(120)


@case
def a_member_that_dies_before_its_claim_is_replaced_unnoticed_by_the_client(s):
    nothing_is_left(s)
    a = s.call("PUT", "/v1/pools/dying", {"template": "python", "min": 1, "max": 1, "autoscale": {"enabled": False}})
    assert a.status == 200, a.body
    body = {"code": "import os\nprint(input(), os.environ['A'], os.path.exists('f'))\n6 * 7", "template": "python", "stdin": "in",
            "env": {"A": "given"}}
    for more in ({}, {"files": [{"path": "f", "content": "x"}]}):
        a = with_a_member_that_dies(s, lambda: ask(s, {**body, **more}))
        assert a.status == 200, (a.status, a.body)
        assert a.json["outcome"] == "success" and a.json["stdout"].endswith(f"in given {bool(more)}\n") and a.json["pool"] == "miss", a.json
    a = with_a_member_that_dies(s, lambda: ask(s, {**body, "stream": True}))
    lines = [json.loads(line) for line in a.body.splitlines()]
    assert [line["type"] for line in lines].count("started") == 1 and lines[0]["type"] == "started", lines
    assert lines[-1]["execution"]["outcome"] == "success", lines
    assert lines[0]["execution"]["sandboxId"] == lines[-1]["execution"]["sandboxId"], lines
    a = with_a_member_that_dies(s, lambda: ask(s, body), whole=False)
    assert a.status == 200 and a.json["outcome"] == "success" and a.json["stdout"].endswith("in given False\n"), a.body
    assert a.json["pool"] == "partial", a.json
    a = with_a_member_that_dies(s, lambda: ask(s, {**body, "stream": True}), whole=False)
    lines = [json.loads(line) for line in a.body.splitlines()]
    assert [line["type"] for line in lines].count("started") == 1 and lines[-1]["execution"]["outcome"] == "success", lines
    a = with_a_member_that_dies(s, lambda: s.call("POST", "/v1/sandboxes", {"template": "python", "env": {"A": "given"}}))
    assert a.status == 201 and a.json["state"] == "running", (a.status, a.body)
    x = s.execute(a.json["id"], {"command": ["sh", "-c", "echo $A"]})
    assert x.json["stdout"] == "given\n", x.body
    s.delete(a.json["id"])
    assert s.call("DELETE", "/v1/pools/dying").status == 204
    nothing_is_left(s)


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
