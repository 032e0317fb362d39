"""covekernel - runs the cells of one context and says what came of them.

Importing this package starts nothing: no thread, no descriptor, no signal handler. So a zygote can import it, and
prepare() what else is slow, before it forks; main(fd) does the work of one process.
"""
import sys

REHEARSALS = 24  # by then the interpreter has specialized what they run, and members have less to write into its code


def prepare():
    """Imports what the first cells would import, so that the children of a fork share it."""
    from covekernel import cell, charts, complete, figures, rich, session, twin, wire  # noqa: F401
    import asyncio, getpass, inspect, random, site  # noqa: F401, E401


def member(fd):
    """The session of members that will be forked, as warm as it can be. In each of them: born(), settle() if its
    environment is another one than now, serve()."""
    from covekernel.session import Session
    made = Session(fd)
    made.unborn = True
    made.set_up_process()
    made.settle()
    for _ in range(REHEARSALS):
        made.rehearse()
    return made


def reseed():
    """Parts from the siblings of one fork: whatever was seeded before it must not repeat itself in two processes."""
    import os
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "numpy.random" in sys.modules:
        # All of a generator's state, and not 32 bits of it: thousands of siblings would meet.
        sys.modules["numpy.random"].seed(list(memoryview(os.urandom(64)).cast("I")))
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(32), 32.0)
    if "tempfile" in sys.modules:
        sys.modules["tempfile"]._name_sequence = None
    if "uuid" in sys.modules:
        sys.modules["uuid"]._last_timestamp = sys.modules["uuid"]._node = None
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def main(fd):
    """Serves the socket `fd` until it is closed; does not return."""
    from covekernel.session import Session
    made = Session(fd)
    made.set_up_process()
    made.serve()
