#!/usr/bin/env python3
"""run.py [--shard I/N] [WALL...] - omits one wall after another and demands that a check notices.
Prints TAP.

    tests/mutation/run.py                  all walls; builds first
    tests/mutation/run.py --build          builds and does nothing else
    tests/mutation/run.py --shard 2/3      every third wall from the second on, after --build
    tests/mutation/run.py pids landlock    a part

A missing wall is noticed when a case of tests/escape fails without it, when cove itself refuses to
start, or when a check of the wall from inside, which must succeed with all walls up, fails. `cove
doctor` has to notice too. Each check is first made with all walls up: a check that always fails
proves nothing. Walls that are covered by another wall and cannot be seen from inside are listed
with the reason.

Needs a build with -Dmutate=true, which it makes in build-mutate.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from choice import Choice  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build-mutate")
COVE = os.path.join(BUILD, "src/main/cove")
COVE_BORN = os.path.join(BUILD, "tests/escape/cove-born")
INSTALLED = os.path.join(ROOT, "build/src/main/cove")

PROHIBITED = """import socket, sys
s = socket.socket()
s.settimeout(3)
try:
    s.connect(("192.0.2.1", 80))
except PermissionError:
    sys.exit(0)
except OSError:
    pass
sys.exit(1)
"""
MOUNT_RO = "awk -v at={} '$5 == at && $6 ~ /(^|,)ro(,|$)/ {{ found = 1 }} END {{ exit !found }}' /proc/self/mountinfo"


def shell(text):
    return ["sh", "-c", text]


def throttled(wall):
    """A twentieth of a CPU for a second and a half. A case with half a CPU would notice only on a
    quiet host."""
    done = run([COVE, "run", "--json", "--cpus", "0.05", "--timeout", "1500ms", "--", "sh", "-c", "while :; do :; done"], wall,
               timeout=60)
    used = json.loads(done.stdout)["receipt"]["used"]["cpuMs"]
    return used < 250, f"{used} ms of CPU time"


def slowed(wall):
    """Half a second of disk I/O, bypassing the cache. None where this host cannot throttle
    disks."""
    with tempfile.TemporaryDirectory(prefix="cove-mutate-", dir="/var/tmp") as work:
        script = "dd if=/dev/zero of=data bs=64k count=8 oflag=direct 2>/dev/null && dd if=data of=/dev/null bs=64k iflag=direct 2>/dev/null"
        done = run([COVE, "run", "--json", "--io-read", "1M", "--io-write", "1M", "--workspace", work, "--", "sh", "-c", script], wall, timeout=60)
        found = json.loads(done.stdout)["receipt"]
    if done.returncode or found["limits"]["ioReadBytesPerSecond"]["state"] != "enforced":
        return None, found["limits"]["ioReadBytesPerSecond"].get("why", "this directory is not on a disk that supports direct I/O")
    return found["used"]["wallMs"] > 600, f"{found['used']['wallMs']} ms for 512 KiB in and out at 1 MiB a second"


def carries(wall):
    """The doctor's sandbox with a network; None where the kernel has no TPROXY."""
    done = run([COVE, "doctor", "--json"], wall, timeout=60)
    network = json.loads(done.stdout)["network"]
    return None if network["carrier"] != "tproxy" else network["held"], network["says"]


def refuses_a_shared_namespace(wall):
    """A Bubblewrap that makes no IPC namespace."""
    with tempfile.TemporaryDirectory(prefix="cove-mutate-") as place:
        real, partial = os.path.join(place, "real"), os.path.join(place, "partial")
        shutil.copy("/usr/bin/bwrap", real)
        with open(partial, "w", encoding="utf-8") as f:
            f.write('#!/bin/sh\nfor word; do shift; [ "$word" = --unshare-ipc ] || set -- "$@" "$word"; done\nexec /usr/bin/chfn "$@"\n')
        os.chmod(partial, 0o755)
        script = 'mount --bind "$0" /usr/bin/chfn && mount --bind "$1" /usr/bin/bwrap && shift && exec "$@"'
        done = run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, real, partial, COVE, "run", "--driver", "bwrap",
                    "--", "true"], wall, timeout=60)
    return "wall_missing" in done.stdout, done.stdout.strip()[:150] or f"status {done.returncode}"


