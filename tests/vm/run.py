#!/usr/bin/env python3
"""run.py [WORD...] - boots Debian's own kernel with systemd and a pure cgroup v2 hierarchy, and
runs the contract and escape suites and the storm there, as root and as a plain user with a login
session, and the units of deploy/systemd. Prints TAP.

    tests/vm/run.py                       all jobs
    tests/vm/run.py escape                the jobs whose name contains a word: delegation,
                                          contract/..., storm and escape, each after root/ and
                                          user/, and root/units
    tests/vm/run.py units                 the units of deploy/systemd: start, use, kill and stop
    VM_ESCAPE="RS LC" tests/vm/run.py     only these cases of the escape suite
    VM_CPUS=1 tests/vm/run.py             processors of the guest; default: as the host, up to 4
    VM_SHELL='id; cove doctor' tests/vm/run.py   one command as the plain user instead, its output
                                          as it comes

The guest is a Debian made once with debootstrap and kept under build-vm/, with the kernel of
Debian's cloud package: that kernel has NVMe and ext4 built in, so there is no initramfs. Nothing is
installed on this machine. Each run gets a second disk with the tree as it is built now; changes of
both disks are discarded at the end (snapshot=on). KVM is used when a probe shows that it really
runs a guest, else QEMU's own translator, which is slower by a factor of about ten.
"""
import glob
import hashlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import debian  # noqa: E402  (the path is known only now)

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(ROOT, "build")
CACHE = os.path.join(ROOT, "build-vm")
KERNEL_META = "linux-image-cloud-amd64"
PACKAGES = ["systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "python3", "strace", "procps", "bubblewrap",
            "libcmocka0", "libyaml-0-2", "libmicrohttpd12", "libjansson4", "libsqlite3-0", "libcurl4", "libssl3", "libwslay1",
            "libpython3.11", "util-linux", "kmod", "iproute2"]
# Services of a minimal system that are not needed here; each costs time on a slow CPU.
MASKED = ["systemd-timesyncd.service", "systemd-networkd.service", "systemd-resolved.service", "apt-daily.timer", "e2scrub_all.timer",
          "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "systemd-random-seed.service", "getty@tty1.service",
          "systemd-update-utmp.service", "systemd-journal-flush.service", "systemd-pstore.service", "e2scrub_reap.service",
          "serial-getty@ttyS0.service", "systemd-udev-settle.service", "systemd-tmpfiles-clean.timer", "sys-kernel-debug.mount",
          "sys-kernel-tracing.mount", "dev-hugepages.mount", "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount",
          "systemd-machine-id-commit.service", "systemd-hwdb-update.service", "systemd-firstboot.service",
          "console-getty.service", "systemd-quotacheck.service"]
UNIT = """[Unit]
Description=the tests of cove
After=multi-user.target systemd-logind.service

[Service]
Type=exec
ExecStartPre=/bin/mount -t ext4 /dev/nvme1n1 /cove
ExecStart=/usr/bin/python3 /cove/tests/vm/guest.py
StandardOutput=journal+console
StandardError=journal+console
Delegate=yes

[Install]
WantedBy=multi-user.target
"""
FILES = (("/etc/fstab", ""), ("/etc/hostname", "cove-vm\n"), ("/etc/machine-id", "c0" * 16 + "\n"),
         ("/etc/modules", "overlay\n"), ("/etc/hosts", "127.0.0.1 localhost cove-vm\n::1 localhost\n"), ("/etc/resolv.conf", ""),
         ("/etc/systemd/journald.conf", "[Journal]\nAudit=no\n"))
# SYSTEMD_LOG_SECCOMP makes systemd's own filters report refused system calls, for units.py. The
# kernel reports them as audit records, so audit=0 is absent; journald keeps other records off.
COMMAND_LINE = ("root=/dev/nvme0n1 rw console=ttyS0 quiet loglevel=3 mitigations=off systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all "
                "systemd.show_status=0 SYSTEMD_LOG_SECCOMP=1 selinux=0 panic=-1 raid=noautodetect fsck.mode=skip")
NEAR_THE_KERNEL = ("runtime/", "isolate/", "jailer/", "engine/", "pool/", "monitor/")  # test groups for which another kernel matters
SLOW = "5"  # factor by which a test may wait longer than on the machine itself
BOOT_SECONDS = 240
QUIET_SECONDS = 900  # a guest that is silent for longer counts as dead


def say(text):
    print(f"# vm: {text}", flush=True)


# --- the guest's disks ---

def kernel_package():
    """The package that Debian's meta package depends on."""
    out = subprocess.check_output(["apt-cache", "depends", KERNEL_META], text=True)
    for line in out.splitlines():
        if line.strip().startswith("Depends: linux-image-"):
            return line.split()[1]
    raise debian.Missing(f"this machine's package sources have no {KERNEL_META}; apt-get update may help")


