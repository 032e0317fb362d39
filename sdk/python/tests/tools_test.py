"""Tools: what a language model can call."""
from __future__ import annotations

import asyncio

from cove import AsyncCove
from cove.errors import InvalidRequestError, NotFoundError

from support import Case


class Tools(Case):
    def test_tools_are_listed_with_their_schemas(self) -> None:
        tools = {tool.name: tool for tool in self.client.tools.list()}
        self.assertEqual(list(tools), self.client.capabilities().tools)
        bash = self.client.tools.get("bash")
        self.assertEqual((bash.place, bash.scopes, bash.input_schema["required"]), ("sandbox", ["executions"], ["command"]))
        self.assertEqual((bash, bash.annotations["readOnlyHint"]), (tools["bash"], False))
        with self.assertRaises(NotFoundError):
            self.client.tools.get("bas")

    def test_a_tool_is_called_in_a_sandbox(self) -> None:
        box = self.sandbox(runtime="python")
        self.assertTrue({"bash", "run_code"} <= {tool.name for tool in box.tools.list()} and "code_executor" not in {tool.name for tool in box.tools.list()})
        done = box.tools.call("bash", command="echo out; exit 3")
        self.assertTrue(done.is_error and done.execution_id)
        self.assertEqual((done.tool, done.result["exitCode"], done.result["stdout"]), ("bash", 3, "out\n"))
        self.assertIn("exit code 3", done.text)
        self.assertEqual(box.tools.call("write_file", file_path="a.txt", content="text").result["size"], 4)
        self.assertEqual(box.tools.call("read_file", file_path="a.txt").text, "     1|text\n")
        shown = box.tools.call("run_code", code="class P:\n    def _repr_png_(self): return b'\\x89PNG'\nP()")
        self.assertEqual([(image.type, image.data) for image in shown.images], [("image/png", b"\x89PNG")])
        with self.assertRaisesRegex(InvalidRequestError, "did you mean command"):
            box.tools.call("bash", comand="true")

    def test_a_tool_without_a_sandbox_is_called_with_asyncio(self) -> None:
        async def call() -> str:
            async with AsyncCove(self.server.url, self.server.key) as client:
                done = await client.tools.call("code_executor", code="open('a', 'w').write('b')", input_files=[{"name": "in", "content": ""}])
                return str([file["name"] for file in done.result["output_files"]])

        self.assertEqual(asyncio.run(call()), "['a']")
