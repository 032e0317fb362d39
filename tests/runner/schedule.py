"""schedule.py - runs tasks as a graph on all cores.

There are two lanes. CPU has as many slots as the machine has cores. SANDBOX has twice as many slots
for suites that mostly wait, as long as their known CPU time fits the cores as well; both lanes
together keep the cores busy, and compilers and checkers run at a lower priority, so that a sandbox
with a deadline is not delayed by them. In each lane the task with the longest path to the end
starts first: its own time and that of the longest chain of tasks that need it.

A failed task is run once more when nothing else runs, so that load cannot be the reason; a test
that passes then is reported as flaky. When it fails again, the tasks that need it fail without
being run.
"""
import os
import queue
import threading

from runner.parents import Parents
from runner.tap import Result
from runner.task import CPU, SANDBOX, Task


class Flaky:
    """A test that failed and then passed alone."""

    def __init__(self, task, name, text, first, second):
        self.suite, self.name, self.text, self.first, self.second = task.suite, name, text, first, second

    def as_json(self):
        return {"suite": self.suite, "name": self.name, "text": self.text,
                "failedAfterSeconds": round(self.first, 1), "passedAfterSeconds": round(self.second, 1)}


class Schedule:
    def __init__(self, tasks, processes, times, jobs, logs, report=lambda text: None):
        self.processes, self.times, self.jobs, self.logs, self.report = processes, times, jobs, logs, report
        self.tasks, self.waiting, self.running, self.passed = [], [], [], set()
        self.broken, self.failed, self.flaky = {}, [], []  # broken: id -> why its dependants cannot run
        self.ended = queue.Queue()
        self.parents = Parents(2 * jobs)
        self.open = {}  # suite -> tasks not yet finished
        self.expected = {}  # suite -> number of expanding tasks that have not ended
        self.add(tasks)

    def add(self, tasks):
        for task in tasks:
            self.tasks.append(task)
            self.waiting.append(task)
            self.open[task.suite] = self.open.get(task.suite, 0) + 1
            for suite in task.expands:
                self.expected[suite] = self.expected.get(suite, 0) + 1
        self.priorities = self._priorities()

    def _priorities(self):
        """id -> seconds from its start to the end of the longest chain; a task that adds tasks
        comes before all others."""
        dependants = {}
        for task in self.tasks:
            for need in task.needs:
                dependants.setdefault(need, []).append(task)
        found = {}

        def length(task):
            if task.id not in found:
                found[task.id] = 0.0
                found[task.id] = (1e6 if task.expands else 0.0) + self.times.wall(task) + max(
                    (length(d) for d in dependants.get(task.id, ())), default=0.0)
            return found[task.id]

        for task in self.tasks:
            length(task)
        return found

    def run(self):
        while True:
            self._skip_broken()
            self._start()
            if self.running:
                self._finish(self.ended.get())
            elif self.failed:
                needed = {need for task in self.waiting for need in task.needs}
                self.failed.sort(key=lambda t: not (t.expands or t.id in needed))
                self._repeat(self.failed.pop(0))
            else:
                break
        self.parents.close()
        if self.waiting:
            raise RuntimeError("tasks that never become ready: " + ", ".join(t.id for t in self.waiting))

    # --- starting ---

    def weight(self, task):
        return min(task.weight if task.weight is not None else 1.0 if task.lane == CPU else self.times.weight(task), self.jobs)

    def _fits(self, task):
        mates = [t for t in self.running if t.lane == task.lane]
        if task.lane == SANDBOX and (any(t.exclusive for t in mates) or (task.exclusive and mates) or not self.parents.free):
            return False
        return not mates or sum(map(self.weight, mates)) + self.weight(task) <= self.jobs + 1e-9

    def _start(self):
        # Without a running sandbox task, exclusive tasks come first: the next such moment may be
        # the end.
        alone = not any(t.lane == SANDBOX for t in self.running)
        ready = [t for t in self.waiting if t.needs <= self.passed]
        ready.sort(key=lambda t: (not (t.exclusive and alone), -self.priorities[t.id]))
        blocked = False
        for task in ready:
            if task.lane == CPU and blocked:
                continue
            if not self._fits(task):
                # A CPU task of several cores waits for them, and smaller ones do not overtake it
                # for ever.
                blocked = blocked or (task.lane == CPU and self.weight(task) > 1)
                continue
            self.waiting.remove(task)
            self.running.append(task)
            parent = self._take_parent(task)
            threading.Thread(target=self._work, args=(task, parent), daemon=True).start()

    def _take_parent(self, task):
        """A cgroup parent for its sandboxes, so that concurrent suites do not count each
        other's."""
        return self.parents.take() if task.lane == SANDBOX and not task.exclusive else None

    def _work(self, task, parent):
        try:
            task.execute(self.processes, {"COVE_CGROUP_PARENT": parent} if parent else None)
        except Exception as error:  # a defect of the runner must fail the task and not hang the schedule
            task.results = [Result(f"{task.name}: the runner failed", "failed", repr(error))]
        self.ended.put((task, parent))

    # --- ending ---

    def _finish(self, ended):
        task, parent = ended
        self.running.remove(task)
        if parent:
            self.parents.give(parent)
        self._log(task)
        if task.failures():
            self.failed.append(task)
            for result in task.failures():
                self.report(f"failed, will be run again: {task.suite}: {result.name}")
        else:
            self.times.record(task)
            self._conclude(task)

    def _repeat(self, task):
        first = task.wall
        verdicts = task.repeat(self.processes)
        self._log(task, "run again, alone: ")
        for result, passed in verdicts:
            if passed:
                self.flaky.append(Flaky(task, result.name, result.detail.strip(), first, task.wall))
                self.report(f"flaky: {task.suite}: {result.name}")
        task.wall += first
        self._conclude(task)

    def _conclude(self, task):
        """Makes the results final."""
        if task.failures():
            self.broken[task.id] = task.id
        else:
            self.passed.add(task.id)
            if task.then:
                self.add(task.then())
        for suite in task.expands:
            self.expected[suite] -= 1
            if task.failures():
                self._lose(suite, task.id)
        self._close(task.suite)

    def _lose(self, suite, why):
        """A suite whose tasks are unknown fails visibly."""
        unknown = Task(suite, f"tasks after {why}", work=lambda run: [])
        unknown.results = [Result(unknown.name, "failed", f"not run: {why} failed")]
        self.tasks.append(unknown)

    def _skip_broken(self):
        lost = True
        while lost:
            lost = [t for t in self.waiting if t.needs & set(self.broken)]
            for task in lost:
                why = self.broken[sorted(task.needs & set(self.broken))[0]]
                self.waiting.remove(task)
                task.results = [Result(task.label, "failed", f"not run: {why} failed")]
                self.broken[task.id] = why
                for suite in task.expands:
                    self.expected[suite] -= 1
                    self._lose(suite, why)
                self._close(task.suite)

    def _close(self, suite):
        self.open[suite] -= 1
        if self.open[suite] == 0 and not self.expected.get(suite):
            self.report(f"{suite} has ended")

    def _log(self, task, title=""):
        with open(os.path.join(self.logs, task.suite + ".log"), "a", encoding="utf-8") as f:
            f.write(f"--- {title}{task.name} ---\n{task.log}")
