#!/usr/bin/env python3
"""run.py [REVISION...] - runs the conformance suite of the Model Context Protocol against a server
with its fixtures, for each revision (all by default): `make check-mcp`.

The suite and the Node.js that it needs are installed by npm into build-mcp/. A scenario that is
required must pass, and so must every check of it: a row that was skipped counts as a failure,
because a scenario can pass without testing anything. Scenarios that are known to fail are in
expected-failures.yml. The suite sends no key, so a relay in front of the server adds one.
"""
import glob
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from server import Launched  # noqa: E402  pylint: disable=wrong-import-position

COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
CACHE = os.environ.get("COVE_MCP_CACHE", os.path.join(ROOT, "build-mcp"))
PACKAGES = ["node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12"]
REQUIRED = {"2025-11-25": 30, "2026-07-28": 37}
# Checks that do not apply to this server: (scenario, check).
MAY_SKIP = {
    ("server-sse-multiple-streams", "server-sse-streams-functional"),  # the answers were JSON, which is allowed
}


def install():
    suite = os.path.join(CACHE, "node_modules/@modelcontextprotocol/conformance/dist/index.js")
    node = os.path.join(CACHE, "node_modules/.bin/node")
    if not (os.path.exists(suite) and os.path.exists(node)):
        os.makedirs(CACHE, exist_ok=True)
        with open(os.path.join(CACHE, "package.json"), "w", encoding="utf-8") as f:
            f.write("{}")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *PACKAGES], cwd=CACHE, check=True,
                       stdout=subprocess.DEVNULL)
    return [node, suite]


class Relay:
    """Listens on a port of its own and adds the key to each request, one per connection."""

    def __init__(self, host, port, key):
        self.to, self.key = (host, port), key
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        try:
            while b"\r\n\r\n" not in head:
                data = client.recv(65536)
                if not data:
                    return
                head += data
            head, body = head.split(b"\r\n\r\n", 1)
            lines = [x for x in head.split(b"\r\n") if not x.lower().startswith(b"connection:")]
            lines = [re.sub(rb"(?i)^((?:host|origin): *(?:http://)?(?:localhost|127\.0\.0\.1)):\d+", rb"\1:%d" % self.to[1], x)
                     for x in lines]
            lines += [b"Authorization: Bearer " + self.key.encode(), b"Connection: close"]
            server = socket.create_connection(self.to)
            server.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            threading.Thread(target=copy, args=(client, server), daemon=True).start()
            copy(server, client)
        except OSError:
            pass
        finally:
            client.close()


def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def skipped_checks(results):
    """Rows of required scenarios that were skipped."""
    found = []
    for path in sorted(glob.glob(os.path.join(results, "**/checks.json"), recursive=True)):
        scenario = re.sub(r"^server-|-\d{4}-\d{2}-\d{2}T.*$", "", os.path.basename(os.path.dirname(path)))
        with open(path, encoding="utf-8") as f:
            for row in json.load(f):
                if row["status"] == "SKIPPED" and (scenario, row["id"]) not in MAY_SKIP:
                    found.append((scenario, row["id"], row.get("errorMessage") or json.dumps(row.get("details"))))
    return found


def required_scenarios(suite, revision):
    said = subprocess.run([*suite, "list", "--requirements", revision], capture_output=True, text=True, check=True).stdout
    server = said.split("Client scenarios")[0]
    return re.findall(r"^  - (\S+)$", server, re.M)


def check(suite, revision, url):
    """The complaints about one revision."""
    results = os.path.join(CACHE, "results", revision)
    subprocess.run(["rm", "-rf", results], check=True)
    needed = required_scenarios(suite, revision)
    done = subprocess.run([*suite, "server", "--url", url, "--requirements", revision, "-o", results, "--expected-failures",
                           os.path.join(HERE, "expected-failures.yml")], capture_output=True, text=True, timeout=300,
                          check=False)
    said = done.stdout + done.stderr
    wrong = [] if len(needed) == REQUIRED[revision] else [f"{len(needed)} scenarios are required, not {REQUIRED[revision]}"]
    if done.returncode != 0:
        wrong.append(f"exit status {done.returncode}\n" + said[-6000:])
    wrong += [f"{scenario}: {name} was skipped: {why}" for scenario, name, why in skipped_checks(results)
              if scenario in needed]
    summary = re.search(r"Total: .*", said)
    print(f"# {revision}: {len(needed)} required scenarios. {summary.group() if summary else ''}")
    return wrong


def main():
    revisions = sys.argv[1:] or sorted(REQUIRED)
    suite = install()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="cove-mcp-") as where:
        server = Launched(COVE, where, "--mcp-conformance", "true")
        try:
            host, port = server.url.removeprefix("http://").split(":")
            relay = Relay(host, int(port), server.key)
            print(f"1..{len(revisions)}")
            for n, revision in enumerate(revisions, 1):
                wrong = check(suite, revision, f"http://127.0.0.1:{relay.port}/mcp")
                failed += bool(wrong)
                print(f"{'not ' if wrong else ''}ok {n} - a server of revision {revision} conforms")
                for line in "\n".join(wrong).splitlines():
                    print("# " + line)
        finally:
            status, log = server.stop(), server.logged()
            if status != 0 or "Sanitizer" in log:
                failed += 1
                print("# the server ended with status", status, "\n#", log[-4000:].replace("\n", "\n# "))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