# wall: cases of tests/escape that must fail without it, or a command that succeeds inside only
# while the wall is up
WALLS = {
    "cgroup": ["RS01"],
    "memory": ["RS07"],
    "pids": ["RS01"],
    "cpu": throttled,
    "io": slowed,
    "disk": ["RS03"],
    "rlimits": ["CP16"],
    "cgroup-namespace": ["PR18"],
    "network": ["NT03"],
    "ipc": ["LK06"],
    "uts": ["SC23"],
    "unique-uid": ["CP18"],
    "routes": ("python3", "-c", PROHIBITED),
    "transparent": carries,
    "groups": ["CP09"],
    "proc": ["PR08"],
    "masks": ["PR17"],
    "hidepid": shell("test ! -e /proc/1"),
    "proc-sys": shell(MOUNT_RO.format("/proc/sys")),
    "root": ["FS01"],
    "system": shell(MOUNT_RO.format("/usr")),
    "nosuid": ["FS14"],
    "securebits": ["CP01"],
    "bounding": ["CP03"],
    "no-new-privs": ["CP05"],
    "seccomp": ["CP06"],
    "openat2": ["CP11"],
    "landlock": shell("! cat /.cove/runtime >/dev/null 2>&1"),
    "dumpable": shell("kill -0 1; test ! -r /proc/1/environ && test ! -e /proc/1/fd"),
}
# Walls that a fork of a zygote raises for itself: omitted in the fork only, and checked by the
# program that it becomes. Before that, the zygote has changed its own signals and mask.
# Supplementary groups and no_new_privs are set by the zygote already.
SECUREBITS = "import ctypes, sys; sys.exit(ctypes.CDLL(None).prctl(27, 0, 0, 0, 0) != 0xef)"
BORN = {
    **{wall: WALLS[wall] for wall in ("cgroup", "rlimits", "bounding", "openat2", "landlock")},
    "seccomp": ["SC27"],
    "securebits": ("python3", "-c", SECUREBITS),
    "inherited-signals": ("grep", "-Eq", "^SigBlk:.0+$", "/proc/self/status"),
    "inherited-umask": shell("test $(umask) = 0022"),
}
# Walls that another part raises under the driver bwrap: the child that becomes Bubblewrap,
# Bubblewrap's command line, or cove-runtime; and those that PID 1 sees in another way there.
BWRAP = {wall: WALLS[wall] for wall in ("cgroup", "rlimits", "disk", "cgroup-namespace", "network", "ipc", "uts", "groups", "masks",
                                        "hidepid", "proc-sys", "securebits", "seccomp", "bounding", "proc", "landlock", "dumpable",
                                        "unique-uid")}
BWRAP["uts"] = shell('test "$(uname -n)" = cove')
BWRAP["boot-namespaces"] = refuses_a_shared_namespace
BWRAP_BEHIND = {
    "no-new-privs": "Bubblewrap sets it too",
}
# `cove doctor` has to notice as well, except for walls that are covered by another wall.
BLIND = ("keyring", "openat2")
BEHIND = {
    "keyring": "keyctl, add_key and request_key are refused by the filter and /proc/keys is masked",
}


def run(command, wall, mode="", **options):
    env = {**os.environ, "COVE": COVE, "COVE_MUTATE": wall, "COVE_PROBE": os.path.join(BUILD, "tests/escape/escape-probe")}
    if mode == "bwrap":
        env.update(COVE_DRIVER="bwrap")
    if mode == "born":
        env.update(COVE=COVE_BORN, COVE_LIBEXEC=os.path.dirname(COVE), COVE_MUTATE="none", COVE_MUTATE_BORN=wall, COVE_BORN="1")
    # The caller has some groups: without any, the missing wall would not show.
    return subprocess.run(["setpriv", "--groups", "4,5", *command], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **options)


def holds(wall, what, mode=""):
    """(whether the check succeeds, its evidence); mode born: in a program that is a fork of a
    zygote, where only the fork lacks the wall; mode bwrap: in a sandbox of that driver"""
    if callable(what):
        return what(wall)
    if isinstance(what, list) and what[0] != "sh":
        done = run([sys.executable, os.path.join(ROOT, "tests/escape/run.py"), *what], wall, mode, timeout=300)
        failed = [line for line in done.stdout.splitlines() if line.startswith("not ok")]
        return done.returncode == 0, failed[0][:150] if failed else done.stdout[-150:]
    cove = [COVE_BORN if mode == "born" else COVE, "run"] + (["--driver", "bwrap"] if mode == "bwrap" else [])
    done = run([*cove, "--", *what], wall, mode, timeout=60)
    return done.returncode == 0, done.stdout.strip()[:150] or f"status {done.returncode}"


