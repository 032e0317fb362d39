"""lifecycle.py - sandboxes whose cove or jailer is killed, or whose set-up calls fail."""
import concurrent.futures
import os
import random
import re
import shutil
import signal
import subprocess
import time

import host as h
from host import INSIDE, RUN, Escaped, Skip, Traces, until

ROUNDS = int(os.environ.get("COVE_KILL_ROUNDS", "200"))


def kill_round(victim, nonce, delay):
    """Starts a sandbox, kills cove or its jailer after a while, and returns the processes that are
    left two seconds later."""
    process = subprocess.Popen([*RUN, "--timeout", "60s", "--", "sh", "-c", f"sleep 60.{nonce} & sleep 60.{nonce}"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(delay)
    people = h.descendants(process.pid)
    target = process.pid
    if victim == "jailer":
        jailers = [pid for pid in people if h.comm(pid) == "cove-jailer"]
        if not jailers:
            # Killed before the jailer was forked, which is a point of a run as well.
            process.kill()
            process.wait()
            return False
        target = jailers[0]
    try:
        os.kill(target, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if victim == "cove":
        process.wait()
    else:
        try:
            process.wait(5 * h.SLOW)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Escaped("cove did not notice that its jailer had died") from None
        if process.returncode == 0:
            raise Escaped("cove returned 0 after its jailer was killed")
    marker = f"60.{nonce}"
    if not until(lambda: not h.alive(people) and not h.processes(marker), 2 * h.SLOW):
        left = [(pid, h.comm(pid)) for pid in h.alive(people) + h.processes(marker)]
        raise Escaped(f"{2 * h.SLOW} seconds after SIGKILL of {victim} at {delay * 1000:.1f} ms: {left[:6]}")
    return True


def kill_rounds(victim):
    chance = random.Random(f"{victim} {os.getpid()}")
    nonce = f"{os.getpid()}{'1' if victim == 'cove' else '2'}"
    hit = 0
    for _ in range(ROUNDS):
        # Most of the interesting points are in the first milliseconds.
        hit += kill_round(victim, nonce, chance.choice((chance.uniform(0, 0.012 * h.SLOW), chance.uniform(0, 0.05 * h.SLOW))))
    return hit


def lc02(host):
    """SIGKILL at random points of a run."""
    traces = Traces()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        cove, jailer = pool.map(kill_rounds, ("cove", "jailer"))
    done = subprocess.run([*RUN, "--", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=60)
    if done.returncode != 0:
        raise Escaped(f"the next start failed: {done.stderr}")
    traces.must_be_gone(5)
    return (f"cove killed {cove} times, the jailer {jailer} times: no process {2 * h.SLOW} seconds later, "
            "no cgroup, mount or file after the next start")


# System calls of the set-up, and how many calls of each are made to fail.
SETUP = {
    "clone3": 3, "clone": 3, "unshare": 3, "setns": 3, "mount": 12, "umount2": 4, "pivot_root": 2, "open_tree": 12, "move_mount": 12,
    "fsopen": 6, "fsconfig": 12, "fsmount": 6, "mount_setattr": 12, "mkdirat": 12, "mkdir": 12, "symlinkat": 6, "symlink": 6, "chdir": 3,
    "fchdir": 3, "sethostname": 2, "setresuid": 3, "setresgid": 3, "setgroups": 2, "prctl": 12, "capset": 2, "seccomp": 3, "keyctl": 2,
    "landlock_create_ruleset": 3, "landlock_add_rule": 6, "landlock_restrict_self": 2, "prlimit64": 8, "setrlimit": 8, "close_range": 3,
    "socketpair": 3, "sendmsg": 4, "recvmsg": 4, "setsid": 2, "dup3": 4, "dup2": 4, "execveat": 2, "openat2": 8, "pipe2": 3,
    "ioctl": 4, "sendto": 4, "socket": 3, "bind": 2, "fchmodat": 2, "fchownat": 2, "epoll_create1": 2, "timerfd_create": 2,
    "signalfd4": 2, "memfd_create": 2, "pidfd_open": 2, "write": 10,
}
# The probe makes these calls itself and expects EPERM; an injected error would look like a hole.
PROBED = {"unshare", "mount", "fsopen", "setns", "setgroups", "clone3", "clone", "open_tree", "mount_setattr", "pivot_root",
          "socket", "ioctl", "mkdir", "keyctl", "seccomp", "move_mount", "umount2", "prlimit64", "setrlimit"}
# Cases that must hold whenever a process runs at all; each tests another wall.
WALLS = ["NS01", "NS04", "NS08", "NS10", "NS12", "NS17", "PR01", "PR04", "PR08", "PR11", "PR13", "SC01", "SC04", "CP01", "CP02",
         "CP03", "CP04", "CP05", "CP06", "CP07", "CP09", "FS01", "FS03", "FS04", "FS08", "FS14", "FS15", "LK01", "LK03", "LK10", "NT09",
         "NT12", "PR18", "CP14", "CP16"]


def fault(host, kit, call, n, error):
    """(whether the fault was injected, output of the probe, output of cove, status) of a run in
    which the n-th such call of every process fails. The status is None when the run had to be
    killed: a PID 1 of a namespace that aborts does not die while it is traced."""
    out, trace, err = (os.path.join(host.dir, f"lc03-{call}-{kind}") for kind in ("out", "trace", "err"))
    with open(out, "wb") as f, open(err, "wb") as e:
        tracer = subprocess.Popen(
            ["strace", "-f", "--seccomp-bpf", "-qq", "-o", trace, "-e", f"trace={call}", "-e", "signal=none", "-e",
             f"inject={call}:error={error}:when={n}", *RUN, "--timeout", "10s", f"--bind-ro={kit}:{INSIDE}", "--",
             f"{INSIDE}/escape-probe", *WALLS],
            stdin=subprocess.DEVNULL, stdout=f, stderr=e, cwd=host.dir)
    try:
        status = tracer.wait(4 * h.SLOW)
    except subprocess.TimeoutExpired:
        people = h.descendants(tracer.pid)
        tracer.kill()
        tracer.wait()
        status = None
        if not until(lambda: not h.alive(people), 12):
            raise Escaped(f"{call} number {n} failed with {error}, and the failure was not noticed") from None
    with open(trace, encoding="utf-8", errors="replace") as f:
        happened = "(INJECTED)" in f.read(1 << 20)
    with open(out, encoding="utf-8", errors="replace") as f, open(err, encoding="utf-8", errors="replace") as e:
        return happened, f.read(), e.read(), status


def faults(host, kit, call, end):
    """(faults that refused the start, faults after which every wall was up) of all faults of one
    system call"""
    refused = harmless = 0
    # An emulated machine takes seconds for each fault: there only the first call of every kind is
    # tried.
    most, errors = (1, ("EPERM",)) if h.SLOW > 1 else (max(SETUP.values()), ("ENOMEM", "EPERM"))
    for n, error in ((n, e) for n in range(1, min(SETUP[call], most) + 1) for e in (("EPERM",) if call in PROBED else errors)):
        happened, said, words, status = fault(host, kit, call, n, error)
        if not happened:
            break
        open_walls = [line for line in said.splitlines() if " ESCAPED " in line]
        if open_walls:
            raise Escaped(f"{call} number {n} failed with {error}, and code ran without a wall: {open_walls[:3]}")
        if " HELD " in said:
            harmless += 1
        elif status == 0:
            raise Escaped(f"{call} number {n} failed with {error}: nothing ran, but the status is 0")
        else:
            refused += 1
            # Only a process that could not write has an excuse for printing nothing.
            if status is not None and call != "write" and not re.search(r"^cove: .* \[[a-z_]+\]$", words, re.M):
                raise Escaped(f"{call} number {n} failed with {error}, and cove did not print what failed: {words[-80:]!r}")
        if time.monotonic() > end:
            raise Escaped(f"time ran out at {call}")
    return refused, harmless


def lc03(host):
    """Each system call of the set-up fails in turn: either the start is refused with a reason, or
    the sandbox starts with every wall."""
    if os.environ.get("COVE_INJECT_SECONDS") == "0":
        raise Skip("runs as root and in the virtual machine only, where there is time for it")
    if not shutil.which("strace"):
        raise Skip("strace is not installed")
    kit = host.kit()
    traces = Traces()
    end = time.monotonic() + float(os.environ.get("COVE_INJECT_SECONDS", "300"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = dict(zip(SETUP, pool.map(lambda call: faults(host, kit, call, end), SETUP)))
    refused, harmless = sum(r for r, _ in found.values()), {call: n for call, (_, n) in found.items() if n}
    if not until(lambda: not h.processes(INSIDE), 3):
        raise Escaped(f"processes are left: {h.processes(INSIDE)[:5]}")
    subprocess.run([*RUN, "--", "true"], stdin=subprocess.DEVNULL, check=False, timeout=60)
    traces.must_be_gone(5)
    return (f"{refused} faults refused the start, with a code and a reason; after {sum(harmless.values())} others every wall was up "
            f"({', '.join(f'{c} {n}' for c, n in harmless.items())})")
