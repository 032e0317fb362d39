"""host.py - the host's side of the escape suite: planted objects, the start of the probe, and the
check for leftovers.

Every planted object is harmless and removed again: a file, a listener, an abstract socket, a shared
memory segment, a message queue, a process, and a secret in the environment of cove itself.
"""
import ctypes
import glob
import json
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
DRIVER = os.environ.get("COVE_DRIVER", "native")
RUN = [COVE, "run"] + (["--driver", DRIVER] if DRIVER != "native" else [])
PROBE = os.path.abspath(os.environ.get("COVE_PROBE", os.path.join(ROOT, "build/tests/escape/escape-probe")))
INSIDE = f"/mnt/probe-{secrets.token_hex(4)}"  # unique to this run: it distinguishes its processes from those of a parallel run
PARENT = os.environ.get("COVE_CGROUP_PARENT", "cove")  # directory below each cgroup root that holds the sandboxes of this run
MIB = 1 << 20
SLOW = max(1, int(os.environ.get("COVE_SLOW_HOST", "1")))  # factor by which this host is slower

# Limits small enough to be reached in a moment.
SMALL = ["--memory", "96M", "--disk", "16M", "--tmp", "8M", "--pids", "64"]


def rounds(n):
    """The number of repetitions: fewer on a slow host."""
    return max(2, n // SLOW)


class Escaped(Exception):
    """A case did not hold; the text says what happened."""


class Skip(Exception):
    """A case cannot be run here; the text says why."""


class Run:
    """One finished `cove run`."""

    def __init__(self, code, out, err, receipt, seconds, maxrss):
        self.code, self.out, self.err, self.receipt = code, out, err, receipt
        self.seconds, self.maxrss = seconds, maxrss
        self.ended = "END" in out.splitlines()
        self.outcomes = {}
        for line in out.splitlines():
            words = line.split(" ", 2)
            if len(words) >= 2 and words[1] in ("HELD", "ESCAPED", "SKIP", "BROKEN"):
                self.outcomes[words[0]] = (words[1], words[2] if len(words) > 2 else "")

    @property
    def ended_by(self):
        return self.receipt.get("endedBy")

    def __str__(self):
        return (f"status {self.code}, ended by {self.ended_by}, {self.seconds:.1f} s; "
                f"stdout {self.out[-300:]!r}, stderr {self.err[-500:]!r}")


class Host:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="cove-escape-", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.undo = []
        own_state(self.undo)
        self.secret = "planted" + secrets.token_hex(12)
        self.facts = {"secret": self.secret, "hostname": socket.gethostname()}
        self.plain_user = os.geteuid() != 0
        if self.plain_user:
            self.facts["plain_user"] = 1
        self.plant()
        self.limits = None

    # --- planting ---

    def plant(self):
        self.host_file = os.path.join(self.dir, "host-secret")
        with open(self.host_file, "w", encoding="utf-8") as f:
            f.write(self.secret)
        self.facts["host_file"] = self.host_file
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            try:
                listener = socket.socket(family)
                listener.bind((address, self.facts.get("tcp_port", 0)))
                listener.listen()
                self.facts.setdefault("tcp_port", listener.getsockname()[1])
                self.undo.append(listener.close)
            except OSError:
                pass
        self.facts["abstract"] = "cove-" + secrets.token_hex(6)
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind("\0" + self.facts["abstract"])
        abstract.listen()
        self.undo.append(abstract.close)
        process = subprocess.Popen(["sleep", "3600"])
        self.facts["pid"] = process.pid
        self.undo.append(lambda: (process.kill(), process.wait()))
        self.plant_ipc()
        try:
            with open("/etc/resolv.conf", encoding="utf-8") as f:
                self.facts["resolver"] = next(line.split()[1] for line in f if line.startswith("nameserver"))
        except (OSError, StopIteration, IndexError):
            pass

    def plant_ipc(self):
        libc = ctypes.CDLL(None, use_errno=True)
        key = secrets.randbelow(1 << 30) + 1
        segment = libc.shmget(key, 4096, 0o1000 | 0o666)
        if segment >= 0:
            libc.shmat.restype, libc.shmdt.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
            at = libc.shmat(segment, None, 0)
            ctypes.memmove(at, self.secret.encode(), len(self.secret))
            libc.shmdt(at)
            self.facts.update(shm_key=key, shm_id=segment)
            self.undo.append(lambda: libc.shmctl(segment, 0, None))
        name = "/cove-" + secrets.token_hex(6)
        try:
            queue = libc.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        except AttributeError:
            queue = -1
        if queue >= 0:
            self.facts["mqueue"] = name
            self.undo.append(lambda: libc.mq_unlink(name.encode()))

    def close(self):
        for step in reversed(self.undo):
            step()
        shutil.rmtree(self.dir, ignore_errors=True)

    # --- abilities of this host and this user ---

    def needs_limit(self, *names):
        """Skips a case that tests a limit which cove itself does not report as enforced here."""
        if self.limits is None:
            self.limits = self.cove("true").receipt.get("limits", {})
        for name in names:
            state = self.limits.get(name, {}).get("state", "not in the receipt")
            if state != "enforced":
                who = "a plain user has no control group here" if self.plain_user else "this host has no such controller"
                raise Skip(f"{name} is {state}: {who}")

    def needs_root(self, why):
        if self.plain_user:
            raise Skip(f"needs root: {why}")

    # --- running ---

    def kit(self, **facts):
        """A directory with the probe and its data, to be bound at INSIDE."""
        directory = tempfile.mkdtemp(prefix="kit-", dir=self.dir)
        os.chmod(directory, 0o755)
        shutil.copy(PROBE, os.path.join(directory, "escape-probe"))
        with open(os.path.join(directory, "readonly"), "w", encoding="utf-8") as f:
            f.write("this text must never change\n" * 200)
        everything = {**self.facts, "slow": SLOW, "readonly_file": f"{INSIDE}/readonly", **facts}
        with open(os.path.join(directory, "canary"), "w", encoding="utf-8") as f:
            f.writelines(f"{name}={value}\n" for name, value in everything.items())
        return directory

    def cove(self, *command, flags=(), stdin=None, timeout=120, env=None, cwd=None, pass_fds=()):
        """Runs `cove run FLAGS -- COMMAND`. Its output goes to a file of the host, the most
        dangerous kind of descriptor."""
        receipt = os.path.join(self.dir, "receipt-" + secrets.token_hex(4))
        if SLOW > 1 and "--timeout" not in flags:
            flags = [*flags, "--timeout", f"{30 * SLOW}s"]
        out, err = tempfile.TemporaryFile(dir=self.dir), tempfile.TemporaryFile(dir=self.dir)
        began = time.monotonic()
        process = subprocess.Popen(
            [*RUN, f"--receipt={receipt}", *flags, "--", *command], stdin=stdin or subprocess.DEVNULL, stdout=out,
            stderr=err, env={**os.environ, "COVE_PLANTED_TOKEN": self.secret, **(env or {})}, cwd=cwd, pass_fds=pass_fds)
        code, maxrss = wait_for(process, timeout * SLOW)
        seconds = time.monotonic() - began
        for f in (out, err):
            f.seek(0)
        try:
            with open(receipt, encoding="utf-8") as f:
                facts = json.load(f)
        except (OSError, ValueError):
            facts = {}
        return Run(code, out.read().decode(errors="replace"), err.read().decode(errors="replace"), facts, seconds, maxrss)

    def probe(self, *cases, flags=(), kit=None, timeout=120, **facts):
        """Runs cases of the probe in a sandbox, with a leaked directory and a working directory
        outside."""
        kit = kit or self.kit(**facts)
        leaked = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return self.cove(f"{INSIDE}/escape-probe", *cases, flags=[f"--bind-ro={kit}:{INSIDE}", *flags],
                             timeout=timeout, cwd=self.dir, pass_fds=(leaked,))
        finally:
            os.close(leaked)

    def expect(self, case, **options):
        """One case of the probe that must hold; returns its sentence."""
        done = self.probe(case, **options)
        verdict, why = done.outcomes.get(case, ("BROKEN", str(done)))
        if verdict != "HELD":
            raise Escaped(f"{verdict}: {why}")
        return why


def wait_for(process, timeout):
    """(status as a shell sees it, greatest resident size in bytes); a process that does not end is
    killed."""
    end = time.monotonic() + timeout
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            code = process.returncode
            return (code if code >= 0 else 128 - code), usage.ru_maxrss * 1024
        if time.monotonic() > end:
            process.kill()
            process.wait()
            raise Escaped(f"cove did not end within {timeout} s: {' '.join(process.args)}")
        time.sleep(0.005)


# --- leftovers ---

def processes(word):
    """Processes of the host whose command line contains the word."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                if word.encode() in f.read():
                    pid = int(path.split("/")[2])
                    if pid != os.getpid():
                        found.append(pid)
        except OSError:
            pass
    return found


def descendants(pid):
    """{pid: start time} of everything below a process; the start time detects a reused pid."""
    parents, starts = {}, {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        child = int(path.split("/")[2])
        parents.setdefault(int(fields[1]), []).append(child)
        starts[child] = fields[19]
    found, wait = {}, [pid]
    while wait:
        for child in parents.get(wait.pop(), []):
            found[child] = starts[child]
            wait.append(child)
    return found


def alive(people):
    """Those of {pid: start time} that still run; a zombie that was not reaped does not count."""
    left = []
    for pid, start in people.items():
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[19] == start and fields[0] not in "ZX":
            left.append(pid)
    return left


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""


def cgroups():
    """Every cgroup below our parent that belongs to a sandbox, in all hierarchies. If other
    runs use cove with the same parent at the same time (COVE_SHARED_HOST=1), cgroups that hold a
    process may belong to them, and are omitted."""
    found = {d for above in ("", "*/", "*/*/") for d in glob.glob(f"/sys/fs/cgroup/{above}{PARENT}/*/")}
    return {d for d in found if not populated(d)} if os.environ.get("COVE_SHARED_HOST") else found


def populated(cgroup):
    try:
        with open(os.path.join(cgroup, "cgroup.procs"), encoding="utf-8") as f:
            return bool(f.read().strip())
    except OSError:
        return False


def mounts():
    shared = os.environ.get("COVE_SHARED_HOST")
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return {line.split(" ", 1)[0] for line in f if "cove" in line or not shared}


def state_files():
    state = os.environ.get("COVE_STATE_DIR", "/run/cove")
    return {os.path.join(d, name) for d, dirs, files in os.walk(state) for name in dirs + files}


def own_state(undo):
    """A state directory that no other suite on this host uses, so that every file in it is ours."""
    if "COVE_STATE_DIR" in os.environ:
        return
    state = tempfile.mkdtemp(prefix="cove-state-", dir="/run" if os.geteuid() == 0 else "/var/tmp")
    os.mkdir(os.path.join(state, "kept"), 0o700)  # made by the first run, and never removed
    os.environ["COVE_STATE_DIR"] = state
    undo.append(lambda: (os.environ.pop("COVE_STATE_DIR", None), shutil.rmtree(state, ignore_errors=True)))


def until(condition, seconds):
    """Waits until the condition holds; whether it did."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Traces:
    """The cgroups, mounts and files of the host before a case, compared with those after it."""

    def __init__(self):
        self.cgroups, self.mounts, self.state = cgroups(), mounts(), state_files()

    def left(self):
        return {"cgroups": cgroups() - self.cgroups, "mounts": mounts() - self.mounts,
                "files": state_files() - self.state}

    def must_be_gone(self, seconds=3):
        if os.environ.get("COVE_SHARED_HOST"):
            seconds *= 5  # a sandbox of a parallel run may be seen at a moment when it has no process
        if not until(lambda: not any(self.left().values()), seconds):
            left = {kind: sorted(items)[:4] for kind, items in self.left().items() if items}
            raise Escaped(f"left behind on the host: {left}")


def nobody_left(word=INSIDE, seconds=2):
    if not until(lambda: not processes(word), seconds):
        raise Escaped(f"processes of the sandbox still run: {[(p, comm(p)) for p in processes(word)][:5]}")


def ignore_limits():
    """Raises the descriptor limit, which the suite itself needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
