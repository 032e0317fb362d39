#!/usr/bin/env python3
"""run.py [OPTION...] [FILE...] - runs the examples of README.md and docs/*.md, and prints TAP.

    tests/docs/run.py docs/run.md               the examples of one page
    tests/docs/run.py --only docs/run.md:232    the block with this title in TAP; the blocks before
                                                it run too, unreported
    tests/docs/run.py --shard 1/2               one of two parts, each of whole pages; parts may run
                                                at the same time
    tests/docs/run.py --times FILE              writes the seconds of every page to FILE, as JSON

A block is run when it is fenced as ```console. In it a line that begins with "$ " is a command (a
line ending in a backslash, or following lines that begin with "> ", continue it). The lines after a
command are its expected output, with "..." for any text, within a line or for any number of lines.
The output of a command without lines after it is not checked. A command must end with status 0
unless the page shows its status with a following "$ echo $?".

A block fenced as ```python is a whole program, run by a Python that has the package of sdk/python;
a block fenced as ```text directly after it is its expected output. The block is skipped if that
Python cannot be installed because PyPI is unreachable.

A block inside an HTML comment is run like any other, but the reader does not see it. Pages hide
their scaffolding that way: creating a temporary directory, starting a server in the background,
waiting until it is ready, removing it. The next block inherits exported variables and the working
directory; it does not inherit functions, aliases and jobs.

The blocks of one file share one scratch directory and run in order, as a reader would paste them. A
block fenced as ```console no-run REASON is skipped, and the reason is reported.

Pages show servers on fixed ports. A port that a page listens on is replaced by a free one in its
commands and in their output, and `cove run --keep` gets a state directory of the page, so that
pages can run at the same time as other pages and other servers. A server that a page leaves running
is ended after the page.
"""
import argparse
import functools
import glob
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
MARK = "cove-docs-end-of-command"
MARK_OF_PAGE = "DOCS_TEST_PAGE"  # a variable that processes of a page inherit


def blocks(path):
    """(line number, reason not to run or None, lines, language)"""
    inside = None
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip("\n")
            if inside is None:
                match = re.match(r"\s*```(console|python|text)(?:\s+no-run\b\s*(.*))?\s*$", line)
                if match:
                    inside = (number, None if "no-run" not in line else match.group(2) or "marked no-run", [], match.group(1))
            elif line.strip() == "```":
                yield inside
                inside = None
            else:
                inside[2].append(line)


def examples(path):
    """(line number, reason not to run or None, lines, output of a program; None for commands)"""
    found = list(blocks(path))
    for i, (number, reason, lines, language) in enumerate(found):
        if language == "console":
            yield number, reason, lines, None
        elif language == "python":
            behind = found[i + 1] if i + 1 < len(found) else None
            shown = behind and behind[3] == "text" and behind[0] - (number + len(lines)) <= 3
            yield number, reason, lines, behind[2] if shown else []


@functools.lru_cache(maxsize=None)
def python_with_package():
    """(its path, why there is none)"""
    done = subprocess.run([os.path.join(ROOT, "tests/sdk/run.py"), "--python"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=900)
    if done.returncode == 0:
        return done.stdout.strip(), None
    if done.returncode == 77:
        return None, done.stderr.strip()
    raise SystemExit(f"Bail out! {done.stderr}")


def commands(lines):
    """[(command, expected lines)]"""
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1] = (found[-1][0] + "\n" + line.removeprefix("> "), [])
        elif found and line.startswith("> ") and not found[-1][1]:
            found[-1] = (found[-1][0] + "\n" + line[2:], [])
        elif found:
            found[-1][1].append(line)
    return found


def pattern(expected):
    """A regular expression for the lines a document shows."""
    while expected and not expected[-1].strip():
        expected = expected[:-1]
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*?".join(re.escape(piece) for piece in line.rstrip().split("...")) + r"[ \t]*\n")
    return re.compile("".join(parts) + r"\s*\Z")


