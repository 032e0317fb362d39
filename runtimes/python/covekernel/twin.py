"""twin.py - the copy of a kernel that results from forking its context.

The copy is a child of PID 1 and not of the kernel: so PID 1 is notified of its end, and user code
that waits for its own children never sees it. One real fork does it (forkmodule.c). Both processes
continue with the state; resources that cannot be shared stay with the original: its children, its
timers, its socket and pipes. Open files are shared as after any fork.
"""
import fcntl
import importlib.util
import os
import sys
import threading
import time

READY, FULL_WORD, REFUSED = b"j", b"p", b"n"  # the first message of a kernel that PID 1 did not start
FULL = object()  # as a reason: the process limit is reached
WHY_MAX = 160
ENDING_S = 0.5  # for a thread that has ended in Python but still exists in the kernel
AVOID = "NumPy has none with OPENBLAS_NUM_THREADS=1 in env"
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_module = None


def threads():
    """Why this process cannot be forked, or None. A fork has one thread, and locks of the other
    threads would stay locked."""
    end = time.monotonic() + ENDING_S
    while True:
        others = {int(tid) for tid in os.listdir("/proc/self/task")} - {os.getpid()}
        if not others:
            return None
        known = {t.native_id: t.name for t in threading.enumerate()}
        if others & known.keys() or time.monotonic() > end:
            break
        time.sleep(0.002)
    names, of_library = [], False
    for tid in sorted(others):
        try:
            with open(f"/proc/self/task/{tid}/comm", encoding="utf-8", errors="replace") as f:
                names.append(known.get(tid) or f.read().strip())
                of_library = of_library or tid not in known
        except OSError:
            pass  # the thread has just ended
    if not names:
        return None
    told = ", ".join(sorted(set(names)))
    hint = f" ({AVOID})" if of_library and "numpy" in sys.modules else ""
    return f"{len(names)} thread{'s' if len(names) > 1 else ''} beside the main one: {told[:WHY_MAX - 90]}{hint}"


def fork():
    """Returns in both processes. OSError: there is no copy."""
    global _module
    if _module is None:
        spec = importlib.util.spec_from_file_location("_covefork", os.path.join(HERE, "_covefork.abi3.so"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _module = module
    _module.fork()


def settle(fds):
    """Called first in the copy: sets up its own descriptors and session."""
    os.setsid()
    away = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 8) for fd in fds]  # user code may have closed 1 and 2
    for fd in fds:
        os.close(fd)
    for fd, at in zip(away, (3, 1, 2)):
        os.dup2(fd, at, inheritable=at != 3)
        os.close(fd)


def refuse(fds, why):
    """Closes the descriptors; if there is a reason, it is the only reply on them."""
    kernel = fds[0]
    try:
        if why is FULL:
            os.write(kernel, FULL_WORD)
        elif why:
            os.write(kernel, REFUSED + why.encode("utf-8", "replace")[:WHY_MAX])
    except OSError:
        pass
    for fd in fds:
        os.close(fd)


def own_loop(loop):
    """The asyncio loop, with its tasks, on a new epoll: the old one is shared with the original."""
    if loop is None or loop.is_closed():
        return None
    import selectors
    try:
        old = loop._selector
        watched = [key for key in old.get_map().values() if key.fileobj is not loop._ssock]
        loop._selector = new = selectors.DefaultSelector()
        loop._ssock.close()
        loop._csock.close()
        loop._internal_fds -= 1
        old.close()
        loop._make_self_pipe()
        for key in watched:
            new.register(key.fileobj, key.events, key.data)
        return loop
    except Exception:  # a loop of another implementation: start a new one
        return None
