#!/usr/bin/env python3
"""run.py - a server under load whose processes are killed at random moments; prints TAP.

    tests/crash/run.py                     10 kills, as in `make check`
    tests/crash/run.py --kills 200         as in `make soak`
    tests/crash/run.py --seed 7            the same choices again (but not the same timing)

Clients create, execute, stream, write, pause, resume, delete; meanwhile coved, the jailer and the
monitor are killed with SIGKILL. Every acknowledgement is written into a ledger. Afterwards the
ledger is compared with the server (nothing is lost, every reported end is true, every byte of
output is what the program wrote), the audit trail with both (its chain is complete after every
kill, and it has everything that was acknowledged) and the host with its state before (nothing
leaked). A request without an answer may have taken effect or not, but not partially and not twice.
"""
import argparse
import glob
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import apart  # noqa: E402
from server import Launched, processes, wait_for  # noqa: E402  (beside pypi.py)

PARENT = os.environ.get("COVE_CGROUP_PARENT", "cove")
COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
PATIENCE = 120  # seconds for anything that the server promises; a loaded machine is slow, a broken one is never ready
BROKEN = (OSError, http.client.HTTPException, ValueError)  # ValueError: an answer that ends in the middle of its JSON


class Answer:
    def __init__(self, status, body, headers):
        self.status, self.body, self.headers = status, body, headers
        self.tries = 1

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json["error"]["code"]

    def __repr__(self):
        return f"{self.status} {self.body[:400]!r}"


class Server:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="cove-crash-")
        self.launched = Launched(COVE, self.dir, "--rate-limit-default", "none", "--rate-limit-create", "none",
                                 "--rate-limit-execute", "none")
        self.place, self.process, self.key = self.launched.place, self.launched.process, self.launched.key
        self.port = int(self.launched.url.rsplit(":", 1)[1])

    @staticmethod
    def wait(what, seconds=PATIENCE):
        return wait_for(what, seconds)

    def processes(self):
        """{name: pid} of its running processes."""
        return processes(self.place)

    def open(self, method, path, body=None, headers=None, key=None):
        head = {"Authorization": f"Bearer {key or self.key}", **(headers or {})}
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        if method == "POST":
            head.setdefault("Content-Type", "application/json")
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            c.request(method, path, body, head)
            return c, c.getresponse()
        except BaseException:
            c.close()
            raise

    def call(self, method, path, body=None, headers=None, key=None):
        c, r = self.open(method, path, body, headers, key)
        try:
            text = r.read()
        finally:
            c.close()
        return Answer(r.status, text, r.headers)

    def sure(self, method, path, body=None, headers=None, key=None):
        """Repeats a request until it is answered: only for reads, and requests with an
        Idempotency-Key."""
        end, tries = time.monotonic() + PATIENCE, 0
        while True:
            tries += 1
            try:
                a = self.call(method, path, body, headers, key)
                again = a.status in (429, 502, 503, 504) or (a.status == 409 and a.code == "idempotency_conflict")
            except BROKEN as why:
                a, again = why, True
            if not again:
                a.tries = tries
                return a
            assert time.monotonic() < end, f"{method} {path}: {a!r}"
            time.sleep(0.05)

    def verify(self):
        p = subprocess.run([COVE, "audit", "verify", "--json", os.path.join(self.place, "state/audit")],
                           capture_output=True, text=True, check=False)
        return json.loads(p.stdout) if p.stdout else {"intact": False, "broken": {"what": p.stderr}}

    def check_chain(self, problems):
        """The last line may be incomplete at this moment, or torn until the next coved truncates
        it; everything else must be valid."""
        told = self.verify()
        if not told["intact"] and told["broken"]["what"] != "truncated":
            problems.append(f"the audit trail after a kill: {told['broken']}")

    def records(self):
        found = []
        for name in sorted(glob.glob(os.path.join(self.place, "state/audit/*.jsonl"))):
            with open(name, encoding="utf-8") as f:
                found += [json.loads(line) for line in f]
        return found

    def ready(self):
        try:
            return self.call("GET", "/ready").status == 200
        except BROKEN:
            return False

    def pages(self, path):
        rows, cursor = [], ""
        while True:
            a = self.sure("GET", f"{path}limit=100{cursor}")
            assert a.status == 200, a
            rows += a.json["items"]
            if "nextCursor" not in a.json:
                return rows
            cursor = "&cursor=" + urllib.parse.quote(a.json["nextCursor"])


