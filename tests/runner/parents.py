"""parents.py - names of cgroup parents (COVE_CGROUP_PARENT) that no other run on this machine uses.

A name is locked as long as the run lasts, and the kernel unlocks it when the run dies. So two
clones may be checked at the same time, and the number of parents on a machine stays as small as the
number of suites that run at the same time.
"""
import fcntl
import os
import tempfile

LOCKS = os.path.join(tempfile.gettempdir(), f"cove-check-{os.geteuid()}")


class Parents:
    def __init__(self, count, directory=LOCKS):
        self.free, self.locks = [], []
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.stat(directory).st_uid != os.geteuid():
            raise RuntimeError(f"{directory}: belongs to another user; remove it")
        number = 0
        while len(self.free) < count:
            lock = open(os.path.join(directory, str(number)), "w", encoding="ascii")  # closed by close()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.locks.append(lock)
                self.free.append(f"cove-t{number}")
            except BlockingIOError:
                lock.close()
            number += 1

    def take(self):
        return self.free.pop(0)

    def give(self, name):
        self.free.insert(0, name)

    def close(self):
        for lock in self.locks:
            lock.close()
