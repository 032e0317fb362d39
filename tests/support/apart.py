"""apart.py - private namespaces for a suite that counts resources of the host, so that other suites
on the same machine do not show in its counts.

    apart.mounts()       mounts and System V objects: those that appear from now on are ours
    apart.everything()   processes as well, and through them the namespaces that /proc shows

Both are for root, and do nothing for a plain user, which root has started inside. Processes that
this process starts are inside.
"""
import ctypes
import os
import signal

VARIABLE = "COVE_TEST_APART"  # records for child processes which namespaces are private already
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
    """Enters new namespaces. Mounts propagate to sandboxes from here as from the host: shared where
    those were shared."""
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
    """Returns in a child. The calling process waits for the child and exits with its status; when
    it is killed, so is every process inside."""
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
