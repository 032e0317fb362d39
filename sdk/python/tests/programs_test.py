"""The programs that users write first, as they would write them.

Each is a whole program that runs in a process of its own with COVE_URL and COVE_API_KEY set. The
number is the most lines that it may have; it is what the same program takes with the most concise
package that we know.
"""
from __future__ import annotations

import os
import subprocess
import sys
from typing import Tuple

from support import Case

HELLO = 3, """
import cove
print(cove.execute("6 * 7").text)
"""

STATE = 4, """
from cove import Sandbox
with Sandbox.create() as sandbox:
    sandbox.run_code("x = 1")
    print(sandbox.run_code("x += 1; x").text)
"""

CHART = 7, r"""
import cove
code = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()"
chart = cove.execute(code, template="python-data").check().results[0]
with open("chart.png", "wb") as file:
    file.write(chart.png)
print(chart.png[1:4])
"""

TABLE = 5, r"""
import cove
code = "import pandas as pd\nt = pd.read_csv('in.csv')\nt['c'] = t.a + t.b\nt.to_csv('out.csv', index=False)"
done = cove.execute(code, template="python-data", files={"in.csv": "a,b\n1,2\n3,4\n"}, outputs=["out.csv"]).check()
print(done.files["out.csv"].decode(), end="")
"""

STREAM = 4, """
from cove import Sandbox
with Sandbox.create() as sandbox:
    sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.2; done", on_stdout=lambda text: print(text, end=""))
"""

TERMINAL = 6, r"""
from cove import Sandbox
with Sandbox.create() as sandbox, sandbox.terminals.create("stty -echo; bash --norc") as terminal:
    terminal.write("PS1=; echo $((6 * 7)); exit\n")
    for event in terminal:
        print(event.text if event.type == "stdout" else "", end="")
"""

PAUSE = 7, """
from cove import Sandbox
sandbox = Sandbox.create(lifetime="1h")
sandbox.run_code("x = 41")
sandbox.pause()
again = Sandbox.connect(sandbox.id)
print(again.run_code("x + 1").text)
again.kill()
"""

TOOL = 15, """
import asyncio
from cove import AsyncCove

async def run_python(client: AsyncCove, code: str) -> str:
    return (await client.execute(code, timeout="2s")).for_model()

async def main() -> None:
    async with AsyncCove() as client:
        codes = ["6 * 7", "print('hi')", "1 / 0", "while True: pass", "import os; os.kill(os.getpid(), 9)"]
        for answer in await asyncio.gather(*(run_python(client, code) for code in codes)):
            print(repr(answer.strip().splitlines()[-1]))

asyncio.run(main())
"""


class Programs(Case):
    def output(self, program: Tuple[int, str]) -> str:
        """The output of the program. It must succeed, and have no more than its number of lines."""
        most, text = program
        self.assertLessEqual(len([line for line in text.splitlines() if line.strip()]), most)
        env = {**os.environ, "COVE_URL": self.server.url, "COVE_API_KEY": self.server.key}
        done = subprocess.run([sys.executable, "-c", text], cwd=self.dir, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def needs_data(self) -> None:
        template = self.client.templates.get("python-data")
        if not template.available:
            self.skipTest(template.reason or "python-data is not available")

    def test_hello(self) -> None:
        self.assertEqual(self.output(HELLO), "42\n")

    def test_variables_stay(self) -> None:
        self.assertEqual(self.output(STATE), "2\n")

    def test_a_chart_is_a_picture(self) -> None:
        self.needs_data()
        self.assertEqual(self.output(CHART), "b'PNG'\n")
        with open(self.path("chart.png"), "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")

    def test_a_table_goes_in_and_out(self) -> None:
        self.needs_data()
        self.assertEqual(self.output(TABLE), "a,b,c\n1,2,3\n3,4,7\n")

    def test_output_is_shown_while_a_command_runs(self) -> None:
        self.assertEqual(self.output(STREAM), "1\n2\n3\n")

    def test_a_terminal(self) -> None:
        self.assertEqual(self.output(TERMINAL).split()[-2:], ["42", "exit"])

    def test_a_paused_sandbox_is_found_again(self) -> None:
        self.assertEqual(self.output(PAUSE), "42\n")

    def test_five_calls_of_a_model_at_once(self) -> None:
        answers = self.output(TOOL).splitlines()
        self.assertEqual(answers[:2], ["'42'", "'hi'"])
        self.assertEqual(len(answers), 5)
        for answer, word in zip(answers[2:], ("ZeroDivisionError", "timeout of 2s", "SIGKILL")):
            self.assertIn(word, answer)
