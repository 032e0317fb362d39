#!/usr/bin/env python3
"""run.py - many short sandboxes, and a count of everything that they could leave. Prints TAP with a
table.

    tests/soak/run.py                  10,000 runs of `cove run`, and as many through one jailer
    SOAK_RUNS=300 tests/soak/run.py    a short run

Counted before and after: processes, cgroups, mounts, network namespaces, files of the state
directory, and the kernel objects of these where it shows them. engine-bench drives one jailer with
many sandboxes and reports the jailer's memory.
"""
import glob
import os
import shutil
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
BENCH = os.path.join(ROOT, "build/tests/tools/engine-bench")
RUNS = int(os.environ.get("SOAK_RUNS", "10000"))
WORKERS = os.cpu_count() or 2
SHARED = bool(os.environ.get("COVE_SHARED_HOST"))  # others use cove here at the same time: counts of the host are not ours
# Kernel objects that a leaked sandbox would hold. The kernel frees them late and in batches, so
# some slack is allowed: half of what a leak of one object per run would show.
SLABS = ("net_namespace", "mnt_cache", "pid_namespace", "user_namespace", "uts_namespace")
SLAB_SLACK = max(64, RUNS // 2)


def links(kind):
    found = set()
    for path in glob.glob(f"/proc/[0-9]*/ns/{kind}"):
        try:
            found.add(os.readlink(path))
        except OSError:
            pass
    return len(found)


def named(word):
    found = 0
    for path in glob.glob("/proc/[0-9]*/comm"):
        try:
            with open(path, encoding="utf-8") as f:
                found += f.read().startswith(word)
        except OSError:
            pass
    return found


def slabs():
    try:
        with open("/proc/slabinfo", encoding="utf-8") as f:
            return {line.split()[0]: int(line.split()[1]) for line in f if line.split()[0] in SLABS}
    except OSError:
        return {}


def count():
    facts = {
        "processes of cove": named("cove"),
        "cgroups of cove": sum(len(glob.glob(f"/sys/fs/cgroup/{above}{PARENT}/*/")) for above in ("", "*/", "*/*/")),
        "mounts": sum(1 for _ in open("/proc/self/mountinfo", encoding="utf-8")),
        "network namespaces": links("net"),
        "mount namespaces": links("mnt"),
        "pid namespaces": links("pid"),
        "files of the state directory": sum(len(dirs) + len(files) for _, dirs, files in os.walk(os.environ["COVE_STATE_DIR"])),
    }
    return facts, slabs()


def many_runs(failures):
    left = [RUNS]
    lock = threading.Lock()

    def worker():
        while True:
            with lock:
                if left[0] == 0 or len(failures) > 5:
                    return
                left[0] -= 1
            done = subprocess.run([COVE, "run", "--quiet", "--", "true"], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=60, check=False)
            if done.returncode != 0:
                with lock:
                    failures.append(f"status {done.returncode}: {done.stderr.strip()[-200:]}")

    threads = [threading.Thread(target=worker) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def at_rest():
    """Counts before the runs: the first count that stays the same for a second."""
    last, same = count(), 0
    for _ in range(100):
        time.sleep(0.1)
        now = count()
        last, same = now, same + 1 if now[0] == last[0] else 0
        if same == 10:
            break
    return last


def settled(before, kernel_before):
    """Counts after the runs, when the kernel had a moment to release objects. Its counters cover
    all suites on this host: objects of others come and go, leaked ones stay."""
    for _ in range(300):
        after, kernel = count()
        if all(after[k] <= before[k] for k in before) and all(kernel[k] - n < SLAB_SLACK for k, n in kernel_before.items()):
            break
        time.sleep(0.1)
    return after, kernel


def weight(pid):
    """(private and shared memory in KiB as the kernel divides it, open descriptors) of a process"""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in f if line.endswith("kB\n")}
    # The share of the program text depends on how many others run the program, so it is not
    # counted.
    own = sizes["Pss_Anon"] + sizes["Pss_Shmem"] if "Pss_Anon" in sizes else sizes["Pss"]
    return own, len(os.listdir(f"/proc/{pid}/fd"))


def helpers(parent):
    """{name: pid} of the jailer and the spawner below a process; the oldest of each name, because a
    child that becomes a sandbox has the name of its spawner at first"""
    found = {}
    for path in sorted(glob.glob("/proc/[0-9]*/stat"), key=lambda path: int(path.split("/")[2])):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                head, rest = f.read().rsplit(")", 1)
        except OSError:
            continue
        pid, name, above = int(path.split("/")[2]), head.split("(", 1)[1], int(rest.split()[1])
        if name in ("cove-jailer", "cove-spawner") and above in (parent, *found.values()):
            found.setdefault(name, pid)
    return found


def one_jailer():
    """[(name, good, why)]: RUNS sandboxes through one jailer, whose memory and descriptors must not
    grow with them."""
    bench = subprocess.Popen([BENCH, "--state-dir", os.environ["COVE_STATE_DIR"], "--step", "--", "true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def live(times):
        for _ in range(times):
            bench.stdin.write("\n")
            line = bench.stdout.readline()
            if not line:
                raise RuntimeError(f"engine-bench ended with {bench.wait()}")

    results = []
    try:
        live(max(20, RUNS // 10))
        people = {**helpers(bench.pid), **helpers(bench.pid)}
        before = {name: weight(pid) for name, pid in people.items()}
        live(RUNS)
        for _ in range(40):
            after = {name: weight(pid) for name, pid in people.items()}
            if all(after[name][1] <= before[name][1] for name in before):
                break
            time.sleep(0.05)
    except (RuntimeError, OSError) as why:
        return [("one jailer makes many sandboxes", False, str(why))]
    finally:
        bench.stdin.close()
        bench.wait()
        bench.stdout.close()
    if "cove-jailer" not in before:
        return [("one jailer makes many sandboxes", False, f"no jailer below engine-bench: {people}")]
    for name in before:
        print(f"# {name + ', KiB':<28} {before[name][0]:>10} {after[name][0]:>10}")
        print(f"# {name + ', descriptors':<28} {before[name][1]:>10} {after[name][1]:>10}")
        results.append((f"{name}: memory and descriptors are flat over {RUNS} sandboxes",
                        after[name][0] - before[name][0] <= 64 and after[name][1] <= before[name][1],
                        f"{before[name]} before, {after[name]} after (KiB, descriptors)"))
    return results


def main():
    apart.everything()
    state = tempfile.mkdtemp(prefix="cove-soak-", dir="/run" if os.geteuid() == 0 else None)
    os.environ["COVE_STATE_DIR"] = state
    try:
        return soak()
    finally:
        shutil.rmtree(state, ignore_errors=True)


def soak():
    results = []
    subprocess.run([COVE, "run", "--quiet", "--", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    before, kernel_before = at_rest()
    failures = []
    began = time.monotonic()
    many_runs(failures)
    seconds = time.monotonic() - began
    results.append((f"{RUNS} runs ended with status 0, {RUNS / seconds:.0f} a second", not failures, "; ".join(failures[:3])))
    after, kernel_after = settled(before, kernel_before)
    print(f"# {'counted':<28} {'before':>10} {'after':>10}")
    for name in before:
        print(f"# {name:<28} {before[name]:>10} {after[name]:>10}")
        results.append((f"{name}: none left", after[name] <= before[name], f"{before[name]} before, {after[name]} after"))
    for name in kernel_before:
        print(f"# {'kernel: ' + name:<28} {kernel_before[name]:>10} {kernel_after[name]:>10}")
        grown = kernel_after[name] - kernel_before[name]
        results.append((f"kernel's {name}: does not grow with the runs", grown < max(SLAB_SLACK, RUNS // 20), f"{grown} more"))
    results += one_jailer()
    print(f"1..{len(results)}")
    failed = 0
    for number, (name, good, why) in enumerate(results, 1):
        if not good and SHARED and name.endswith("none left"):
            print(f"ok {number} - {name} # SKIP others use cove on this host: {why}")
            continue
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {name}" + ("" if good else f"\n# {why}"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
