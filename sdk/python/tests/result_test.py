"""The one result: the same fields from every call, its text, its sentences."""
from __future__ import annotations

import asyncio
from typing import Callable, List, Tuple

from cove import AsyncCove, ExecutionFailedError, Result

from support import Case

CODE = "print('out')\ndisplay('shown')\nx = 6\nx * 7"


class Results(Case):
    def test_every_call_returns_the_same_type(self) -> None:
        box = self.sandbox(runtime="python")

        async def later() -> Result:
            async with AsyncCove(self.server.url, self.server.key) as client:
                return await client.execute(CODE, on_stdout=lambda text: None)

        with box.contexts.create() as context, box.channel() as channel:
            for result in (self.client.execute(CODE), asyncio.run(later()), box.run_code(CODE), box.start_code(CODE).wait(), channel.start_code(CODE).wait(),
                           context.run(CODE), context.start(CODE).wait(), channel.start_in_context(context, CODE).wait()):
                self.assertIsInstance(result, Result)
                self.assertEqual((result.outcome, result.success, result.text, result.stdout, result.exit_code), ("success", True, "42", "out\n", 0))
                self.assertEqual([(shown.type, shown.text) for shown in result.results], [("display", "'shown'"), ("result", "42")])
                self.assertEqual((result.stdout_bytes, result.exception, result.error, result.truncated), (b"out\n", None, None, False))
                assert result.duration is not None
                self.assertGreaterEqual(result.duration, 0)
                self.assertIsNotNone(result.receipt.used.wall_ms)
                self.assertEqual((result.receipt.denials, result.receipt.limit_hits), ([], []))
                self.assertEqual(result._repr_mimebundle_()[0], {"text/plain": "42"})
                self.assertEqual(repr(result), "<Result success text='42' stdout='out\\n'>")

    def test_code_sees_the_variables_of_earlier_code(self) -> None:
        box = self.sandbox(runtime="python")
        self.assertEqual((box.run_code("x = 1").text, box.run_code("x += 1; x").text), (None, "2"))
        self.assertEqual(box.run_code("x += 1; x", env={"A": "b"}, cwd="/tmp").text, "3")
        fresh = box.run_code("x", isolated=True)
        self.assertEqual((fresh.outcome, box.run_code("x").text), ("error", "3"))
        self.assertIn("NameError", fresh.stderr)
        self.assertEqual(box.run_code("x=bash; echo $x", language="bash").stdout, "bash\n")
        self.assertEqual(box.run_code("echo $x", language="bash").stdout, "bash\n")
        asked = box.run_code("input('name? ') + input()", answer=lambda question: question.prompt + "Ada")
        self.assertEqual(asked.text, "'name? AdaAda'")
        self.assertEqual(box.run_code("input()", stdin="from stdin\n").text, "'from stdin'")
        late = box.run_code("while True: pass", timeout="300ms")
        assert late.exception is not None
        self.assertEqual((late.outcome, late.exception.name, late.context_reset, box.run_code("x").text), ("timeout", "TimeoutError", False, "3"))

    def test_a_traceback_is_a_text(self) -> None:
        for result in (self.client.execute("1 / 0"), self.sandbox(runtime="python").contexts.create().run("1 / 0")):
            assert result.exception is not None
            self.assertEqual(result.exception.traceback.splitlines()[-1], "ZeroDivisionError: division by zero")
            self.assertEqual((result.outcome, result.text), ("error", None))
            self.assertTrue(repr(result).startswith("<Result error exit_code=1 exception='ZeroDivisionError: division by zero'"), repr(result))

    def test_a_failure_is_one_sentence_everywhere(self) -> None:
        box = self.sandbox(runtime="python")
        runs: List[Tuple[Callable[[], Result], str, str]] = [
            (lambda: box.run_command("echo no room >&2; exit 5"), "error", "it ended with status 5; last line of stderr: no room"),
            (lambda: box.run_command("kill -9 $$"), "error", "signal 9 ended it"),
            (lambda: box.run_command("sleep 60", timeout="300ms"), "timeout", "it ran longer than its timeout"),
            (lambda: self.client.execute("while True: pass", timeout="300ms"), "timeout", "it ran longer than its timeout"),
            (lambda: self.client.execute(command="while :; do :; done", timeout="300ms"), "timeout", "it ran longer than its timeout"),
            (lambda: self.client.execute("b = bytearray(1 << 30)", memory="100M"), "out_of_memory", "it reached the memory limit"),
            (lambda: self.client.execute("raise SystemExit(3)"), "error", "it ended with status 3"),
            (lambda: self.client.execute("int('x')"), "error", "ValueError: invalid literal for int() with base 10: 'x'"),
            (lambda: box.run_command(["no-such-program"]), "error", "no-such-program"),
        ]
        for run, outcome, sentence in runs:
            result = run()
            self.assertEqual((result.outcome, result.success), (outcome, False), result)
            self.assertIn(sentence, result.failure())
            with self.assertRaises(ExecutionFailedError) as met:
                result.check()
            self.assertEqual((met.exception.message, met.exception.result), (result.failure(), result))

    def test_a_cancelled_execution_says_so(self) -> None:
        execution = self.sandbox().start_command("sleep 600")
        execution.cancel()
        result = execution.wait()
        self.assertEqual((result.outcome, result.failure()), ("killed", "it was cancelled, or its sandbox was ended"))
