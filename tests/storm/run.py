#!/usr/bin/env python3
"""run.py [--seconds N] [--seed S] [--rounds R] - random system calls from inside sandboxes, while
the state of the host is compared. Prints TAP.

    tests/storm/run.py                       ten seconds from a new seed, which is printed
    tests/storm/run.py --seconds 600         a long one (make soak)
    tests/storm/run.py --seed 7 --rounds 1   the round of seed 7 again
    tests/storm/run.py --as-user             as a plain user; root prepares everything first

Inside, storm.c makes calls of all numbers with arguments that are random or plausible. Outside,
host.c drives it: one jailer and one monitor for all rounds, a neighbour that must not notice, and
for each seed a fresh sandbox that must still start a program afterwards and then be removed. This
file has the canary: state of the host that no sandbox may change is read before and after, and has
to be the same.
"""
import argparse
import ctypes
import hashlib
import os
import re
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/escape"))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import apart  # noqa: E402
import host as escape  # noqa: E402  what the escape suite counts on a host is the same here

BUILD = os.path.join(ROOT, "build")
COVE = escape.COVE
RUNTIME = os.path.join(os.path.dirname(COVE), "cove-runtime")
PLAIN_USER = 65534
MS = 1500 * escape.SLOW  # of storm in each round
BLOWS = 200  # the least number of calls in a round with a report; a busy host makes far fewer than the usual 50,000
SHARED = bool(os.environ.get("COVE_SHARED_HOST"))
# These values change by themselves; values that change while nothing happens are excluded too.
RESTLESS = re.compile(r"/proc/sys/(fs/(dentry-state|file-nr|inode|aio-nr|quota|binfmt_misc)|kernel/(random|ns_last_pid|pty|perf_|sched_|"
                      r"rmmod|spl)|net/netfilter/nf_conntrack_count|net/ipv4/(tcp_fastopen_key|route/flush)|debug|sunrpc|dev/cdrom)")
SICK = re.compile(r"\b(BUG: |Oops|kernel BUG|KASAN|KCSAN|UBSAN|WARNING: CPU|refcount_t: |list_(add|del) corruption|"
                  r"Kernel panic|blocked for more than|Unable to handle kernel)")


def slurp(path):
    try:
        with open(path, "rb") as f:
            return f.read(1 << 16)
    except OSError as error:
        return f"errno {error.errno}".encode()


def sysctls():
    found = {}
    for folder, _, names in os.walk("/proc/sys"):
        for name in names:
            path = os.path.join(folder, name)
            if not RESTLESS.match(path):
                found[path] = slurp(path)
    return found


def tree(top):
    """Every file below, with all attributes that a sandbox might change."""
    found = {}
    for folder, dirs, names in os.walk(top):
        for path in [folder] + [os.path.join(folder, n) for n in dirs + names]:
            st = os.lstat(path)
            found[path] = (st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_size, st.st_mtime_ns, st.st_ctime_ns,
                           hashlib.sha256(slurp(path)).hexdigest() if os.path.isfile(path) else
                           os.readlink(path) if os.path.islink(path) else "")
    return found


def cgroup_settings():
    """Limits of the cgroups that are not ours. Cgroups of parallel runs come and go, so only the
    ones that stay are compared."""
    found = {}
    for folder, dirs, names in os.walk("/sys/fs/cgroup"):
        dirs[:] = [d for d in dirs if not d.startswith("cove")]  # ours, and those of other suites
        for name in names:
            if re.search(r"(\.max|\.high|limit_in_bytes|cfs_quota_us|cpus|mems|freezer\.state|\.shares|\.weight)$", name):
                path = os.path.join(folder, name)
                found[path] = slurp(path)
        if len(found) > 3000:
            break
    return found


def person(pid):
    """The attributes of a process that show whether it was signalled, moved, slowed or limited."""
    status = slurp(f"/proc/{pid}/status").decode(errors="replace")
    kept = [line for line in status.splitlines()
            if re.match(r"(State|Uid|Gid|Groups|Sig[^Q]|Shd|Cap|NoNew|Seccomp|Cpus_allowed|Mems_allowed|TracerPid)", line)]
    names = sorted(os.listdir(f"/proc/{pid}/ns"))
    return (kept, slurp(f"/proc/{pid}/limits"), slurp(f"/proc/{pid}/oom_score_adj"), slurp(f"/proc/{pid}/cgroup"),
            os.getpriority(os.PRIO_PROCESS, pid), sorted(os.sched_getaffinity(pid)),
            [os.readlink(f"/proc/{pid}/ns/{n}") for n in names])


def ipv6_routes():
    """Without the two columns that count the users of a route."""
    return sorted(line.split()[:6] + line.split()[8:] for line in slurp("/proc/net/ipv6_route").splitlines())


