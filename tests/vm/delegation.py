#!/usr/bin/env python3
"""delegation.py - the source of a plain user's cgroup, on a host with systemd and cgroup v2. Prints
TAP.

Run by tests/vm/run.py inside the virtual machine: by root for services, by the plain user for
everything else.
"""
import glob
import json
import os
import signal
import subprocess
import sys
import time

COVE = os.environ.get("COVE", "cove")
USER = "tester"
ENFORCED = ("memoryBytes", "swapBytes", "cpuMillis", "pids")
TREE = "/sys/fs/cgroup/user.slice"
DELEGATED = ["systemd-run", "--user", "--scope", "-q", "-p", "Delegate=yes"]


class Wrong(Exception):
    pass


def must(condition, *what):
    if not condition:
        raise Wrong(" ".join(str(w) for w in what))


def run(command, env=None, timeout=120):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False,
                          env={**os.environ, **(env or {})})


def receipt(command, **options):
    """The receipt of a run with the given command."""
    done = run([*command, COVE, "run", "--json", "--", "true"], **options)
    must(done.returncode == 0, done.returncode, done.stdout[-500:], done.stderr[-500:])
    return json.loads(done.stdout)["receipt"]


def states(found):
    return {name: found["limits"][name]["state"] for name in ENFORCED}


def enforced(found):
    must(found["walls"]["rootless"] and found["cgroup"] == "v2", found["walls"], found["cgroup"])
    must(set(states(found).values()) == {"enforced"}, states(found))
    return f"{', '.join(ENFORCED)} are enforced"


def jailers(parent):
    """{pid: its cgroup} of the jailers below a process"""
    found = {}
    for path in glob.glob("/proc/[0-9]*/comm"):
        pid = int(path.split("/")[2])
        try:
            with open(path, encoding="utf-8") as comm, open(f"/proc/{pid}/cgroup", encoding="utf-8") as cgroup, \
                    open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                if comm.read().strip() == "cove-jailer" and int(stat.read().rsplit(")", 1)[1].split()[1]) == parent:
                    found[pid] = cgroup.read().strip().split("::", 1)[1]
        except OSError:
            pass
    return found


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def leftovers():
    """cgroups that cove created for this user, or below them"""
    return [d for d, _, _ in os.walk(TREE) if "/cove-" in d or "/sb" in d]


def sleeping(command):
    """Starts a sandbox that lives for a while; (the process of cove, {jailer: its cgroup}), after
    it has left the session."""
    process = subprocess.Popen([*command, COVE, "run", "-q", "--", "sleep", "60"], stdin=subprocess.DEVNULL)
    must(until(lambda: any(c.endswith("/host") for c in jailers(process.pid).values())), "no jailer in a leaf:", jailers(process.pid))
    return process, jailers(process.pid)


def end(process):
    process.send_signal(signal.SIGTERM)
    process.wait(30)


# --- the plain user ---

def user_a_login_session_gets_a_scope():
    with open("/proc/self/cgroup", encoding="utf-8") as f:
        own = f.read().strip()
    must("/session-" in own, "this is not a login session:", own)
    return enforced(receipt([]))


def user_the_scope_is_in_the_users_own_tree_and_ends_with_the_sandbox():
    process, found = sleeping([])
    cgroup = next(iter(found.values()))
    try:
        must(f"user@{os.getuid()}.service/" in cgroup and "/cove-" in cgroup, cgroup)
    finally:
        end(process)
    must(until(lambda: not leftovers()), leftovers())
    return cgroup


def user_nothing_is_left_when_the_jailer_is_killed():
    process, found = sleeping([])
    os.kill(next(iter(found)), signal.SIGKILL)
    must(process.wait(30) != 0, "cove did not notice")
    must(until(lambda: not leftovers()), leftovers())
    return "the scope ended with its last process"


def user_a_delegated_scope_is_used_if_systemd_marks_it_and_otherwise_requested():
    marked = run([*DELEGATED, "python3", "-c", "import os; p = open('/proc/self/cgroup').read().strip().split('::')[1]; "
                  "print('user.delegate' in os.listxattr('/sys/fs/cgroup' + p))"]).stdout.strip() == "True"
    process, found = sleeping(DELEGATED)
    cgroup = next(iter(found.values()))
    try:
        must(("/run-" if marked else "/cove-") in cgroup, marked, cgroup)
    finally:
        end(process)
    enforced(receipt(DELEGATED))
    must(until(lambda: not leftovers()), leftovers())
    return cgroup


def user_a_scope_with_other_processes_is_not_rearranged():
    script = f"{COVE} run --json -- true; cat /proc/self/cgroup >&2"
    done = run([*DELEGATED, "sh", "-c", script])
    must(done.returncode == 0 and not done.stderr.strip().endswith("/host"), done.stderr)
    return enforced(json.loads(done.stdout)["receipt"])


def user_a_cgroup_below_a_delegated_one_is_shared():
    script = (f"c=/sys/fs/cgroup$(sed 's/^0:://' /proc/self/cgroup); mkdir $c/main && echo $$ >$c/main/cgroup.procs && "
              f"echo '+memory +pids +cpu' >$c/cgroup.subtree_control && exec {COVE} run --json -- cat /proc/self/cgroup")
    done = run([*DELEGATED, "sh", "-c", script])
    must(done.returncode == 0, done.stdout[-400:], done.stderr[-400:])
    return enforced(json.loads(done.stdout)["receipt"])


