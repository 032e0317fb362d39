#!/usr/bin/env python3
"""units.py - installs the units of deploy/systemd with the commands of their README, then starts,
uses, restarts, reloads, kills and stops them. Prints TAP.

Run by tests/vm/run.py inside the virtual machine, as root; /cove/install there has the files of
`make install`. The cases depend on each other: each continues where the previous one ended.
"""
import glob
import http.client
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time

INSTALLED = "/cove/install"
README = "/cove/deploy/systemd/README.md"
SERVICES = ("cove-monitor", "cove-egress", "cove-jailer", "coved")
UNITS = (*[name + ".service" for name in SERVICES], "coved.socket", "cove.target")
ENFORCED = ("memoryBytes", "swapBytes", "cpuMillis", "pids")
COUNT = "i=0; while [ ! -e /workspace/enough ]; do i=$((i+1)); echo $i; sleep 0.1; done; echo over"
WRITE_AND_EXECUTE = ("import mmap as m; "
                     "m.mmap(-1, 4096, prot=m.PROT_READ | m.PROT_WRITE | m.PROT_EXEC); "
                     "print('mapped')")
PATIENCE = 120
ADDRESS = "http://127.0.0.1:8700"
SANDBOX_UIDS = range(1900000000, 2000000000)  # host uids of sandboxes and templates
# Lines that a killed service causes: those of systemd, and those of services that used it.
OF_KILLS = (r"code=killed, status=9/KILL|Failed with result 'signal'|"
            r"cove-jailer: the monitor ended|coved: no connection to the jailer|"
            r"coved: pool '.*': cannot create a member: jailer:")


class Wrong(Exception):
    pass


class Skipped(Exception):
    pass


def must(condition, *what):
    if not condition:
        raise Wrong(" ".join(str(w) for w in what))


def finished(*command, timeout=300, env=None):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout, check=False, env={**os.environ, **(env or {})})


def run(*command, check=True, **options):
    done = finished(*command, **options)
    must(not check or done.returncode == 0, command, done.returncode, done.stdout[-800:],
         done.stderr[-800:])
    return done.stdout


def wait_for(what, why, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.2)
    raise Wrong(f"the condition did not become true in time: {why}", *said())


def journal(*options):
    units = [f"--unit={name}" for name in UNITS]
    return run("journalctl", "-q", "-o", "cat", *options, *units, check=False).splitlines()


def said():
    """The last lines of the units in the journal."""
    return journal("-n", "25")


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
    """{pid: name} of the processes of cove: its services, and sandboxes anywhere."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        pid = int(path.rsplit("/", 1)[1])
        try:
            with open(path + "/comm", encoding="utf-8", errors="replace") as f:
                name = f.read().strip()
            with open(path + "/cgroup", encoding="utf-8") as f:
                group = f.read()
            uid = int(status_of(pid, "Uid")[0])
        except OSError:
            continue
        of_service = re.search(r"/(cove-jailer|cove-monitor|cove-egress|coved)\.service", group)
        if of_service or uid in SANDBOX_UIDS or re.match(r"coved?\b", name):
            found[pid] = name
    return found


def complaints():
    """Warnings and errors in the journal: systemd's about the units, and those of the services."""
    return journal("-p", "warning") + [line for line in journal()
                                       if re.match(r"\S+ (warning|error) cove", line)]


def refused_calls():
    """Audit records of system calls that a filter of systemd refused."""
    return [line for line in run("journalctl", "-q", "-b", "-o", "cat", check=False).splitlines()
            if re.search(r"(type=1326|SECCOMP) .*syscall=", line)]