def doctor(wall, mode=""):
    """The result of cove doctor: complete, or the verdict with the missing walls. None when it
    could not decide."""
    done = run([COVE, "doctor", *(["--driver", "bwrap"] if mode == "bwrap" else [])], wall, mode, timeout=60)
    if wall == "io" and "not tested" in done.stdout:
        return None, next(line for line in done.stdout.splitlines() if "not tested" in line)
    lines = done.stdout.splitlines() or [f"status {done.returncode}"]
    return done.returncode == 0, lines[-1 if lines[-1].startswith("standard") else 0][:150]


def patiently(look, wall, *args):
    """Repeats a check that fails only because the disk is busy: a busy disk looks like a throttled
    one."""
    for _ in range(3 if wall == "io" else 1):
        found = look(wall, *args)
        if found[0] is False:
            break
    return found


def build():
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        subprocess.run(["meson", "setup", BUILD, ROOT, "-Dmutate=true"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", BUILD, *(f"src/main/{name}" for name in ("cove", "cove-runtime", "cove-probe", "cove-egress")),
                    *(f"tests/escape/{name}" for name in ("escape-probe", "cove-born", "kernels.stamp"))], check=True, stdout=subprocess.DEVNULL)


def main():
    if sys.argv[1:] == ["--build"]:
        build()
        return 0
    choice = Choice(sys.argv[1:])
    if choice.count == 1:
        build()
    elif not os.path.exists(COVE_BORN):
        raise SystemExit("build-mutate is not built; run tests/mutation/run.py --build first")
    modes = (("born", BORN, "in a fork of a zygote"), ("bwrap", BWRAP, "under the driver bwrap"))
    walls = list(WALLS) + list(BEHIND) + [wall for wall in (*BORN, *BWRAP) if wall not in WALLS]
    exact = [wall for wall in walls if wall in choice.patterns]  # "cgroup" is the wall of that name, not every name that contains the word
    wanted = exact[choice.index - 1::choice.count] if exact else choice.of(walls)
    number = failed = 0
    lines = []
    if choice.first:
        with open(INSTALLED, "rb") as f:
            clean = b"COVE_MUTATE" not in f.read()
        lines.append((clean, "an ordinary build cannot leave out a wall", ""))
        complete, seen = doctor("none")
        lines.append((complete, "with all walls up, the doctor finds none missing", seen))
    for wall in wanted:
        for mode, checks, where in modes:
            if wall in checks:
                good, seen = holds("none", checks[wall], mode)
                bad, without = holds(wall, checks[wall], mode)
                lines.append((good, f"with all walls up, the check of {wall} {where}", seen))
                lines.append((not bad, f"without {wall} {where}, a check notices", without))
                if mode == "bwrap" and wall in WALLS and wall not in BLIND:
                    complete, seen = doctor(wall, mode)
                    lines.append((not complete, f"without {wall} {where}, the doctor notices", seen))
        if wall in BWRAP_BEHIND:
            good, seen = holds(wall, WALLS[wall], "bwrap")
            lines.append((None if good else False, f"without {wall} under the driver bwrap", BWRAP_BEHIND[wall] if good else seen))
        if wall in BEHIND:
            lines.append((None, f"without {wall}", f"not visible from inside: {BEHIND[wall]}"))
        elif wall in WALLS:
            good, seen = holds("none", WALLS[wall])
            if good is None:
                lines.append((None, f"without {wall}", seen))
            elif not good:
                lines.append((False, f"with all walls up, the check of {wall}", seen))
            else:
                bad, seen = patiently(holds, wall, WALLS[wall])
                lines.append((not bad, f"without {wall}, a check notices", seen))
        if wall not in BLIND and (wall in BEHIND or wall in WALLS) and (wall in BEHIND or good is not None):
            complete, seen = patiently(doctor, wall)
            lines.append((None if complete is None else not complete, f"without {wall}, the doctor notices", seen))
        for good, name, seen in lines:
            number += 1
            seen = " ".join(seen.split()).replace("#", "")
            skip = f" # SKIP {seen}" if good is None else ""
            print(f"{'not ok' if good is False else 'ok'} {number} - {name}{skip or ': ' + seen}", flush=True)
            failed += good is False
        lines = []
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