def user_the_runtime_directory_is_found_without_the_variable():
    return enforced(receipt(["env", "-u", "XDG_RUNTIME_DIR", "-u", "DBUS_SESSION_BUS_ADDRESS"]))


def user_without_a_manager_limits_are_partial_and_the_fix_is_printed():
    done = run(["env", "XDG_RUNTIME_DIR=/nonexistent", COVE, "run", "--state-dir", f"/tmp/state-{os.getpid()}", "--", "true"])
    must(done.returncode == 0, done.stderr)
    must(len(done.stderr.splitlines()) == 1 and "systemd user session" in done.stderr, done.stderr)
    return done.stderr.strip()


def user_a_kept_sandbox_is_frozen_entered_and_removed():
    done = run([COVE, "run", "--keep", "--json", "--", "sh", "-c", "echo kept >note; (while :; do echo x; sleep 0.1; done) >ticks 2>&1 & sleep 1"])
    must(done.returncode == 0, done.stdout[-400:], done.stderr[-400:])
    kept = json.loads(done.stdout)["sandboxId"]
    try:
        must(kept in run([COVE, "ls", "--local"]).stdout, "it is not listed")
        frozen = [d for d in leftovers() if d.endswith(kept)]
        must(len(frozen) == 1, leftovers())
        with open(frozen[0] + "/cgroup.events", encoding="utf-8") as f:
            must("frozen 1" in f.read(), "its processes are not frozen")
        inside = run([COVE, "shell", kept, "--", "sh", "-c", "cat note; wc -l <ticks"])
        must(inside.returncode == 0 and inside.stdout.split()[0] == "kept" and int(inside.stdout.split()[1]) > 0, inside)
    finally:
        gone = run([COVE, "rm", kept])
    must(gone.returncode == 0 and gone.stdout == kept + "\n", gone)
    must(until(lambda: not leftovers()), leftovers())
    return "frozen, used, removed"


def user_options_that_need_a_cgroup_are_refused_before_anything_runs():
    done = run(["env", "XDG_RUNTIME_DIR=/nonexistent", COVE, "run", "--keep", "--state-dir", f"/tmp/state-{os.getpid()}", "--", "echo", "ran"])
    must(done.returncode == 125 and done.stdout == "" and "no_cgroup" in done.stderr, done)
    return "--keep without a cgroup"


def user_memory_ends_the_whole_sandbox():
    # Ten processes that together, but none of them alone, take more memory than allowed.
    script = "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 20M /dev/zero | tail | sleep 20 & done; wait"
    done = run([COVE, "run", "-q", "--memory", "96M", "--tmp", "8M", "--disk", "8M", "--timeout", "100s", "--", "sh", "-c", script])
    must(done.returncode == 123, done.returncode, done.stderr)
    return "ended by memory"


def user_the_doctor_finds_every_limit_held():
    done = run([COVE, "doctor", "--json"], timeout=300)
    found = json.loads(done.stdout)
    weak = [row["name"] for row in found["walls"] + found["limits"] if row["state"] != "held"]
    must(done.returncode == 3 and weak == ["unique_uid", "no_groups"], done.returncode, weak)
    return "all but unique_uid and no_groups held"


# --- root ---

def root_a_service_of_a_plain_user_uses_its_delegated_cgroup():
    return enforced(receipt(["systemd-run", "--wait", "--pipe", "-q", "-p", f"User={USER}", "-p", "Delegate=yes", "-E",
                             "XDG_RUNTIME_DIR=/nonexistent", "-E", "COVE_STATE_DIR=/tmp/state-of-a-service"]))


def root_a_service_without_a_delegated_cgroup_reports_that():
    found = receipt(["systemd-run", "--wait", "--pipe", "-q", "-p", f"User={USER}", "-E", "XDG_RUNTIME_DIR=/nonexistent", "-E",
                     "COVE_STATE_DIR=/tmp/state-of-a-service"])
    must(found["cgroup"] == "none" and states(found)["memoryBytes"] == "partial", found["cgroup"], states(found))
    return str(states(found))


def root_limits_of_root_are_all_enforced():
    found = receipt([])
    must(found["cgroup"] == "v2" and set(states(found).values()) == {"enforced"}, found["cgroup"], states(found))
    return "on a pure v2 hierarchy"


def root_the_doctor_finds_standard_complete():
    done = run([COVE, "doctor"], timeout=300)
    must(done.returncode == 0, [line for line in done.stdout.splitlines() if not line.startswith("held")])
    return done.stdout.splitlines()[-1]


def main():
    who = "root_" if os.geteuid() == 0 else "user_"
    tests = [(name, fn) for name, fn in globals().items() if name.startswith(who)]
    failed = 0
    for n, (name, fn) in enumerate(tests, 1):
        try:
            print(f"ok {n} - {name[len(who):]}: {fn()}".replace("#", ""), flush=True)
        except (Wrong, OSError, ValueError, KeyError, StopIteration, subprocess.SubprocessError) as why:
            failed += 1
            print(f"not ok {n} - {name[len(who):]}\n# {type(why).__name__}: {' '.join(str(why).split())}", flush=True)
    print(f"1..{len(tests)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
