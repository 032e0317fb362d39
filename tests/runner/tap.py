"""tap.py - results of test programs, read from the TAP that they print."""
import re

LINE = re.compile(r"^(not ok|ok)\b\s*(\d+)?\s*-?\s*(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*skip\S*\s*(.*))?$", re.I)


class Result:
    """One test. `title` is its name as the program prints it; None for a result that the runner
    added."""

    def __init__(self, name, status, detail="", title=None):
        self.name, self.status, self.detail, self.title = name, status, detail, title


def parse_tap(output, code, name):
    """Results of one program. Missing tests, a failing exit status without a failed test and no
    test at all are failures."""
    results, planned, notes = [], None, []
    for line in output.splitlines():
        plan, match = PLAN.match(line), LINE.match(line)
        if plan:
            planned = int(plan.group(1))
            if planned == 0:
                results.append(Result(name, "skipped", plan.group(2) or "no reason given"))
        elif match:
            title, _, directive = match.group(3).partition("#")
            title = title.strip()
            full = f"{name}: {title}" if title else name
            skip = re.match(r"\s*skip\S*\s*(.*)", directive, re.I)
            if skip and match.group(1) == "ok":
                results.append(Result(full, "skipped", skip.group(1) or "no reason given", title))
            else:
                results.append(Result(full, "passed" if match.group(1) == "ok" else "failed", title=title))
        elif line.startswith("#") and results and results[-1].status == "failed":
            results[-1].detail += line[1:].strip() + "\n"
        elif line.startswith("Bail out!"):
            results.append(Result(f"{name}: {line}", "failed"))
        elif not line.startswith("#"):
            notes.append(line)
    failed = any(r.status == "failed" for r in results)
    if code != 0 and not failed:
        results.append(Result(f"{name}: ended with status {code}", "failed", "\n".join(output.splitlines()[-60:])))
    elif planned and len(results) < planned:
        results.append(Result(f"{name}: {len(results)} of {planned} tests ran", "failed", "\n".join(notes[-30:])))
    elif not results:
        results.append(Result(f"{name}: no result", "failed", output[-4000:]))
    return results


def parse_status(output, code, name):
    """The result of a command that reports by its exit status only."""
    return [Result(name, "passed" if code == 0 else "failed", "" if code == 0 else "\n".join(output.splitlines()[-80:]))]


def parse_exitcode(output, code, name):
    """The same for a test of Meson's protocol `exitcode`, where 77 is a skip."""
    return [Result(name, {0: "passed", 77: "skipped"}.get(code, "failed"), output[-6000:])]
