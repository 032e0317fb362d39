#!/usr/bin/env python3
"""tools_test.py API_TESTD RUNTIME - the tools over REST, against the same real server as
api_test.py, whose tools return at most 8 KiB of text; prints TAP. Every result is checked against
the output schema of its tool. Needs root.
"""
import base64
import json
import sys
import threading
import time

import api_test

CASES = []
OUTPUT_MAX = 8 << 10  # output_bytes of API_TESTD


def case(function):
    CASES.append(function)
    return function


# --- JSON Schema 2020-12, as far as the tools use it; an unknown keyword is an error ---

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)}
ANNOTATIONS = {"description", "title", "default", "examples"}


def wrong(value, schema, where="result"):
    """Complaints about a value."""
    found = []
    for key, want in schema.items():
        if key == "type":
            kinds = [want] if isinstance(want, str) else want
            if not any(isinstance(value, TYPES[k]) and not (k in ("integer", "number") and isinstance(value, bool)) for k in kinds):
                return [f"{where}: {value!r} is not of type {kinds}"]
        elif key == "enum":
            found += [] if value in want else [f"{where}: {value!r} is not in {want}"]
        elif key == "anyOf":
            found += [] if any(not wrong(value, s, where) for s in want) else [f"{where}: matches nothing of {want}: {str(value)[:300]}"]
        elif key == "required":
            found += [f"{where}: no {name}" for name in want if isinstance(value, dict) and name not in value]
        elif key == "properties":
            for name, inner in want.items():
                if isinstance(value, dict) and name in value:
                    found += wrong(value[name], inner, f"{where}.{name}")
        elif key == "additionalProperties":
            for name in set(value) - set(schema.get("properties", {})) if isinstance(value, dict) else ():
                found += [f"{where}.{name}: unknown"] if want is False else wrong(value[name], want, f"{where}.{name}") if want is not True else []
        elif key == "items":
            for i, inner in enumerate(value if isinstance(value, list) else ()):
                found += wrong(inner, want, f"{where}[{i}]")
        elif key in ("minimum", "maximum"):
            found += [f"{where}: {value} is beyond {key} {want}"] if isinstance(value, (int, float)) and (value < want if key == "minimum" else value > want) else []
        elif key in ("minItems", "maxItems", "minLength", "maxLength"):
            size = len(value) if isinstance(value, (list, str)) else want
            found += [f"{where}: length {size}, {key} {want}"] if (size < want if key.startswith("min") else size > want) else []
        elif key not in ANNOTATIONS:
            found.append(f"{where}: unknown keyword {key} in the schema")
    return found


TOOLS = {}


def tools(s):
    if not TOOLS:
        TOOLS.update({tool["name"]: tool for tool in s.call("GET", "/v1/tools").json["items"]})
    return TOOLS


def answered(s, name, a):
    assert a.status == 200, (name, a.status, a.body)
    complaints = wrong(a.json["result"], tools(s)[name]["outputSchema"])
    assert not complaints, (name, complaints, a.body[:1000])
    assert a.json["tool"] == name and a.json["text"], a.body
    return a.json


def use(s, sandbox, name, /, **arguments):
    """A call in a sandbox that was begun."""
    return answered(s, name, s.call("POST", f"/v1/sandboxes/{sandbox}/tools/{name}", arguments))


def refused(s, sandbox, name, /, status=400, **arguments):
    a = s.call("POST", f"/v1/sandboxes/{sandbox}/tools/{name}" if sandbox else f"/v1/tools/{name}", arguments)
    assert a.status == status, (name, arguments, a.status, a.body)
    return a.json["error"]["message"]


SHARED = []


def shared(s):
    """A sandbox for cases that leave no traces in it."""
    if not SHARED:
        SHARED.append(s.create())
    return SHARED[0]


def figure(s, line):
    for text in s.call("GET", "/metrics").body.decode().splitlines():
        if text.startswith(line + " "):
            return int(text.split()[-1])
    raise AssertionError(f"no metric {line}")


# --- the table ---

@case
def every_tool_has_schemas_a_description_and_the_hints_of_mcp(s):
    for name, tool in tools(s).items():
        for key in ("inputSchema", "outputSchema"):
            assert tool[key]["type"] == "object" and not wrong({}, {**tool[key], "required": [], "anyOf": [{}]}), (name, key)
        inputs = tool["inputSchema"]
        assert inputs["additionalProperties"] is False and set(inputs.get("required", ())) <= set(inputs["properties"]), name
        assert all("description" in p or "type" in p for p in inputs["properties"].values()), name
        assert 100 < len(tool["description"]) < 900 and tool["title"] and tool["scopes"] or tool["place"] == "server", name
        assert not (tool["annotations"]["readOnlyHint"] and tool["annotations"]["destructiveHint"]), name
        assert s.call("GET", f"/v1/tools/{name}").json == tool
    assert list(tools(s)) == s.call("GET", "/v1/capabilities").json["tools"]
    a = s.call("GET", "/v1/tools/raed_file")
    assert a.status == 404 and "did you mean read_file" in a.json["error"]["message"], a.body


