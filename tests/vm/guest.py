#!/usr/bin/env python3
"""guest.py - started by systemd inside the virtual machine: runs the jobs of /cove/jobs.json and
reports to the host.

Each line of a job's output goes to the second serial port after the job's name, so the host can
show it immediately. Jobs of the plain user run in a login session made by PAM, as over ssh: the
session's own cgroup belongs to root, and a delegated one is reached through the user's systemd.
"""
import json
import os
import shlex
import subprocess
import sys
import time

PORT = "/dev/ttyS1"
USER = "tester"


def command(n, job):
    """A script, so that no word of the job is in the command lines of waiting processes: cases
    search for such words."""
    script = f"/run/job-{n}"
    with open(script, "w", encoding="utf-8") as f:
        f.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in job["env"].items())
        f.write(f"cd /cove && exec {shlex.join(job['cmd'])}\n")
    return ["sh", script] if job["user"] == "root" else ["runuser", "-l", USER, "-c", f"exec sh {script}"]


def main():
    port = open(PORT, "w", encoding="utf-8", buffering=1, errors="replace")

    def say(word, text):
        port.write(f"{word}|{text}\n")

    with open("/cove/jobs.json", encoding="utf-8") as f:
        jobs = json.load(f)
    say("boot", f"{os.uname().release}, up {time.monotonic():.0f} s")
    for n, job in enumerate(jobs):
        began = time.monotonic()
        running = subprocess.Popen(["timeout", "-k", "5", str(job["timeout"]), *command(n, job)], cwd="/cove", stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in running.stdout:
            say(f"line {n}", line.decode(errors="replace").rstrip("\r\n"))
        say(f"end {n}", f"{running.wait()} {time.monotonic() - began:.1f}")
    say("over", "")
    port.close()
    subprocess.call(["systemctl", "poweroff", "--force", "--force"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
