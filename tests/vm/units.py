#!/usr/bin/env python3
"""units.py - the units of deploy/systemd as an administrator uses them: installed by the commands
of their README, started, restarted, killed and stopped. Prints TAP.

Run by tests/vm/run.py inside the virtual machine, by root; /cove/install has the files of `make
install`. The cases depend on each other: each continues where the previous one ended.
"""
import glob
import http.client
import json
import os
import pwd
import re
import subprocess
import sys
import time

INSTALLED = "/cove/install"
README = "/cove/deploy/systemd/README.md"
SERVICES = ("cove-monitor", "cove-jailer", "coved")
UNITS = (*[name + ".service" for name in SERVICES], "coved.socket", "cove.target")
COUNT = "i=0; while [ ! -e /workspace/enough ]; do i=$((i+1)); echo $i; sleep 0.1; done; echo over"
WRITE_AND_EXECUTE = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); print('mapped')"
PATIENCE = 120


class Wrong(Exception):
    pass


def must(condition, *what):
    if not condition:
        raise Wrong(" ".join(str(w) for w in what))


def run(*command, check=True, timeout=300):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)
    must(not check or done.returncode == 0, command, done.returncode, done.stdout[-800:], done.stderr[-800:])
    return done.stdout


def wait_for(what, why, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.2)
    raise Wrong(f"the condition did not become true in time: {why}", *said())


def said():
    """The last log lines of the units."""
    return run("journalctl", "-q", "-n", "25", "-o", "cat", "-u", "cove*", check=False).splitlines()


def show(unit, name):
    return run("systemctl", "show", "--value", "-p", name, unit).strip()


def active(unit):
    return show(unit, "ActiveState") == "active"


def main_pid(service):
    return int(show(service + ".service", "MainPID"))


def status_of(pid, field):
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as f:
        return next(line.split(":", 1)[1].split() for line in f if line.startswith(field + ":"))