def fetch_kernel(package):
    """Downloads and unpacks; nothing is installed. (kernel image, directory of its modules)"""
    where = os.path.join(CACHE, package)
    if not os.path.exists(where):
        say(f"fetching {package}")
        with tempfile.TemporaryDirectory(dir=CACHE) as down:
            done = subprocess.run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package], cwd=down, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                raise debian.Missing(f"cannot download {package}: {done.stdout.strip()[-300:]}")
            subprocess.check_call(["dpkg-deb", "-x", glob.glob(down + "/*.deb")[0], down + "/tree"])
            os.rename(down + "/tree", where)
    return glob.glob(where + "/boot/vmlinuz-*")[0], glob.glob(where + "/lib/modules/*")[0]


def make_image(directory, image, room):
    size = int(subprocess.check_output(["du", "-sm", directory], text=True).split()[0]) + room
    subprocess.check_call(["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal,^metadata_csum", "-E", "root_owner=0:0",
                           "-d", directory, image + ".new", f"{size}M"], stdout=subprocess.DEVNULL)
    os.rename(image + ".new", image)


def furnish(tree, modules):
    """Turns a bare Debian into the guest."""
    release = os.path.basename(modules)
    shutil.copytree(modules, f"{tree}/lib/modules/{release}", symlinks=True)
    subprocess.check_call(["chroot", tree, "depmod", release])
    with open(tree + "/etc/systemd/system/cove-check.service", "w", encoding="utf-8") as f:
        f.write(UNIT)
    wants = tree + "/etc/systemd/system/multi-user.target.wants"
    os.makedirs(wants, exist_ok=True)
    os.symlink("/etc/systemd/system/cove-check.service", wants + "/cove-check.service")
    for unit in MASKED:
        target = f"{tree}/etc/systemd/system/{unit}"
        if os.path.lexists(target):
            os.unlink(target)
        os.symlink("/dev/null", target)
    for path, text in FILES:
        with open(tree + path, "w", encoding="utf-8") as f:
            f.write(text)
    os.makedirs(tree + "/cove", exist_ok=True)
    subprocess.check_call(["chroot", tree, "systemctl", "set-default", "multi-user.target"], stderr=subprocess.DEVNULL)
    subprocess.check_call(["chroot", tree, "useradd", "-m", "-u", "1000", "-s", "/bin/bash", "tester"])


def root_image(modules):
    shape = [PACKAGES, MASKED, UNIT, FILES, modules, inspect.getsource(furnish), inspect.getsource(make_image)]
    stamp = hashlib.sha256(repr(shape).encode()).hexdigest()[:16]
    image = os.path.join(CACHE, f"root-{stamp}.img")
    if os.path.exists(image):
        return image
    for old in glob.glob(CACHE + "/root-*.img"):
        os.unlink(old)
    with tempfile.TemporaryDirectory(dir=CACHE) as tree:
        os.chmod(tree, 0o755)
        names = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
        debian.make_tree(tree, os.path.join(CACHE, f"base-{names}.tar"), PACKAGES, say)
        say("making the root image")
        furnish(tree, modules)
        make_image(tree, image, 400)
    return image


def inside(text):
    return text.replace(ROOT + "/", "/cove/")


def contract_jobs():
    known = json.loads(subprocess.check_output(["meson", "introspect", BUILD, "--tests"], text=True))
    jobs = []
    for test in known:
        if any(s.split(":")[-1] == "contract" for s in test["suite"]) and test["name"].startswith(NEAR_THE_KERNEL):
            jobs.append({"name": f"contract/{test['name']}", "cmd": [inside(w) for w in test["cmd"]], "timeout": test["timeout"] * 5,
                         "env": {**{k: inside(v) for k, v in test["env"].items()}, "COVE": "/cove/build/src/main/cove", "COVE_SLOW_HOST": SLOW}})
    return jobs


