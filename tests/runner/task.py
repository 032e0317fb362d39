"""task.py - one program run of a suite: a test program, a shard of a script, a build step,
clang-tidy of a file.
"""
import os
import re
import time

from runner.tap import Result, parse_status

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CPU, SANDBOX = "cpu", "sandbox"  # lanes, see schedule.py


class Task:
    """The command of a task and its conditions.

    command     argument list; or work, a function that gets `run` (as Processes.run) and returns
                results
    parse       (output, exit status, label) -> results
    label       prefix of the results' names; the shards of a script share one
    needs       ids of tasks that have to pass first
    lane        CPU: compilers, checkers, unit tests; SANDBOX: suites that make sandboxes and mostly
                wait
    weight      cores that the task keeps busy; None: taken from recorded times
    exclusive   counts leftovers on the whole host: no other task of the lane SANDBOX runs at the
                same time
    quiet       a passing result is not counted: the task is a condition of others, not a test
    select      title of a failed test -> (arguments, environment) that run only this test, or None;
                a task without it is repeated as a whole
    whole       the command without its shard, to which `select` adds arguments
    key         title -> the part of it that stays the same from one run to the next
    then        () -> further tasks, called when this one has passed: tests that are known only
                after a set-up
    """

    def __init__(self, suite, name, command=None, *, work=None, parse=parse_status, label=None, env=None, timeout=900, cwd=ROOT,
                 needs=(), lane=CPU, weight=None, nice=0, exclusive=False, quiet=False, select=None, whole=None, key=str, then=None,
                 expands=()):
        self.suite, self.name, self.command, self.work, self.parse = suite, name, command, work, parse
        self.label = label or name
        self.env, self.timeout, self.cwd, self.needs, self.lane = env or {}, timeout, cwd, set(needs), lane
        self.weight, self.nice, self.exclusive, self.quiet = weight, nice, exclusive, quiet
        self.select, self.whole, self.key, self.then = select, whole or command, key, then
        self.expands = expands  # suites that `then` adds tasks to
        self.results, self.wall, self.cpu, self.log = [], 0.0, 0.0, ""

    @property
    def id(self):
        return f"{self.suite}: {self.name}"

    def failures(self):
        return [r for r in self.results if r.status == "failed"]

    def execute(self, processes, env=None):
        """Runs it; results, times and log are kept in the task."""
        self.cpu, self.log, began = 0.0, "", time.monotonic()
        if self.work:
            self.results = self.work(lambda command, **options: self._run(processes, command, env, **options))
        else:
            self.results = self._attempt(processes, self.command, env)
        self.wall = time.monotonic() - began

    def repeat(self, processes, env=None):
        """Runs the failed tests once more. Returns [(first failure, passed now)]; the results
        become those of both runs."""
        first, known = self.failures(), {self.key(r.title): r for r in self.results if r.title is not None}
        chosen = [self.select(r.title) if self.select and r.title else None for r in first]
        if self.work or None in chosen:
            self.execute(processes, env)
            again = self.results
            now = {self.key(r.title): r for r in again if r.title is not None}
            all_keys, known = set(known), {k for k, r in known.items() if r.status == "passed"}
            once = [r for r in again if r.status == "failed" and r.title is not None and self.key(r.title) in known]
            clean = all(r.status != "failed" or r in once for r in again)
            verdicts = []
            for r in first:
                same = now.get(self.key(r.title)) or renumbered(r.title, now, all_keys) if r.title is not None else None
                passed = clean if r.title is None else same is not None and same.status == "passed"
                verdicts.append((r, passed))
                if not passed and (same is None or same.status != "failed") and clean:
                    again.append(r)  # it was not run this time, or skipped: the first verdict stays
            for r in once:  # it passed the first time
                verdicts.append((Result(r.name, "failed", r.detail, r.title), True))
                r.status, r.detail = "passed", ""
            return verdicts
        verdicts, self.cpu, self.log, began = [], 0.0, "", time.monotonic()
        for result, (words, extra) in zip(first, chosen):
            again = self._attempt(processes, [*self.whole, *words], {**(env or {}), **extra})
            same = [r for r in again if r.title is not None and self.key(r.title) == self.key(result.title)]
            passed = bool(same) and all(r.status == "passed" for r in same) and not any(
                r.status == "failed" and r.title is None for r in again)
            verdicts.append((Result(result.name, "failed", result.detail, result.title), passed))
            if passed:
                result.status, result.detail = "passed", ""
        self.wall = time.monotonic() - began
        return verdicts

    def _attempt(self, processes, command, env):
        done = self._run(processes, command, env)
        return self.parse(done.output, done.code, self.label)

    def _run(self, processes, command, env, log=True, **options):
        options = {"timeout": self.timeout, "cwd": self.cwd, "nice": self.nice, **options}
        done = processes.run(command, {**self.env, **(env or {})}, **options)
        self.cpu += done.cpu
        if log:
            self.log += f"$ {' '.join(map(str, command))}\n{done.output}\n[{done.code}] {done.wall:.1f} s, {done.cpu:.1f} s of CPU time\n\n"
        return done


def renumbered(title, now, before):
    """The result of a test whose title contains a measured number, so that only the rest of it is
    the same in both runs."""
    shape = re.sub(r"\d+", "0", title)
    found = [r for key, r in now.items() if key not in before and re.sub(r"\d+", "0", r.title) == shape]
    return found[0] if len(found) == 1 else None