class Api:
    """Requests to the server over TCP, with a key."""

    key = sandbox = execution = None

    def call(self, method, path, body=None, expect=(200, 201, 202, 204)):
        c = http.client.HTTPConnection("127.0.0.1", 8700, timeout=PATIENCE)
        try:
            c.request(method, path, json.dumps(body) if body is not None else None,
                      {"Authorization": f"Bearer {self.key}",
                       **({"Content-Type": "application/json"} if body is not None else {})})
            answer = c.getresponse()
            data = answer.read()
        finally:
            c.close()
        must(answer.status in expect, method, path, answer.status, data[:500])
        return json.loads(data) if data else None

    def create(self):
        """Repeats the request while it answers 503, as it does shortly after the jailer died."""
        made = []

        def once():
            c = self.call("POST", "/v1/sandboxes", expect=(201, 503),
                          body={"runtime": "python", "idleTimeoutMs": 0, "lifetimeMs": 7200000})
            made.append(c)
            return c.get("id")

        return wait_for(once, f"a sandbox: {made[-1:]}")

    def execute(self, *command, sandbox=None, **more):
        return self.call("POST", f"/v1/sandboxes/{sandbox or self.sandbox}/executions",
                         {"command": command, **more})

    def context(self, verb, *options):
        """`cove context`: the interpreter keeps its variables from one exec to the next."""
        return run("cove", "context", verb, *options, self.sandbox, env=self.variables()).strip()

    def variables(self):
        return {"COVE_URL": ADDRESS, "COVE_API_KEY": self.key}

    def state(self, sandbox=None):
        return self.call("GET", f"/v1/sandboxes/{sandbox or self.sandbox}")

    def counted(self):
        row = self.call("GET", f"/v1/sandboxes/{self.sandbox}/executions/{self.execution}")
        must(row["state"] in ("starting", "running"), row)
        return row["stdoutBytes"]

    def goes_on(self, than):
        return wait_for(lambda: self.counted() > than, "the execution continues to write")


    def ended(self):
        """The row of the execution if it is not running, otherwise None."""
        row = self.call("GET", f"/v1/sandboxes/{self.sandbox}/executions/{self.execution}")
        return row if row["state"] not in ("starting", "running") else None

    def ended_sandbox(self):
        row = self.state()
        return row if row["state"] != "running" else None


API = Api()


def the_commands_of_the_readme_install_and_start_all_units():
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
    for service in SERVICES:
        must(show(service + ".service", "NRestarts") == "0", service, "was restarted", *said())
    return ", ".join(UNITS)


def systemd_analyze_verify_has_no_warning():
    if not shutil.which("systemd-analyze"):
        raise Skipped("systemd-analyze is not installed")
    done = finished("systemd-analyze", "verify", "--man=no",
                    *[f"/etc/systemd/system/{name}" for name in UNITS])
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "cove" in line]
    must(done.returncode == 0 and not lines, done.returncode, done.stdout, done.stderr)
    return f"{len(UNITS)} units"


def root_creates_the_first_key_over_the_unix_socket():
    def create():
        printed = run("cove", "key", "create", "--scope", "admin", "first", check=False)
        return re.search(r"cove_[0-9a-f]{40}", printed)

    API.key = wait_for(create, "a key").group()
    must(API.call("GET", "/v1/sandboxes")["items"] == [], "a new server has no sandboxes")
    return "the key is accepted over TCP"


def cove_execute_works_over_tcp_and_over_the_unix_socket():
    by_tcp = run("cove", "execute", "-c", "6 * 7", env=API.variables())
    by_socket = run("cove", "execute", "-c", "6 * 7")
    must(by_tcp == by_socket == "42\n", by_tcp, by_socket)
    return "42"


def coved_has_its_own_user_and_no_capability():
    pid = main_pid("coved")
    must(set(status_of(pid, "Uid")) == {str(pwd.getpwnam("cove").pw_uid)}, status_of(pid, "Uid"))
    for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
        must(int(status_of(pid, name)[0], 16) == 0, name, status_of(pid, name))
    must(status_of(pid, "NoNewPrivs") == ["1"], "NoNewPrivs")
    must(status_of(pid, "Seccomp") == ["2"], "Seccomp")
    monitor = main_pid("cove-monitor")
    must(status_of(monitor, "Uid")[0] != "0" and int(status_of(monitor, "CapEff")[0], 16) == 0,
         "the monitor has privileges:", status_of(monitor, "Uid"), status_of(monitor, "CapEff"))
    return "nor has the monitor"


