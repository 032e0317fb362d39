#!/usr/bin/env python3
"""conformance_client.py [REVISION...] - runs the conformance suite of the Model Context Protocol
against the client of src/remote/mcp, then calls servers of others with `cove mcp`.

Needs build/tests/tools/mcp-conformance-client. Everything that the suite checks must pass, also
scenarios that it does not score, except those in expected-failures.yml; a skipped row counts as a
failure unless MAY_SKIP has it. The servers are programs in sandboxes, addresses, and cove itself.
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

from run import CACHE, COVE, HERE, ROOT, install, skipped_checks

CLIENT = os.path.abspath(os.environ.get("MCP_CLIENT", os.path.join(ROOT, "build/tests/tools/mcp-conformance-client")))
EVERYTHING = "@modelcontextprotocol/server-everything"
VERSION = "2026.8.31"
# Scenarios without OAuth: scored, and others that must pass as well.
REQUIRED = {
    "2025-11-25": ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry",
                   "json-schema-2020-12-preservation"],
    "2026-07-28": ["tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers",
                   "http-custom-headers", "http-invalid-tool-headers", "json-schema-ref-no-deref",
                   "json-schema-2020-12-preservation"],
}
# A modern client sends no initialize, and the keywords of SEP-2106 are checked from 2026-07-28 on.
MAY_SKIP = re.compile(r"send a (initialize|notifications/initialized) request|SEP-2106 applies from")


def check(suite, revision):
    """The complaints about one revision."""
    results = os.path.join(CACHE, "results", f"client-{revision}")
    subprocess.run(["rm", "-rf", results], check=True)
    done = subprocess.run([*suite, "client", "--command", CLIENT, "--requirements", revision, "-o", results,
                           "--expected-failures", os.path.join(HERE, "expected-failures.yml")],
                          capture_output=True, text=True, timeout=300, check=False)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    wrong = [f"exit status {done.returncode}\n" + said[-6000:]] if done.returncode else []
    for scenario in REQUIRED[revision]:
        row = re.search(rf"^. {re.escape(scenario)}: (\d+) passed, (\d+) failed", said, re.M)
        if not row or row[1] == "0" or row[2] != "0":
            wrong.append(f"{scenario}: {row.group() if row else 'it did not run'}")
    wrong += [f"{scenario}: {name} was skipped: {why}" for scenario, name, why in skipped_checks(results)
              if any(scenario.startswith(x) for x in REQUIRED[revision]) and not MAY_SKIP.search(why or "")]
    return wrong


def everything():
    """The program of a server of others, below CACHE."""
    program = os.path.join(CACHE, "node_modules", EVERYTHING, "dist/index.js")
    if not os.path.exists(program):
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", f"{EVERYTHING}@{VERSION}"], cwd=CACHE, check=True,
                       stdout=subprocess.DEVNULL)
    return program


def cove(*words):
    done = subprocess.run([COVE, "mcp", *words], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(f"cove mcp {' '.join(words)}: {done.returncode}: {done.stderr}")
    return done.stdout


def use_everything(flags, tail):
    """Lists, calls and reads; the same over both transports."""
    tools = json.loads(cove("tools", "--json", *flags, *tail))
    assert tools["dropped"] == [] and len(tools["tools"]) >= 12, tools["dropped"]
    assert cove("call", "get-sum", "-a", "a=2", "-a", "b=3", *flags, *tail) == "The sum of 2 and 3 is 5.\n"
    result = json.loads(cove("call", "get-structured-content", "-a", "location=Chicago", "--json", *flags, *tail))
    assert "temperature" in result["structuredContent"], result
    assert "completed" in cove("call", "trigger-long-running-operation", "-a", "duration=1", "-a", "steps=2", *flags, *tail)
    assert "decline" in cove("call", "trigger-elicitation-request", "--elicit", "decline", *flags, *tail)
    assert "demo://" in cove("read", *flags, *tail)
    with tempfile.TemporaryDirectory() as where:
        cove("call", "get-tiny-image", "--save", where, *flags, *tail)
        with open(os.path.join(where, "image-1.png"), "rb") as f:
            assert f.read(4) == b"\x89PNG"


def check_stdio(_suite):
    inside = everything().replace(CACHE, "/mnt/mcp")
    use_everything(["--bind-ro", f"{CACHE}:/mnt/mcp"], ["--", "node", inside, "stdio"])


def check_http(_suite):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as where:
        only_loopback = os.path.join(where, "loopback.cjs")  # the server has no option for its address
        with open(only_loopback, "w", encoding="utf-8") as f:
            f.write("const n=require('net').Server.prototype,l=n.listen;"
                    "n.listen=function(p,...a){return l.call(this,{port:+p,host:'127.0.0.1'},"
                    "...a.filter(x=>typeof x==='function'))};")
        with subprocess.Popen(["node", "-r", only_loopback, everything(), "streamableHttp"],
                              env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as server:
            try:
                for _ in range(100):
                    with socket.socket() as s:
                        if s.connect_ex(("127.0.0.1", port)) == 0:
                            break
                    time.sleep(0.1)
                use_everything(["--server-url", f"http://127.0.0.1:{port}/mcp"], [])
            finally:
                server.kill()


def check_own(_suite):
    """The endpoint /mcp of cove, behind the bridge."""
    program = ["--unsandboxed", "--", COVE, "mcp", "--local"]
    listed = json.loads(cove("tools", "--json", *program))
    assert listed["dropped"] == [] and listed["servers"][0]["version"] == "2026-07-28", listed["servers"]
    assert "42" in cove("call", "bash", "-a", "command=echo $((6 * 7))", *program)


def main():
    revisions = sys.argv[1:] or sorted(REQUIRED)
    suite = install()
    steps = [(f"a client of revision {r} conforms", lambda suite, r=r: check(suite, r)) for r in revisions]
    steps += [(f"{EVERYTHING} answers in a sandbox", check_stdio), (f"{EVERYTHING} answers over HTTP", check_http),
              ("cove itself answers", check_own)]
    failed = 0
    print(f"1..{len(steps)}")
    for n, (name, step) in enumerate(steps, 1):
        try:
            wrong = step(suite) or []
        except (AssertionError, subprocess.TimeoutExpired) as e:
            wrong = [repr(e)]
        failed += bool(wrong)
        print(f"{'not ' if wrong else ''}ok {n} - {name}")
        for line in "\n".join(wrong).splitlines():
            print("# " + line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
