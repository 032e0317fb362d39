#!/usr/bin/env python3
"""mcp_client_test.py COVE - `cove mcp tools`, `call` and `read` with programs that are MCP servers,
most of them hostile; prints TAP. One file is server and test: `mcp_client_test.py serve KIND` is
the server. Needs root, because servers run in sandboxes.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

CASES = []


def case(function):
    CASES.append(function)
    return function


# --- the servers: this file again, started with the name of a behaviour ---


def serve(kind):
    """Answers the handshake and the list, then misbehaves at tools/call."""
    if kind == "chatty":
        print("Welcome to my server!\n\x1b[31m{not json", flush=True)
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "flood-stderr":
        sys.stderr.write("x" * 1_000_000 + "\nthe last line \x1b[2J\n")
        sys.stderr.flush()
    if kind == "exits-at-once":
        sys.stderr.write("ModuleNotFoundError: No module named 'frobnicate'\n")
        return 3
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method == "initialize":
            answer(message, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                             "serverInfo": {"name": kind, "version": "1"}})
        elif method == "tools/list":
            answer(message, {"tools": tools_of(kind)})
        elif method == "resources/read":
            answer(message, {"contents": [{"uri": params["uri"], "text": "hello\x1b]0;title\x07\n"}]})
        elif method == "tools/call":
            call(kind, message, params)
        elif "id" in message:
            say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})
    while kind == "stubborn":  # also the end of its input means nothing to it
        time.sleep(1)
    return 0


def say(message):
    print(json.dumps(message), flush=True)


def answer(message, result):
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})


def tools_of(kind):
    tools = [{"name": "add", "description": "Adds.\x1b[31m\nMore.",
              "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}, "text": {"type": "string"}}}}]
    if kind == "odd-tools":
        tools += [{"name": "x\x1b[2J", "inputSchema": {}}, {"name": "y" * 65, "inputSchema": {}}]
    return tools


def call(kind, message, params):
    text = [{"type": "text", "text": json.dumps(params["arguments"], sort_keys=True) + "\x1b[31m"}]
    if kind == "exits":
        os._exit(7)
    if kind == "endless":
        while True:
            print("{" * 1000, flush=True)
    if kind == "silent":
        return
    if kind == "many-lines":
        text = [{"type": "text", "text": "\n" * 3_000_000 + "the end\x1b[2J"}]
    if kind == "asks":
        say({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})
        refusal = json.loads(sys.stdin.readline())
        text = [{"type": "text", "text": str(refusal["error"]["code"])}]
    if kind == "masks":
        text = [{"type": "image", "mimeType": "text/plain", "data": "\x1b[2J"}, {"type": "image", "mimeType": "image/png\x1b[2J", "data": "AA=="}]
    answer(message, {"content": text, "isError": kind == "fails"})


# --- the cases ---


def cove(*words, kind="plain", flags=("--unsandboxed",), timeout=60, env=None):
    """Runs `cove mcp` with this file as the server."""
    server = ["--", sys.executable, os.path.abspath(__file__), "serve", kind]
    return subprocess.run([COVE, "mcp", *words, *flags, *server], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})}, check=False)


def expect(done, status, stdout=None, stderr=None):
    assert done.returncode == status, f"status {done.returncode}, not {status}: {done.stdout[:500]} {done.stderr[:2000]}"
    if stdout is not None:
        assert stdout in done.stdout, done.stdout[:500]
    if stderr is not None:
        assert stderr in done.stderr, done.stderr[:2000]
    assert "\x1b" not in done.stdout + done.stderr, "an escape sequence reached the terminal"


@case
def a_server_runs_in_a_sandbox_unless_the_user_says_otherwise():
    with tempfile.TemporaryDirectory() as where:
        with open(os.path.join(where, "server.py"), "w", encoding="utf-8") as to, open(__file__, encoding="utf-8") as source:
            to.write(source.read())
        os.chmod(where, 0o755)
        done = subprocess.run([COVE, "mcp", "call", "add", "-a", "a=2", "-w", f"{where}:cow", "--", "python3", "server.py",
                               "serve", "plain"], capture_output=True, text=True, timeout=60, check=False)
        expect(done, 0, '{"a": 2}')
    # The same program cannot see this file from inside.
    done = cove("tools", flags=())
    expect(done, 125, "", "ran in a sandbox")
    assert "exited with status" in done.stderr, done.stderr


@case
def arguments_have_the_types_of_the_schema():
    expect(cove("call", "add", "-a", "a=2.5", "-a", "text=7", "-a", "other=[1]"), 0, '{"a": 2.5, "other": [1], "text": "7"}')
    expect(cove("call", "add", '{"a": 1}', "-a", "text=x"), 0, '{"a": 1, "text": "x"}')
    expect(cove("call", "add", "[1]"), 2, "", "[1]")
    expect(cove("call", "ad"), 125, "", "did you mean 'add'?")
    expect(cove("call"), 2, "", "usage: cove mcp call")
    expect(cove("tools", "--url", "http://127.0.0.1:1/"), 2, "", "write --server-url")


@case
def lines_that_are_not_messages_are_skipped():
    expect(cove("call", "add", kind="chatty"), 0, "{}")


@case
def tools_with_unsafe_names_are_left_out_and_named():
    done = cove("tools", kind="odd-tools")
    expect(done, 0, "add", "is not usable")
    listed = json.loads(cove("tools", "--json", kind="odd-tools").stdout)
    assert [t["name"] for t in listed["tools"]] == ["add"] and len(listed["dropped"]) == 2, listed
    assert listed["tools"][0]["description"] == "Adds.?[31m\nMore.", listed


@case
def a_failed_tool_is_status_1_and_its_text_is_printed():
    expect(cove("call", "add", kind="fails"), 1, "{}")


@case
def an_image_that_is_text_is_not_printed_as_it_is():
    expect(cove("call", "add", kind="masks"), 0, "[image]")


@case
def requests_of_the_server_are_refused():
    expect(cove("call", "add", kind="asks"), 0, "-32601")


@case
def a_server_that_exits_during_a_call_is_reported_with_its_status():
    expect(cove("call", "add", kind="exits"), 125, "", "exited with status 7")


@case
def a_server_that_cannot_start_is_reported_with_its_last_words():
    done = cove("tools", kind="exits-at-once")
    expect(done, 125, "", "No module named 'frobnicate'")
    assert "exited with status 3" in done.stderr and "mcp_server_ended" in done.stderr, done.stderr


@case
def a_server_that_floods_its_errors_still_answers():
    expect(cove("call", "add", kind="flood-stderr"), 0, "{}")


@case
def a_server_that_floods_its_output_is_cut():
    started = time.monotonic()
    expect(cove("call", "add", kind="endless"), 125, "", "not MCP")
    assert time.monotonic() - started < 20


@case
def text_of_many_lines_is_printed_at_once():
    done = cove("call", "add", kind="many-lines", timeout=20)
    expect(done, 0, "the end?[2J")
    assert done.stdout.count("\n") > 3_000_000


@case
def a_call_ends_at_its_timeout():
    expect(cove("call", "add", "--timeout", "200ms", kind="silent"), 124, "", " in time")


@case
def a_server_that_ignores_every_request_to_end_is_killed():
    before = pids_of("stubborn")
    expect(cove("call", "add", kind="stubborn"), 0, "{}")
    assert pids_of("stubborn") == before


def pids_of(kind):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            if kind.encode() in words and os.path.abspath(__file__).encode() in words:
                found.append(pid)
        except OSError:
            pass
    return found


@case
def a_resource_is_printed_without_escape_sequences():
    expect(cove("read", "x:y"), 0, "hello?]0;title?")


@case
def several_servers_of_a_file_share_one_namespace():
    with tempfile.TemporaryDirectory() as where:
        path = os.path.join(where, "mcp.json")
        program = {"command": sys.executable, "args": [os.path.abspath(__file__), "serve", "${KIND}"]}
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"mcpServers": {"one": program, "two": program, "dead": {"url": "http://127.0.0.1:1/"},
                                      "off": {"command": "x", "disabled": True}}}, f)
        env = {**os.environ, "KIND": "plain", "COVE_MCP_CONFIG": path}

        def run(*words, **kw):
            return subprocess.run([COVE, "mcp", *words], capture_output=True, text=True, timeout=60, check=False,
                                  env={**env, **kw})

        done = run("tools", "--json", "--unsandboxed")
        expect(done, 125, "", "dead")
        assert [t["name"] for t in json.loads(done.stdout)["tools"]] == ["one__add", "two__add"], done.stdout
        expect(run("call", "two__add", "--unsandboxed"), 0, "{}")
        expect(run("call", "add", "--unsandboxed"), 125, "", "SERVER__TOOL")
        expect(run("call", "add", "--unsandboxed", "--server", "one"), 0, "{}")
        del env["KIND"]
        expect(run("tools"), 2, "", "KIND is not set")


def main():
    only = os.environ.get("COVE_TEST_ONLY")
    cases = [c for c in CASES if not only or c.__name__ == only]
    failed = 0
    print(f"1..{len(cases)}")
    for n, function in enumerate(cases, 1):
        try:
            function()
            print(f"ok {n} - {function.__name__}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {n} - {function.__name__}")
            print("".join("# " + line + "\n" for line in traceback.format_exc().splitlines()), end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        sys.exit(serve(sys.argv[2]))
    COVE = os.path.abspath(sys.argv[1])
    sys.exit(main())
