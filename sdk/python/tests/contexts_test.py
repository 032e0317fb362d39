"""Contexts: language kernels that keep their state."""
from __future__ import annotations

from typing import List

from cove import InputRequestEvent, AsyncCove, AsyncSandbox, ContextInfo, ExecutionFailedError, OutputEvent, ExceptionEvent, Sandbox, DisplayEvent
from cove.errors import ConflictError, ContextDeadError, ForkUnsupportedError, NotFoundError

from support import Case, wait_for


class Contexts(Case):
    box: Sandbox

    def setUp(self) -> None:
        super().setUp()
        self.box = self.sandbox(runtime="python")

    def test_state_is_kept_and_values_are_returned(self) -> None:
        with self.box.contexts.create(cwd="/tmp", env={"COLOUR": "red"}) as context:
            self.assertEqual((context.info.language, context.info.state, context.info.cwd), ("python", "idle", "/tmp"))
            self.assertTrue(context.run("import os\nx = 6").success)
            result = context.run("print('out'); display('shown'); (x * 7, os.environ['COLOUR'])")
            self.assertEqual((result.stdout, result.text, result.outcome, result.exception), ("out\n", "(42, 'red')", "success", None))
            self.assertEqual([(shown.type, shown.text) for shown in result.results], [("display", "'shown'"), ("result", "(42, 'red')")])
            self.assertEqual(result.context_id, context.id)
            self.assertEqual(context.refresh().executions, 2)
            self.assertEqual([info.id for info in self.box.contexts.list()], [context.id])
            self.assertEqual(self.box.contexts.connect(context.id).run("x").text, "6")
        with self.assertRaises(NotFoundError):
            context.refresh()

    def test_a_channel_runs_code_in_a_context(self) -> None:
        with self.box.contexts.create() as context, self.box.channel() as channel:
            first = channel.start_in_context(context, "x = 6\nprint('out', flush=True)\ndisplay('shown')\nx * 7").wait()
            self.assertEqual((first.stdout, first.text, [shown.type for shown in first.results]), ("out\n", "42", ["display", "result"]))
            asked = channel.start_in_context(context.id, "[input('who? '), x]")
            self.assertEqual(asked.wait(answer=lambda question: question.prompt + "Ada").text, "['who? Ada', 6]")
            raised = channel.start_in_context(context, "1 / 0", timeout=60).wait().exception
            self.assertEqual(raised and raised.name, "ZeroDivisionError")
            with self.assertRaises(NotFoundError):
                channel.start_in_context("cx" + "a" * 20, "1")

    def test_displayed_values_arrive_by_mime_type(self) -> None:
        with self.box.contexts.create() as context:
            code = "class P:\n    def _repr_png_(self): return b'picture'\n    def _repr_html_(self): return '<b>'\nP()"
            shown = context.run(code).results[0]
            self.assertEqual((shown.png, shown.html, shown.chart, shown.bytes_of("text/html")), (b"picture", "<b>", None, b"<b>"))
            self.assertRegex(repr(shown), r"^<DisplayEvent result '<__main__.P at .*>' as text/html, image/png, text/plain>$")
            bundle, _ = shown._repr_mimebundle_()
            self.assertEqual((bundle["image/png"], bundle["text/html"], shown._repr_png_(), shown._repr_html_()), ("cGljdHVyZQ==", "<b>", b"picture", "<b>"))

    def test_an_exception_is_returned(self) -> None:
        with self.box.contexts.create() as context:
            result = context.run("1 / 0")
            assert result.exception is not None
            self.assertEqual((result.success, result.outcome, result.exception.name), (False, "error", "ZeroDivisionError"))
            self.assertIn("ZeroDivisionError: division by zero", result.exception.traceback.splitlines())
            with self.assertRaisesRegex(ExecutionFailedError, "ZeroDivisionError: division by zero"):
                result.check()

    def test_a_stream_delivers_all_events_in_order(self) -> None:
        with self.box.contexts.create() as context:
            with context.stream("print('a', flush=True)\ndisplay(1)\nprint('b', flush=True)\nraise KeyError('k')") as stream:
                told = [event for event in stream]
        text, kinds = "", []
        for event in told:
            if isinstance(event, OutputEvent):
                text += event.text
            elif isinstance(event, (DisplayEvent, ExceptionEvent)):
                kinds.append(event.type)
                self.assertTrue(text.startswith("a\n" if event.type == "display" else "a\nb\n"), "an event arrived before the output that preceded it")
        self.assertEqual((text, kinds), ("a\nb\n", ["display", "exception"]))

    def test_a_broken_stream_resumes_without_repeated_events(self) -> None:
        with self.box.contexts.create() as context:
            there = Sandbox.connect(self.box.id, client=self.through(4000, 3500, 4500)).contexts.connect(context.id)
            result = there.run("for i in range(20):\n    print('line', i, flush=True)\n    display(i)")
            self.assertEqual([shown.text for shown in result.results], [str(i) for i in range(20)])
            self.assertEqual(result.stdout, "".join(f"line {i}\n" for i in range(20)))

    def test_input_requests_are_answered(self) -> None:
        asked: List[InputRequestEvent] = []

        def answer(question: InputRequestEvent) -> str:
            asked.append(question)
            return "Ada"

        with self.box.contexts.create() as context:
            result = context.run("import getpass\ninput('who? ') + getpass.getpass('secret? ')", answer=answer)
            self.assertEqual(result.text, "'AdaAda'")
            self.assertEqual([(q.prompt, q.password) for q in asked], [("who? ", False), ("secret? ", True)])
            unanswered = context.run("input('who? ')").exception
            assert unanswered is not None
            self.assertEqual(unanswered.name, "EOFError")

    def test_an_interrupt_keeps_the_state(self) -> None:
        with self.box.contexts.create() as context:
            context.run("x = 1")
            started = context.start("print('on', flush=True)\nwhile True: pass")
            wait_for(lambda: started.output() == b"on\n")
            with self.assertRaises(ConflictError):
                context.fork()
            self.assertEqual(context.interrupt().outcome, "interrupted")
            self.assertEqual(started.wait().outcome, "killed")
            self.assertEqual(context.run("x").text, "1")
            late = context.run("while True: pass", timeout=1)
            assert late.exception is not None
            self.assertEqual((late.outcome, late.exception.name, late.context_reset), ("timeout", "TimeoutError", False))

    def test_a_fork_is_independent_of_its_parent(self) -> None:
        with self.box.contexts.create() as context:
            context.run("x = [1]")
            with context.fork() as fork:
                self.assertEqual(fork.info.forked_from, context.id)
                self.assertEqual(fork.run("x.append(2); x").text, "[1, 2]")
                self.assertEqual(context.run("x").text, "[1]")
                self.assertIsNone(fork.restart().forked_from)
                raised = fork.run("x").exception
                assert raised is not None
                self.assertEqual(raised.name, "NameError")
            context.run("import threading\nt = threading.Thread(target=threading.Event().wait, name='poller', daemon=True)\nt.start()")
            with self.assertRaisesRegex(ForkUnsupportedError, "poller"):
                context.fork()

    def test_a_dead_context_says_why_and_can_be_restarted(self) -> None:
        with self.box.contexts.create() as context:
            died = context.run("import os; os._exit(3)")
            self.assertEqual(died.outcome, "error")
            info = context.refresh()
            assert info.reason is not None
            self.assertEqual((info.state, info.reason.code), ("dead", "context_dead"))
            with self.assertRaises(ContextDeadError):
                context.run("1")
            self.assertEqual(context.restart().state, "idle")
            self.assertEqual(context.run("1").text, "1")

    def test_complete_and_inspect(self) -> None:
        with self.box.contexts.create() as context:
            context.run("wonderful = 3")
            found = context.complete("x = wonder")
            self.assertEqual((found.matches, found.start, found.end), (["wonderful"], 4, 10))
            self.assertTrue(context.inspect("len", 2).found)
            self.assertFalse(context.inspect("no_such_name").found)

    def test_an_idempotency_key_creates_one_context(self) -> None:
        one, two = (self.box.contexts.create("bash", idempotency_key="mine") for _ in range(2))
        self.assertEqual(one.id, two.id)
        self.assertEqual(one.run("echo hi").stdout, "hi\n")
        one.delete()

    def test_the_async_half(self) -> None:
        async def main() -> ContextInfo:
            async with AsyncCove(self.server.url, self.server.key) as client:
                sandbox = await AsyncSandbox.connect(self.box.id, client=client)
                async with await sandbox.contexts.create() as context:
                    await context.run("x = 41")
                    async with await context.fork() as fork:
                        self.assertEqual((await fork.run("x + 1")).text, "42")
                    return await context.refresh()

        import asyncio
        self.assertEqual(asyncio.run(main()).executions, 1)