def path_of(sandbox, rest=""):
    return f"/v1/sandboxes/{sandbox}{rest}"


def expected_output(tag, lines):
    """The output of the program below."""
    return "".join(f"{tag} {i} {'0' * (i * 7 % 97 + 1)}\n" for i in range(lines)).encode()


PROGRAM = """
i=0
while [ $i -lt $2 ]; do
    printf '%s %d %0*d\\n' "$1" $i $((i * 7 % 97 + 1)) 0
    i=$((i + 1))
    [ $((i % 8)) -ne 0 ] || sleep 0.02
done
exit $3
"""


class Sandbox:
    def __init__(self, id_, nonce):
        self.id, self.nonce = id_, nonce
        self.born = time.time()
        self.files = {}            # path: its possible contents; the last acknowledged and those of unanswered writes since
        self.executions = []
        self.paused = False        # as acknowledged
        self.paused_doubt = False  # a pause or resume was not answered
        self.delete_asked = self.deleted = False


class Execution:
    def __init__(self, id_, sandbox, tag, lines, code):
        self.id, self.sandbox, self.code = id_, sandbox, code
        self.expected = expected_output(tag, lines)
        self.seen = b""
        self.told_end = None  # the end as a client received it
        self.in_doubt = False  # the request was sent more than once


class Ledger:
    def __init__(self):
        self.lock = threading.Lock()
        self.sandboxes, self.keys, self.nonces, self.problems = [], [], [], []
        self.counts = {}

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def problem(self, text):
        with self.lock:
            self.problems.append(text)