def run_block(shell_commands, env, directory, state):
    """Runs one block in one shell; the next block inherits its exported variables and directory."""
    script = [f"cd {directory}", f"[ -f {state} ] && . {state}", f"printf '\\n%s 0\\n' {MARK}"]
    for command, _ in shell_commands:
        script.append(f"{command}\n__status=$?; printf '\\n%s %s\\n' {MARK} $__status; (exit $__status)")
    script.append(f"{{ export -p; echo cd \"'$PWD'\"; }} >{state}")
    done = subprocess.run(["bash", "-c", "\n".join(script)], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    pieces = re.split(rf"\n{MARK} (\d+)\n", done.stdout.decode(errors="replace"))
    return list(zip(pieces[0::2], map(int, pieces[1::2])))[1:]


def judge(shell_commands, outputs):
    for i, (command, expected) in enumerate(shell_commands):
        if i >= len(outputs):
            return f"$ {command}\nwas not reached"
        output, status = outputs[i]
        output = output if output.endswith("\n") or not output else output + "\n"
        if expected and not pattern(expected).match(output):
            return f"$ {command}\nshown:\n" + "\n".join(expected) + f"\nprinted:\n{output}"
        asked = i + 1 < len(shell_commands) and shell_commands[i + 1][0].strip() == "echo $?"
        if status != 0 and not asked:
            return f"$ {command}\nended with status {status} and printed:\n{output}"
    return None


def free_port():
    """A free port outside of the range from which the kernel chooses ports itself."""
    while True:
        port = random.SystemRandom().randrange(10000, 30000)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def with_free_ports(found):
    """The examples with other ports than the page has, where it listens on them."""
    text = "\n".join(line for _, reason, lines, _ in found if reason is None for line in lines)
    ports = {old: str(free_port()) for old in sorted(set(re.findall(r"--listen[ =]127\.0\.0\.1:(\d+)", text)) - {"0"})}
    if not ports:
        return found

    def replaced(lines):
        return lines and [re.sub(rf"\b(127\.0\.0\.1|localhost):({'|'.join(ports)})\b", lambda m: f"{m[1]}:{ports[m[2]]}", line) for line in lines]
    return [(number, reason, replaced(lines), replaced(expected)) for number, reason, lines, expected in found]


def marked(mark):
    """The processes whose environment has the mark of a page."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"{MARK_OF_PAGE}={mark}".encode() in f.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            continue  # it ended in between
    return found


def end_rest(mark):
    """Ends what a page left in the background; a server ends what it has started."""
    began = time.monotonic()
    while left := marked(mark):
        for pid in left:
            try:
                os.kill(pid, signal.SIGTERM if time.monotonic() < began + 30 else signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.1)


class Tap:
    def __init__(self, only):
        self.only, self.number, self.failed = only, 0, 0

    def say(self, title, wrong=None, skip=None):
        if self.only and title not in self.only:
            return
        self.number += 1
        self.failed += wrong is not None
        print(f"{'ok' if wrong is None else 'not ok'} {self.number} - {title}{f' # SKIP {skip}' if skip else ''}")
        for text in (wrong or "").splitlines():
            print(f"# {text}")
        sys.stdout.flush()


def run_page(path, tap):
    name = os.path.relpath(path, ROOT)
    last = max((int(title.rpartition(":")[2]) for title in tap.only if title.startswith(name + ":")), default=None)
    env = dict(os.environ, PATH=os.path.dirname(COVE) + os.pathsep + os.environ["PATH"], COVE=COVE, LC_ALL="C.UTF-8",
               DOCS_TESTS=os.path.join(ROOT, "tests/docs"))
    with tempfile.TemporaryDirectory(prefix="cove-docs-") as directory, tempfile.TemporaryDirectory() as aside:
        env.update({"COVE_STATE_DIR": os.path.join(aside, "kept"), MARK_OF_PAGE: directory})
        for line, reason, lines, expected in with_free_ports(list(examples(path))):
            if last is not None and line > last:
                break
            if expected is None:
                shell_commands = commands(lines)
            else:
                python, missing = python_with_package()
                reason = reason or missing
                program = os.path.join(aside, f"{line}.py")
                with open(program, "w", encoding="utf-8") as f:
                    f.write("\n".join(lines) + "\n")
                shell_commands = [(f"{python} {program}", expected)]
            if reason is not None or not shell_commands:
                tap.say(f"{name}:{line}", skip=reason or "holds no command")
                continue
            try:
                wrong = judge(shell_commands, run_block(shell_commands, env, directory, os.path.join(aside, "state")))
            except subprocess.TimeoutExpired:
                wrong = "did not end within 300 s"
            tap.say(f"{name}:{line}", wrong)
        end_rest(directory)


# Seconds of the slow pages; every other page counts USUAL. Parts are balanced by these.
SLOW = {"docs/python.md": 11.3, "docs/doctor.md": 5.5, "docs/events.md": 4.3, "docs/audit.md": 2.0, "docs/run.md": 1.0, "docs/server.md": 1.0, "README.md": 0.8}
USUAL = 0.2


def part(files, index, count):
    """The pages of part `index` of `count`. The slowest page goes to the part with least load."""
    load, chosen = [0.0] * count, set()
    names = {path: os.path.relpath(path, ROOT) for path in files}
    for path in sorted(files, key=lambda p: (-SLOW.get(names[p], USUAL), names[p])):
        least = load.index(min(load))
        load[least] += SLOW.get(names[path], USUAL)
        if least == index - 1:
            chosen.add(path)
    return [path for path in files if path in chosen]


def shard(text):
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text}: is not I/N with 1 <= I <= N")
    return int(index), int(count)


def main():
    parser = argparse.ArgumentParser(usage="run.py [--only PAGE:LINE]... [--shard I/N] [--times FILE] [FILE...]")
    parser.add_argument("--only", action="append", default=[], metavar="PAGE:LINE")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N")
    parser.add_argument("--times", metavar="FILE")
    parser.add_argument("files", nargs="*")
    asked = parser.parse_args()
    papers = [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs/*.md")))]
    files = [os.path.abspath(p) for p in asked.files] or [p for p in papers if os.path.exists(p)]
    if asked.only:
        files = [p for p in files if os.path.relpath(p, ROOT) in {title.rpartition(":")[0] for title in asked.only}]
    tap, seconds = Tap(asked.only), {}
    for path in part(files, *asked.shard):
        began = time.monotonic()
        run_page(path, tap)
        seconds[os.path.relpath(path, ROOT)] = round(time.monotonic() - began, 1)
    if asked.only and tap.number != len(set(asked.only)):
        print(f"Bail out! {tap.number} of the blocks {', '.join(asked.only)} were found")
        return 1
    print(f"1..{tap.number}" if tap.number else "1..0 # SKIP README.md and docs/ hold no example")
    if asked.times:
        with open(asked.times, "w", encoding="utf-8") as f:
            json.dump(seconds, f, indent=0)
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
