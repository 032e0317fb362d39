"""times.py - seconds of each task: they decide the order of tasks and how many run at the same
time.

build/logs/times.json has those of this machine; the table in this directory, measured on two cores,
is used before. `tests/check --record` writes the table from build/logs/times.json.
"""
import contextlib
import json
import os

DEFAULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "times.json")
UNKNOWN = (5.0, 2.5)  # seconds of elapsed and CPU time that are assumed for a task without a record


def load(path):
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as f:
        return {name: (float(wall), float(cpu)) for name, (wall, cpu) in json.load(f).items()}
    return {}


class Times:
    def __init__(self, path, defaults=DEFAULTS):
        self.path, self.known = path, {**load(defaults), **load(path)}

    def wall(self, task):
        return self.known.get(task.id, UNKNOWN)[0]

    def weight(self, task):
        """Cores that the task keeps busy, from 0.2 to 1."""
        wall, cpu = self.known.get(task.id, UNKNOWN)
        return min(1.0, max(0.2, cpu / wall if wall > 0 else 1.0))

    def record(self, task):
        self.known[task.id] = (round(task.wall, 1), round(task.cpu, 1))

    def save(self, path=None, only=None):
        """Saves the times; only: ids to keep, so that the file has no old names."""
        rows = sorted((k, v) for k, v in self.known.items() if only is None or k in only)
        with open(path or self.path, "w", encoding="utf-8") as f:
            f.write("{\n" + ",\n".join(f"  {json.dumps(name)}: [{wall}, {cpu}]" for name, (wall, cpu) in rows) + "\n}\n")
