#!/usr/bin/env python3
"""run.py [FILE...] - runs the examples of README.md and docs/*.md, and prints TAP.

A block is run when it is fenced as ```console. In it a line that begins with "$ " is a command (a line ending in a
backslash, or following lines that begin with "> ", continue it), the lines after it are what it prints, with "..." for
anything, within a line or for any number of lines. A command without lines after it may print what it likes. A command
must end with status 0 unless the text shows its status with a following "$ echo $?".

A block fenced as ```python is a whole program, run by a Python that has the package of sdk/python; a block fenced as ```text
right behind it is what it prints. Where that Python cannot be made, because PyPI is out of reach, it is skipped.

The blocks of one file share one scratch directory and run in order, as a reader would paste them. A block fenced as
```console no-run REASON is skipped, and the reason is reported.
"""
import functools
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
MARK = "cove-docs-end-of-command"


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
    """(line number, reason not to run or None, lines, what a program prints; None for a block of commands)"""
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
    """Runs one block in one shell, so that `cd` and variables last; the shell's state goes on to the next block."""
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


def main():
    papers = [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs/*.md")))]
    files = sys.argv[1:] or [p for p in papers if os.path.exists(p)]
    env = dict(os.environ, PATH=os.path.dirname(COVE) + os.pathsep + os.environ["PATH"], COVE=COVE, LC_ALL="C.UTF-8")
    number = failed = 0
    for path in files:
        name = os.path.relpath(path, ROOT)
        with tempfile.TemporaryDirectory(prefix="cove-docs-") as directory, tempfile.TemporaryDirectory() as aside:
            for line, reason, lines, expected in examples(path):
                number += 1
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
                    print(f"ok {number} - {name}:{line} # SKIP {reason or 'holds no command'}")
                    continue
                try:
                    wrong = judge(shell_commands, run_block(shell_commands, env, directory, os.path.join(aside, "state")))
                except subprocess.TimeoutExpired:
                    wrong = "did not end within 300 s"
                print(f"{'not ok' if wrong else 'ok'} {number} - {name}:{line}")
                for text in (wrong or "").splitlines():
                    print(f"# {text}")
                failed += bool(wrong)
    print(f"1..{number}" if number else "1..0 # SKIP README.md and docs/ hold no example")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
