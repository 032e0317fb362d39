"""The names of the package: what is imported when, the shared client, the familiar second names."""
from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from typing import Any, List, cast

import cove
from cove import AsyncCove, AsyncSandbox, Context, Cove, DisplayEvent, Sandbox, Session, TemplateSpec, Terminals
from cove.errors import SandboxEndedError

from support import Case, wait_for

SHARED = """
import os, sys, threading
import cove

answers = []
def ask(n):
    answers.append(cove.execute(f"{n} * 7").text)
threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(map(int, answers)), flush=True)
child = os.fork()
if child == 0:
    print("child", cove.execute("6 * 7").text, flush=True)
    sys.exit(0)
print("status", os.waitpid(child, 0)[1], "parent", cove.execute("6 * 7").text)
"""


class Names(Case):
    def program(self, text: str) -> str:
        env = {k: v for k, v in os.environ.items() if k not in ("COVE_URL", "COVE_API_KEY")}
        done = subprocess.run([sys.executable, "-X", "dev", "-c", text], env={**env, "COVE_URL": self.server.url, "COVE_API_KEY": self.server.key},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        return done.stdout

    def test_a_name_is_imported_when_it_is_used(self) -> None:
        heavy = "print(sorted({'asyncio', 'anyio', 'websockets', 'ssl'} & {*sys.modules}))"
        self.assertEqual(self.program(f"import sys, cove\ncove.execute('1')\ncove.Sandbox.create('sh').kill()\n{heavy}"), "[]\n")

    def test_every_public_name_has_a_home(self) -> None:
        self.assertEqual(sorted(cove.__all__), sorted({*cove.HOME_OF, "errors"}))
        for name in cove.__all__:
            self.assertTrue(hasattr(cove, name), name)
            self.assertIn(name, dir(cove))
        with self.assertRaisesRegex(AttributeError, "sandboxx"):
            getattr(cove, "sandboxx")

    def test_execute_works_in_threads_and_after_a_fork(self) -> None:
        self.assertEqual(self.program(SHARED), f"{[7 * n for n in range(8)]}\nchild 42\nstatus 0 parent 42\n")

    def test_arguments_are_visible_in_help(self) -> None:
        for function in (Sandbox.run_code, Sandbox.run_command, Sandbox.start_code, Sandbox.stream_command, AsyncSandbox.run_code, Context.run, Cove.execute,
                         cove.execute, Terminals.create, Session.wait):
            kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
            self.assertNotIn(inspect.Parameter.VAR_KEYWORD, kinds, function)
        self.assertEqual([*inspect.signature(cove.execute).parameters], [*inspect.signature(Cove.execute).parameters][1:])

    def test_a_constructor_without_a_server_says_what_to_call(self) -> None:
        for make in (Sandbox, AsyncSandbox):
            with self.assertRaisesRegex(TypeError, rf"^{make.__name__}\(\): makes no sandbox; use {make.__name__}\.create\(\)"):
                make()
        with self.assertRaisesRegex(TypeError, "create"):
            cast(Any, Sandbox)("python")

    def test_create_takes_the_name_of_a_template(self) -> None:
        self.client.templates.put("mine", TemplateSpec(runtime="python", env={"COLOUR": "red"}))
        self.addCleanup(self.client.templates.delete, "mine")
        with Sandbox.create("mine", client=self.client, memory="100M", disk="10M", pids=20, cpus=0.5) as sandbox:
            self.assertEqual((sandbox.info.template, sandbox.info.runtime), ("mine", "python"))
            limits = sandbox.info.resources
            self.assertEqual((limits.memory_bytes, limits.storage_bytes, limits.pids, limits.cpu_millis), (100 << 20, 10 << 20, 20, 500))
            self.assertEqual(sandbox.run_code("import os; print(os.environ['COLOUR'])").stdout, "red\n")
        with Sandbox.create(client=self.client) as sandbox:
            self.assertEqual(sandbox.info.runtime, "python")

    def test_familiar_names_do_what_ours_do(self) -> None:
        sandbox = self.sandbox()
        heard: List[str] = []
        self.assertEqual(sandbox.commands.run("echo hello", on_stdout=heard.append).stdout, "hello\n")
        self.assertEqual((heard, sandbox.sandbox_id, sandbox.is_running()), (["hello\n"], sandbox.id, True))
        before = sandbox.info.expires_at
        after = sandbox.set_timeout("2h").expires_at
        assert before is not None and after is not None
        self.assertGreater((after - before).total_seconds(), 3600)
        self.assertEqual(sandbox.kill().state, "ended")
        self.assertFalse(sandbox.is_running())
        with self.assertRaises(SandboxEndedError):
            sandbox.commands.run("true")

    def test_connect_resumes_a_paused_sandbox(self) -> None:
        sandbox = self.sandbox()
        sandbox.pause()
        self.assertEqual(Sandbox.connect(sandbox.id, resume=False, client=self.client).info.state, "paused")
        again = Sandbox.connect(sandbox.id, client=self.client)
        self.assertEqual((again.info.state, again.run_command("echo on").stdout), ("running", "on\n"))


class Callbacks(Case):
    def test_output_and_values_are_delivered_while_the_code_runs(self) -> None:
        box = self.sandbox(runtime="python")
        heard: List[object] = []

        def stdout(text: str) -> None:
            heard.append(text)
            if text == "a\n":
                box.files.write("/workspace/go", "")

        def stderr(text: str) -> None:
            heard.append(("err", text))

        def shown(value: DisplayEvent) -> None:
            heard.append(("shown", value.text))

        waiting = "import os, sys, time\nprint('a', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('b', file=sys.stderr)\n"
        result = box.run_code(waiting, on_stdout=stdout, on_stderr=stderr)
        self.assertEqual((heard, result.stdout, result.stderr), (["a\n", ("err", "b\n")], "a\n", "b\n"))
        with box.contexts.create() as context:
            heard.clear()
            self.assertEqual(context.run("print('c', flush=True)\ndisplay(1)\n2", on_stdout=stdout, on_result=shown).text, "2")
            self.assertEqual(heard, ["c\n", ("shown", "1"), ("shown", "2")])
            heard.clear()
            with box.channel() as channel:
                channel.start_in_context(context, "print('d')\n3").wait(on_stdout=stdout, on_result=shown)
            self.assertEqual(heard, ["d\n", ("shown", "3")])

    def test_an_exception_in_a_callback_leaves_the_program_running(self) -> None:
        box = self.sandbox()

        def enough(text: str) -> None:
            raise KeyError("enough")

        with self.assertRaisesRegex(KeyError, "enough"):
            box.run_command("echo on; until [ -e go ]; do sleep 0.05; done; echo done > end", on_stdout=enough)
        box.files.write("/workspace/go", "")
        wait_for(lambda: box.files.exists("/workspace/end"))

    def test_asynchronous_callbacks_are_awaited(self) -> None:
        heard: List[str] = []

        async def later(text: str) -> None:
            await asyncio.sleep(0.01)
            heard.append(text)

        async def main() -> None:
            async with AsyncCove(self.server.url, self.server.key) as client:
                await client.execute("print('a')", on_stdout=later)
                async with await AsyncSandbox.create("sh", client=client) as sandbox:
                    await sandbox.run_command("echo b", on_stdout=later)
                    await sandbox.run_command("echo c", on_stdout=heard.append)

        asyncio.run(main())
        self.assertEqual(heard, ["a\n", "b\n", "c\n"])
        with self.assertRaisesRegex(TypeError, "is asynchronous; give a plain function"):
            self.client.execute("print('a')", on_stdout=later)