def ours():
    """All processes of cove, including those of sandboxes."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/comm", encoding="utf-8") as f:
                name = f.read().strip()
            with open(path + "/cgroup", encoding="utf-8") as f:
                group = f.read()
        except OSError:
            continue
        if re.search(r"/cove[a-z-]*\.service", group) and "cove-check" not in group:
            found[int(path.rsplit("/", 1)[1])] = name
    return found


class Api:
    """The server as a client with a key sees it. A request that a restart cuts off is repeated if
    the caller allows it."""

    key = sandbox = execution = None

    def call(self, method, path, body=None, expect=(200, 201, 202, 204)):
        c = http.client.HTTPConnection("127.0.0.1", 8700, timeout=PATIENCE)
        try:
            c.request(method, path, json.dumps(body) if body is not None else None,
                      {"Authorization": f"Bearer {self.key}", **({"Content-Type": "application/json"} if body is not None else {})})
            answer = c.getresponse()
            data = answer.read()
        finally:
            c.close()
        must(answer.status in expect, method, path, answer.status, data[:500])
        return json.loads(data) if data else None

    def create(self):
        """Creates a sandbox. Right after the jailer died creation fails for a moment, with an
        error."""
        made = []

        def once():
            c = self.call("POST", "/v1/sandboxes", {"runtime": "python", "idleTimeoutMs": 0, "lifetimeMs": 7200000}, expect=(201, 503))
            made.append(c)
            return c.get("id")

        return wait_for(once, f"a sandbox: {made[-1:]}")

    def execute(self, *command, sandbox=None, **more):
        return self.call("POST", f"/v1/sandboxes/{sandbox or self.sandbox}/executions", {"command": command, **more})

    def state(self, sandbox=None):
        return self.call("GET", f"/v1/sandboxes/{sandbox or self.sandbox}")

    def counted(self):
        row = self.call("GET", f"/v1/sandboxes/{self.sandbox}/executions/{self.execution}")
        must(row["state"] in ("starting", "running"), row)
        return row["stdoutBytes"]

    def goes_on(self, than):
        return wait_for(lambda: self.counted() > than, "the execution continues to write")


API = Api()


def the_commands_of_the_readme_install_the_units():
    run("cp", "-a", INSTALLED + "/.", "/")
    with open(README, encoding="utf-8") as f:
        block = re.search(r"^```sh\n(.*?)^```$", f.read(), re.MULTILINE | re.DOTALL).group(1)
    lines = [line.replace("sudo ", "") for line in block.splitlines() if "make install" not in line]
    must(len(lines) >= 3, block)
    os.chdir("/cove")
    for line in lines:
        run("sh", "-ec", line)
    wait_for(lambda: all(map(active, UNITS)), "all units are active")
    must(pwd.getpwnam("cove").pw_shell == "/usr/sbin/nologin", "the user cove")
    return ", ".join(UNITS)


def the_units_are_well_formed():
    found = run("systemd-analyze", "verify", *[f"/etc/systemd/system/{name}" for name in UNITS], check=False)
    must(not found.strip(), found)
    return "systemd-analyze reports nothing"


def root_creates_a_key_over_the_socket():
    said_key = wait_for(lambda: re.search(r"cove_[0-9a-f]{40}", run("cove", "key", "create", "--scope", "admin", "first", check=False)), "a key")
    API.key = said_key.group()
    must(API.call("GET", "/v1/sandboxes")["sandboxes"] == [], "a new server has no sandboxes")
    return "and opens the address of coved.socket"


def coved_has_its_own_user_and_no_capability():
    pid = main_pid("coved")
    must(set(status_of(pid, "Uid")) == {str(pwd.getpwnam("cove").pw_uid)}, status_of(pid, "Uid"))
    for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
        must(int(status_of(pid, name)[0], 16) == 0, name, status_of(pid, name))
    must(status_of(pid, "NoNewPrivs") == ["1"] and status_of(pid, "Seccomp") == ["2"], "NoNewPrivs, Seccomp")
    monitor = main_pid("cove-monitor")
    must(status_of(monitor, "Uid")[0] != "0" and int(status_of(monitor, "CapEff")[0], 16) == 0, "the monitor gave up root")
    return "the monitor neither"


def a_sandbox_executes_with_all_limits_enforced():
    API.sandbox = API.create()
    done = API.execute("python3", "-c", "print(6 * 7)")
    must(done["stdout"] == "42\n" and done["exitCode"] == 0, done)
    receipt = API.call("GET", f"/v1/sandboxes/{API.sandbox}/executions/{done['id']}/receipt")
    states = {row["name"]: row["state"] for row in receipt["limits"]} if isinstance(receipt.get("limits"), list) else receipt.get("limits")
    must(receipt.get("cgroup") == "v2", receipt)
    return str(states)[:400]


def filters_of_the_units_do_not_apply_to_sandboxes():
    """Every sandbox inherits a filter of the jailer's unit: programs that compile to memory would
    die there, and only there."""
    done = API.execute("python3", "-c", WRITE_AND_EXECUTE)
    must(done["stdout"] == "mapped\n", done["stdout"], done["stderr"])
    seccomp = status_of(main_pid("cove-jailer"), "Seccomp_filters")
    must(seccomp == ["0"], "filters of the jailer:", seccomp)
    return "no filter of the jailer"


def a_restarted_coved_adopts_the_sandbox_and_its_execution():
    API.execution = API.execute("sh", "-c", COUNT, background=True, timeoutMs=3600000)["id"]
    before, pid = API.goes_on(0) and API.counted(), main_pid("coved")
    run("systemctl", "restart", "coved.service")
    must(API.state()["state"] == "running", API.state())
    must(main_pid("coved") != pid, "a new process")
    API.goes_on(before)
    return "and its clients only waited"


def a_killed_coved_is_restarted_and_adopts_them_too():
    before, pid = API.counted(), main_pid("coved")
    os.kill(pid, 9)
    wait_for(lambda: main_pid("coved") not in (0, pid), "systemd restarts it")
    wait_for(lambda: active("coved.service"), "it is active")
    must(API.state()["state"] == "running", API.state())
    API.goes_on(before)
    run("systemctl", "reload", "coved.service")
    API.goes_on(API.counted())
    must(main_pid("coved") != 0 and active("coved.service"), "a reload ends nothing")
    return "a reload harms nothing"


def a_killed_monitor_is_restarted_and_used():
    pid = main_pid("cove-monitor")
    os.kill(pid, 9)
    wait_for(lambda: main_pid("cove-monitor") not in (0, pid), "systemd restarts it")
    other = API.create()
    must(API.execute("true", sandbox=other)["exitCode"] == 0, "it executes")
    API.call("DELETE", f"/v1/sandboxes/{other}")
    API.goes_on(API.counted())
    return "sandboxes survive"


def the_adopted_execution_ends_by_itself():
    API.execute("touch", "/workspace/enough")
    row = wait_for(lambda: next((r for r in [API.call("GET", f"/v1/sandboxes/{API.sandbox}/executions/{API.execution}")] if r["state"] != "running"), None),
                   "the execution ends")
    must(row["state"] == "ended" and row["endedBy"] == "exit" and row["exitCode"] == 0 and row["stdout"].endswith("over\n"), row["state"], row["stdout"][-100:])
    lines = row["stdout"].split()[:-1]
    must(lines == [str(n + 1) for n in range(len(lines))], "each line once and in order")
    API.execute("rm", "/workspace/enough")
    return f"{len(lines)} lines over three servers, none lost or repeated"


def a_killed_jailer_ends_its_sandboxes_and_they_are_reported_lost():
    API.execution = API.execute("sh", "-c", COUNT, background=True, timeoutMs=3600000)["id"]
    API.goes_on(0)
    pid = main_pid("cove-jailer")
    os.kill(pid, 9)
    row = wait_for(lambda: next((r for r in [API.state()] if r["state"] != "running"), None), "the sandbox is reported as ended")
    must(row["endedBy"] == "lost" and row["reason"]["message"], row)
    lost = wait_for(lambda: next((r for r in [API.call("GET", f"/v1/sandboxes/{API.sandbox}/executions/{API.execution}")] if r["state"] != "running"), None),
                    "the execution too")
    must(lost["state"] == "failed" and lost["stdout"].startswith("1\n"), lost)
    wait_for(lambda: main_pid("cove-jailer") not in (0, pid), "systemd restarts it")
    API.sandbox = API.create()
    must(API.execute("echo", "again")["stdout"] == "again\n", "it executes")
    return row["reason"]["message"]


def sandboxes_groups():
    """Control groups below those of the services."""
    return [path for service in SERVICES for path in glob.glob(f"/sys/fs/cgroup/system.slice/{service}.service/**/", recursive=True)]


def stopping_the_target_ends_everything_and_leaves_nothing():
    API.execution = API.execute("sh", "-c", COUNT, background=True, timeoutMs=3600000)["id"]
    API.goes_on(0)
    run("systemctl", "stop", "cove.target")
    wait_for(lambda: not ours(), f"no process is left: {ours()}")
    for unit in UNITS:
        must(not active(unit), unit, "is active")
    for unit in UNITS[:-1]:
        must(show(unit, "Result") == "success", unit, show(unit, "Result"), *said())
    must(not sandboxes_groups(), sandboxes_groups())
    with open("/proc/mounts", encoding="utf-8") as f:
        left = [line.split()[1] for line in f if "/cove" in line.split()[1] and not re.match("/cove($|/)", line.split()[1])]
    must(not left, left)
    return "no process, no control group, no mount"


def ended_sandboxes_are_reported_after_the_next_start():
    run("systemctl", "start", "cove.target")
    wait_for(lambda: all(map(active, UNITS)), "all units are active")
    row = wait_for(lambda: next((r for r in [API.state()] if r["state"] != "running"), None), "the sandbox is reported as ended")
    must(row.get("endedBy"), row)
    lost = API.call("GET", f"/v1/sandboxes/{API.sandbox}/executions/{API.execution}")
    must(lost["state"] != "running" and lost["stdout"].startswith("1\n"), lost)
    return f"{row['endedBy']}: {row.get('reason')}"


def disabling_the_units_leaves_nothing():
    run("systemctl", "disable", "--now", *UNITS)
    wait_for(lambda: not ours(), f"no process is left: {ours()}")
    for name in UNITS:
        os.unlink(f"/etc/systemd/system/{name}")
    run("systemctl", "daemon-reload")
    failed = run("systemctl", "list-units", "--failed", "--plain", "--no-legend")
    must("cove" not in failed, failed)
    left = [name for name in os.listdir("/run/cove") if name.endswith(".sock")]
    must(not left, left)
    return "no unit, no socket"


def journal_has_no_errors():
    lines = [line for line in run("journalctl", "-q", "-p", "warning", "-o", "cat", "-u", "cove*", check=False).splitlines()
             if not re.search(r"code=killed, status=9/KILL|Failed with result 'signal'|lost the jailer|jailer", line)]
    must(not lines, *lines[-20:])
    return "in addition to those of the killed"


CASES = (the_commands_of_the_readme_install_the_units, the_units_are_well_formed, root_creates_a_key_over_the_socket,
         coved_has_its_own_user_and_no_capability, a_sandbox_executes_with_all_limits_enforced,
         filters_of_the_units_do_not_apply_to_sandboxes, a_restarted_coved_adopts_the_sandbox_and_its_execution,
         a_killed_coved_is_restarted_and_adopts_them_too, a_killed_monitor_is_restarted_and_used, the_adopted_execution_ends_by_itself,
         a_killed_jailer_ends_its_sandboxes_and_they_are_reported_lost, stopping_the_target_ends_everything_and_leaves_nothing,
         ended_sandboxes_are_reported_after_the_next_start, disabling_the_units_leaves_nothing, journal_has_no_errors)


def main():
    failed = 0
    for n, fn in enumerate(CASES, 1):
        try:
            print(f"ok {n} - {fn.__name__}: {fn()}".replace("#", ""), flush=True)
        except (Wrong, OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException, subprocess.SubprocessError) as why:
            failed += 1
            print(f"not ok {n} - {fn.__name__}\n# {type(why).__name__}: {' '.join(str(why).split())}", flush=True)
    print(f"1..{len(CASES)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