def escape_job():
    return {"name": "escape", "cmd": ["/cove/tests/escape/run.py", *os.environ.get("VM_ESCAPE", "").split()], "timeout": 3600,
            "env": {"COVE": "/cove/build/src/main/cove", "COVE_PROBE": "/cove/build/tests/escape/escape-probe", "COVE_SLOW_HOST": SLOW,
                    "PATH": "/cove/build/src/main:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "COVE_KILL_ROUNDS": os.environ.get("COVE_KILL_ROUNDS", "15"), "COVE_INJECT_SECONDS": "600"}}


def storm_job():
    return {"name": "storm", "cmd": ["/cove/tests/storm/run.py", "--seed", "1", "--rounds", "3"], "timeout": 900,
            "env": {"COVE": "/cove/build/src/main/cove", "COVE_SLOW_HOST": SLOW}}


def delegation_job():
    return {"name": "delegation", "cmd": ["/cove/tests/vm/delegation.py"], "timeout": 900, "env": {"COVE": "/cove/build/src/main/cove"}}


def units_job():
    """The last job: it installs for the whole machine."""
    return {"name": "root/units", "user": "root", "cmd": ["/cove/tests/vm/units.py"], "timeout": 1800, "env": {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}


def choose_jobs(words):
    if "VM_SHELL" in os.environ:
        return [{"name": "shell", "user": os.environ.get("VM_USER", "tester"), "cmd": ["sh", "-c", os.environ["VM_SHELL"]], "timeout": 600,
                 "env": {"PATH": "/cove/build/src/main:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}]
    contract = contract_jobs()
    # Tests of the runtime, the cgroups and the jailer need root; a plain user runs those of the
    # engine and the monitor.
    of_user = [job for job in contract if job["name"].startswith(("contract/engine", "contract/monitor"))]
    jobs = [{**job, "user": user, "name": f"{short}/{job['name']}"}
            for user, short, some in (("root", "root", contract), ("tester", "user", of_user)) for job in [delegation_job()] + some + [storm_job(), escape_job()]]
    jobs.append(units_job())
    return [job for job in jobs if not words or any(word in job["name"] for word in words)]


def tree_image(jobs, image):
    """An image with the programs and tests of the tree as it is built, and nothing else."""
    with tempfile.TemporaryDirectory(dir=CACHE) as tree:
        os.chmod(tree, 0o755)
        shutil.copytree(ROOT + "/tests", tree + "/tests", symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "fuzz"))
        programs = [os.path.join(d, name) for place in ("src/main", "tests/contract", "tests/escape", "tests/storm")
                    for d, _, names in os.walk(os.path.join(BUILD, place)) for name in names if not name.endswith((".o", ".d", ".a"))]
        for path in programs:
            target = os.path.join(tree, os.path.relpath(path, ROOT))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.access(path, os.X_OK):
                shutil.copy(path, target)
        for kernels in ("runtimes", "tests/contract/kernels"):
            shutil.copytree(os.path.join(BUILD, kernels), os.path.join(tree, "build", kernels), symlinks=True, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("*.p", "__pycache__"))
        os.symlink("../../runtimes", tree + "/build/src/main/kernels")
        subprocess.check_call(["make", "-s", "-C", ROOT, "install", f"DESTDIR={tree}/install"], stdout=subprocess.DEVNULL)
        shutil.copytree(ROOT + "/deploy/systemd", tree + "/deploy/systemd")
        with open(tree + "/jobs.json", "w", encoding="utf-8") as f:
            json.dump(jobs, f)
        subprocess.check_call(["chown", "-R", "0:0", tree])
        make_image(tree, image, 64)


# --- running ---

KVM = ["-machine", "q35,accel=kvm", "-cpu", "host"]
TCG = ["-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off"]


def kvm_works(kernel):
    """Some hosts have a /dev/kvm that answers queries and boots nothing, so a kernel is booted:
    without a disk it panics within a second or two, and has printed its version by then."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    done = subprocess.run(["timeout", "10", "qemu-system-x86_64", *KVM, "-nodefaults", "-display", "none", "-no-reboot", "-kernel", kernel,
                           "-append", "console=ttyS0 panic=-1", "-serial", "stdio"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return b"Linux version" in done.stdout


def start(kernel, root, tree, talk, console):
    accel = KVM if kvm_works(kernel) else TCG
    say(f"booting {os.path.basename(kernel)} with {'KVM' if accel is KVM else 'QEMU alone (TCG)'}")
    return subprocess.Popen(
        ["qemu-system-x86_64", *accel, "-smp", os.environ.get("VM_CPUS", str(min(os.cpu_count() or 1, 4))), "-m", "2G", "-nodefaults", "-no-user-config", "-display",
         "none", "-no-reboot", "-kernel", kernel, "-append", COMMAND_LINE,
         "-drive", f"file={root},format=raw,if=none,id=root,snapshot=on,cache=unsafe", "-device", "nvme,drive=root,serial=root",
         "-drive", f"file={tree},format=raw,if=none,id=tree,snapshot=on,cache=unsafe", "-device", "nvme,drive=tree,serial=tree",
         "-serial", f"file:{console}", "-serial", f"file:{talk}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def given_up(console):
    """Whether the system failed to start and waits for a password for ever."""
    with open(console, "rb") as f:
        return b"emergency mode" in f.read()


def lines_of(machine, talk, console):
    """Lines of the guest as they arrive, until it has died or fallen silent."""
    rest, last, limit = "", time.monotonic(), BOOT_SECONDS
    with open(talk, "r", encoding="utf-8", errors="replace", newline="\n") as f:
        while True:
            text = f.read(65536)
            if text:
                last, limit = time.monotonic(), QUIET_SECONDS
                *whole, rest = (rest + text).split("\n")
                yield from (line.rstrip("\r") for line in whole)
            elif machine.poll() is not None or time.monotonic() - last > limit or (limit == BOOT_SECONDS and given_up(console)):
                return
            else:
                time.sleep(0.05)


class Report:
    """TAP of all jobs under their names, numbered consecutively."""

    def __init__(self, parse_tap):
        self.parse_tap = parse_tap
        self.count = {"passed": 0, "failed": 0, "skipped": 0}
        self.number = self.shown = 0

    def result(self, r):
        self.number += 1
        self.count[r.status] += 1
        skip = f" # SKIP {r.detail}" if r.status == "skipped" else ""
        print(f"{'not ok' if r.status == 'failed' else 'ok'} {self.number} - {r.name.replace('#', '')}{skip}", flush=True)
        if r.status == "failed":
            for line in r.detail.strip().splitlines()[-30:]:
                print(f"# {line}")

    def progress(self, name, lines):
        """Prints the results that are complete: the last one may still get its explanation."""
        said = sum(line.startswith(("ok", "not ok")) for line in lines)
        if lines[-1].startswith(("ok", "not ok")) and said > 1:
            self.show(self.parse_tap("\n".join(lines), 0, name)[:said - 1])

    def show(self, results):
        for r in results[self.shown:]:
            self.result(r)
        self.shown = max(self.shown, len(results))

    def job(self, name, lines, code, seconds):
        self.show(self.parse_tap("\n".join(lines), code, name))
        self.shown = 0
        say(f"{name}: {seconds} s")


def load_check():
    loader = importlib.machinery.SourceFileLoader("check", os.path.join(ROOT, "tests/check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    loader.exec_module(module)
    return module


def follow(machine, talk, console, jobs, report, check):
    """Prints the output of the guest. True when it reached the end."""
    output = {}
    for line in lines_of(machine, talk, console):
        word, _, text = line.partition("|")
        kind, _, number = word.partition(" ")
        if kind == "boot":
            say(f"booted: {text}")
        elif kind == "line":
            lines = output.setdefault(int(number), [])
            lines.append(text)
            if jobs[0]["name"] == "shell":
                print(text, flush=True)
            else:
                report.progress(jobs[int(number)]["name"], lines)
        elif kind == "end":
            code, seconds = text.split()
            if jobs[0]["name"] != "shell":
                report.job(jobs[int(number)]["name"], output.get(int(number), []), int(code), seconds)
        elif kind == "over":
            return True
    for number, lines in output.items():
        if lines and number == max(output):
            report.result(check.Result(jobs[number]["name"] + ": the machine died or fell silent", "failed", "\n".join(lines[-30:])))
    return False


def run(words):
    debian.need("qemu-system-x86_64", "debootstrap", "mke2fs", "dpkg-deb", "apt-get", "meson")
    if not os.path.exists(BUILD + "/src/main/cove"):
        raise debian.Missing("build/src/main/cove does not exist; run make and ninja -C build first")
    os.makedirs(CACHE, exist_ok=True)
    began = time.monotonic()
    kernel, modules = fetch_kernel(kernel_package())
    root, jobs = root_image(modules), choose_jobs(words)
    if not jobs:
        raise debian.Missing(f"no job's name contains {shlex.join(words)}")
    with tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as here:
        over, report = boot(kernel, root, jobs, here)
        shutil.copy(here + "/console", os.path.join(CACHE, "console.log"))
    say(f"{time.monotonic() - began:.0f} s in all, the console in build-vm/console.log")
    if jobs[0]["name"] == "shell":
        return 0 if over else 1
    print(f"1..{report.number}")
    print(", ".join(f"{n} {status}" for status, n in report.count.items()), flush=True)
    return 1 if report.count["failed"] else 0


def boot(kernel, root, jobs, here):
    tree, talk, console = here + "/tree.img", here + "/talk", here + "/console"
    tree_image(jobs, tree)
    for path in (talk, console):
        open(path, "w", encoding="utf-8").close()
    check = load_check()
    report = Report(check.parse_tap)
    machine = start(kernel, root, tree, talk, console)
    try:
        over = follow(machine, talk, console, jobs, report, check)
        if not over:
            with open(console, encoding="utf-8", errors="replace") as f:
                last = f.read()[-2000:]
            report.result(check.Result("the machine reaches its end", "failed", last or "it printed nothing"))
    finally:
        machine.kill()
        machine.wait()
    return over, report


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the machine ends too
    try:
        return run(sys.argv[1:])
    except debian.Missing as why:
        print(f"vm: {why}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