@case
def an_unknown_argument_is_refused_with_the_nearest_name(s):
    sb = shared(s)
    assert "did you mean command" in refused(s, sb, "bash", comand="true")
    assert refused(s, sb, "bash") == "command: required"
    assert "file_path" in refused(s, sb, "read_file", path="x")
    assert "argv" in refused(s, sb, "exec", argv="ls -l")
    assert "unknown language" in refused(s, sb, "run_code", status=404, code="1", language="cobol")
    assert "between" in refused(s, sb, "bash", command="true", timeout_ms=0)
    for body in ("[]", "1", '"x"', "{", '{"command": 1}', '{"command": "true", "command": "false"}', '{"command": "a\\u0000b"}'):
        a = s.call("POST", f"/v1/sandboxes/{sb}/tools/bash", body)
        assert a.status == 400, (body, a.status, a.body)


# --- programs ---

@case
def a_program_that_fails_is_a_result_and_not_an_error(s):
    sb = shared(s)
    a = use(s, sb, "bash", command="echo out; echo err >&2; exit 3", description="fails")
    assert a["isError"] and a["result"]["exitCode"] == 3 and a["result"]["outcome"] == "error", a
    assert (a["result"]["stdout"], a["result"]["stderr"]) == ("out\n", "err\n"), a
    assert a["text"].startswith("The program failed with exit code 3.\nstdout:\nout\nstderr:\nerr"), a["text"]
    a = use(s, sb, "shell", command="[[ x == x ]] && echo $BASH_VERSION | wc -l && pwd")
    assert not a["isError"] and a["text"] == "The program succeeded.\nstdout:\n1\n/workspace", a
    kept = s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['executionId']}").json
    assert kept["id"] == a["result"]["id"] and kept["stdout"] == a["result"]["stdout"], kept
    a = use(s, sb, "bash", command="kill -9 $$")
    assert a["isError"] and a["result"]["signal"] == 9, a


@case
def exec_passes_arguments_as_they_are(s):
    sb = shared(s)
    a = use(s, sb, "exec", argv=["printf", "%s|", "a b", "$HOME", "'\"", "x\ny"], env={"A": "1"})
    assert a["result"]["stdout"] == "a b|$HOME|'\"|x\ny|", a
    a = use(s, sb, "exec", argv=["sh", "-c", "cat; pwd; echo $A"], stdin="in\n", cwd="/tmp", env={"A": "given"})
    assert a["result"]["stdout"] == "in\n/tmp\ngiven\n", a
    a = use(s, sb, "exec", argv=["/no/such/program"])
    assert a["isError"] and a["result"]["outcome"] == "error", a
    assert "argv[1]" in refused(s, sb, "exec", argv=["true", 1])
    assert "argv" in refused(s, sb, "exec", argv=[])
    assert "env" in refused(s, sb, "exec", argv=["true"], env={"A": 1})


@case
def code_keeps_its_variables_and_returns_values_images_and_tracebacks(s):
    sb = s.create()
    assert use(s, sb, "run_code", code="x = 6 * 7")["result"]["value"] is None
    a = use(s, sb, "run_code", code="print('p'); x")
    assert a["result"]["value"] == "42" and a["result"]["stdout"] == "p\n" and a["text"].endswith("value:\n42"), a
    a = use(s, sb, "run_code", code="def f():\n    return 1 / 0\nf()")
    assert a["isError"] and a["result"]["exception"]["name"] == "ZeroDivisionError" and "exception:\n" in a["text"], a
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 100).decode()
    a = use(s, sb, "run_code", code=f"class P:\n    def _repr_png_(self): return __import__('base64').b64decode('{pixel}')\nP()")
    assert [i["type"] for i in a["images"]] == ["image/png"] and base64.b64decode(a["images"][0]["contentBase64"]) == base64.b64decode(pixel), a
    assert a["result"]["results"][0]["images"] == [0] and "image/png" not in a["result"]["results"][0]["data"], a
    assert "[image/png: image 1]" in a["text"] and pixel not in json.dumps(a["result"]), a
    a = use(s, sb, "run_code", code="1 + 1", language="node")
    assert a["result"]["value"] == "2", a
    context = s.call("POST", f"/v1/sandboxes/{sb}/contexts", {"language": "python"}).json["id"]
    use(s, sb, "run_code", code="x = 'other'", context=context)
    assert use(s, sb, "run_code", code="x", context=context)["result"]["value"] == "'other'"
    assert use(s, sb, "run_code", code="x")["result"]["value"] == "42"
    assert "context" in refused(s, sb, "run_code", code="1", context="cx")
    assert "language" in refused(s, sb, "run_code", code="1", context=context, language="python")
    assert refused(s, sb, "run_code", status=404, code="1", context="cx" + "a" * 20)
    s.delete(sb)


@case
def a_timeout_ends_the_program_and_keeps_its_output(s):
    sb = shared(s)
    a = use(s, sb, "bash", command="echo early; sleep 60", timeout_ms=300)
    assert a["isError"] and a["result"]["outcome"] == "timeout" and a["result"]["stdout"] == "early\n", a
    assert "ran too long" in a["text"], a
    a = use(s, sb, "run_code", code="print('early', flush=True)\nwhile True: pass", timeout_ms=300)
    assert a["result"]["outcome"] == "timeout" and a["result"]["stdout"] == "early\n", a


