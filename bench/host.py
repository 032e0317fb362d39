"""host.py - functions that the benchmarks share: the machine, its load, and the summary of figures.
"""
import os
import platform
import re
import sys
import time


def say(text):
    print(text, file=sys.stderr, flush=True)


def steal():
    """Ticks of all CPUs: (stolen by the host of this machine, all)."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(x) for x in f.readline().split()[1:9]]
    return ticks[7], sum(ticks)


class Steal:
    def __enter__(self):
        self.before = steal()
        return self

    def __exit__(self, *_):
        stolen, total = (b - a for a, b in zip(self.before, steal()))
        self.percent = round(100.0 * stolen / total, 1) if total else 0.0


def busy_percent(seconds):
    """The load of the CPUs by other programs, in percent."""
    def ticks():
        with open("/proc/stat", encoding="ascii") as f:
            t = [int(x) for x in f.readline().split()[1:9]]
        return t[3] + t[4], sum(t)

    before = ticks()
    time.sleep(seconds)
    idle, total = (b - a for a, b in zip(before, ticks()))
    return round(100.0 * (total - idle) / total, 1) if total else 0.0


class Quiet:
    """Comparisons are valid on a busy machine, absolute figures are not. Every piece of the
    measurement waits until the machine is quiet, all of them together for no longer than the given
    patience."""

    def __init__(self, patience):
        self.left, self.worst = float(patience), 0.0

    def wait(self):
        while True:
            began = time.monotonic()
            busy = busy_percent(1)
            if busy < 10 or self.left <= 0:
                break
            self.left -= time.monotonic() - began
        self.worst = max(self.worst, busy)


def machine():
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                model = " ".join(line.split(":", 1)[1].split())
                break
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        cgroup = "v2"
    else:
        cgroup = "hybrid" if os.path.isdir("/sys/fs/cgroup/unified") else "v1"
    with open("/proc/meminfo", encoding="ascii") as f:
        memory = int(f.readline().split()[1]) // 1024
    return {"cpu": model, "cores": os.cpu_count(), "memoryMiB": memory, "kernel": re.sub(r"-.*", "", platform.release()),
            "cgroup": cgroup, "guest": "hypervisor" in open("/proc/cpuinfo", encoding="utf-8").read()}


def percentile(ordered, p):
    """Nearest rank."""
    return ordered[max(0, -(-len(ordered) * p // 100) - 1)]


def summary(samples):
    ms = sorted(ns / 1e6 for ns in samples)
    return {"n": len(ms), "best": round(ms[0], 3), "p50": round(percentile(ms, 50), 3),
            "p95": round(percentile(ms, 95), 3), "p99": round(percentile(ms, 99), 3)}


def children_of(root):
    parent = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                parent[int(pid)] = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        kids = [p for p, above in parent.items() if above == pid]
        found += kids
        todo += kids
    return found


def pss_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        for line in f:
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def switches(pid):
    """How often the threads of a process were scheduled, in total."""
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8", errors="replace") as f:
            total += sum(int(n) for n in re.findall(r"ctxt_switches:\s+(\d+)", f.read()))
    return total


def busy_ticks():
    """Ticks of all CPUs: (busy, all)."""
    with open("/proc/stat", encoding="ascii") as f:
        t = [int(x) for x in f.readline().split()[1:9]]
    return sum(t) - t[3] - t[4], sum(t)