def a_sandbox_executes_with_all_limits_enforced():
    API.sandbox = API.create()
    done = API.execute("python3", "-c", "print(6 * 7)")
    must(done["stdout"] == "42\n" and done["exitCode"] == 0, done)
    receipt = API.call("GET", f"/v1/sandboxes/{API.sandbox}/executions/{done['id']}/receipt")
    states = {name: receipt["limits"][name]["state"] for name in ENFORCED}
    must(receipt.get("cgroup") == "v2", receipt.get("cgroup"))
    must(set(states.values()) == {"enforced"}, states)
    return ", ".join(states)


def sandboxes_inherit_no_filter_of_the_unit_of_the_jailer():
    """With such a filter, programs that write code to memory and execute it would fail."""
    done = API.execute("python3", "-c", WRITE_AND_EXECUTE)
    must(done["stdout"] == "mapped\n", done["stdout"], done["stderr"])
    seccomp = status_of(main_pid("cove-jailer"), "Seccomp_filters")
    must(seccomp == ["0"], "filters of the jailer:", seccomp)
    return "no filter of the jailer"


def a_restarted_coved_adopts_the_sandbox_and_its_execution():
    API.context("create")
    API.context("exec", "-c", "x = 41")
    API.execution = API.execute("sh", "-c", COUNT, background=True, timeoutMs=3600000)["id"]
    API.goes_on(0)
    before, pid, jailer = API.counted(), main_pid("coved"), main_pid("cove-jailer")
    run("systemctl", "restart", "coved.service")
    must(API.state()["state"] == "running", API.state())
    must(main_pid("coved") != pid, "coved is not a new process")
    must(main_pid("cove-jailer") == jailer, "the jailer is a new process")
    API.goes_on(before)
    answer = API.context("exec", "-c", "x + 1")
    must(answer == "42", answer)
    return "its context kept a variable"


def a_reload_of_coved_keeps_the_process_and_the_sandbox():
    pid = main_pid("coved")
    run("systemctl", "reload", "coved.service")
    API.goes_on(API.counted())
    must(main_pid("coved") == pid, "coved is a new process")
    must(active("coved.service"), "coved is not active")
    return "SIGHUP"


def limits():
    """{file: content} of the limits that sandboxes have in their cgroups now"""
    found = {}
    for path in leaves():
        for name in ("memory.max", "pids.max", "cpu.max"):
            try:
                with open(path + name, encoding="utf-8") as f:
                    found[path + name] = f.read().strip()
            except OSError:
                found[path + name] = None
    return found


def limits_of_sandboxes_survive_a_reload_of_systemd():
    """systemd decides anew which controllers its tree needs; the cgroups of sandboxes are in it."""
    before = limits()
    must(any(path.endswith("memory.max") and value and value.isdigit()
             for path, value in before.items()), before)
    run("systemctl", "daemon-reload")
    run("systemd-run", "--wait", "-q", "-p", "MemoryMax=64M", "-p", "CPUQuota=50%", "true")
    run("systemctl", "daemon-reload")
    after = limits()
    both = set(before) & set(after)
    changed = {path: after[path] for path in both if after[path] != before[path]}
    must(both and not changed, changed, after)
    return f"{len(both)} limits"


def the_journal_has_no_warning_before_the_first_kill():
    must(any(re.match(r"\S+ info coved: coved .* serves", line) for line in journal()), *said())
    must(not complaints(), *complaints()[-20:])
    return "neither of systemd nor of the services"