def network():
    links = sorted(os.listdir("/sys/class/net"))
    return (links, [slurp(f"/sys/class/net/{n}/{f}") for n in links for f in ("flags", "mtu", "address")],
            slurp("/proc/net/route"), ipv6_routes())


def kernel_log():
    """A descriptor of the kernel log; -1 if it cannot be opened. A plain user may get it from the
    process that started this."""
    try:
        return int(os.environ["COVE_KERNEL_LOG"]) if "COVE_KERNEL_LOG" in os.environ else os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return -1


class Canary:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="cove-storm-", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.kit = os.path.join(self.dir, "kit")
        self.state = os.path.join(self.dir, "state")
        self.files = os.path.join(self.dir, "files")
        for folder, mode in ((self.kit, 0o755), (self.state, 0o700), (self.files, 0o777)):
            os.mkdir(folder)
            os.chmod(folder, mode)
        shutil.copy(os.path.join(BUILD, "tests/storm/storm"), self.kit)
        for name in ("open", "closed"):
            path = os.path.join(self.files, name)
            with open(path, "w", encoding="ascii") as f:
                f.write(secrets.token_hex(64))
            os.chmod(path, 0o666 if name == "open" else 0o600)
        os.symlink("closed", os.path.join(self.files, "link"))
        self.sleeper = subprocess.Popen(["sleep", "86400"], stdin=subprocess.DEVNULL)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.log = kernel_log()
        if self.log >= 0:
            os.lseek(self.log, 0, os.SEEK_END)
        first = sysctls()
        time.sleep(0.3)
        second = sysctls()
        self.restless = {k for k in first if first[k] != second.get(k)}
        self.before = self.look()

    def look(self):
        return {
            "files of the host": tree(self.files), "files lent to the sandbox": tree(self.kit),
            "a process of the host": {"it": person(self.sleeper.pid)},
            "ourselves": {"it": person(os.getpid())},
            "names of the host": {"it": (os.uname()[:2], slurp("/proc/sys/kernel/domainname"))},
            "sysctls": {k: v for k, v in sysctls().items() if k not in self.restless},
            "the network": {"it": network()},
            "mounts": {m: True for m in escape.mounts()},
            "cgroups": cgroup_settings(),
            "System V objects": {n: slurp(f"/proc/sysvipc/{n}") for n in ("msg", "sem", "shm")} if not SHARED else {},
            "modules and swap": {"it": (sorted(line.split()[0] for line in slurp("/proc/modules").splitlines()),
                                        slurp("/proc/swaps") if not SHARED else b"")},
            "the clock": {"it": round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))},
        }

    def differences(self):
        after, found = self.look(), []
        for what, was in self.before.items():
            now = after[what]
            may_go = what in ("cgroups",) or (SHARED and what == "mounts")
            for key in sorted(set(was) | set(now)):
                if was.get(key) == now.get(key) or (may_go and (key not in was or key not in now)):
                    continue
                if what == "the clock" and abs(was[key] - now[key]) <= 1:
                    continue
                found.append(f"{what}: {key if key != 'it' else ''} was {str(was.get(key))[:160]} and is {str(now.get(key))[:160]}")
        return found

    def sickness(self):
        """Complaints of the kernel since the start."""
        lines = []
        while self.log >= 0:
            try:
                line = os.read(self.log, 8192).decode(errors="replace")
            except BlockingIOError:
                break
            except OSError:
                continue
            text = line.partition(";")[2].splitlines()
            if text and SICK.search(text[0]) and "user mode" not in text[0]:
                lines.append(text[0])
        return lines

    def visited(self):
        try:
            self.listener.accept()
            return True
        except BlockingIOError:
            return False

    def close(self):
        self.sleeper.kill()
        self.sleeper.wait()
        self.listener.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def self_test():
    """Proves that the canary can fail: a small change of each kind that can be undone must be
    detected."""
    tap, canary = Tap(), Canary()
    name = os.path.join(canary.files, "open")
    harms = (
        ("a file rewritten", "files of the host", lambda: open(name, "a", encoding="ascii").write("x")),
        ("a mode changed", "files lent to the sandbox", lambda: os.chmod(os.path.join(canary.kit, "storm"), 0o700)),
        ("a process slowed down", "a process of the host", lambda: os.setpriority(os.PRIO_PROCESS, canary.sleeper.pid, 5)),
        ("a signal sent", "a process of the host", lambda: canary.sleeper.send_signal(19)),
        ("a limit set", "ourselves", lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))),
        ("an object of System V left", "System V objects", lambda: ctypes.CDLL(None).msgget(canary.sleeper.pid, 0o1600)),
    )
    try:
        tap.line(not canary.differences(), "an untouched host shows no difference", canary.differences())
        for what, where, harm in harms:
            if where == "System V objects" and SHARED:
                continue
            canary.before = canary.look()
            harm()
            time.sleep(0.05)
            found = canary.differences()
            told = any(line.startswith(where) for line in found)
            tap.line(told, f"the canary detects {what}", [] if told else found)
    finally:
        queue = ctypes.CDLL(None).msgget(canary.sleeper.pid, 0)
        if queue >= 0:
            ctypes.CDLL(None).msgctl(queue, 0, None)
        canary.close()
    print(f"1..{tap.number}")
    return 1 if tap.failed else 0


