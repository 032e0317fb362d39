"""covekernel - runs the cells of one context and reports their results.

Importing this package starts nothing: no thread, no descriptor, no signal handler. So a zygote can
import it, and prepare() what else is slow, before it forks; main(fd) does the work of one process.
"""
import sys

REHEARSALS = 24  # after this many runs the interpreter has specialized the code, and forks write less into its pages


def prepare():
    """Imports the modules that the first cells need, so that the children of a fork share them."""
    from covekernel import cell, charts, check, complete, figures, rich, session, twin, wire  # noqa: F401
    import asyncio, getpass, inspect, random, site  # noqa: F401, E401


def member(fd):
    """The session of interpreters that will be forked, warmed up as far as possible. Each fork
    calls forked(), then settle() if its environment differs, then serve()."""
    from covekernel.session import Session
    made = Session(fd)
    made.before_fork = True
    made.set_up_process()
    made.settle()
    for _ in range(REHEARSALS):
        made.rehearse()
    return made


def reseed():
    """Makes the random state differ from that of other forks: generators that were seeded before
    the fork must not repeat in two processes."""
    import os
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "numpy.random" in sys.modules:
        # Seeds the whole state of the generator, not 32 bits of it: with thousands of forks, seeds
        # would collide.
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
