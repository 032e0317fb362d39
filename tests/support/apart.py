"""apart.py - separate namespaces for a suite that counts objects of the host, so that other suites
on the same machine do not affect its counts.

    apart.mounts()       mounts and System V objects: new ones are ours
    apart.everything()   processes as well, and through them the namespaces that /proc shows

Both need root. They do nothing for an unprivileged user, whose process root starts inside. Children
of this process are inside too.
"""
import ctypes
import os
import signal

VARIABLE = "COVE_TEST_APART"  # which of the two was done already, for child processes
NEWNS, NEWIPC, NEWPID = 0x00020000, 0x08000000, 0x20000000
NOSUID, NODEV, NOEXEC, REC, PRIVATE, SHARED = 2, 4, 8, 1 << 14, 1 << 18, 1 << 20
PR_SET_PDEATHSIG = 1


def libc():
    return ctypes.CDLL(None, use_errno=True)


def must(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def leave(flags):
    """Mounts propagate to sandboxes from here as from the host: shared where they were shared."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        shared = any(line.split()[4] == "/" and " shared:" in line for line in f)
    must(libc().unshare(flags), "unshare")
    must(libc().mount(None, b"/", None, PRIVATE | REC, None), "make mounts private")
    if shared:
        must(libc().mount(None, b"/", None, SHARED | REC, None), "make mounts shared")


def mounts():
    if os.geteuid() != 0 or VARIABLE in os.environ:
        return
    leave(NEWNS | NEWIPC)
    os.environ[VARIABLE] = "mounts"


def everything():
    """Returns in a child. The calling process waits for it and ends with its status; if the caller
    is killed, every process inside is killed."""
    if os.geteuid() != 0 or os.environ.get(VARIABLE) == "everything":
        return
    leave(NEWNS | NEWIPC | NEWPID)
    os.environ[VARIABLE] = "everything"
    caller = os.getpid()
    first = os.fork()
    if first:
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda *_: os.kill(first, signal.SIGKILL))
        _, status = os.waitpid(first, 0)
        os._exit(code(status))
    libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() not in (0, caller):  # it died before
        os._exit(1)
    must(libc().mount(b"proc", b"/proc", b"proc", NOSUID | NODEV | NOEXEC, None), "mount /proc")
    suite = os.fork()
    if suite:
        while True:  # PID 1 inherits every orphan
            pid, status = os.wait()
            if pid == suite:
                os._exit(code(status))


def code(status):
    result = os.waitstatus_to_exitcode(status)
    return result if result >= 0 else 128 - result