class Tap:
    def __init__(self):
        self.number, self.failed = 0, 0

    def line(self, good, name, detail=()):
        self.number += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.number} - {name}")
        for text in detail:
            print(f"# {text}")
        sys.stdout.flush()


def as_user(words):
    """Runs this again as an unprivileged user, from copies: the tree may be in a directory that
    other users cannot enter."""
    log = kernel_log()
    with tempfile.TemporaryDirectory(prefix="cove-user-", dir="/var/tmp") as here:
        os.chmod(here, 0o755)
        for path in ("tests/storm/run.py", "tests/escape/host.py", "tests/support/apart.py", "build/tests/storm/storm", "build/tests/storm/storm-host"):
            os.makedirs(os.path.join(here, os.path.dirname(path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(here, path))
        os.mkdir(here + "/bin")
        for path in (COVE, RUNTIME):
            shutil.copy(path, here + "/bin")
        os.mkdir(here + "/home", 0o700)
        os.chown(here + "/home", PLAIN_USER, PLAIN_USER)
        env = {name: value for name, value in os.environ.items() if name.startswith(("COVE_", "LC_", "LANG"))}
        env.update(PATH=here + "/bin:/usr/local/bin:/usr/bin:/bin", HOME=here + "/home", COVE=here + "/bin/cove",
                   COVE_STATE_DIR=here + "/home/state", PYTHONDONTWRITEBYTECODE="1", COVE_KERNEL_LOG=str(log))
        return subprocess.call(["/usr/bin/python3", here + "/tests/storm/run.py", *words], env=env, cwd="/", user=PLAIN_USER,
                               group=PLAIN_USER, extra_groups=[], pass_fds=(log,) if log >= 0 else ())


def one_run():
    return subprocess.run([COVE, "run", "-q", "--", "echo", "alive"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=60 * escape.SLOW)


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("STORM_SECONDS", "10")))
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--as-user", action="store_true")
    args = parser.parse_args()
    apart.mounts()
    if args.as_user and os.geteuid() == 0:
        return as_user([word for word in sys.argv[1:] if word != "--as-user"])
    if args.self_test:
        return self_test()
    undo = []
    escape.own_state(undo)
    first = one_run()
    if first.returncode == 125 and "no_namespaces" in first.stderr:
        print("1..0 # SKIP plain users cannot create user namespaces on this host")
        return 0
    rounds = args.rounds or max(1, int(args.seconds / (MS / 1000 + 0.2)))
    user = " --as-user" if os.geteuid() != 0 else ""
    print(f"# seed {args.seed}, {rounds} rounds; again: tests/storm/run.py{user} --seed {args.seed} --rounds {rounds}", flush=True)
    tap, traces, canary = Tap(), escape.Traces(), Canary()
    try:
        done = subprocess.run([os.path.join(BUILD, "tests/storm/storm-host"), canary.kit, str(args.seed), str(rounds), str(MS)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              check=False, timeout=(rounds * (MS / 1000 + 60) + 120) * escape.SLOW,
                              env=dict(os.environ, COVE_STATE_DIR=canary.state, COVE_RUNTIME=RUNTIME))
        said = done.stdout.splitlines()
        calls = sum(int(n) for n in re.findall(r"bursts, (\d+) calls", done.stdout))
        reports = done.stdout.count(" calls, ")
        tap.line(done.returncode == 0, f"{rounds} rounds, {calls} calls: the jailer served, the neighbour did not notice, "
                 "every sandbox started a program afterwards and was removed", [] if done.returncode == 0 else said[-20:])
        tap.line(calls > BLOWS * reports and reports * 2 >= rounds, "the storm made enough calls", said[-20:] if calls <= BLOWS * reports else [])
        different = canary.differences()
        tap.line(not different, "the host is unchanged:" + ", ".join(canary.before), different[:20])
        tap.line(not canary.visited(), "no connection reached a port of the host")
        sick = canary.sickness()
        tap.line(not sick, "the kernel logged no complaint" if canary.log >= 0 else
                 "the kernel logged no complaint # SKIP its log cannot be read here", sick[:20])
        try:
            escape.nobody_left(f"{canary.kit}/storm")
            traces.must_be_gone(5 * escape.SLOW)
            left = []
        except escape.Escaped as why:
            left = [str(why)]
        tap.line(not left, "nothing is left of it", left)
        after = one_run()
        tap.line(after.stdout == "alive\n", "the next sandbox starts", [after.stderr[-300:]] if after.returncode else [])
    finally:
        canary.close()
        for step in undo:
            step()
    print(f"1..{tap.number}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