@case
def long_output_keeps_its_beginning_and_its_end(s):
    sb = shared(s)
    a = use(s, sb, "bash", command="echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last; echo quiet >&2")
    text = a["result"]["stdout"]
    assert a["truncated"] and a["result"]["truncated"] and text.startswith("first\nxxx") and text.endswith("xxx\nlast\n"), a
    assert len(text) <= OUTPUT_MAX + 100 and len(a["text"]) <= OUTPUT_MAX + 500 and a["result"]["stderr"] == "quiet\n", len(text)
    missing = int(text.split("[... ")[1].split()[0])
    assert missing + len(text) - len(f"\n[... {missing} bytes left out ...]\n") == a["result"]["stdoutBytes"] == 3000012, (missing, len(text))
    assert f"mode status, execution_id {a['executionId']} and output_offset" in a["text"], a["text"][-300:]
    rest = use(s, sb, "run_sandbox", mode="status", execution_id=a["executionId"], output_offset=3000000)
    assert "last" in rest["text"] and "first" not in rest["text"], rest
    a = use(s, sb, "run_code", code="print('\u20ac' * 100000)")
    assert a["truncated"] and set(a["result"]["stdout"].split("\n[")[0]) == {"\u20ac"} and "\ufffd" not in a["text"], a["text"][:100]
    a = use(s, sb, "run_code", code="raise ValueError('v' * 100000)")
    assert a["truncated"] and len(json.dumps(a)) < 5 * OUTPUT_MAX, len(json.dumps(a))
    a = use(s, sb, "run_code", code="class H:\n    def _repr_html_(self): return '<b>' * 100000\n    def __repr__(self): return 'r'\nH()")
    assert a["truncated"] and set(a["result"]["results"][0]["data"]) == {"text/plain"}, a


@case
def output_that_is_not_text_is_shown_as_text(s):
    sb = shared(s)
    a = use(s, sb, "bash", command=r"printf 'a\000b\377c\033[1m'")
    assert a["text"] == "The program succeeded.\nstdout:\na\ufffdb\ufffdc\x1b[1m", a["text"]
    assert a["result"]["stdout"].replace("\x00", "\ufffd") == "a\ufffdb\ufffdc\x1b[1m", a


@case
def a_nul_in_output_values_and_files_is_shown_as_text(s):
    sb = shared(s)
    a = use(s, sb, "run_code", code="class N:\n    def __repr__(self): return 'a\\0b'\nprint('c\\0d')\nN()")
    assert a["result"]["value"] == "a\ufffdb" and a["result"]["stdout"] == "c\ufffdd\n" and "a\ufffdb" in a["text"] and not a["isError"], a
    a = use(s, sb, "run_code", code="raise ValueError('a\\\\u0000 \\0b')")
    assert "a\\u0000 \ufffdb" in a["result"]["exception"]["traceback"] and a["result"]["exception"]["name"] == "ValueError", a
    a = execute(s, code="open('n', 'w').write('x\\0y')\nprint('c\\0d')")
    assert a["result"]["stdout"] == "c\ufffdd\n" and a["result"]["outcome"] == "success" and a["result"]["output_files"][0]["name"] == "n", a


@case
def a_background_command_outlives_its_call(s):
    sb = s.create({"runtime": "sh"})
    began = time.monotonic()
    a = use(s, sb, "bash", command="sleep 0.3; echo done > /workspace/flag; sleep 600", background=True)
    assert time.monotonic() - began < 30 and a["result"]["state"] in ("starting", "running") and not a["isError"], a
    api_test.until(lambda: not use(s, sb, "read_file", file_path="flag")["isError"], "the command was ended with its call")
    assert use(s, sb, "run_sandbox", mode="status", execution_id=a["executionId"])["text"]
    use(s, sb, "run_sandbox", mode="cancel", execution_id=a["executionId"])
    assert s.call("GET", f"/v1/sandboxes/{sb}/executions/{a['executionId']}").json["state"] == "ended"
    s.delete(sb)


@case
def a_client_that_disconnects_ends_its_program(s):
    sb = s.create({"runtime": "sh"})
    for name, body in (("bash", {"command": "echo $$ > pid; sleep 600"}), ("run_code", {"code": "echo $$ > pid; sleep 600", "language": "bash"})):
        c = s.connect()
        c.request("POST", f"/v1/sandboxes/{sb}/tools/{name}", json.dumps(body),
                  {"Authorization": "Bearer " + s.key, "Content-Type": "application/json"})
        running = lambda: s.call("GET", f"/v1/sandboxes/{sb}/executions?state=running").json["items"]
        api_test.until(lambda: any(x["state"] == "running" for x in running()), "the program did not start")
        c.sock.close()
        c.close()
        api_test.until(lambda: not running(), "the program still runs")
    assert figure(s, 'cove_tool_calls_total{tool="bash",outcome="cancelled"}') >= 1
    s.delete(sb)