class Client(threading.Thread):
    """One client with its own sandboxes, so it knows their expected state."""

    def __init__(self, number, seed, server, ledger, stop):
        super().__init__(daemon=True)
        self.number, self.server, self.ledger, self.stop = number, server, ledger, stop
        self.random = random.Random(f"{seed}/{number}")
        self.mine = []
        self.serial = 0
        self.followers = []

    def nonce(self):
        self.serial += 1
        return f"c{self.number}n{self.serial}"

    def run(self):
        actions = [(self.create, 4), (self.execute, 6), (self.background, 5), (self.stream, 6), (self.write, 6), (self.read, 4),
                   (self.tar, 1), (self.pause, 2), (self.resume, 3), (self.delete, 2), (self.key, 1), (self.look, 2)]
        bag = [action for action, weight in actions for _ in range(weight)]
        try:
            while not self.stop.is_set():
                self.random.choice(bag)()
        except Exception:
            self.ledger.problem(f"client {self.number}: {traceback.format_exc()}")
        try:
            self.wake_all()
        except Exception:
            self.ledger.problem(f"client {self.number}: {traceback.format_exc()}")
        for follower in self.followers:
            follower.join(PATIENCE)

    def wake_all(self):
        """Checks that paused sandboxes are still paused, then resumes them, so that all executions
        can end."""
        for sandbox in self.mine:
            a = self.server.sure("GET", path_of(sandbox.id))
            if a.status != 200 or a.json["state"] == "ended":
                continue
            if not sandbox.paused_doubt and (a.json["state"] == "paused") != sandbox.paused:
                self.ledger.problem(f"{sandbox.id} was {'paused' if sandbox.paused else 'running'} and is {a.json['state']}")
            self.server.sure("POST", path_of(sandbox.id, "/resume"))
            sandbox.paused = sandbox.paused_doubt = False

    def pick(self):
        live = [s for s in self.mine if not s.delete_asked]
        return self.random.choice(live) if live else None

    def ask(self, method, path, body=None, headers=None):
        """The answer, or None: it is unknown whether the request took effect."""
        try:
            a = self.server.call(method, path, body, headers)
        except BROKEN:
            return None
        if a.status in (502, 503, 504):
            return None
        if a.status >= 500:
            self.ledger.problem(f"{method} {path}: {a}")
        return a

    def ended(self, sandbox, a):
        """Whether the answer says that the sandbox has ended; the reason is checked at the end."""
        if a.status == 410:
            sandbox.delete_asked = True
            return True
        return False

    # --- actions of clients ---

    def create(self):
        if len([s for s in self.mine if not s.delete_asked]) >= 4:
            return
        nonce = self.nonce()
        with self.ledger.lock:
            self.ledger.nonces.append(nonce)
        body = {"runtime": "sh", "lifetimeMs": 3600000, "metadata": {"nonce": nonce}}
        a = self.server.sure("POST", "/v1/sandboxes", body, {"Idempotency-Key": nonce})
        if a.status != 201:
            self.ledger.problem(f"create: {a}")
            return
        sandbox = Sandbox(a.json["id"], nonce)
        self.mine.append(sandbox)
        with self.ledger.lock:
            self.ledger.sandboxes.append(sandbox)
        self.ledger.count("sandboxes")

    def request(self, background, most=60):
        tag, lines, code = self.nonce(), self.random.randint(1, most), self.random.randint(0, 9)
        command = ["sh", "-c", PROGRAM, "sh", tag, str(lines), str(code)]
        return tag, lines, code, {"command": command, "background": background, "timeoutMs": 600000}

    def admit(self, sandbox, a, what):
        """Whether the execution was accepted; a refusal without a valid reason is recorded as a
        problem."""
        if a.status in (200, 202):
            return True
        if not self.ended(sandbox, a) and not (a.status == 409 and (sandbox.paused or sandbox.paused_doubt)):
            self.ledger.problem(f"{what} in {sandbox.id}: {a}")
        return False

    def remember(self, execution, a):
        execution.in_doubt = a.tries > 1
        execution.sandbox.executions.append(execution)
        self.ledger.count("executions")

    def execute(self):
        sandbox = self.pick()
        if not sandbox:
            return
        tag, lines, code, body = self.request(False, 20)
        a = self.server.sure("POST", path_of(sandbox.id, "/executions"), body, {"Idempotency-Key": tag})
        if self.admit(sandbox, a, "execute"):
            e = Execution(a.json["id"], sandbox, tag, lines, code)
            e.seen = a.json["stdout"].encode()
            e.told_end = a.json
            self.remember(e, a)

    def background(self):
        sandbox = self.pick()
        if not sandbox:
            return
        tag, lines, code, body = self.request(True, 400)
        a = self.server.sure("POST", path_of(sandbox.id, "/executions"), body, {"Idempotency-Key": tag})
        if self.admit(sandbox, a, "background"):
            self.remember(Execution(a.json["id"], sandbox, tag, lines, code), a)

    def stream(self):
        sandbox = self.pick()
        if not sandbox or sum(f.is_alive() for f in self.followers) >= 3:
            return
        tag, lines, code, body = self.request(True, 200)
        a = self.server.sure("POST", path_of(sandbox.id, "/executions"), body, {"Idempotency-Key": tag})
        if not self.admit(sandbox, a, "stream"):
            return
        e = Execution(a.json["id"], sandbox, tag, lines, code)
        self.remember(e, a)
        follower = threading.Thread(target=self.follow, args=(e,), daemon=True)
        self.followers.append(follower)
        follower.start()

    def follow(self, e):
        """Reads to the end; after a broken connection, continues at the byte that was reached."""
        base = path_of(e.sandbox.id, f"/executions/{e.id}/stream")
        end = time.monotonic() + PATIENCE
        while not e.told_end and time.monotonic() < end:
            try:
                c, r = self.server.open("GET", f"{base}?stdoutOffset={len(e.seen)}", headers={"Accept": "application/x-ndjson"})
            except BROKEN:
                continue
            try:
                if r.status != 200:
                    if r.status not in (502, 503, 504):
                        self.ledger.problem(f"stream of {e.id}: {r.status} {r.read()[:300]}")
                        return
                    time.sleep(0.05)
                    continue
                for line in r:
                    event = json.loads(line)
                    if event["type"] == "output":
                        if event["offset"] != len(e.seen):
                            self.ledger.problem(f"stream of {e.id}: offset {event['offset']} after {len(e.seen)} bytes")
                            return
                        e.seen += event["data"].encode()
                    elif event["type"] == "end":
                        e.told_end = event["execution"]
            except BROKEN:
                self.ledger.count("streams cut off")
            finally:
                c.close()

    def write(self):
        sandbox = self.pick()
        if not sandbox:
            return
        path = f"/workspace/f{self.random.randint(1, 5)}"
        data = f"{self.nonce()} ".encode() * self.random.choice((1, 300, 20000))
        a = self.ask("PUT", path_of(sandbox.id, f"/files?path={path}"), data)
        known = sandbox.files.setdefault(path, [None])
        if a is None:
            known.append(data)
        elif a.status == 200:
            sandbox.files[path] = [data]
            self.ledger.count("files")
        elif not self.ended(sandbox, a) and not (a.status == 409 and (sandbox.paused or sandbox.paused_doubt)):
            self.ledger.problem(f"write: {a}")

    def read(self):
        sandbox = self.pick()
        if not sandbox or not sandbox.files:
            return
        path = self.random.choice(list(sandbox.files))
        a = self.ask("GET", path_of(sandbox.id, f"/files?path={path}"))
        if a is not None and not self.ended(sandbox, a):
            check_file(self.ledger, sandbox, path, a)

    def tar(self):
        sandbox = self.pick()
        if sandbox:
            a = self.ask("GET", path_of(sandbox.id, "/files/tar?path=/workspace"))
            if a is not None and a.status not in (200, 409):
                self.ended(sandbox, a)

    def pause(self):
        self.set_paused(True)

    def resume(self):
        self.set_paused(False)

    def set_paused(self, on):
        sandbox = self.pick()
        if not sandbox:
            return
        a = self.ask("POST", path_of(sandbox.id, "/pause" if on else "/resume"))
        if a is None:
            sandbox.paused_doubt = True
        elif a.status == 200:
            sandbox.paused, sandbox.paused_doubt = on, False
            if (a.json["state"] == "paused") != on:
                self.ledger.problem(f"pause {on}: {a}")
            self.ledger.count("pauses" if on else "resumes")
        elif not self.ended(sandbox, a):
            self.ledger.problem(f"pause {on} of {sandbox.id}: {a}")

    def delete(self):
        sandbox = self.pick()
        if not sandbox or self.random.random() < 0.5:
            return
        sandbox.delete_asked = True
        a = self.ask("DELETE", path_of(sandbox.id))
        if a is not None:
            sandbox.deleted = a.status == 200
            if a.status != 200 or a.json["state"] != "ended":
                self.ledger.problem(f"delete of {sandbox.id}: {a}")
            self.ledger.count("deletes")

    def key(self):
        a = self.ask("POST", "/v1/keys", {"name": self.nonce(), "scopes": ["sandboxes:read"]})
        if a is None:
            return
        row = {"secret": a.json["key"], "id": a.json["id"], "revoked": False}
        if self.random.random() < 0.5:
            gone = self.ask("DELETE", f"/v1/keys/{row['id']}")
            row["revoked"] = None if gone is None else True
        with self.ledger.lock:
            self.ledger.keys.append(row)
        self.ledger.count("keys")

    def look(self):
        """Reads during the kills: reads may be refused, and must not return wrong data."""
        sandbox = self.pick()
        if not sandbox:
            return
        a = self.ask("GET", path_of(sandbox.id))
        if a is not None and a.status != 200:
            self.ledger.problem(f"get of {sandbox.id}: {a}")