def a_killed_coved_is_started_again_and_adopts_the_sandbox():
    before, pid = API.counted(), main_pid("coved")
    os.kill(pid, 9)
    wait_for(lambda: main_pid("coved") not in (0, pid), "systemd starts coved again")
    wait_for(lambda: active("coved.service"), "coved is active")
    must(API.state()["state"] == "running", API.state())
    API.goes_on(before)
    answer = API.context("exec", "-c", "x + 2")
    must(answer == "43", answer)
    return f"NRestarts={show('coved.service', 'NRestarts')}"


def a_killed_monitor_is_started_again_and_used():
    pid = main_pid("cove-monitor")
    os.kill(pid, 9)
    wait_for(lambda: main_pid("cove-monitor") not in (0, pid), "systemd restarts it")
    other = API.create()
    must(API.execute("true", sandbox=other)["exitCode"] == 0, "it executes")
    API.call("DELETE", f"/v1/sandboxes/{other}")
    API.goes_on(API.counted())
    return "sandboxes survive"


def the_execution_ends_with_all_of_its_output():
    API.execute("touch", "/workspace/enough")
    row = wait_for(API.ended, "the execution ends")
    must(row["state"] == "ended" and row["endedBy"] == "exit" and row["exitCode"] == 0, row)
    lines = row["stdout"].split()
    expected = [str(n + 1) for n in range(len(lines) - 1)] + ["over"]
    must(lines == expected, "lines:", lines[-20:])
    API.execute("rm", "/workspace/enough")
    return f"{len(lines)} lines from three processes of coved, each line once and in order"


def a_killed_jailer_is_started_again_and_its_sandboxes_are_reported_as_lost():
    API.execution = API.execute("sh", "-c", COUNT, background=True, timeoutMs=3600000)["id"]
    API.goes_on(0)
    pid = main_pid("cove-jailer")
    os.kill(pid, 9)
    row = wait_for(API.ended_sandbox, "the sandbox is reported as ended")
    must(row["endedBy"] == "lost" and row["reason"]["message"], row)
    lost = wait_for(API.ended, "the execution is reported as ended")
    must(lost["state"] == "failed" and lost["stdout"].startswith("1\n"), lost)
    wait_for(lambda: main_pid("cove-jailer") not in (0, pid), "systemd starts the jailer again")
    API.sandbox = API.create()
    must(API.execute("echo", "again")["stdout"] == "again\n", "the new sandbox executes")
    return row["reason"]["message"]


def leaves():
    """The cgroups of sandboxes. Their empty parent stays: all jailers of the host share it."""
    return glob.glob("/sys/fs/cgroup/cove/*/")


def cgroups():
    """The cgroups of the services and of sandboxes."""
    places = [f"/sys/fs/cgroup/system.slice/{service}.service" for service in SERVICES]
    return leaves() + [path for place in places
                       for path in glob.glob(place + "/**/", recursive=True)]


def stopping_the_target_ends_everything_and_leaves_nothing():
    API.execution = API.execute("sh", "-c", COUNT, background=True, timeoutMs=3600000)["id"]
    API.goes_on(0)
    must(leaves() and len(ours()) > len(SERVICES), "nothing to end:", leaves(), ours())
    before = complaints()
    run("systemctl", "stop", "cove.target")
    wait_for(lambda: not ours(), f"no process is left: {ours()}")
    for unit in UNITS:
        must(not active(unit), unit, "is active")
    for unit in UNITS[:-1]:
        must(show(unit, "Result") == "success", unit, show(unit, "Result"), *said())
    must(not cgroups(), cgroups())
    must(complaints() == before, "the order of the stop causes a warning:", *complaints()[-5:])
    with open("/proc/mounts", encoding="utf-8") as f:
        places = [line.split()[1] for line in f]
    left = [place for place in places if "cove" in place and not re.match("/cove($|/)", place)]
    must(not left, left)
    return "no process, no cgroup, no mount"


