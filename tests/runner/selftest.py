"""selftest.py - tests of the runner: counting, repeating, skipping and ordering."""
import contextlib
import os
import sys
import tempfile
import time
import traceback

from runner.parents import Parents
from runner.process import Processes
from runner.schedule import Schedule
from runner.tap import Result, parse_tap
from runner.task import CPU, SANDBOX, Task
from runner.times import Times

COUNTS = [
    ("all pass", "1..2\nok 1 - a\nok 2 - b\n", 0, (2, 0, 0)),
    ("one fails", "ok 1 - a\nnot ok 2 - b\n# why\n1..2\n", 1, (1, 1, 0)),
    ("a skip has its reason", "1..1\nok 1 - a # SKIP no root\n", 0, (0, 0, 1)),
    ("a whole program is skipped", "1..0 # SKIP nothing to do\n", 0, (0, 0, 1)),
    ("a crash after passing tests", "1..2\nok 1 - a\nok 2 - b\n", 139, (2, 1, 0)),
    ("a test that never ran", "1..3\nok 1 - a\nok 2 - b\n", 0, (2, 1, 0)),
    ("silence", "", 0, (0, 1, 0)),
    ("bail out", "1..2\nok 1 - a\nBail out! no memory\n", 0, (1, 1, 0)),
    ("not ok is not skipped away", "1..1\nnot ok 1 - a # SKIP\n", 1, (0, 1, 0)),
]
# Prints TAP for the tests a, b and c, and notes in a file each test that it runs. BAD=a:1,b:9 makes
# the first run of a and the first nine runs of b fail; CRASH=1 ends the first run by SIGKILL after
# a. Arguments choose tests.
PROGRAM = """
import os, signal, sys
notes = os.environ["NOTES"]
chosen = [w for w in sys.argv[1:] if w in "abc"] or list("abc")
ran = open(notes).read().split() if os.path.exists(notes) else []
bad = dict(w.split(":") for w in os.environ.get("BAD", "").split(",") if w)
print(f"1..{len(chosen)}", flush=True)
code = 0
for i, name in enumerate(chosen, 1):
    with open(notes, "a") as f:
        f.write(name + "\\n")
    good = ran.count(name) >= int(bad.get(name, 0))
    print(f"{'ok' if good else 'not ok'} {i} - {name}" + ("" if good else "\\n# it did not hold"), flush=True)
    code = code or int(not good)
    if os.environ.get("CRASH") and not ran:
        os.kill(os.getpid(), signal.SIGKILL)
sys.exit(code)
"""


class Scene:
    """A schedule in its own directory."""

    def __init__(self, directory):
        self.dir, self.said = directory, []

    def task(self, name, select=False, suite="x", **options):
        env = {"NOTES": os.path.join(self.dir, name), **options.pop("env", {})}
        return Task(suite, name, [sys.executable, "-c", PROGRAM], parse=parse_tap, env=env, timeout=options.pop("timeout", 60),
                    select=(lambda title: ([title], {})) if select else None, **options)

    def ran(self, name):
        path = os.path.join(self.dir, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as f:
            return "".join(f.read().split())

    def run(self, *tasks, jobs=2):
        schedule = Schedule(tasks, Processes(), Times(os.path.join(self.dir, "times"), os.devnull), jobs, self.dir, self.said.append)
        schedule.run()
        return schedule


def counted(schedule):
    results = [r for t in schedule.tasks for r in t.results]
    return tuple(sum(r.status == s for r in results) for s in ("passed", "failed", "skipped"))


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r}, expected {expected!r}")


# --- repeating ---

def test_flaky_test_passes_and_is_listed(scene):
    schedule = scene.run(scene.task("p", True, env={"BAD": "b:1"}))
    equal(counted(schedule), (3, 0, 0))
    equal([(f.name, f.text) for f in schedule.flaky], [("p: b", "it did not hold")])
    equal(scene.ran("p"), "abcb")


def test_test_that_fails_twice_fails(scene):
    schedule = scene.run(scene.task("p", True, env={"BAD": "b:2"}))
    equal((counted(schedule), schedule.flaky), ((2, 1, 0), []))


