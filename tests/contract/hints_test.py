#!/usr/bin/env python3
"""hints_test.py API_TESTD RUNTIME - the hints of failed executions, over the same real server as
api_test.py: programs that language models write (hint_snippets.py), and where a hint is found;
prints TAP. Needs root.
"""
import concurrent.futures
import json
import sys

import api_test
from hint_snippets import SNIPPETS

CASES = []
NEEDED = 0.9  # the part of the programs whose hint names the cause
HINT_MAX = 640
SOME = SNIPPETS[::3]
SPOILERS = ("memory", "memory_node", "disk", "tmp_full")  # the next program would find a full file system
MEMORY = "import os\nos.write(2, b'kept\\n')\ndata = []\nwhile True:\n    data.append(bytearray(1 << 24))"


def case(function):
    CASES.append(function)
    return function


def body_of(row):
    name, language, program, _ = row
    place = {"command": ["/bin/sh", "-c", program]} if language == "command" else {"code": program}
    return {**place, "timeoutMs": 500 if name.startswith("timeout") else 20000}


def missing_words(hint, words):
    return [word for word in words if not any(choice.lower() in (hint or "").lower() for choice in word.split("|"))]


def judge(results):
    """The rows whose hint does not name the cause, as diagnostics."""
    misses = []
    for row, result in results:
        hint = result.get("hint")
        wrong = missing_words(hint, row[3])
        if hint and (len(hint.encode()) >= HINT_MAX or "\n" in hint):
            wrong.append("a short line")
        if wrong:
            misses.append(f"{row[0]}: {wrong} not in {hint!r}")
    print("".join(f"# {miss}\n" for miss in misses), end="", flush=True)
    assert len(misses) <= len(results) * (1 - NEEDED), f"{len(misses)} of {len(results)} hints miss the cause"


@case
def a_hint_names_the_cause_of_a_call_without_a_sandbox(s):
    def ask(row):
        more = {} if row[1] == "command" else {"language": row[1]}
        a = s.call("POST", "/v1/execute", {**body_of(row), **more})
        assert a.status == 200, (row[0], a.status, a.body)
        assert a.json["outcome"] != "success", (row[0], a.json)
        return row, a.json

    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        judge(list(threads.map(ask, SNIPPETS)))


@case
def a_hint_names_the_cause_of_an_execution_of_a_sandbox(s):
    results = []

    def run_all(language):
        sandbox = None
        for row in SOME:
            if row[1] != language:
                continue
            sandbox = sandbox or s.create(runtime="python" if language == "command" else language)
            a = s.execute(sandbox, body_of(row))
            assert a.status in (200, 201), (row[0], a.status, a.body)
            assert a.json["outcome"] != "success", (row[0], a.json)
            results.append((row, a.json))
            if row[0] in SPOILERS:
                s.delete(sandbox)
                sandbox = None
        if sandbox:
            s.delete(sandbox)

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(run_all, ["python", "node", "bash", "command"]))
    assert len(results) == len(SOME)
    judge(results)


@case
def a_success_has_no_hint(s):
    assert "hint" not in s.call("POST", "/v1/execute", {"code": "import sys\nprint('ConnectionRefusedError', file=sys.stderr)"}).json


@case
def a_stream_has_the_hint_at_its_end(s):
    body = {"code": "import nosuch_module", "stream": True}
    lines = [json.loads(line) for line in s.call("POST", "/v1/execute", body).body.splitlines()]
    assert "nosuch_module is not installed" in lines[-1]["execution"]["hint"], lines[-1]


@case
def a_hint_survives_to_later_requests(s):
    sandbox = s.create(runtime="python")
    done = s.execute(sandbox, {"code": "open('nosuch.csv')"}).json
    assert done["hint"].startswith("nosuch.csv does not exist"), done
    assert s.call("GET", f"/v1/sandboxes/{sandbox}/executions/{done['id']}").json["hint"] == done["hint"]
    listed = s.call("GET", f"/v1/sandboxes/{sandbox}/executions").json["items"]
    assert [x.get("hint") for x in listed if x["id"] == done["id"]] == [done["hint"]], listed
    s.delete(sandbox)


@case
def a_hint_of_memory_names_the_limit_of_the_request(s):
    a = s.call("POST", "/v1/execute", {"code": MEMORY, "resources": {"memoryBytes": 128 << 20, "storageBytes": 1 << 20}}).json
    assert a["outcome"] == "out_of_memory" and "limit of 128M" in a["hint"] and "resources.memoryBytes" in a["hint"], a


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
