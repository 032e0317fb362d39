#!/usr/bin/env python3
"""run.py [SECONDS] [TARGET...] - fuzzes each target for SECONDS (60) with libFuzzer under ASan and
UBSan.

Inputs that reach new code are kept in build-fuzz/corpus/TARGET; a crash is kept there too and fails
the run. Move a crashing input to tests/fuzz/corpus/TARGET together with the fix.
"""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build-fuzz")


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        subprocess.check_call(
            ["meson", "setup", BUILD, ROOT, "-Dfuzz=true", "-Db_sanitize=address,undefined", "-Db_lundef=false"],
            env=dict(os.environ, CC="clang"), stdout=subprocess.DEVNULL)
    subprocess.check_call(["ninja", "-C", BUILD], stdout=subprocess.DEVNULL)
    targets = sys.argv[2:] or [re.sub(r"_fuzz\.c$", "", os.path.basename(p))
                               for p in sorted(glob.glob(os.path.join(ROOT, "tests/fuzz/*_fuzz.c")))]
    failed = []
    for target in targets:
        kept = os.path.join(BUILD, "corpus", target)
        seeds = os.path.join(ROOT, "tests/fuzz/corpus", target)
        os.makedirs(kept, exist_ok=True)
        result = subprocess.run(
            [os.path.join(BUILD, "tests/fuzz/fuzz-" + target), f"-max_total_time={seconds}", "-print_final_stats=1",
             "-timeout=10", f"-artifact_prefix={kept}/", kept, seeds], capture_output=True, text=True, errors="replace")
        runs = re.search(r"number_of_executed_units:\s*(\d+)", result.stderr)
        cover = re.findall(r"cov: (\d+)", result.stderr)
        print(f"{target}: {runs.group(1) if runs else '?'} inputs in {seconds} s, {cover[-1] if cover else '?'} edges, "
              f"{'held' if result.returncode == 0 else 'BROKE'}", flush=True)
        if result.returncode != 0:
            failed.append(target)
            print(result.stderr[-8000:])
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