# --- files ---

@case
def files_are_written_with_their_parents_and_read_by_lines(s):
    sb = shared(s)
    a = use(s, sb, "write_file", file_path="new/dir/a.txt", content="one\ntwo\n\nfour")
    assert a["result"] == {"path": "/workspace/new/dir/a.txt", "size": 13} and "13 bytes" in a["text"], a
    a = use(s, sb, "read_file", file_path="/workspace/new/dir/a.txt")
    assert a["text"] == "     1|one\n     2|two\n     3|\n     4|four\n", a
    assert a["result"] == {"path": "/workspace/new/dir/a.txt", "content": "one\ntwo\n\nfour", "offset": 1, "lines": 4, "cut_lines": 0,
                           "next_offset": None, "size": 13}, a
    a = use(s, sb, "read_file", file_path="new/dir/a.txt", offset=2, limit=2)
    assert a["result"]["content"] == "two\n\n" and a["result"]["next_offset"] == 4 and a["truncated"] and "offset 4" in a["text"], a
    a = use(s, sb, "read_file", file_path="new/dir/a.txt", offset=4, limit=1)
    assert a["result"]["content"] == "four" and a["result"]["next_offset"] is None, a
    a = use(s, sb, "read_file", file_path="new/dir/a.txt", offset=9)
    assert a["result"]["lines"] == 0 and "only 4 lines" in a["text"] and not a["isError"], a
    use(s, sb, "write_file", file_path="empty", content="")
    a = use(s, sb, "read_file", file_path="empty")
    assert a["text"] == "The file is empty." and a["result"]["content"] == "" and a["result"]["next_offset"] is None, a


@case
def long_files_and_lines_are_cut_and_the_text_says_where_to_read_on(s):
    sb = shared(s)
    use(s, sb, "exec", argv=["sh", "-c", "seq 1 100000 > many; (yes \u20ac | head -3000 | tr -d '\\n'; echo; echo end) > long"])
    a = use(s, sb, "read_file", file_path="many", offset=50000, limit=3)
    assert a["text"].startswith(" 50000|50000\n 50001|50001\n 50002|50002\n[") and a["result"]["next_offset"] == 50003, a
    a = use(s, sb, "read_file", file_path="many")
    assert a["truncated"] and len(a["text"]) <= OUTPUT_MAX + 100 and a["result"]["next_offset"] == a["result"]["lines"] + 1, a["result"]["lines"]
    b = use(s, sb, "read_file", file_path="many", offset=a["result"]["next_offset"], limit=1)
    assert b["result"]["content"] == f"{a['result']['next_offset']}\n", b
    a = use(s, sb, "read_file", file_path="long")
    assert a["result"]["content"] == "\u20ac" * 2000 + "\nend\n" and a["result"]["cut_lines"] == 1 and a["truncated"], a["text"][-100:]


@case
def a_file_that_is_not_as_needed_is_a_result_and_a_missing_sandbox_an_error(s):
    sb = shared(s)
    use(s, sb, "bash", command="mkdir -p d; mkfifo -m 666 fifo; ln -sf many link; ln -sf /no/where dead; ln -sf loop loop; printf 'a\\000b' > bin; "
                               "truncate -s 200M sparse; touch 'two\nlines'")
    for path, said in (("none", "none"), ("d", "directory"), ("fifo", "fifo"), ("/dev/zero", "device"), ("dead", "dead"), ("loop", "loop"),
                       ("bin", "binary"), ("/proc/self/environ", "denied"), ("sparse", "binary"), ("d/x/y", "d/x/y")):
        a = use(s, sb, "read_file", file_path=path)
        assert a["isError"] and said in a["text"] and a["result"]["error"]["message"] in a["text"], (path, a)
    assert not use(s, sb, "read_file", file_path="two\nlines")["isError"]
    assert not use(s, sb, "read_file", file_path="link", limit=1)["isError"]
    a = use(s, sb, "write_file", file_path="d", content="x")
    assert a["isError"] and a["result"]["error"]["code"], a
    a = use(s, sb, "write_file", file_path="bin/x", content="x")
    assert a["isError"], a
    use(s, sb, "write_file", file_path="fifo", content="x")
    assert use(s, sb, "read_file", file_path="fifo")["result"]["content"] == "x", "the fifo was not replaced"
    small = s.create({"runtime": "sh", "resources": {"storageBytes": 1 << 20}})
    a = use(s, small, "write_file", file_path="big", content="x" * (2 << 20))
    assert a["isError"] and a["result"]["error"]["code"] == "sandbox_full", a
    s.delete(small)
    assert refused(s, small, "read_file", status=410, file_path="x")
    assert refused(s, "sb" + "a" * 20, "read_file", status=404, file_path="x")
    assert refused(s, "sb" + "a" * 20, "bash", status=404, command="true")


