#!/usr/bin/env python3
"""run.py [--shard I/N] [CASE|FAMILY...] - attacks a real sandbox with every case of the catalogue,
and prints TAP.

    tests/escape/run.py                    all
    tests/escape/run.py RS LC02            a part
    tests/escape/run.py --shard 2/3        every third case, beginning with the second
    tests/escape/run.py --as-user          as a plain user; root prepares everything first
    tests/escape/run.py --driver bwrap     in sandboxes of another driver
    tests/escape/run.py --born             from forks of a zygote that joined their sandbox
    tests/escape/run.py --runner bwrap     the same probe in a sandbox with few walls, as a control

Cases that code inside can judge are functions of escape-probe and run together in one sandbox;
those that need small limits, a second sandbox or a check on the host are in cases.py and
lifecycle.py. Every id of the catalogue is run or listed in omitted.txt.
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

import cases
import host
import lifecycle

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import apart  # noqa: E402
from choice import Choice  # noqa: E402

FAMILIES = {"NS": 24, "PR": 20, "SC": 38, "CP": 18, "FS": 28, "LK": 16, "NT": 17, "EG": 15, "RS": 26, "LC": 12, "BK": 9}
CATALOGUE = [f"{family}{n:02}" for family, count in FAMILIES.items() for n in range(1, count + 1)]
TABLE = ["TABLE-sweep", "TABLE-arguments"]
# Judged by the probe itself, in one sandbox with default limits.
PROBED = ([f"NS{n:02}" for n in range(1, 21)] + [f"PR{n:02}" for n in range(1, 21)] + [f"SC{n:02}" for n in range(1, 39)] +
          [f"CP{n:02}" for n in range(1, 18)] + [f"FS{n:02}" for n in range(1, 19)] + ["FS22", "FS27"] +
          [f"LK{n:02}" for n in range(1, 12)] + ["LK15"] + [f"NT{n:02}" for n in range(1, 15)])
PAPERS = os.path.join(HERE, "../../SECURITY.md")
BORN = os.path.abspath(os.environ.get("COVE_BORN_RUN", os.path.join(HERE, "../../build/tests/escape/cove-born")))
WEAK_MINIMUM = 15
PLAIN_USER = 65534


class Tap:
    def __init__(self, mode=""):
        self.number = self.failed = 0
        self.mode = mode

    def line(self, name, verdict, why):
        self.number += 1
        name += self.mode
        why = " ".join(why.split())
        if verdict == "SKIP":
            print(f"ok {self.number} - {name} # SKIP {why}")
        else:
            print(f"{'ok' if verdict == 'HELD' else 'not ok'} {self.number} - {name}: {why.replace('#', '')}")
        self.failed += verdict not in ("HELD", "SKIP")
        sys.stdout.flush()


def omitted():
    """{id: reason}"""
    found = {}
    with open(os.path.join(HERE, "omitted.txt"), encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                ids, reason = line.strip().split(" ", 1)
                first, _, last = ids.partition("-")
                for n in range(int(first[2:]), int((last or first)[2:]) + 1):
                    found[f"{first[:2]}{n:02}"] = reason
    return found


def host_cases():
    """{id: function} of the cases that are judged from outside"""
    found = {}
    for module in (cases, lifecycle):
        for name in dir(module):
            match = re.fullmatch(r"([a-z]{2})(\d\d)(_\w+)?", name)
            if match:
                found[name.upper() if not match.group(3) else match.group(1).upper() + match.group(2)] = getattr(module, name)
    return found


def check_complete(tap, outside, left_out):
    run = set(PROBED) - set(left_out) | set(outside)
    for case in PROBED:
        if case in left_out:
            continue
    missing = [c for c in CATALOGUE if c not in run and c not in left_out]
    twice = [c for c in left_out if c in outside]
    unknown = [c for c in list(left_out) + sorted(run) if c not in CATALOGUE]
    wrong = missing + twice + unknown
    tap.line("every case of the catalogue is run, or omitted with a reason", "BROKEN" if wrong else "HELD",
             f"missing {missing}, both {twice}, unknown {unknown}" if wrong else
             f"{len(run)} run, {len(left_out)} omitted of {len(CATALOGUE)}")


def papers():
    """(ids, names) that the table of walls in SECURITY.md gives as proof"""
    ids, names = set(), set()
    with open(PAPERS, encoding="utf-8") as f:
        rows = [line for line in f if line.startswith("|") and line.count("|") == 6]
    for row in rows[1:]:
        proof, left_out = row.split("|")[4:6]
        for family, first, last in re.findall(r"\b([A-Z]{2})(\d\d)(?:–[A-Z]{2}(\d\d))?", proof):
            ids |= {f"{family}{n:02}" for n in range(int(first), int(last or first) + 1)}
        names |= set(re.findall(r"`([a-z0-9-]+)`", left_out))
    return ids, names


def check_papers(tap, outside, left_out):
    """Every proof that SECURITY.md names must be run."""
    spec = importlib.util.spec_from_file_location("mutation", os.path.join(HERE, "../mutation/run.py"))
    mutation = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutation)
    ids, names = papers()
    run = set(PROBED) - set(left_out) | set(outside)
    walls = set(mutation.WALLS) | set(mutation.BEHIND) | set(mutation.BORN)
    wrong = sorted(ids - run) + sorted(names ^ walls)
    tap.line("every proof that SECURITY.md names is run, and it names every wall that can be left out",
             "BROKEN" if wrong or not ids else "HELD", f"{wrong}" if wrong else f"{len(ids)} cases, {len(names)} walls")


def run_probed(tap, here, choice, left_out):
    wanted = choice.of([c for c in PROBED if c not in left_out])
    if not wanted:
        return
    kit = here.kit(fuzz_seconds=3)
    done = here.probe(*wanted, kit=kit, timeout=200)
    for case in wanted:
        verdict, why = done.outcomes.get(case, ("BROKEN", f"no verdict; {done}"))
        tap.line(case, verdict, why)
    tap.line("the probe ran to its end", "HELD" if done.ended and done.code == 0 else "BROKEN", str(done)[:160]
             if not done.ended else "and left with status 0")
    with open(os.path.join(kit, "readonly"), encoding="utf-8") as f:
        same = f.read() == "this text must never change\n" * 200
    with open(here.host_file, encoding="utf-8") as f:
        same = same and f.read() == here.secret
    tap.line("the files planted on the host are unchanged", "HELD" if same else "ESCAPED", "")


def others(outside, weak):
    """[(name, function)] of the cases that each have their own sandbox"""
    found = [(f"{case} {profile}", lambda tap, here, c=case, p=profile: run_host_case(tap, f"{c} {p}", lambda h: cases.table(h, c, p), here))
             for profile in ("base", "python", "node", "shell") for case in TABLE]
    found += [(case, lambda tap, here, c=case: run_host_case(tap, c, outside[c], here)) for case in CATALOGUE if case in outside]
    return found + ([("bwrap", run_weak)] if weak else [])


def run_host_case(tap, name, function, here):
    try:
        tap.line(name, "HELD", function(here) or "held")
    except host.Escaped as why:
        tap.line(name, "ESCAPED", str(why))
    except host.Skip as why:
        tap.line(name, "SKIP", str(why))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as why:
        tap.line(name, "BROKEN", f"{type(why).__name__}: {why}")


def run_weak(tap, here):
    """Shows that the probe can report ESCAPED: a plain bubblewrap leaves many cases open."""
    never = {"SC34", "NS24"}  # random calls are only for a sandbox with all walls
    wanted = [c for c in PROBED if c not in never and c != "PR19"]
    done = subprocess.run(
        ["bwrap", "--unshare-all", "--uid", "65534", "--gid", "65534", "--new-session", "--die-with-parent", "--clearenv",
         "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink",
         "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", here.kit(slow=1), host.INSIDE,  # a case that hangs there has a short timeout
         f"{host.INSIDE}/escape-probe", *wanted],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200 * host.SLOW, text=True, errors="replace", check=False)
    outcomes = host.Run(done.returncode, done.stdout, "", {}, 0, 0).outcomes
    open_cases = [c for c, (verdict, _) in outcomes.items() if verdict == "ESCAPED"]
    held = len(open_cases) >= WEAK_MINIMUM and len(outcomes) > 100
    tap.line(f"control: at least {WEAK_MINIMUM} cases are open in a plain bubblewrap", "HELD" if held else "BROKEN",
             f"{len(open_cases)} of {len(outcomes)}: {' '.join(open_cases)}" if outcomes else done.stdout[-300:])


def as_user(words):
    """Runs this suite again as an unprivileged user, from copies: the tree may be in a directory
    that other users cannot enter."""
    with tempfile.TemporaryDirectory(prefix="cove-user-", dir="/var/tmp") as here:
        os.chmod(here, 0o755)
        shutil.copytree(HERE, here + "/escape", ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.h"))
        os.mkdir(here + "/support")
        for name in ("apart.py", "choice.py"):
            shutil.copy(os.path.join(HERE, "../support", name), here + "/support")
        os.mkdir(here + "/bin")
        for name in ("cove", "cove-runtime", "cove-policy", "cove-probe"):
            shutil.copy(os.path.join(os.path.dirname(host.COVE), name), here + "/bin")
        shutil.copy(host.PROBE, here + "/bin/escape-probe")
        os.mkdir(here + "/home", 0o700)
        os.chown(here + "/home", PLAIN_USER, PLAIN_USER)
        env = {name: value for name, value in os.environ.items() if name.startswith(("COVE_", "LC_", "LANG"))}
        env.update(PATH=here + "/bin:/usr/local/bin:/usr/bin:/bin", HOME=here + "/home", COVE=here + "/bin/cove",
                   COVE_PROBE=here + "/bin/escape-probe", COVE_STATE_DIR=here + "/home/state", PYTHONDONTWRITEBYTECODE="1")
        return subprocess.call(["/usr/bin/python3", here + "/escape/run.py", *words], env=env, cwd="/", user=PLAIN_USER,
                               group=PLAIN_USER, extra_groups=[])


def born(words):
    """Runs this suite again with a `cove run` whose programs are forks of a zygote. Needs root, as
    zygotes do."""
    env = {**os.environ, "COVE": BORN, "COVE_LIBEXEC": os.path.dirname(host.COVE), "COVE_BORN": "1"}
    return subprocess.call([sys.executable, os.path.join(HERE, "run.py"), *words], env=env)


def with_driver(driver, words):
    """Runs this suite again with every sandbox made by this driver."""
    return subprocess.call([sys.executable, os.path.join(HERE, "run.py"), *words], env={**os.environ, "COVE_DRIVER": driver})


def main():
    words = sys.argv[1:]
    if words[:1] == ["--driver"]:
        return with_driver(words[1], words[2:])
    if words[:1] == ["--born"]:
        return born(words[1:])
    second = "COVE_BORN" in os.environ or host.DRIVER != "native"
    apart.mounts()
    if words[:1] == ["--as-user"]:
        words = words[1:]
        if os.geteuid() == 0:
            return as_user(words)
    host.ignore_limits()
    tap, here = Tap(", forked from a zygote" if "COVE_BORN" in os.environ else f", driver {host.DRIVER}" if second else ""), host.Host()
    try:
        if words[:2] == ["--runner", "bwrap"]:
            run_weak(tap, here)
        else:
            choice, left_out, outside = Choice(words), omitted(), host_cases()
            if choice.first and not second:
                check_complete(tap, outside, left_out)
            if os.path.exists(PAPERS) and choice.first and not second:  # a plain user and a virtual machine have copies of the suite only
                check_papers(tap, outside, left_out)
            run_probed(tap, here, choice, left_out)
            for _, run in choice.of(others(outside, weak=choice.whole and not second), lambda one: one[0]):
                run(tap, here)
    finally:
        here.close()
    print(f"1..{tap.number}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
