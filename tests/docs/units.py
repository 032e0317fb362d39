#!/usr/bin/env python3
"""units.py - checks the units of deploy/systemd against the build, without starting them.

Prints TAP. For every unit: systemd-analyze verify has no warning (skipped where it is missing). For
every service: `make install` installs the program of ExecStart at that path, and the program knows
the verb and every flag. The flags are checked by a command line with one more, unknown flag: the
program must refuse that one and no other, and starts nothing. tests/vm/units.py starts the units.
"""
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
UNITS = os.path.join(ROOT, "deploy/systemd")
PREFIX = "/usr/local"  # the default of the Makefile, which the units are written for
PLACES = {"{bindir}": PREFIX + "/bin", "{libexecdir}": PREFIX + "/libexec"}
UNKNOWN = "--no-such-flag"


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)


def installed():
    """{path after `make install`: path in the build} of the programs"""
    with open(os.path.join(BUILD, "meson-info/intro-install_plan.json"), encoding="utf-8") as f:
        plan = json.load(f)["targets"]
    found = {}
    for source, target in plan.items():
        place, _, name = target["destination"].partition("/")
        if place in PLACES:
            found[f"{PLACES[place]}/{name}"] = source
    return found


def commands(path):
    """The command lines of a unit that start a program of cove, as lists of words, without
    variables, which are empty by default."""
    with open(path, encoding="utf-8") as f:
        lines = re.findall(r"^Exec\w+=[-+!@:]*(.+)$", f.read(), re.M)
    return [[word for word in words if word[0] != "$"] for words in map(shlex.split, lines)
            if words[0].startswith(PREFIX + "/")]


def wrong_command(words, programs):
    if words[0] not in programs:
        return [f"{words[0]}: make install does not install it"]
    done = run(programs[words[0]], *words[1:], UNKNOWN, "x")
    refused = re.findall(r"'([^']+)' is not an? (?:option|flag)", done.stderr)
    if done.returncode == 2 and refused == [UNKNOWN]:
        return []
    return [f"{shlex.join(words)}: {done.stderr.strip()}"]


def wrong_service(path, programs):
    found = commands(path)
    if not found:
        return ["no command line starts a program of cove"]
    return [line for words in found for line in wrong_command(words, programs)]


def wrong_for_systemd(units, programs):
    """Lines of systemd-analyze about copies of the units that name the programs of the build."""
    with tempfile.TemporaryDirectory(prefix="cove-units-") as place:
        copies = []
        for path in units:
            with open(path, encoding="utf-8") as f:
                text = re.sub(rf"(?<==){PREFIX}/\S+", lambda m: programs.get(m[0], m[0]), f.read())
            copies.append(os.path.join(place, os.path.basename(path)))
            with open(copies[-1], "w", encoding="utf-8") as f:
                f.write(text)
        done = run("systemd-analyze", "verify", "--man=no", *copies)
    lines = (done.stdout + done.stderr).splitlines()
    of_ours = [line for line in lines if "cove" in line]
    return of_ours if of_ours or done.returncode == 0 else lines


def main():
    programs = installed()
    services = sorted(glob.glob(UNITS + "/*.service"))
    units = services + sorted(glob.glob(UNITS + "/*.socket") + glob.glob(UNITS + "/*.target"))
    results = [(f"{os.path.basename(path)} starts an installed program with flags that it knows",
                wrong_service(path, programs)) for path in services]
    results.append(("the services were found", [] if len(services) >= 3 else [f"only {services}"]))
    if shutil.which("systemd-analyze"):
        wrong = wrong_for_systemd(units, programs)
        results.append(("systemd-analyze verify has no warning", wrong))
    else:
        results.append(("systemd-analyze verify # SKIP systemd-analyze is not installed", []))
    for number, (name, wrong) in enumerate(results, 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}")
        for line in "\n".join(wrong).splitlines():
            print(f"# {line}")
    print(f"1..{len(results)}")
    return 1 if any(wrong for _, wrong in results) else 0


if __name__ == "__main__":
    sys.exit(main())