@case
def an_edit_needs_exactly_one_match(s):
    sb = shared(s)
    write = lambda text: use(s, sb, "write_file", file_path="e.py", content=text)
    read = lambda: use(s, sb, "read_file", file_path="e.py")["result"]["content"]
    lines = "".join(f"line {i}\n" for i in range(1, 21))
    write(lines)
    a = use(s, sb, "edit_file", file_path="e.py", old_string="line 7\n", new_string="seven\nand a half\n")
    assert a["result"] == {"path": "/workspace/e.py", "replacements": 1, "line": 7, "size": len(lines) + 10}, a
    assert a["text"] == ("Replaced 1 occurrence in /workspace/e.py.\n     4|line 4\n     5|line 5\n     6|line 6\n     7|seven\n"
                         "     8|and a half\n     9|line 8\n    10|line 9\n    11|line 10"), a["text"]
    a = use(s, sb, "edit_file", file_path="e.py", old_string="line 1", new_string="x")
    assert a["isError"] and "has 11 matches" in a["text"] and "replace_all" in a["text"] and read() == lines.replace("line 7\n", "seven\nand a half\n"), a
    a = use(s, sb, "edit_file", file_path="e.py", old_string="line 1", new_string="x", replace_all=True)
    assert a["result"]["replacements"] == 11 and read().count("x") == 11, a
    a = use(s, sb, "edit_file", file_path="e.py", old_string="none", new_string="x", replace_all=True)
    assert a["isError"] and "no match" in a["text"] and a["result"]["error"]["code"] == "not_found", a
    write("aaa")
    a = use(s, sb, "edit_file", file_path="e.py", old_string="aa", new_string="b")
    assert not a["isError"] and read() == "ba", "occurrences that overlap count once"
    write("one\r\ntwo\r\n")
    a = use(s, sb, "edit_file", file_path="e.py", old_string="one\ntwo", new_string="x")
    assert a["isError"] and "\\r\\n" in a["text"], a
    a = use(s, sb, "edit_file", file_path="e.py", old_string="one\r\ntwo\r\n", new_string="")
    assert not a["isError"] and read() == "" and a["result"]["size"] == 0, a
    assert "equals old_string" in refused(s, sb, "edit_file", file_path="e.py", old_string="a", new_string="a")
    assert "old_string" in refused(s, sb, "edit_file", file_path="e.py", old_string="", new_string="a")
    use(s, sb, "bash", command="printf 'a\\000b' > bin; echo x > run.sh; chmod 750 run.sh; ln -sf run.sh sh.link; mkdir -p d; head -c 9000000 /dev/zero | tr '\\0' a > large")
    for path, said in (("bin", "binary"), ("sh.link", "link"), ("d", "directory"), ("none", "none"), ("large", "larger than 8M")):
        a = use(s, sb, "edit_file", file_path=path, old_string="a", new_string="b")
        assert a["isError"] and said in a["text"], (path, a)
    use(s, sb, "edit_file", file_path="run.sh", old_string="x", new_string="y")
    assert use(s, sb, "bash", command="stat -c %a run.sh; cat sh.link")["result"]["stdout"] == "750\ny\n", "mode or link changed"
    use(s, sb, "bash", command="rm -f large; head -c 1000000 /dev/zero | tr '\\0' a > many")
    a = use(s, sb, "edit_file", file_path="many", old_string="a", new_string="x" * 1000, replace_all=True)
    assert a["isError"] and "larger than 8M" in a["text"], a


@case
def directories_are_listed_and_files_found_by_name(s):
    sb = s.create({"runtime": "sh"})
    use(s, sb, "bash", command="mkdir -p src/deep/er .git/x docs; touch src/a.c src/b.h src/deep/c.c src/deep/er/d.C docs/e.md .env .git/x/f.c 'two\nlines.c' $'bad\\377.c'; "
                               "touch $'new\\nline.c'; mkfifo pipe.c; ln -s src up; ln -s / src/root; ln -s a.c src/link.c")
    a = use(s, sb, "list")
    names = [e["name"] for e in a["result"]["entries"]]
    assert names == sorted(names, key=str.encode) and {".env", ".git", "new\nline.c", "pipe.c", "src", "up"} <= set(names), a
    kinds = {e["name"]: e for e in a["result"]["entries"]}
    assert kinds["src"]["kind"] == "directory" and kinds["pipe.c"]["kind"] == "fifo" and kinds["up"]["target"] == "src" and a["result"]["total"] == len(names), a
    assert base64.b64decode(kinds["bad\ufffd.c"]["name_base64"]) == b"bad\xff.c" and a["text"].count("\n") == len(names) - 1, a
    a = use(s, sb, "list", path="src", limit=2)
    assert len(a["result"]["entries"]) == 2 and a["truncated"] and a["result"]["total"] == 5 and "3 more" in a["text"], a
    assert use(s, sb, "list", path="docs/e.md")["isError"] and use(s, sb, "list", path="none")["isError"]
    find = lambda pattern, **more: use(s, sb, "glob", pattern=pattern, **more)["result"]["files"]
    assert find("*.md") == ["docs/e.md"] and find("src/*.c") == ["src/a.c", "src/link.c"]
    assert find("src/**/*.{c,C}") == ["src/a.c", "src/deep/c.c", "src/deep/er/d.C", "src/link.c"] and find("**/er/*") == ["src/deep/er/d.C"]
    assert find("*.[ch]", path="src/deep") == ["c.c"] and find(".env") == [".env"] and find("{src,docs}/?.{h,md}") == ["docs/e.md", "src/b.h"]
    assert "new\nline.c" in find("*.c") and "pipe.c" not in find("*.c") and not any(".git/" in f or f.startswith("up/") for f in find("**"))
    a = use(s, sb, "glob", pattern="*", limit=2)
    assert len(a["result"]["files"]) == 2 and not a["result"]["complete"] and a["truncated"], a
    assert use(s, sb, "glob", pattern="*", path="docs/e.md")["isError"] and use(s, sb, "glob", pattern="x")["text"] == "No file matches."
    for bad in ("../x", "/etc/*", "a/" * 40 + "a", "{a,b}" * 5, "x" * 1025):
        assert "pattern" in refused(s, sb, "glob", pattern=bad), bad
    use(s, sb, "bash", command="d=t; for i in $(seq 200); do mkdir -p $d/x; d=$d/x; done; mkdir -p w; cd w; seq 1 3000 | xargs mkdir")
    a = use(s, sb, "glob", pattern="*.none")
    assert a["result"]["files"] == [] and a["result"]["complete"], a
    use(s, sb, "bash", command="mkdir long; cd long; for i in $(seq 2000); do printf '%0240d\\n' $i; done | xargs touch")
    a = use(s, sb, "glob", pattern="long/*1990")
    assert len(a["result"]["files"]) == 1 and a["result"]["complete"], a
    a = use(s, sb, "glob", pattern="long/" + "*[0-9]" * 140 + "x{0,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f}")  # names are matched on the loop of the server
    assert a["result"]["files"] == [] and a["truncated"], a
    s.delete(sb)


