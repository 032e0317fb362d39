"""A server that a Python program uses: one piece of work from beginning to end, with the server
killed in between.
"""
import os
import signal
import subprocess

from cove import ROOT
from serve_test import Server, processes, wait_for

STORY = '''
import pathlib, sys, time
from cove import Cove, Sandbox, errors

work = pathlib.Path(sys.argv[1])
project = work / "project"
project.mkdir()
(project / "sums.py").write_text("def add(a, b):\\n    return a - b\\n")
(project / "check.py").write_text("from sums import add\\nassert add(2, 2) == 4, add(2, 2)\\nprint('all is well')\\n")

with Cove() as client, Sandbox.create("python", client=client, lifetime=900, timeout=300, metadata={"story": "sums"}) as sandbox:
    files = sandbox.files
    files.upload_directory(project, "/workspace/project")
    failed = sandbox.run_command(["python3", "check.py"], cwd="project")
    assert (failed.exit_code, failed.success) == (1, False) and "AssertionError" in failed.stderr, failed

    files.write("/workspace/project/sums.py", "def add(a, b):\\n    return b + a  # mended\\n")
    sandbox.run_command(["python3", "check.py"], cwd="project").check()

    steps = sandbox.stream_code("""
import os, time
for n in range(3): print("step", n, flush=True)
while not os.path.exists("/workspace/go"): time.sleep(0.05)
for n in range(3, 6): print("step", n, flush=True)
open("/workspace/project/report.txt", "w").write("done")
""", isolated=True)
    text = ""
    for event in steps:
        if event.type == "stdout":
            text += event.text
        if text.count("\\n") == 3 and not (work / "killed").exists():
            (work / "kill").touch()
            while not (work / "killed").exists():
                time.sleep(0.02)
            files.write("/workspace/go", "")
    assert text == "".join(f"step {n}\\n" for n in range(6)), text
    assert event.type == "exit" and event.exit_code == 0, event

    sandbox.pause()
    try:
        sandbox.run_command("true")
        raise AssertionError("a paused sandbox ran something")
    except errors.SandboxPausedError as error:
        assert error.fix is None and "resume" in error.message and error.request_id
    sandbox.resume()
    assert [info.id for info in Sandbox.list(metadata={"story": "sums"}, state="running", client=client)] == [sandbox.id]
    files.download_directory("/workspace/project", work / "back")
assert (work / "back" / "report.txt").read_text() == "done"
assert sandbox.info.ended_by == "killed"
print("the end")
'''


class Sdk(Server):
    def test_a_python_program_finishes_although_the_server_is_killed(self):
        found = subprocess.run([os.path.join(ROOT, "tests/sdk/run.py"), "--python"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, timeout=900)
        if found.returncode == 77:
            self.skipTest(found.stderr.strip())
        self.assertEqual(found.returncode, 0, found.stderr)
        url = self.start()
        words = self.said().decode().split()
        story = self.file("story.py", STORY)
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        program = subprocess.Popen([found.stdout.strip(), story, self.dir], env=dict(env, COVE_URL=url, COVE_API_KEY=words[words.index("key") + 1]),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.kill)
        wait_for(lambda: os.path.exists(os.path.join(self.dir, "kill")) or program.poll() is not None, 300)
        if program.poll() is None:
            os.kill(processes(self.run_dir)["coved"], signal.SIGKILL)
            self.file("killed")
        out, _ = program.communicate(timeout=300)
        self.assertEqual((program.returncode, out), (0, "the end\n"))
        self.stop()