def check_file(ledger, sandbox, path, a):
    known = sandbox.files[path]
    if a.status == 409 and (sandbox.paused or sandbox.paused_doubt):
        return
    if a.status == 404 and None in known:
        return
    if a.status != 200 or a.body not in known:
        sums = [k and hashlib.sha256(k).hexdigest()[:8] for k in known]
        ledger.problem(f"file {path} of {sandbox.id}: {a.status}, {len(a.body)} bytes {a.body[:60]!r}, known are {sums}")


class Killer(threading.Thread):
    def __init__(self, seed, server, kills):
        super().__init__(daemon=True)
        self.random = random.Random(f"{seed}/killer")
        self.server, self.kills = server, kills
        self.jailer_kills, self.done, self.problems = [], {}, []

    def run(self):
        for _ in range(self.kills):
            wait = self.random.choice((0.02, 0.2, 0.5, 1.0, 1.5)) * self.random.random()
            names = self.random.choice((("coved",),) * 12 + (("cove-jailer",),) * 3 + (("cove-monitor",),) * 3 + (("cove-egress",),) * 2 +
                                       (("coved", "cove-jailer"), ("cove-monitor", "coved")))
            if self.random.random() < 0.6:  # otherwise it is killed in the middle of its recovery
                self.server.wait(self.server.ready)
            time.sleep(wait)
            for name in names:
                self.kill(name)

    def kill(self, name):
        self.server.check_chain(self.problems)
        pid = self.server.wait(lambda: self.server.processes().get(name))
        if name == "cove-jailer":
            self.jailer_kills.append(time.time())
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.server.check_chain(self.problems)
        self.done[name] = self.done.get(name, 0) + 1