@case
def lines_are_found_by_content(s):
    sb = s.create({"runtime": "sh"})
    use(s, sb, "bash", command="mkdir -p src .git; printf 'one\\ntwo\\nThree two\\n' > src/a.c; printf 'two:2\\n' > src/b.py; printf 'two\\000' > bin; "
                               "printf 'caf\\351 two\\n' > latin; echo two > .git/x; mkfifo src/fifo; ln -s / src/root; "
                               "printf 'two\\n' > $'src/na\\n1:me'; (head -c 100000 /dev/zero | tr '\\0' x; echo two) > long")
    found = lambda **more: [(x["path"], x["line"], x["text"]) for x in use(s, sb, "grep", **more)["result"]["lines"]]
    assert sorted(found(pattern="two", glob="src/**")) == [("src/a.c", 2, "two"), ("src/a.c", 3, "Three two"), ("src/b.py", 1, "two:2"), ("src/na\n1:me", 1, "two")]
    assert found(pattern="^tHREE", ignore_case=True, glob="*.c") == [("src/a.c", 3, "Three two")] and found(pattern="2", path="src/b.py") == [("/workspace/src/b.py", 1, "two:2")]
    assert found(pattern="caf. two", path="latin")[0][1:] == (1, "caf\ufffd two") and found(pattern="two:2", fixed=True, glob="*.{py,c}") == [("src/b.py", 1, "two:2")]
    a = use(s, sb, "grep", pattern="two$", path="long")
    assert a["result"]["lines"][0]["text"] == "x" * 500 and "[...]" in a["text"], a["text"][:100]
    a = use(s, sb, "grep", pattern="^two$", context=1, glob="a.c")
    assert [(x["line"], x["is_match"]) for x in a["result"]["lines"]] == [(1, False), (2, True), (3, False)] and a["text"] == "src/a.c-1-one\nsrc/a.c:2:two\nsrc/a.c-3-Three two", a
    assert sorted(use(s, sb, "grep", pattern="two", output_mode="files", path="src")["result"]["files"]) == ["a.c", "b.py", "na\n1:me"]
    a = use(s, sb, "grep", pattern="two", output_mode="count", path="src")
    assert sorted((x["path"], x["count"]) for x in a["result"]["counts"]) == [("a.c", 2), ("b.py", 1), ("na\n1:me", 1)], a
    a = use(s, sb, "grep", pattern="two", limit=1)
    assert len(a["result"]["lines"]) == 1 and not a["result"]["complete"] and a["truncated"], a
    a = use(s, sb, "grep", pattern="nothing like this")
    assert a["text"] == "No line matches." and not a["isError"] and a["result"]["complete"], a
    a = use(s, sb, "grep", pattern="a(")
    assert a["isError"] and "grep:" in a["text"], a
    assert use(s, sb, "grep", pattern="x", path="none")["isError"] and use(s, sb, "grep", pattern="two", path="--help")["isError"] and found(pattern="-e", fixed=True) == []
    assert "pattern" in refused(s, sb, "grep", pattern="") and "did you mean content" in refused(s, sb, "grep", pattern="x", output_mode="contents")
    a = use(s, sb, "grep", pattern="x", path="/dev/zero", timeout_ms=2000)
    assert not a["result"].get("lines"), a
    s.delete(sb)


