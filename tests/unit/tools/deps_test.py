#!/usr/bin/env python3
"""deps_test DEPS - the package sets of tools/deps, with fake apt-get, dpkg-query, id and sudo.

Nothing is installed: the fakes record their arguments in a file, and apt-get fails for the packages
of FAIL.
"""
import os
import subprocess
import sys
import tempfile
import traceback

DEPS = sys.argv[1]
DATA = ["python3-numpy", "python3-pandas", "python3-matplotlib"]
PROGRAMS = {
    "apt-get": """echo "apt-get $*" >>"$NOTES"; for word in $FAIL; do case " $* " in *" $word "*) exit 100 ;; esac; done; exit 0""",
    "dpkg-query": """for word in $HAVE; do echo "ii $word"; done""",
    "id": "echo 1000",
    "sudo": """[ -z "$REFUSE" ] || exit 1; case $1 in env | apt-get) exec "$@" ;; tee) cat >/dev/null ;; esac""",
}


def deps(*words, have=(), fail=(), without=(), **env):
    with tempfile.TemporaryDirectory(prefix="cove-deps-") as place:
        for name, text in PROGRAMS.items():
            if name not in without:
                with open(os.path.join(place, name), "w", encoding="ascii") as f:
                    f.write(f"#!/bin/sh\n{text}\n")
                os.chmod(f.name, 0o755)
        for tool in ("sh", "sed", "tr", "cat", "env", "rm"):
            os.symlink(f"/bin/{tool}", os.path.join(place, tool))
        notes = os.path.join(place, "notes")
        done = subprocess.run(["/bin/sh", DEPS, *words], text=True, capture_output=True, timeout=60, check=False,
                              env={"PATH": place, "NOTES": notes, "HAVE": " ".join(have), "FAIL": " ".join(fail), **env})
        asked = ""
        if os.path.exists(notes):
            with open(notes, encoding="ascii") as f:
                asked = f.read()
        return done.returncode, done.stdout + done.stderr, asked


def test_runtimes_name_what_the_builtin_templates_run():
    code, out, _ = deps("--list", "runtimes")
    assert (code, out.split()) == (0, ["bash", "nodejs", "python3", *DATA]), out


def test_missing_packages_of_runtimes_are_installed_together():
    code, out, asked = deps("--optional", "runtimes", have=["bash", "python3"])
    assert code == 0, out
    assert asked.splitlines()[0].endswith("install nodejs " + " ".join(DATA)), asked


def test_data_no_omits_the_data_packages_and_reports_it_in_one_line():
    code, out, asked = deps("--optional", "runtimes", DATA="no", have=["bash", "python3", "nodejs"])
    assert (code, asked) == (0, ""), asked
    assert len(out.splitlines()) == 1 and "python-data" in out and all(name in out for name in DATA), out


def test_optional_package_that_fails_is_named_and_the_others_are_installed():
    code, out, asked = deps("--optional", "runtimes", have=["bash", "python3"], fail=["python3-pandas"])
    assert code == 0, out
    assert "not installed: python3-pandas;" in out and "apt-get install python3-pandas" in out, out
    assert any(line.endswith("install nodejs") for line in asked.splitlines()), asked


def test_optional_packages_without_a_way_to_install_them_are_no_stop():
    for options in ({"without": ["apt-get"]}, {"without": ["sudo"]}, {"REFUSE": "1"}):
        code, out, _ = deps("--optional", "runtimes", **options)
        assert code == 0 and "python3-numpy" in out and "going on without them" in out, (options, out)


def test_required_package_that_fails_is_a_stop():
    for options in ({"fail": ["gcc"]}, {"without": ["apt-get"]}, {"without": ["sudo"]}):
        code, out, _ = deps("build", **options)
        assert code != 0, (options, out)


def main():
    tests = [(name[5:].replace("_", " "), value) for name, value in globals().items() if name.startswith("test_")]
    bad = 0
    print(f"1..{len(tests)}")
    for i, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {i} - {name}", flush=True)
        except Exception:
            bad += 1
            print(f"not ok {i} - {name}", *traceback.format_exc().splitlines(), sep="\n# ", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
