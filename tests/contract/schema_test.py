#!/usr/bin/env python3
"""schema_test.py COVE [--shard I/N] [OPERATION...] - a real server against requests that
schemathesis makes from api/openapi.yaml; prints TAP.

    SCHEMA_SECONDS=600 tests/contract/schema_test.py build/cove     longer, with another seed

Requests are generated from the contract: valid ones, invalid ones, and sequences in which one uses
an object that another has created. Each answer is checked against the contract: status, content
type, headers, schema. No invalid request may be accepted, no valid one refused, no undefined method
answered. The server must survive as the same process. Needs root.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import pypi  # noqa: E402
from choice import Choice  # noqa: E402
from server import Launched  # noqa: E402

COVE = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/src/main/cove"))
SECONDS = int(os.environ.get("SCHEMA_SECONDS", "0"))
SEED = os.environ.get("SCHEMA_SEED", str(int(time.time())) if SECONDS else "1")
NONE = ["--rate-limit-default", "none", "--rate-limit-create", "none", "--rate-limit-execute", "none", "--limits-sandboxes", "0"]
# Answers that last until the client disconnects, and a body that is not made from a schema;
# api_test.py and stream_test.py test them.
LEFT_OUT = ("watchFiles", "writeTree", "openStream", "mcpRequest", "mcpListen", "mcpEnd")
# In make check: every value at its bounds, which is deterministic and ends by itself. Random values
# are for make soak.
SHORT = (["--phases", "coverage"],)
LONG = (["--max-examples", "200", "--max-time", str(SECONDS)],)


class Server:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="cove-schema-")
        self.launched = Launched(COVE, self.dir, *NONE)
        self.process, self.url, self.key = self.launched.process, self.launched.url, self.launched.key

    def metrics(self):
        request = urllib.request.Request(self.url + "/metrics", headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def trouble(self):
        """Problems that the server's log shows after the run."""
        text = self.metrics()
        broken = [line for line in text.splitlines() if re.match(r'cove_api_requests_total\{.*status="5xx"\}', line)]
        started = self.launched.logged().count(" serves ")
        return broken + ([f"coved was started {started} times"] if started != 1 else [])

    def reached(self):
        """Operations that answered with success at least once, as "GET /v1/sandboxes"."""
        found = re.findall(r'^cove_api_requests_total\{method="(\w+)",route="([^"]+)",status="2xx"\} [1-9]', self.metrics(), re.M)
        return {" ".join(pair) for pair in found}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def attack(server, python, how, names):
    command = [os.path.join(os.path.dirname(python), "st"), "--config-file", os.path.join(HERE, "schema/schemathesis.toml"), "run",
               os.path.join(ROOT, "api/openapi.yaml"), "--url", server.url, "--header", f"Authorization: Bearer {server.key}",
               "--no-color", "--seed", SEED, "--checks", "all", "--exclude-checks", "use_after_free", "--workers", "1", "--generation-database", "none",
               *(word for name in names for word in ("--include-operation-id", name)),
               *how]
    env = dict(os.environ, COVE_URL=server.url, COVE_API_KEY=server.key, COVE_SCHEMA_SEED=SEED,
               PYTHONPATH=os.path.join(HERE, "schema"), PYTHONHASHSEED="1")
    done = subprocess.run(command, env=env, cwd=server.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SECONDS * 2 + 900)
    return done.returncode, done.stdout.decode(errors="replace").replace(server.key, "cove_...")


def shorter(text):
    """The part that says what failed, without bodies of megabytes."""
    start = re.search(r"^=+ (ERRORS|FAILURES) =+$", text, re.M)
    return [line[:400] for line in text[start.start() if start else 0:].splitlines()][-300:]


def operations():
    """{operation id: "METHOD /path"}"""
    found, path, method = {}, None, None
    with open(os.path.join(ROOT, "api/openapi.yaml"), encoding="utf-8") as f:
        for line in f:
            if match := re.match(r"  (/\S*):$", line):
                path = match.group(1)
            elif match := re.match(r"    (get|put|post|patch|delete):$", line):
                method = match.group(1).upper()
            elif (match := re.match(r"      operationId: (\w+)$", line)) and match.group(1) not in LEFT_OUT:
                found[match.group(1)] = f"{method} {path}"
    return found


def resource(path):
    """Operations of one resource stay together, because one uses objects that another has created:
    "sandboxes files", "templates"."""
    parts = path.split("/")[2:]
    return " ".join(parts[:1] + parts[2:3])


def chosen(known):
    """Ids of the operations to call: the named ones, otherwise those of every Nth resource."""
    choice = Choice(sys.argv[2:])
    if not choice.whole:
        return choice.of(list(known))
    resources = choice.of(sorted({resource(operation.split()[1]) for operation in known.values()}))
    return [name for name, operation in known.items() if resource(operation.split()[1]) in resources]


def tell(number, ok, name, lines=()):
    print(f"{'ok' if ok else 'not ok'} {number} - {name}")
    for line in lines:
        print(f"# {line}")
    sys.stdout.flush()
    return ok


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP the native driver needs root")
        return 0
    try:
        python = pypi.ready("schema", "tests/contract/schema/requirements.txt")
    except pypi.Unavailable as why:
        print(f"1..0 # SKIP {why}")
        return 0
    print("1..3", flush=True)
    known = operations()
    names = chosen(known)
    server = Server()
    try:
        requests, wrong = 0, []
        for how in LONG if SECONDS else SHORT:
            status, text = attack(server, python, how, names)
            requests += sum(int(n) for n in re.findall(r"(\d+) generated", text))
            wrong += [] if status == 0 else shorter(text)
        good = tell(1, not wrong, f"answers conform to the contract; {len(names)} operations, {requests} requests, seed {SEED}", wrong)
        found = server.trouble()
        good &= tell(2, not found, "the server survives without an internal error", found)
        missed = sorted({known[name] for name in names} - server.reached())
        good &= tell(3, not missed, "every operation succeeded at least once", missed)
    finally:
        server.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