def test_one_flaky_and_one_broken_test_are_distinguished(scene):
    schedule = scene.run(scene.task("p", True, env={"BAD": "a:1,c:9"}))
    equal((counted(schedule), [f.name for f in schedule.flaky]), ((2, 1, 0), ["p: a"]))


def test_program_without_selection_is_repeated_as_a_whole(scene):
    schedule = scene.run(scene.task("p", env={"BAD": "a:1,c:9"}))
    equal((counted(schedule), [f.name for f in schedule.flaky], scene.ran("p")), ((2, 1, 0), ["p: a"], "abcabc"))


def test_crash_is_repeated_and_missing_tests_are_counted_then(scene):
    schedule = scene.run(scene.task("p", True, env={"CRASH": "1"}))
    equal((counted(schedule), len(schedule.flaky), scene.ran("p")), ((3, 0, 0), 1, "aabc"))


def test_crash_hides_no_test_that_failed(scene):
    schedule = scene.run(scene.task("p", True, env={"CRASH": "1", "BAD": "a:9"}))
    equal((counted(schedule), schedule.flaky), ((2, 1, 0), []))


def test_skip_in_the_second_run_does_not_count_as_passed(scene):
    outputs = [("1..1\nnot ok 1 - a\n", 1), ("1..1\nok 1 - a # SKIP not now\n", 0)]
    task = Task("x", "p", work=lambda run: parse_tap(*outputs.pop(0), "p"))
    schedule = scene.run(task)
    equal((counted(schedule)[1], schedule.flaky), (1, []))


def test_title_with_a_measured_number_is_recognized(scene):
    outputs = [("1..2\nnot ok 1 - 300 runs, 17 a second\nok 2 - b\n", 1), ("1..2\nok 1 - 300 runs, 25 a second\nok 2 - b\n", 0)]
    schedule = scene.run(Task("x", "p", work=lambda run: parse_tap(*outputs.pop(0), "p")))
    equal((counted(schedule), [f.name for f in schedule.flaky]), ((2, 0, 0), ["p: 300 runs, 17 a second"]))


def test_failed_task_is_repeated_when_nothing_else_runs(scene):
    active, most = [], []

    def work(run, name, fail):
        active.append(name)
        run(["sleep", "0.2"])
        if name == "p" and not fail:
            most.append(list(active))
        active.remove(name)
        return [Result(name, "failed" if fail else "passed")]

    tries = [True, False]
    scene.run(Task("x", "p", work=lambda run: work(run, "p", tries.pop(0))),
              *[Task("x", f"q{i}", work=lambda run, i=i: work(run, f"q{i}", False)) for i in range(4)])
    equal(most, [["p"]])


# --- dependencies ---

def test_dependants_of_a_failed_task_are_not_run_and_fail(scene):
    schedule = scene.run(scene.task("p", env={"BAD": "a:9"}), scene.task("q", needs=["x: p"]), scene.task("r", needs=["x: q"]),
                         scene.task("s"))
    equal([(r.status, r.detail) for t in schedule.tasks if t.name in "qr" for r in t.results], [("failed", "not run: x: p failed")] * 2)
    equal((scene.ran("q"), scene.ran("r"), scene.ran("s")), ("", "", "abc"))


def test_dependants_run_when_the_repetition_passes(scene):
    schedule = scene.run(scene.task("p", env={"BAD": "a:1"}), scene.task("q", needs=["x: p"]))
    equal((counted(schedule), scene.ran("q")), ((6, 0, 0), "abc"))


def test_suite_that_could_not_be_listed_fails(scene):
    schedule = scene.run(scene.task("p", env={"BAD": "a:9"}, expands=["y"], then=lambda: [scene.task("q", suite="y")]))
    equal([(t.suite, r.status) for t in schedule.tasks if t.suite == "y" for r in t.results], [("y", "failed")])


def test_tasks_are_added_when_a_set_up_has_passed(scene):
    schedule = scene.run(scene.task("p", expands=["y"], then=lambda: [scene.task("q", suite="y", needs=["x: p"])]))
    equal((counted(schedule), scene.ran("q")), ((6, 0, 0), "abc"))


def test_task_that_never_becomes_ready_is_an_error(scene):
    try:
        scene.run(scene.task("p", needs=["x: nothing of this name"]))
    except RuntimeError:
        return
    raise AssertionError("the schedule ended without an error")