# --- final checks ---

class Reckoning:
    def __init__(self, server, ledger, killer):
        self.server, self.ledger, self.killer = server, ledger, killer

    def jailer_died(self, since):
        return any(t >= since - 0.1 for t in self.killer.jailer_kills)

    def sandbox(self, s):
        a = self.server.sure("GET", path_of(s.id))
        if a.status != 200:
            self.ledger.problem(f"sandbox {s.id} was acknowledged and does not exist: {a}")
            return None
        row = a.json
        if row["metadata"] != {"nonce": s.nonce}:
            self.ledger.problem(f"sandbox {s.id} has other metadata: {row}")
        if row["state"] != "ended":
            if s.deleted:
                self.ledger.problem(f"sandbox {s.id} was deleted and is alive: {row}")
        elif row["endedBy"] == "killed":
            if not s.delete_asked:
                self.ledger.problem(f"sandbox {s.id} was killed without a request: {row}")
        elif row["endedBy"] != "lost" or not (self.jailer_died(s.born) or (s.delete_asked and not s.deleted)):
            self.ledger.problem(f"sandbox {s.id} ended without a known reason: {row}")
        return row

    def output(self, e):
        a = self.server.sure("GET", path_of(e.sandbox.id, f"/executions/{e.id}/output?stream=stdout"))
        if a.status != 200:
            self.ledger.problem(f"output of {e.id}: {a}")
        elif a.body[:len(e.seen)] != e.seen:
            self.ledger.problem(f"output of {e.id} differs from what was streamed before: {len(a.body)} and {len(e.seen)} bytes")
        return a.body

    def execution(self, e, sandbox):
        a = self.server.sure("GET", path_of(e.sandbox.id, f"/executions/{e.id}"))
        if a.status != 200:
            self.ledger.problem(f"execution {e.id} was acknowledged and does not exist: {a}")
            return
        row, whole = a.json, self.output(e)
        if not e.expected.startswith(whole):
            self.ledger.problem(f"output of {e.id} is not what the program wrote: {whole[:200]!r}")
        told = e.told_end
        if told and (told["state"], told.get("exitCode"), told.get("endedBy")) != (row["state"], row.get("exitCode"), row.get("endedBy")):
            self.ledger.problem(f"{e.id} has another end than the client received: {told} and {row}")
        if row["state"] == "ended" and row.get("endedBy") == "exit":
            if row["exitCode"] != e.code or whole != e.expected:
                self.ledger.problem(f"{e.id} is reported as a success and is not: {len(whole)} of {len(e.expected)} bytes, {row}")
        elif row["state"] in ("starting", "running"):
            if sandbox["state"] == "ended":
                self.ledger.problem(f"{e.id} runs in a sandbox that has ended: {row}")
            elif sandbox["state"] == "running":
                self.ledger.problem(f"{e.id} has not ended: {row}")
        elif sandbox["state"] != "ended" and not (e.in_doubt and not whole and row["endedBy"] == "lost"):
            self.ledger.problem(f"{e.id} was lost although its sandbox is alive: {row}")  # unless it never began

    def key(self, key):
        a = self.server.sure("GET", f"/v1/keys/{key['id']}")
        if a.status != 200 or (key["revoked"] is not None and ("revokedAt" in a.json) != key["revoked"]):
            self.ledger.problem(f"key {key['id']}, revoked {key['revoked']}: {a}")
        elif "revokedAt" not in a.json:  # the others are not tried: a server throttles wrong keys
            a = self.server.sure("GET", "/v1/sandboxes?limit=1", key=key["secret"])
            if a.status != 200:
                self.ledger.problem(f"key {key['id']} is not accepted: {a}")

    def settled(self):
        """Waits until the executions have ended, now that nothing is killed any more."""
        def live():
            for s in self.server.pages("/v1/sandboxes?state=running&"):
                for state in ("starting", "running"):
                    if self.server.pages(path_of(s["id"], f"/executions?state={state}&")):
                        return True
            return False
        self.server.wait(lambda: not live())

    def all(self):
        self.settled()
        for s in self.ledger.sandboxes:
            row = self.sandbox(s)
            if not row:
                continue
            for e in s.executions:
                self.execution(e, row)
            if row["state"] == "running":
                for path in s.files:
                    check_file(self.ledger, s, path, self.server.sure("GET", path_of(s.id, f"/files?path={path}")))
        for key in self.ledger.keys:
            self.key(key)
        rows = self.server.pages("/v1/sandboxes?")
        for nonce in self.ledger.nonces:
            made = [r["id"] for r in rows if r["metadata"].get("nonce") == nonce and
                    (r["state"] != "ended" or r.get("endedBy", "lost") != "lost")]
            if len(made) > 1:
                self.ledger.problem(f"one request created {made}")
        return rows


