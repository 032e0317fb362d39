"""report.py - the output and the files of a run of tests/check."""
import json
import os
import time

STATUSES = ("passed", "failed", "skipped")


def processor_times():
    """(busy time, total time) of all cores, in ticks."""
    with open("/proc/stat", encoding="ascii") as f:
        fields = [int(n) for n in f.readline().split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


class Report:
    def __init__(self, logs):
        self.logs, self.began, self.ticks = logs, time.monotonic(), processor_times()

    def progress(self, text):
        seconds = int(time.monotonic() - self.began)
        print(f"[{seconds // 60:2}:{seconds % 60:02}] {text}", flush=True)

    def suite(self, name, tasks, work):
        """Prints the line of one suite with its failures and skips; returns its counts."""
        results = [r for t in tasks for r in t.results if not (t.quiet and r.status == "passed")]
        count = {s: sum(r.status == s for r in results) for s in STATUSES}
        line = f"{name:<10} {count['passed']:>5} passed"
        for status in STATUSES[1:]:
            if count[status]:
                line += f", {count[status]} {status}"
        seconds = sum(t.wall for t in tasks)
        print(f"{line:<48} {seconds:7.1f} s {100 * seconds / work if work else 0:3.0f} %")
        for result in results:
            if result.status == "failed":
                print(f"  FAILED {result.name}")
                for text in result.detail.strip().splitlines():
                    print(f"    {text}")
        skips = {}
        for result in results:
            if result.status == "skipped":
                skips.setdefault(result.detail, []).append(result.name)
        for reason, names in skips.items():
            print(f"  skipped {', '.join(names)}: {reason}")
        if count["failed"]:
            print(f"  complete output: build/logs/{name}.log")
        return count

    def close(self, schedule, order, jobs):
        """The whole report; the last line is the count. Returns the counts."""
        total, work = dict.fromkeys(STATUSES, 0), sum(t.wall for t in schedule.tasks)
        for name in order:
            mine = [t for t in schedule.tasks if t.suite == name]
            if any(not t.quiet or t.failures() for t in mine):
                for status, n in self.suite(name, mine, work).items():
                    total[status] += n
        for flaky in schedule.flaky:
            print(f"flaky {flaky.suite}: {flaky.name}")
            for text in flaky.text.splitlines()[-12:]:
                print(f"    {text}")
        with open(os.path.join(self.logs, "flaky.json"), "w", encoding="utf-8") as f:
            json.dump([flaky.as_json() for flaky in schedule.flaky], f, indent=1)
            f.write("\n")
        busy, whole = (now - before for now, before in zip(processor_times(), self.ticks))
        longest = sorted(schedule.tasks, key=lambda t: -t.wall)[:5]
        print("longest: " + ", ".join(f"{t.name} {t.wall:.0f} s" for t in longest))
        if schedule.flaky:
            print(f"{len(schedule.flaky)} flaky, see build/logs/flaky.json")
        print(f"in {time.monotonic() - self.began:.0f} s with {jobs} jobs, CPUs {100 * busy / max(whole, 1):.0f} % busy, logs in build/logs")
        summary = ", ".join(f"{total[s]} {s}" for s in STATUSES)
        with open(os.path.join(self.logs, "summary"), "w", encoding="utf-8") as f:
            f.write(summary + "\n")
        print(summary, flush=True)
        return total