@case
def a_sandbox_that_replaces_its_files_delays_no_call(s):
    sb = s.create({"runtime": "sh"})
    swap = ("mkdir -p d/x; while :; do rm -rf d/f; mkfifo d/f; rm d/f; ln -s /dev/zero d/f; rm d/f; ln -s f d/f; rm d/f; mkdir d/f; rmdir d/f; "
            "printf 'old\\n' > d/f; mv d/x d/y; ln -s / d/x; rm d/x; mv d/y d/x; done")
    use(s, sb, "bash", command=swap, background=True)
    calls = [("read_file", {"file_path": "d/f"}), ("edit_file", {"file_path": "d/f", "old_string": "old", "new_string": "new"}),
             ("write_file", {"file_path": "d/f", "content": "old\n"}), ("list", {"path": "d/x"}), ("glob", {"pattern": "d/**/f"}),
             ("grep", {"pattern": "old", "path": "d"}), ("return_files", {"paths": ["d/*"]}), ("stage_files", {"files": [{"name": "../x", "content": ""}]})]
    for name, arguments in calls * 5:
        if name == "stage_files":
            refused(s, sb, name, **arguments)
            continue
        a = use(s, sb, name, **arguments)
        assert a["isError"] or "error" not in a["result"], (name, a)
        assert name != "glob" or all(f == "d/f" for f in a["result"]["files"]), a
    s.delete(sb)


# --- files of the client ---

def content(file):
    return file["content"].encode() if "content" in file else base64.b64decode(file["content_base64"])


def execute(s, **arguments):
    return answered(s, "code_executor", s.call("POST", "/v1/tools/code_executor", arguments))


@case
def code_runs_with_input_files_and_returns_the_files_that_it_wrote(s):
    raw = base64.b64encode(b"\0\xff").decode()
    a = execute(s, code="open('out.txt', 'w').write(open('in.txt').read().upper())\nopen('data/b.bin', 'ab').write(b'!')\nprint('done')",
                input_files=[{"name": "in.txt", "content": "text"}, {"name": "data/b.bin", "content_base64": raw, "mime_type": "application/x"}])
    r = a["result"]
    assert (r["stdout"], r["stderr"], r["exit_code"], r["outcome"]) == ("done\n", "", 0, "success") and r["execution_id"].startswith("ex"), a
    assert [(f["name"], f["mime_type"], content(f)) for f in r["output_files"]] == [("out.txt", "text/plain", b"TEXT")], a
    assert "files:\nout.txt (text/plain, 4 bytes)" in a["text"], a["text"]
    a = execute(s, code="open('in.txt', 'a').write('+')", input_files=[{"name": "in.txt", "content": "text"}, {"name": "b", "content": ""}],
                output_files=["in.txt", "b", "none", "*.x"])
    assert [content(f) for f in a["result"]["output_files"]] == [b"text+", b""] and [o["name"] for o in a["result"]["omitted"]] == ["none"], a
    a = execute(s, code="import os, sys; os.makedirs('outputs')\nopen('outputs/a.png', 'wb').write(b'\\x89PNG' + bytes(9))\nsys.stderr.write('warn')")
    assert not a["isError"] and a["result"]["stderr"] == "warn" and a["images"][0]["type"] == "image/png", a
    assert a["result"]["output_files"][0]["mime_type"] == "image/png" and "image 1" in a["text"], a
    a = execute(s, code="echo $((6 * 7)); exit 4", language="bash")
    assert a["isError"] and a["result"]["exit_code"] == 4 and a["result"]["stdout"] == "42\n" and a["result"]["output_files"] == [], a
    a = execute(s, code="6 * 7")
    assert a["result"]["value"] == "42" and "omitted" not in a["result"] and not a["truncated"], a
    a = execute(s, code="while True: pass", timeout_ms=200)
    assert a["result"]["outcome"] == "timeout" and "ran too long" in a["text"], a
    a = execute(s, code="print('x' * 100000)")
    assert a["truncated"] and len(a["result"]["stdout"]) < OUTPUT_MAX + 100, len(a["result"]["stdout"])


@case
def an_execution_id_keeps_variables_and_files(s):
    sb = s.create()
    a = execute(s, code="x = 6\nopen('made', 'w').write('1')", execution_id=sb, input_files=[{"name": "in/a", "content": "7"}])
    assert a["result"]["execution_id"] == sb and [f["name"] for f in a["result"]["output_files"]] == ["made"], a
    a = execute(s, code="x * int(open('in/a').read())", execution_id=sb, output_files=["in/*", "none"])
    assert a["result"]["value"] == "42" and a["result"]["output_files"][0]["content"] == "7" and a["result"]["omitted"][0]["name"] == "none", a
    a = execute(s, code="1/0", execution_id=sb)
    assert a["isError"] and a["result"]["exception"]["name"] == "ZeroDivisionError", a
    a = execute(s, code="1", execution_id=sb, input_files=[{"name": "made/x", "content": ""}])
    assert a["isError"] and a["result"]["error"]["code"] and a["result"]["path"] == "/workspace/made/x", a
    s.delete(sb)
    assert refused(s, None, "code_executor", status=410, code="1", execution_id=sb)
    assert refused(s, None, "code_executor", status=404, code="1", execution_id="sb" + "a" * 20)
    assert "create a sandbox" in refused(s, None, "code_executor", code="1", execution_id="ex" + "a" * 20)
    for more in ({"input_files": [{"name": "../x", "content": ""}]}, {"input_files": [{"name": "x"}]}, {"input_files": [{"name": "/etc/x", "content": ""}]},
                 {"input_files": [{"name": "x", "content": "", "content_base64": ""}]}, {"input_files": [{"name": "x", "content_base64": "!"}]},
                 {"output_files": ["/etc/passwd"]}, {"output_files": [1]}, {"execution_id": "session-1"}):
        assert refused(s, None, "code_executor", code="1", **more)