def audit(server, ledger):
    """Problems of the audit trail of a stopped server, compared with the acknowledgements."""
    told = server.verify()
    if not told["intact"] or told["signedTo"] != told["lastSeq"]:
        return [f"the audit trail: {told}"]
    known = {(r["action"], value) for r in server.records() if r["outcome"] in ("accepted", "success")
             for value in r.get("target", {}).values()}
    wanted = [("sandbox.create", s.id) for s in ledger.sandboxes] + [("sandbox.delete", s.id) for s in ledger.sandboxes if s.deleted]
    wanted += [("execution.create", e.id) for s in ledger.sandboxes for e in s.executions]
    wanted += [("key.create", k["id"]) for k in ledger.keys] + [("key.revoke", k["id"]) for k in ledger.keys if k["revoked"]]
    print(f"# the audit trail has {told['records']} records; {len(wanted)} acknowledged changes were looked for")
    return [f"acknowledged, and not in the audit trail: {missing}" for missing in sorted(set(wanted) - known)]


# --- leaks ---

def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def leaves():
    found = set()
    for above in ("", "*/", "*/*/"):
        found |= {os.path.basename(os.path.dirname(p)) for p in glob.glob(f"/sys/fs/cgroup/{above}{PARENT}/*/")}
    return found


def host():
    def links(kind):
        found = set()
        for path in glob.glob(f"/proc/[0-9]*/ns/{kind}"):
            try:
                found.add(os.readlink(path))
            except OSError:
                pass
        return found
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        mounts = set(line.split()[4] for line in f)
    return {"mounts": mounts, "mount namespaces": links("mnt"), "pid namespaces": links("pid"),
            "network namespaces": links("net")}


