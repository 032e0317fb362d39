"""The stateless executor."""
from __future__ import annotations

from cove import ExecutionFailedError
from cove.errors import InvalidRequestError

from support import Case


class Execute(Case):
    def test_code_and_its_value_come_in_one_answer(self) -> None:
        done = self.client.execute("print('out'); display(1); 6 * 7", timeout=60)
        self.assertEqual((done.stdout, done.text, done.status, done.success), ("out\n", "42", "ok", True))
        self.assertEqual([shown.type for shown in done.results], ["display", "result"])
        self.assertEqual(done.check().exit_code, 0)

    def test_files_go_in_and_come_out(self) -> None:
        done = self.client.execute(command="wc -w < words.txt > count; cat raw > copy", files={"words.txt": "one two three", "raw": b"\xff\x00"},
                                   outputs=["count", "copy", "none"])
        self.assertEqual((done.files["count"].strip(), done.files["copy"]), (b"3", b"\xff\x00"))
        self.assertEqual([gone.path for gone in done.omitted], ["none"])

    def test_what_went_wrong_is_told(self) -> None:
        done = self.client.execute("1 / 0")
        assert done.exception is not None
        self.assertEqual((done.status, done.exception.name), ("error", "ZeroDivisionError"))
        with self.assertRaisesRegex(ExecutionFailedError, "division by zero"):
            done.check()
        self.assertEqual(self.client.execute(command=["sh", "-c", "exit 3"]).exit_code, 3)
        with self.assertRaises(InvalidRequestError):
            self.client.execute()

    def test_it_is_given_input_and_variables(self) -> None:
        done = self.client.execute("import os\ninput() + os.environ['WHO']", stdin="hello \n", env={"WHO": "Ada"})
        self.assertEqual(done.text, "'hello Ada'")
