#!/usr/bin/env python3
"""executions.py - many executions through one server, each in a fresh sandbox of a pool, and a
count of everything that they could leave. Prints TAP with a table.

    tests/soak/executions.py                        100,000 of them
    SOAK_EXECUTIONS=300 tests/soak/executions.py    a short run

Most print a number. The others end in ways that easily leak resources: an exception, a timeout,
killed for memory, with children left behind, with files in and out, abandoned by a client that
disconnects. Between the warm-up and the end nothing may have grown: processes, descriptors and
memory of each daemon, cgroups, mounts, namespaces, files of the state directory. A pool is as full
at the end as at the beginning, so its members cancel out.
"""
import collections
import glob
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import apart  # noqa: E402

PARENT = os.environ.get("COVE_CGROUP_PARENT", "cove")
COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
RUNS = int(os.environ.get("SOAK_EXECUTIONS", "100000"))
WARM_UP = max(60, min(2000, RUNS // 5))
WORKERS = 4
POOL = 4
PATIENCE = 300
GROWTH_KIB = {"coved": 4096, "zygote": 4096}  # KiB that caches and allocators may still take; 512 for other processes
GROWTH_OTHERS_KIB = 512


def of_every(n, **fields):
    return n, {"language": "python", "template": "python", **fields}


# The kinds of requests, every n-th time; the first kind that matches is used.
KINDS = (
    ("out of time", of_every(53, code="import time; time.sleep(60)", timeoutMs=150)),
    ("killed for memory", of_every(97, code="x = bytearray(1 << 30)", resources={"memoryBytes": 64 << 20})),
    ("abandoned", of_every(41, code="import time; time.sleep(60)", timeoutMs=30000)),
    ("children left behind", of_every(23, code="import subprocess; [subprocess.Popen(['sleep', '1000'], start_new_session=True) for _ in range(3)]; print(1)")),
    ("raised", of_every(13, code="1 / 0")),
    ("files", of_every(11, code="open('out', 'w').write(open('in').read() * 100); print(1)",
                       files=[{"path": "in", "content": "some text"}], outputs=["out"])),
    ("printed", of_every(1, code="print(1)")),
)


def kind_of(i):
    return next((name, body) for name, (every, body) in KINDS if i % every == every - 1)


# --- the server ---


class Server:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="cove-soak-")
        os.chmod(self.dir, 0o755)
        limits = [word for name in ("default", "create", "execute") for word in (f"--rate-limit-{name}", "1000000/s")]
        self.log = open(self.dir + "/log", "wb")
        self.process = subprocess.Popen([COVE, "serve", "--state-dir", self.dir + "/state", "--listen", "127.0.0.1:0", *limits],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = self.key = None
        self.others = set(leaves())  # cgroups that existed before
        while self.key is None:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server does not start: {self.said()}")
            found = re.match(r"\s+(address|key)\s+(\S+)", line)
            if found and found[1] == "address":
                self.port = int(found[2].rpartition(":")[2])
            elif found:
                self.key = found[2]

    def said(self):
        with open(self.dir + "/log", encoding="utf-8", errors="replace") as f:
            return f.read()[-1000:]

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, c, method, path, body=None):
        c.request(method, path, body and json.dumps(body), {"Authorization": "Bearer " + self.key, "Content-Type": "application/json"})
        r = c.getresponse()
        text = r.read()
        return r.status, json.loads(text) if text else None

    def call(self, method, path, body=None):
        c = self.connect()
        status, answer = self.ask(c, method, path, body)
        c.close()
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    def abandon(self, body):
        """Sends a request and disconnects without waiting for the answer."""
        text = json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as s:
            s.sendall(f"POST /v1/execute HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\nContent-Type: application/json\r\n"
                      f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
            time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.stdout.close()
            self.log.close()
            shutil.rmtree(self.dir, ignore_errors=True)


# --- requests ---


def right(name, status, answer):
    if status != 200:
        return False
    return {"out of time": lambda: answer["outcome"] != "success", "killed for memory": lambda: answer["outcome"] != "success",
            "raised": lambda: "ZeroDivisionError" in json.dumps(answer), "files": lambda: len(answer["files"]) == 1 and answer["stdout"] == "1\n"}.get(
                name, lambda: answer["stdout"] == "1\n")()


def many(server, first, count, failures, seen):
    left, lock = [count], threading.Lock()

    def worker():
        c = server.connect()
        while True:
            with lock:
                if left[0] == 0 or len(failures) > 5:
                    break
                left[0] -= 1
                number = first + left[0]
            name, body = kind_of(number)
            try:
                if name == "abandoned":
                    server.abandon(body)
                else:
                    status, answer = server.ask(c, "POST", "/v1/execute", body)
                    if not right(name, status, answer):
                        raise RuntimeError(f"{status} {json.dumps(answer)[:500]}")
                with lock:
                    seen[name] += 1
            except (OSError, RuntimeError, KeyError, http.client.HTTPException) as why:
                with lock:
                    failures.append(f"{name}: {why!r}")
                c.close()
                c = server.connect()
        c.close()

    threads = [threading.Thread(target=worker) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- counts ---


def family(root):
    """{pid: name} of a process and all below it, and {pid: parent}"""
    parent, name = {}, {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                head, rest = f.read().rsplit(")", 1)
        except OSError:
            continue
        pid = int(path.split("/")[2])
        parent[pid], name[pid] = int(rest.split()[1]), head.split("(", 1)[1]
    found, todo = {root: name.get(root, "?")}, [root]
    while todo:
        above = todo.pop()
        for pid in [p for p, a in parent.items() if a == above and p not in found]:
            found[pid] = name[pid]
            todo.append(pid)
    return found, parent


def weight(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in f if line.endswith("kB\n")}
    # The share of the program text depends on how many others run the program, so it is not
    # counted.
    own = sizes["Pss_Anon"] + sizes["Pss_Shmem"] if "Pss_Anon" in sizes else sizes["Pss"]
    return own, len(os.listdir(f"/proc/{pid}/fd"))


def namespaces(pids):
    found = set()
    for pid in pids:
        for kind in ("net", "mnt", "pid", "user"):
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                pass
    return len(found)


def mounts(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="replace") as f:
                total = max(total, sum(1 for _ in f))
        except OSError:
            pass
    return total


def leaves():
    """{sandbox: its directories in all hierarchies}, of all servers"""
    found = collections.defaultdict(list)
    for depth in ("", "*/", "*/*/", "*/*/*/"):
        for place in glob.glob(f"/sys/fs/cgroup/{depth}{PARENT}/*/"):
            found[os.path.basename(place[:-1])].append(place)
    return found


def cgroups(server, pids):
    """Cgroups of this server's sandboxes, including unreported ones. The tree is
    shared: a cgroup with processes of others is theirs, and an empty one that is newer than the
    server counts as its own."""
    own = 0
    for name, places in leaves().items():
        inside = set()
        for place in places:
            try:
                with open(place + "cgroup.procs", encoding="ascii") as f:
                    inside |= {int(line) for line in f}
            except OSError:
                pass
        own += name not in server.others and (not inside or not inside.isdisjoint(pids))
    return own


def counted(server):
    """(counts that may not grow, {daemon: (KiB, descriptors)})"""
    pids, parent = family(server.process.pid)
    daemons = {}
    for pid, name in pids.items():
        # The children of a sandbox's PID 1 are forks of the zygote, and keep its name.
        if name.startswith("cove") or (name == "zygote" and pids.get(parent[pid]) != "runtime"):
            try:
                kib, fds = weight(pid)
            except (OSError, KeyError):
                continue
            had = daemons.get(name, (0, 0))
            daemons[name] = (max(had[0], kib), max(had[1], fds))
    names = collections.Counter(pids.values())
    facts = {f"processes called {name}": names[name] for name in names}
    facts["namespaces"] = namespaces(pids)
    facts["most mounts in one of them"] = mounts(pids)
    facts["cgroups of sandboxes"] = cgroups(server, pids)
    facts["files of the state directory"] = sum(len(files) for place, _, files in os.walk(server.dir + "/state") if "audit" not in place)
    return facts, daemons


def at_rest(server, goal=None):
    """Counts when the pool is full and no sandbox is in teardown; with a goal, as soon as it is
    reached."""
    last, end = None, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        status = server.call("GET", "/v1/pools/soak/status")
        now = counted(server)
        full = status["ready"] >= POOL and not status.get("starting")
        if goal is None and full and now[0] == last:
            return now
        if goal is not None and full and not worse(goal, now):
            return now
        last = now[0]
        time.sleep(1)
    return counted(server)


def worse(before, after):
    """[(what, why)] of all counts that grew. One more sandbox may be ready: for the spec that was
    last requested twice without a pool."""
    spare = max(0, min(1, after[0].get("processes called runtime", 0) - before[0].get("processes called runtime", 0)))
    room = {"processes called runtime": spare, "processes called zygote": spare, "namespaces": 5 * spare, "cgroups of sandboxes": spare}
    found = [(name, f"{before[0].get(name, 0)} before, {after[0][name]} after") for name in after[0]
             if after[0][name] > before[0].get(name, 0) + room.get(name, 0)]
    for name, (kib, fds) in after[1].items():
        had = before[1].get(name, (0, 0))
        if fds > had[1] + 8 * spare:
            found.append((f"descriptors of {name}", f"{had[1]} before, {fds} after"))
        if kib - had[0] > GROWTH_KIB.get(name, GROWTH_OTHERS_KIB):
            found.append((f"memory of {name}", f"{had[0]} KiB before, {kib} after"))
    return found


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP a server that makes sandboxes needs root")
        return 0
    apart.everything()
    server, failures, seen = Server(), [], collections.Counter()
    try:
        for pool in server.call("GET", "/v1/pools")["items"]:  # the server's own pools would grow and shrink
            server.call("PUT", "/v1/pools/" + pool["name"], {"template": pool["template"], "min": 0, "max": 0})
        server.call("PUT", "/v1/pools/soak", {"template": "python", "min": POOL, "max": POOL, "autoscale": {"enabled": False}})
        many(server, 0, WARM_UP, failures, collections.Counter())
        before = at_rest(server)
        began = time.monotonic()
        many(server, WARM_UP, RUNS, failures, seen)
        seconds = time.monotonic() - began
        after = at_rest(server, before)
        grown = worse(before, after)
    finally:
        server.stop()
    print(f"# {'counted':<40} {'before':>10} {'after':>10}")
    for name in sorted(after[0]):
        print(f"# {name:<40} {before[0].get(name, 0):>10} {after[0][name]:>10}")
    for name in sorted(after[1]):
        for what, i in (("KiB", 0), ("descriptors", 1)):
            print(f"# {name + ', ' + what:<40} {before[1].get(name, (0, 0))[i]:>10} {after[1][name][i]:>10}")
    results = [(f"{RUNS} executions were answered correctly, {RUNS / seconds:.0f} a second", not failures and sum(seen.values()) == RUNS, "; ".join(failures[:3])),
               ("every kind occurred", all(seen[name] for name, _ in KINDS), str(dict(seen))),
               ("nothing is left of them", not grown, "; ".join(f"{what}: {why}" for what, why in grown))]
    print(f"1..{len(results)}")
    for number, (name, good, why) in enumerate(results, 1):
        print(f"{'ok' if good else 'not ok'} {number} - {name}" + ("" if good else f"\n# {why}"))
    return 0 if all(good for _, good, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
