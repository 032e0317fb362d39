#!/usr/bin/env python3
"""run.py [--keep] [--lines FILE...] - how many lines of each component the tests execute (make
coverage).

    tests/coverage/run.py           build, run unit, contract, fuzz corpora, e2e and fault injection
                                    into the system calls of the set-up; print the table
    tests/coverage/run.py --keep    print the table of the last run again
    tests/coverage/run.py --keep --lines src/host/isolate/net.c    its lines that were not executed

The counters of clang's source coverage are kept in a shared mapping of a file (see meson.build), so
that processes that are forked, confined, killed or leave by _exit are counted up to their last
instruction. Not counted: cove-runtime as PID 1 of a real sandbox, which can reach no file outside
(the contract tests drive the same code from outside, and those are counted).

Exit status 1 when a test failed, 0 otherwise: the goal is printed and does not decide.
"""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build-cov")
PROFILE = os.path.join(BUILD, "profile")
DATA = os.path.join(BUILD, "cove.profdata")
COVE = os.path.join(BUILD, "src/main/cove")
GOAL = 90.0
HELD = ("host/isolate", "host/rootless", "host/systemd", "host/jailer", "inside/runtime", "core/wire", "policy")


def tool(name):
    """llvm-cov without a version number where it exists; Debian has both."""
    for path in os.environ["PATH"].split(":"):
        if os.access(os.path.join(path, name), os.X_OK):
            return name
    return name + "-14"


def say(command, **options):
    """Runs a command; its output is shown when it fails."""
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)
    if done.returncode:
        print(done.stdout.decode(errors="replace")[-6000:])
    return done.returncode == 0


def build():
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        if not say(["meson", "setup", BUILD, "-Dcoverage=true", "-Dbuildtype=debug"], env=dict(os.environ, CC="clang")):
            return False
    return say(["ninja", "-C", BUILD])


def measure():
    """Runs the tests. A plain user's processes count too, so every user may write the files."""
    os.makedirs(PROFILE, exist_ok=True)
    for name in os.listdir(PROFILE):
        os.unlink(os.path.join(PROFILE, name))
    subprocess.run([COVE, "version"], stdout=subprocess.DEVNULL, check=True)
    for program in products()[1:]:
        subprocess.run([program, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
    os.chmod(PROFILE, 0o1777)
    for name in os.listdir(PROFILE):
        os.chmod(os.path.join(PROFILE, name), 0o666)
    ok = say(["meson", "test", "-C", BUILD, "--no-rebuild", "--timeout-multiplier", "4", "--suite", "unit",
              "--suite", "contract", "--suite", "fuzz"])
    for script in (["tests/e2e/run.py"], ["tests/escape/run.py", "LC03"]):
        ok = say(script, env=dict(os.environ, COVE=COVE, COVE_INJECT_SECONDS="400",
                                  COVE_PROBE=os.path.join(BUILD, "tests/escape/escape-probe"))) and ok
    return ok


def products():
    """The installed programs; the two that run inside a sandbox are static and have no counters."""
    folder = os.path.join(BUILD, "src/main")
    return [COVE] + [os.path.join(folder, n) for n in sorted(os.listdir(folder))
                     if n.startswith("cove") and n not in ("cove", "cove-runtime", "cove-probe") and not n.endswith(".p")]


def programs():
    """Every program of the build that was compiled with counters."""
    found = products()
    for suite in ("unit", "contract", "fuzz"):
        folder = os.path.join(BUILD, "tests", suite)
        found += [os.path.join(folder, n) for n in sorted(os.listdir(folder))
                  if os.path.isfile(os.path.join(folder, n)) and os.access(os.path.join(folder, n), os.X_OK)]
    return [p for p in found if os.path.exists(p)]


def gather():
    raw = [os.path.join(PROFILE, n) for n in sorted(os.listdir(PROFILE)) if n.endswith(".profraw")]
    return raw and say([tool("llvm-profdata"), "merge", "-sparse", "-o", DATA, *raw])


def objects():
    first, *rest = programs()
    return [first] + [word for p in rest for word in ("-object", p)]


def table():
    out = subprocess.run([tool("llvm-cov"), "export", "-summary-only", "-instr-profile", DATA, *objects()], cwd=ROOT,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    components, files = {}, []
    for entry in json.loads(out)["data"][0]["files"]:
        name = os.path.relpath(entry["filename"], ROOT)
        parts = name.split("/")
        if parts[0] != "src" or len(parts) < 3:
            continue
        lines = entry["summary"]["lines"]
        component = components.setdefault(os.path.dirname(name)[len("src/"):], [0, 0])
        component[0] += lines["covered"]
        component[1] += lines["count"]
        files.append((lines["covered"], lines["count"], name))
    print(f"{'component':<16} {'lines':>7} {'executed':>9} {'':>8}")
    for component, (covered, count) in sorted(components.items(), key=lambda r: (r[0] not in HELD, r[0])):
        share = 100 * covered / count
        note = "" if component not in HELD else "  goal reached" if share >= GOAL else f"  goal {GOAL:.0f} %"
        print(f"{component:<16} {count:>7} {covered:>9} {share:>6.1f} %{note}")
    covered, count = (sum(r[i] for r in components.values()) for i in (0, 1))
    print(f"{'all':<16} {count:>7} {covered:>9} {100 * covered / count:>6.1f} %")
    worst = sorted((f for f in files if os.path.dirname(f[2])[len("src/"):] in HELD and f[0] < f[1]), key=lambda f: f[0] - f[1])
    print("most lines that were not executed:" +
          ", ".join(f"{name} {count - covered}" for covered, count, name in worst[:8]))
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        print("this host has no pure cgroup v2: the lines that need its controllers count as not executed here, and "
              "`make check-vm` runs them without counting")


def lines(names):
    """Prints FILE:LINE: text of each line that was compiled and never executed."""
    out = subprocess.run([tool("llvm-cov"), "export", "-format=lcov", "-instr-profile", DATA, *objects()], cwd=ROOT,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    text = []
    for line in out.splitlines():
        key, _, value = line.partition(":")
        if key == "SF":
            name = os.path.relpath(value, ROOT)
            if name in names:
                with open(os.path.join(ROOT, name), encoding="utf-8") as f:
                    text = f.read().splitlines()
        elif key == "DA" and name in names:
            number, count = value.split(",")[:2]
            if count == "0" and int(number) <= len(text):
                print(f"{name}:{number}: {text[int(number) - 1]}")


def main():
    args = sys.argv[1:]
    ok = True
    if "--keep" not in args:
        if not build():
            return 1
        ok = measure()
        if not gather():
            return 1
    if "--lines" in args:
        lines(args[args.index("--lines") + 1:])
    else:
        table()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