# --- running at the same time ---

def overlap(scene, tasks, jobs):
    """The largest number of these (name, options) that ran at the same time, by name."""
    active, seen = [], []

    def work(run, name):
        active.append(name)
        seen.append(list(active))
        run(["sleep", "0.15"])
        active.remove(name)
        return [Result(name, "passed")]

    scene.run(*[Task("x", name, work=lambda run, name=name: work(run, name), **options) for name, options in tasks], jobs=jobs)
    return seen


def test_tasks_use_every_slot_and_no_more(scene):
    seen = overlap(scene, [(f"p{i}", {"lane": CPU}) for i in range(6)], 3)
    equal(max(map(len, seen)), 3)


def test_exclusive_task_runs_without_other_sandboxes(scene):
    others = [(f"p{i}", {"lane": SANDBOX, "weight": 0.2}) for i in range(6)]
    seen = overlap(scene, [("early", {"lane": SANDBOX, "exclusive": True}),
                           ("late", {"lane": SANDBOX, "exclusive": True, "needs": ["x: p0"]}), *others], 2)  # ready while others run
    equal([names for names in seen if {"early", "late"} & set(names) and len(names) > 1], [])
    equal(max(map(len, seen)), 4)


def test_each_task_with_sandboxes_has_its_own_cgroup_parent(scene):
    path = os.path.join(scene.dir, "parents")
    command = ["sh", "-c", f"echo \"${{COVE_CGROUP_PARENT:-none}}\" >>{path}; sleep 0.3"]
    scene.run(*[Task("x", f"p{i}", command, lane=SANDBOX, weight=0.2) for i in range(4)],
              Task("x", "e", command, lane=SANDBOX, exclusive=True), Task("x", "c", command))
    with open(path, encoding="ascii") as f:
        found = f.read().split()
    equal((found.count("none"), len(set(found) - {"none"})), (2, 4))


def test_two_runs_have_no_cgroup_parent_in_common(scene):
    one, other = Parents(3, scene.dir), Parents(2, scene.dir)
    equal((one.free, other.free), (["cove-t0", "cove-t1", "cove-t2"], ["cove-t3", "cove-t4"]))
    one.close()
    third = Parents(1, scene.dir)
    equal(third.free, ["cove-t0"])
    third.close()
    other.close()


def test_outputs_of_tasks_are_not_mixed_in_the_log(scene):
    command = ["sh", "-c", "for i in 1 2 3 4 5; do echo \"line of $0\"; sleep 0.03; done"]
    scene.run(*[Task("x", name, [*command, name]) for name in ("p", "q")])
    with open(os.path.join(scene.dir, "x.log"), encoding="utf-8") as f:
        lines = [line.split()[-1] for line in f if line.startswith("line of")]
    equal(sorted(["".join(lines[:5]), "".join(lines[5:])]), ["ppppp", "qqqqq"])


def test_command_past_its_deadline_fails_with_its_group(scene):
    pid = os.path.join(scene.dir, "pid")
    schedule = scene.run(Task("x", "p", ["sh", "-c", f"sleep 600 & echo $! >{pid}; wait"], timeout=3))
    equal(counted(schedule), (0, 1, 0))
    with open(pid, encoding="ascii") as f:
        state = f"/proc/{f.read().strip()}/stat"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it was reaped
        deadline = time.monotonic() + 20  # a killed process stays runnable until it gets a CPU
        while True:
            with open(state, encoding="ascii") as f:
                found = f.read().split()[2]
            if found == "Z":
                break
            if time.monotonic() > deadline:
                equal(found, "Z")
            time.sleep(0.02)


def results(_run):
    found = []
    for name, output, code, expected in COUNTS:
        parsed = parse_tap(output, code, "x")
        got = tuple(sum(r.status == s for r in parsed) for s in ("passed", "failed", "skipped"))
        found.append(Result(f"counts: {name}", "passed" if got == expected else "failed", f"{got}, expected {expected}"))
    for name, function in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory(prefix="cove-check-") as directory:
                try:
                    function(Scene(directory))
                    found.append(Result(name[5:].replace("_", " "), "passed"))
                except Exception:
                    found.append(Result(name[5:].replace("_", " "), "failed", traceback.format_exc()))
    return found