def the_next_start_reports_the_sandbox_as_ended():
    run("systemctl", "start", "cove.target")
    wait_for(lambda: all(map(active, UNITS)), "all units are active")
    row = wait_for(API.ended_sandbox, "the sandbox is reported as ended")
    must(row.get("endedBy"), row)
    lost = wait_for(API.ended, "the execution is reported as ended")
    must(lost["stdout"].startswith("1\n"), lost)
    return f"{row['endedBy']}: {row.get('reason')}"


def disabled_units_leave_nothing():
    run("systemctl", "disable", "--now", "cove.target")
    run("systemctl", "disable", *UNITS)
    wait_for(lambda: not ours(), f"no process is left: {ours()}")
    for name in UNITS:
        os.unlink(f"/etc/systemd/system/{name}")
    run("systemctl", "daemon-reload")
    failed = run("systemctl", "list-units", "--failed", "--plain", "--no-legend")
    must("cove" not in failed, failed)
    left = [name for name in os.listdir("/run/cove") if name.endswith(".sock")]
    must(not left, left)
    return "no unit, no socket"


def the_journal_has_no_warning_but_those_of_the_kills():
    lines = [line for line in complaints() if not re.search(OF_KILLS, line)]
    must(not lines, *lines[-20:])
    return f"{len(complaints())} lines about killed services"


def the_filters_of_the_units_refused_no_call():
    """Without the record of a call that is known to be refused, the check would prove nothing."""
    run("systemd-run", "--wait", "-q", "-p", "SystemCallFilter=~@chown", "-p",
        "SystemCallErrorNumber=EPERM", "chown", "0:0", "/run/job-0", check=False)
    wait_for(lambda: any('comm="chown"' in line for line in refused_calls()),
             "the record of a refused call", 20)
    lines = [line for line in refused_calls() if re.search(r'(comm|exe)="[^"]*cove', line)]
    must(not lines, *lines[-20:])
    return "the record of another service was found"


CASES = (
    the_commands_of_the_readme_install_and_start_all_units,
    systemd_analyze_verify_has_no_warning,
    root_creates_the_first_key_over_the_unix_socket,
    cove_execute_works_over_tcp_and_over_the_unix_socket,
    coved_has_a_user_of_its_own_and_no_capability,
    a_sandbox_executes_with_all_limits_enforced,
    sandboxes_inherit_no_filter_of_the_unit_of_the_jailer,
    a_restarted_coved_adopts_the_sandbox_and_its_execution,
    a_reload_of_coved_keeps_the_process_and_the_sandbox,
    limits_of_sandboxes_survive_a_reload_of_systemd,
    the_journal_has_no_warning_before_the_first_kill,
    a_killed_coved_is_started_again_and_adopts_the_sandbox,
    a_killed_monitor_is_started_again_and_used,
    the_execution_ends_with_all_of_its_output,
    a_killed_jailer_is_started_again_and_its_sandboxes_are_reported_as_lost,
    stopping_the_target_ends_everything_and_leaves_nothing,
    the_next_start_reports_the_sandbox_as_ended,
    disabled_units_leave_nothing,
    the_journal_has_no_warning_but_those_of_the_kills,
    the_filters_of_the_units_refused_no_call,
)
UNEXPECTED = (Wrong, OSError, ValueError, KeyError, TypeError, AttributeError,
              http.client.HTTPException, subprocess.SubprocessError)


def main():
    failed = 0
    for n, fn in enumerate(CASES, 1):
        try:
            print(f"ok {n} - {fn.__name__}: {fn()}".replace("#", ""), flush=True)
        except Skipped as why:
            print(f"ok {n} - {fn.__name__} # SKIP {why}", flush=True)
        except UNEXPECTED as why:
            failed += 1
            print(f"not ok {n} - {fn.__name__}", flush=True)
            print(f"# {type(why).__name__}: {' '.join(str(why).split())}", flush=True)
    print(f"1..{len(CASES)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