@case
def files_are_staged_and_returned(s):
    sb = shared(s)
    a = use(s, sb, "stage_files", files=[{"name": "a.txt", "content": "text"}, {"name": "d/b.bin", "content_base64": "AP8="}])
    assert a["result"]["files"] == [{"path": "/workspace/uploads/a.txt", "size": 4}, {"path": "/workspace/uploads/d/b.bin", "size": 2}], a
    assert "at least one" in refused(s, sb, "stage_files", files=[])
    assert "did you mean content_base64" in refused(s, sb, "stage_files", files=[{"name": "x", "content_base6": ""}])
    a = use(s, sb, "return_files")
    assert a["result"] == {"output_files": []} and a["text"] == "No file matches." and not a["isError"], a
    use(s, sb, "exec", argv=["sh", "-c", "mkdir outputs; cp uploads/* outputs/; cp uploads/d/* outputs/; mkfifo outputs/fifo; ln -s /dev/zero outputs/zero; "
                                         "mkdir outputs/dir; touch 'outputs/two\nlines'; head -c 5000000 /dev/zero > outputs/large"])
    a = use(s, sb, "return_files")
    assert {f["name"]: content(f) for f in a["result"]["output_files"]} == {"outputs/a.txt": b"text", "outputs/b.bin": b"\0\xff", "outputs/two\nlines": b""}, a
    assert [o["name"] for o in a["result"]["omitted"]] == ["outputs/large"] and a["truncated"] and not a["isError"], a
    a = use(s, sb, "return_files", paths=["outputs/fifo", "outputs/zero", "none", "outputs"])
    assert a["isError"] and len(a["result"]["omitted"]) == 4 and not a["result"]["output_files"], a
    use(s, sb, "exec", argv=["rm", "-r", "outputs"])


# --- access ---

@case
def a_call_needs_the_scopes_of_its_tool(s):
    sb = shared(s)

    def key(*scopes):
        a = s.call("POST", "/v1/keys", {"name": "k", "scopes": list(scopes)})
        assert a.status == 201, a.body
        return a.json["key"]

    reads, runs = key("files:read"), key("executions")
    call = lambda name, k, **arguments: s.call("POST", f"/v1/sandboxes/{sb}/tools/{name}", arguments, key=k)
    assert call("read_file", reads, file_path="x").status == 200 and call("bash", runs, command="true").status == 200
    for name, k, scope, arguments in (("bash", reads, "executions", {"command": "true"}), ("write_file", reads, "files", {"file_path": "x", "content": ""}),
                                      ("read_file", runs, "files:read", {"file_path": "x"})):
        a = call(name, k, **arguments)
        assert a.status == 403 and scope in a.json["error"]["message"], (name, a.status, a.body)
    token = s.call("POST", f"/v1/sandboxes/{sb}/tokens", {"operations": ["executions"]})
    assert token.status == 201, token.body
    assert call("bash", token.json["token"], command="true").status == 200
    assert s.call("GET", "/v1/tools", key=token.json["token"]).status == 200
    other = s.create({"runtime": "sh"})
    assert s.call("POST", f"/v1/sandboxes/{other}/tools/bash", {"command": "true"}, key=token.json["token"]).status == 404
    s.delete(other)
    assert s.call("GET", "/v1/tools", key=False).status == 401
    a = s.call("POST", f"/v1/sandboxes/{sb}/tools/bash", {"command": "true"}, headers={"Idempotency-Key": "k"})
    assert a.status == 400 and "Idempotency-Key" in a.json["error"]["message"], a.body


@case
def a_tool_is_called_where_it_acts(s):
    assert "/v1/sandboxes/{id}/tools/bash" in refused(s, None, "bash", command="true")


@case
def calls_are_counted_by_tool_and_outcome(s):
    sb = shared(s)
    count = lambda outcome: figure(s, f'cove_tool_calls_total{{tool="exec",outcome="{outcome}"}}')
    before = {o: count(o) for o in ("success", "error", "refused")}
    use(s, sb, "exec", argv=["true"])
    use(s, sb, "exec", argv=["false"])
    refused(s, sb, "exec", argv=[])
    assert {o: count(o) - n for o, n in before.items()} == {"success": 1, "error": 1, "refused": 1}
    before = figure(s, 'cove_tool_truncated_total{tool="exec"}')
    use(s, sb, "exec", argv=["seq", "1", "100000"])
    assert figure(s, 'cove_tool_truncated_total{tool="exec"}') == before + 1


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
