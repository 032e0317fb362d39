"""One-shot execution with `Cove.execute`."""
from __future__ import annotations

from typing import List

from cove import ExecutionFailedError
from cove.errors import InvalidRequestError

from support import Case


class Execute(Case):
    def test_output_and_value_of_code_are_in_one_answer(self) -> None:
        done = self.client.execute("print('out'); display(1); 6 * 7", timeout=60)
        self.assertEqual((done.stdout, done.text, done.outcome, done.success), ("out\n", "42", "success", True))
        self.assertEqual([shown.type for shown in done.results], ["display", "result"])
        self.assertEqual(done.check().exit_code, 0)

    def test_files_are_written_before_and_returned_after(self) -> None:
        done = self.client.execute(command="wc -w < words.txt > count; cat raw > copy", files={"words.txt": "one two three", "raw": b"\xff\x00"},
                                   outputs=["count", "copy", "none"])
        self.assertEqual((done.files["count"].strip(), done.files["copy"]), (b"3", b"\xff\x00"))
        self.assertEqual([gone.path for gone in done.omitted], ["none"])

    def test_a_failure_is_reported_with_its_reason(self) -> None:
        done = self.client.execute("1 / 0")
        assert done.exception is not None
        self.assertEqual((done.outcome, done.exception.name), ("error", "ZeroDivisionError"))
        with self.assertRaisesRegex(ExecutionFailedError, "division by zero"):
            done.check()
        self.assertEqual(self.client.execute(command=["sh", "-c", "exit 3"]).exit_code, 3)
        with self.assertRaises(InvalidRequestError):
            self.client.execute()

    def test_a_timeout_may_be_a_text_with_a_unit(self) -> None:
        self.assertEqual(self.client.execute("1", timeout="5s").text, "1")

    def test_stdin_and_env_reach_the_program(self) -> None:
        done = self.client.execute("import os\ninput() + os.environ['WHO']", stdin="hello \n", env={"WHO": "Ada"})
        self.assertEqual(done.text, "'hello Ada'")

    def test_callbacks_are_called_while_the_program_runs(self) -> None:
        out: List[str] = []
        err: List[str] = []
        shown: List[object] = []
        done = self.client.execute("import sys\nprint('out')\ndisplay(1)\nprint('err', file=sys.stderr)\nopen('o', 'w').write('x')\n1 / 0", outputs=["o"],
                                   on_stdout=out.append, on_stderr=err.append, on_result=lambda value: shown.append(value.text))
        self.assertEqual((out, err, shown), (["out\n"], ["err\n"], ["1"]))
        self.assertEqual((done.stdout, done.stderr, done.exit_code, done.files), ("out\n", "err\n", 1, {"o": b"x"}))
        self.assertEqual((str(done.exception), done.results[0].text), ("ZeroDivisionError: division by zero", "1"))

    def test_an_exception_in_a_callback_ends_the_program(self) -> None:
        def enough(text: str) -> None:
            raise KeyError("enough")
        with self.assertRaisesRegex(KeyError, "enough"):
            self.client.execute("import time\nprint('on', flush=True)\ntime.sleep(600)", on_stdout=enough, timeout=600)
        self.assertEqual(self.client.execute("1").text, "1")

    def test_limits_are_given_with_units(self) -> None:
        done = self.client.execute("b = bytearray(200 << 20)", memory="100M", disk="32m", cpus=0.5, pids=20)
        self.assertEqual((done.ended_by, done.success), ("memory", False))
        with self.assertRaisesRegex(ValueError, "^'1X': is not a size; write"):
            self.client.execute("1", memory="1X")

    def test_code_that_exits_has_an_exit_status(self) -> None:
        done = self.client.execute("import sys\nprint('a')\nsys.exit(0)").check()
        self.assertEqual((done.stdout, done.exit_code, done.exception), ("a\n", 0, None))
        with self.assertRaisesRegex(ExecutionFailedError, "status 3"):
            self.client.execute("exit 3", language="bash").check()

    def test_a_timeout_is_named_as_the_reason(self) -> None:
        with self.assertRaisesRegex(ExecutionFailedError, "longer than its timeout"):
            self.client.execute("while True: pass", timeout=0.3).check()


class Tiers(Case):
    def test_a_tier_names_the_machinery_that_answered(self) -> None:
        self.assertEqual([(done.text, done.answered_by) for done in (self.client.execute("6 * 7", tier="auto"), self.client.execute("sum([1])", tier="auto"),
                                                                    self.client.execute("1", tier="full"))],
                         [("42", "calculate"), ("1", "simple"), ("1", "full")])
        self.assertIsNone(self.client.execute("1").answered_by)

    def test_refused_code_has_a_report_and_an_alternative(self) -> None:
        done = self.client.execute("open('x')", tier="simple")
        assert done.report is not None and done.error is not None
        self.assertEqual((done.success, done.answered_by, done.error.code, done.exit_code), (False, "check", "code_refused", None))
        self.assertEqual((done.report.is_safe, done.report.violations[0].type, done.report.violations[0].line), (False, "call_open", 1))
        self.assertIn("StringIO", done.report.safe_alternative or "")
        with self.assertRaises(ExecutionFailedError):
            done.check()

    def test_validate_reports_without_running(self) -> None:
        report = self.client.validate("import math\nprint(math.pi)")
        self.assertEqual((report.is_safe, report.risk, report.tier, report.imports, report.pure), (True, "low", "simple", ["math"], True))
        report = self.client.validate("echo (", language="bash")
        self.assertEqual((report.is_safe, report.checked, report.violations[0].type), (None, "syntax", "syntax_error"))
        self.assertTrue(self.client.validate("import numpy", template="python-data").is_safe)
