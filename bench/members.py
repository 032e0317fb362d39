"""members.py - the memory of a server's sandboxes, seen from outside.

A member is the set of processes in the memory cgroup of a sandbox's PID 1: the runtime, and the
interpreter that waits in it. There are three figures, because none is complete:

    pssKiB             proportional set size of its processes, by smaps_rollup: a page that n
                       processes map counts 1/n for each. Of all members.
    kernelCgroupKiB    kernel memory charged to its own cgroup: tmpfs, page tables, stacks, mounts
                       made inside. Namespaces that are made before a process joins its cgroup are
                       not included.
    kernelMachineKiB   growth of all kernel memory of the machine (slab, stacks, page tables,
                       per-cpu), divided by the members. Complete, but includes other activity of
                       the machine.

`totalKiB` is the sum of PSS and the growth of the machine's kernel memory. `availableKiB`, the loss
of MemAvailable, is a check on it.
"""
import os

from host import children_of, pss_kib


def meminfo():
    with open("/proc/meminfo", encoding="ascii") as f:
        return {name: int(value.split()[0]) for name, value in (line.split(":") for line in f)}


def kernel_total(fields):
    return sum(fields[name] for name in ("Slab", "KernelStack", "PageTables", "Percpu"))


class Before:
    def __init__(self):
        fields = meminfo()
        self.kernel, self.available = kernel_total(fields), fields["MemAvailable"]


def is_init(pid):
    """Whether the process is PID 1 of a sandbox, by its program."""
    try:
        return os.readlink(f"/proc/{pid}/exe").endswith("/.cove/runtime")
    except OSError:
        return False


def inits(server):
    return [pid for pid in children_of(server) if is_init(pid)]


def cgroup(pid):
    """(controllers, path) of the cgroup that counts its memory, or None when it has ended."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as f:
            rows = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        return None
    for _, controllers, path in rows:
        if "memory" in controllers.split(","):
            return "memory", path
    return next((("", path) for _, controllers, path in rows if not controllers), None)


def cgroup_dir(group):
    return f"/sys/fs/cgroup/memory{group[1]}" if group[0] else f"/sys/fs/cgroup{group[1]}"


def groups(server):
    """The cgroups of all sandboxes, each with its processes."""
    found = {}
    below = children_of(server)
    for pid in below:
        if is_init(pid):
            found[cgroup(pid)] = []
    for pid in below:
        group = cgroup(pid)
        if group in found:
            found[group].append(pid)
    return {group: pids for group, pids in found.items() if group}


def any_alive(found):
    return any(os.path.exists(f"/proc/{pid}") for pids in found.values() for pid in pids)


def kernel_kib(group):
    """Kernel memory charged to a cgroup, or None when it cannot be read."""
    try:
        if group[0]:
            with open(cgroup_dir(group) + "/memory.kmem.usage_in_bytes", encoding="ascii") as f:
                return int(f.read()) / 1024
        with open(cgroup_dir(group) + "/memory.stat", encoding="ascii") as f:
            return next((int(line.split()[1]) / 1024 for line in f if line.startswith("kernel ")), None)
    except OSError:
        return None


def pss_or_zero(pid):
    try:
        return pss_kib(pid)
    except OSError:
        return 0  # it has ended since


def held(server, count, before):
    found = groups(server)
    fields, below = meminfo(), children_of(server)
    ours = {pid for pids in found.values() for pid in pids}
    kernel = [k for k in map(kernel_kib, found) if k is not None]
    pss = sum(map(pss_or_zero, ours)) / len(found)
    machine = (kernel_total(fields) - before.kernel) / count
    return {"found": len(found), "processes": len(ours), "pssKiB": round(pss, 1), "kernelCgroupKiB": round(sum(kernel) / len(kernel), 1) if kernel else None,
            "kernelMachineKiB": round(machine, 1), "totalKiB": round(pss + machine, 1), "availableKiB": round((before.available - fields["MemAvailable"]) / count, 1),
            "sharedPssKiB": sum(pss_or_zero(pid) for pid in [server, *below] if pid not in ours), "sharedProcesses": 1 + len(below) - len(ours)}


def too_many(count, each=4096):
    """Why so many cannot be tried here, or None: at `each` KiB they must leave a quarter of the
    free memory."""
    room = int(meminfo()["MemAvailable"] * 3 // 4 // each)
    return None if count <= room else f"the machine has space for {room}"
