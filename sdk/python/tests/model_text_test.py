"""`Result.for_model`: a result as text for a language model."""
from __future__ import annotations

import unittest
from typing import Any, Dict

from cove import Result
from cove.events import DisplayEvent, ExceptionEvent

from support import Case

TRACEBACK = """Traceback (most recent call last):
  File "<cell 1>", line 9, in <module>
    main()
  File "<cell 1>", line 5, in main
    pandas.read_csv(path)
""" + "".join(f"""  File "/usr/lib/python3/dist-packages/pandas/io/parsers/readers.py", line {n}, in helper
    return self._engine.read_with_a_very_long_name(nrows, rows_of_the_table, number={n})
""" for n in range(40)) + "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'\n"


def result(**more: Any) -> Result:
    fields: Dict[str, Any] = {"id": "ex1", "sandbox_id": "sb1", "outcome": "success", "exit_code": 0, "ended_by": "exit"}
    return Result(**{**fields, **more})


def failed(**more: Any) -> Result:
    fields = {"outcome": "error", "exit_code": 1, "hint": "data.csv does not exist in the sandbox. Write the file first.",
              "exception": ExceptionEvent(name="FileNotFoundError", value="data.csv", traceback=TRACEBACK)}
    return result(**{**fields, **more})


class ForModel(unittest.TestCase):
    def test_a_short_result_is_whole(self) -> None:
        self.assertEqual(result(stdout="out\n", text="42").for_model(), "The program succeeded.\nstdout:\nout\nvalue:\n42")
        self.assertEqual(result(outcome="error", exit_code=3).for_model(), "The program failed with exit code 3.")
        self.assertEqual(result(outcome="timeout", exit_code=None, hint="Raise timeoutMs.").for_model(),
                         "The program was stopped because it ran too long.\nHint: Raise timeoutMs.")

    def test_it_is_never_longer_than_asked(self) -> None:
        long = failed(stdout="o" * 90000, stderr="e" * 300, text="v" * 7000, results=[DisplayEvent("display", {"text/plain": "d" * 5000, "image/png": "x"})])
        for size in [*range(1, 400), 1000, 4000, 10000, 200000]:
            self.assertLessEqual(len(long.for_model(size)), size)
        with self.assertRaisesRegex(ValueError, "max_chars is 0"):
            long.for_model(0)

    def test_output_keeps_its_beginning_and_its_end(self) -> None:
        text = result(stdout="first line\n" + "x" * 50000 + "\nlast line\n").for_model(2000)
        self.assertGreater(len(text), 1900)
        for word in ("first line", "last line", "characters left out"):
            self.assertIn(word, text)

    def test_the_space_of_short_parts_is_given_to_long_ones(self) -> None:
        text = result(stdout="x" * 50000, stderr="short", text="42").for_model(4000)
        self.assertGreater(len(text), 3900)
        self.assertIn("stderr:\nshort\nvalue:\n42", text)

    def test_a_traceback_keeps_the_own_frames_and_its_message(self) -> None:
        text = failed(stdout="x" * 5000).for_model(1200)
        for word in ("line 9, in <module>", "pandas.read_csv(path)", "[... frames left out ...]", "FileNotFoundError: [Errno 2]", "Hint: data.csv does not"):
            self.assertIn(word, text)
        self.assertLess(text.index("line 9"), text.index("line 5"))
        self.assertLess(text.count("readers.py"), 40)

    def test_of_the_own_frames_the_last_ones_are_kept(self) -> None:
        deep = "Traceback (most recent call last):\n" + "".join(f'  File "<cell 1>", line {n}, in f{n}\n    f{n + 1}()\n' for n in range(200)) + "ValueError: deep\n"
        text = failed(exception=ExceptionEvent(name="ValueError", value="deep", traceback=deep)).for_model(800)
        self.assertIn("in f199", text)
        self.assertNotIn("in f20\n", text)
        self.assertTrue(text.rstrip().endswith("Write the file first."), text)

    def test_outcome_and_hint_are_kept_in_little_space(self) -> None:
        text = failed(stdout="x" * 5000).for_model(120)
        self.assertIn("The program failed with exit code 1.", text)
        self.assertIn("Hint: data.csv does not exist", text)

    def test_pictures_are_named(self) -> None:
        text = result(results=[DisplayEvent("display", {"text/plain": "<Figure>", "image/png": "iVBORw0KGgo="})], truncated=True).for_model()
        self.assertIn("displayed:\n<Figure>\n[image/png]", text)
        self.assertIn("some output was dropped", text)


class Hints(Case):
    def test_a_failure_has_a_hint_on_every_call(self) -> None:
        done = self.client.execute("import nosuch_module")
        self.assertIn("nosuch_module is not installed", done.hint or "")
        self.assertIn("Hint: The Python module nosuch_module", done.for_model())
        self.assertIsNone(self.client.execute("1").hint)