def sandbox_processes(ids):
    """Processes whose cgroup belongs to one of our sandboxes."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cgroup"):
        try:
            with open(path, encoding="utf-8") as f:
                text = f.read()
        except OSError:
            continue
        found += [(path.split("/")[2], i) for i in ids if i in text]
    return found


def leaks(server, rows, baseline):
    problems = []
    ids = {r["id"] for r in rows}
    for r in rows:
        if r["state"] != "ended":
            a = server.sure("DELETE", path_of(r["id"]))
            if a.status != 200:
                problems.append(f"a last delete: {a}")
    known = set()
    for r in rows:
        known |= {e["id"] for e in server.pages(path_of(r["id"], "/executions?"))}
    files = set(os.listdir(os.path.join(server.place, "state/output"))) - {"ends"}  # the journal of ends before their commit
    stray = {f for f in files if f.split(".")[0] not in known}
    if stray:
        problems.append(f"orphaned output: {sorted(stray)}")

    def settled():
        return not (leaves() & ids) and not sandbox_processes(ids)
    try:
        server.wait(settled, 30)
    except AssertionError:
        problems.append(f"sandboxes left: cgroups {leaves() & ids}, processes {sandbox_processes(ids)}")
    now = {}

    def slim():
        now.clear()
        now.update({name: descriptors(pid) for name, pid in server.processes().items()})
        return all(name in now and now[name] <= baseline[name] for name in baseline)
    try:
        server.wait(slim, 20)
    except AssertionError:
        problems.append(f"descriptors: {baseline} before, {now} after")
    return problems


def spawners(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as f:
        return len(f.read().split())


def use_once(server):
    a = server.sure("POST", "/v1/sandboxes", {"runtime": "sh", "lifetimeMs": 3600000})
    assert a.status == 201, a
    sandbox = a.json["id"]
    a = server.sure("POST", path_of(sandbox, "/executions"), {"command": ["true"]})
    assert a.status == 200, a
    server.sure("PUT", path_of(sandbox, "/files?path=/workspace/a"), b"a")
    assert server.sure("DELETE", path_of(sandbox)).status == 200
    server.wait(lambda: sandbox not in leaves())


def warm(server):
    """The descriptors of each process when the server is idle after it has created sandboxes. After
    the second request for a spec the server prepares the next sandbox, as it will for the clients,
    so that sandbox exists at rest."""
    for _ in range(2):
        use_once(server)
    still, counts = 0, {}
    while still < 10:
        time.sleep(0.1)
        now = {name: descriptors(pid) for name, pid in server.processes().items()}
        still, counts = (still + 1 if now == counts else 0), now
    return counts


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=int(os.environ.get("CRASH_KILLS", "10")))
    options.add_argument("--clients", type=int, default=4)
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--keep", action="store_true", help="keep the server's directory")
    options = options.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    print(f"# seed {seed}, {options.kills} kills; repeat with tests/crash/run.py --kills {options.kills} --seed {seed}", flush=True)
    apart.everything()
    before = host()
    server, ledger, stop = Server(), Ledger(), threading.Event()
    results = []
    began = time.monotonic()
    try:
        baseline = warm(server)
        clients = [Client(i, seed, server, ledger, stop) for i in range(options.clients)]
        killer = Killer(seed, server, options.kills)
        for thread in clients + [killer]:
            thread.start()
        killer.join()
        stop.set()
        server.wait(server.ready)
        for client in clients:
            client.join(PATIENCE * 2)
            if client.is_alive():
                ledger.problem(f"client {client.number} waits for an answer that does not arrive")
        seconds = time.monotonic() - began
        rows = Reckoning(server, ledger, killer).all()
        print(f"# {sum(killer.done.values())} kills {killer.done} in {seconds:.0f} s; acknowledged: {ledger.counts}")
        results.append((f"{sum(killer.done.values())} kills: nothing acknowledged is lost, every reported end is true", ledger.problems))
        results.append(("descriptors, processes, cgroups and output: nothing leaked", leaks(server, rows, baseline)))
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(PATIENCE)
        left = server.processes()
        results.append(("the server exits with status 0 and leaves nothing",
                        ([f"status {code}"] if code else []) + ([f"{left}"] if left else [])))
        results.append(("the chain of the audit trail is valid after every kill and has everything that was acknowledged",
                        killer.problems + audit(server, ledger)))
        words = [w for w in ("AddressSanitizer", "LeakSanitizer", "runtime error", "assert", "internal_bug") if w in server.launched.logged()]
        results.append(("no process reported an internal error", [f"{words}: see its log"] if words else []))
    except Exception:
        results.append(("the test itself", [traceback.format_exc()]))
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
    if not os.environ.get("COVE_SHARED_HOST"):
        for _ in range(300):  # processes that were killed last need a moment to disappear
            after = host()
            grown = {k: sorted(after[k] - before[k])[:5] for k in before if len(after[k]) > len(before[k])}
            if not grown:
                break
            time.sleep(0.1)
        results.append(("mounts and namespaces of the host are unchanged", [str(grown)] if grown else []))
    print(f"1..{len(results)}")
    for number, (name, problems) in enumerate(results, 1):
        print(f"{'not ok' if problems else 'ok'} {number} - {name}")
        for text in problems[:20]:
            print("\n".join("# " + line for line in text.splitlines()))
    bad = any(p for _, p in results)
    if bad or options.keep:
        print(f"# the server's log and state: {server.dir}")
    else:
        shutil.rmtree(server.dir)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
