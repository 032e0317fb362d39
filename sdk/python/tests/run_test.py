"""Running code and commands, and their results."""
from __future__ import annotations

from typing import Any, cast

from cove import ExecutionFailedError, Sandbox, WaitTimeoutError
from cove.errors import ConflictError

from support import Case


class Run(Case):
    box: Sandbox

    def setUp(self) -> None:
        super().setUp()
        self.box = self.sandbox()

    def test_a_result_has_all_fields(self) -> None:
        result = self.box.run_command("echo out; echo err >&2; exit 3")
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 3))
        self.assertEqual((result.ended_by, result.success, result.signal, result.error), ("exit", False, None, None))
        assert result.duration is not None
        self.assertGreaterEqual(result.duration, 0)
        receipt = self.box.execution(result.id).receipt()
        self.assertEqual((receipt.execution, receipt.exit_code, receipt.ended_by), (result.id, 3, "exit"))
        self.assertGreater(receipt.used.wall_ms or 0, 0)
        self.assertTrue(receipt.request_id)

    def test_code_runs_in_the_sandbox_s_language(self) -> None:
        self.assertEqual(self.sandbox(runtime="python").run_code("print(6 * 7)").stdout, "42\n")
        self.assertEqual(self.box.run_code("echo $((6 * 7))").stdout, "42\n")

    def test_code_keeps_its_variables_unless_it_is_isolated(self) -> None:
        box = self.sandbox(runtime="python")
        box.run_code("x = 1")
        self.assertEqual(box.run_code("x += 1; x").text, "2")
        self.assertEqual(box.run_code("'x' in globals()").text, "True")
        self.assertEqual(box.run_code("print('x' in globals())", isolated=True).stdout, "False\n")
        self.assertEqual(box.run_code("import os; os.environ['WHO'] + os.getcwd() + input()", env={"WHO": "me"}, cwd="/tmp", stdin="a\nb").text, "'me/tmpa'")
        self.assertEqual(box.run_code("y=5; echo $y", language="bash").stdout, "5\n")
        self.assertEqual(box.run_code("echo $y", language="bash").stdout, "5\n")
        self.assertEqual([context.language for context in box.contexts.list()], ["python", "bash"])

    def test_a_stream_of_code_has_its_value_and_a_dead_context_is_replaced(self) -> None:
        box = self.sandbox(runtime="python")
        with box.stream_code("z = 20; print('out'); z + 1") as stream:
            result = stream.result()
        self.assertEqual((result.stdout, result.text, result.context_reset), ("out\n", "21", False))
        self.assertFalse(box.run_code("import os; os._exit(3)").success)
        again = box.run_code("'z' in globals()")
        self.assertEqual((again.text, again.context_reset), ("False", True))

    def test_arguments_reach_the_program_unchanged(self) -> None:
        self.assertEqual(self.box.run_command(["echo", "$HOME", "a  b"]).stdout, "$HOME a  b\n")

    def test_options_are_honoured(self) -> None:
        self.box.files.mkdir("/workspace/sub")
        result = self.box.run_command('echo "$WHO"; pwd; cat', env={"WHO": "me"}, cwd="sub", stdin="from stdin")
        self.assertEqual(result.stdout, "me\n/workspace/sub\nfrom stdin")
        capped = self.box.run_command("yes | head -c 100000", output_bytes=1000)
        self.assertEqual((len(capped.stdout_bytes), capped.dropped_bytes), (1000, 99000))
        changed = self.box.execution(self.box.run_command("echo > new", changes=True).id).receipt()
        self.assertIn("new", str(changed.changes))

    def test_a_timeout_kills_the_program_and_is_reported(self) -> None:
        result = self.box.run_command("echo before; sleep 600", timeout=2)
        self.assertEqual((result.stdout, result.exit_code, result.ended_by, result.success), ("before\n", None, "timeout", False))

    def test_a_signal_is_reported(self) -> None:
        result = self.box.run_command("kill -9 $$")
        self.assertEqual((result.ended_by, result.signal, result.success), ("signal", 9, False))

    def test_output_is_complete_and_exact(self) -> None:
        result = self.box.run_command("head -c 3000000 /dev/zero | tr '\\0' x; printf '\\377\\376' >&2")
        self.assertEqual(result.stdout_bytes, b"x" * 3000000)
        self.assertEqual((result.stderr_bytes, result.stderr), (b"\xff\xfe", "\ufffd\ufffd"))
        # U+2028 and similar characters do not end a line here, although they do in Python.
        self.assertEqual(self.box.run_command(["printf", "%s", "a\u2028b\u0085c\x0bd"]).stdout, "a\u2028b\u0085c\x0bd")

    def test_check_raises_the_failure(self) -> None:
        self.assertEqual(self.box.run_command("echo fine").check().stdout, "fine\n")
        with self.assertRaises(ExecutionFailedError) as met:
            self.box.run_command("echo no room >&2; exit 5").check()
        self.assertIn("no room", met.exception.message)
        self.assertEqual(met.exception.result.exit_code, 5)

    def test_a_missing_program_is_not_a_success(self) -> None:
        result = self.box.run_command(["no-such-program"])
        self.assertFalse(result.success)
        assert result.error is not None
        self.assertEqual(result.error.code, "program_not_found")
        with self.assertRaisesRegex(ExecutionFailedError, "no-such-program"):
            result.check()

    def test_a_misspelled_option_is_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "timeoutt"):
            cast(Any, self.box.run_command)("true", timeoutt=3)

    def test_the_same_idempotency_key_finds_the_same_execution(self) -> None:
        first = self.box.run_command("echo x >> log; wc -l < log", idempotency_key="step-1")
        again = self.box.run_command("echo x >> log; wc -l < log", idempotency_key="step-1")
        self.assertEqual((first.stdout.strip(), again.stdout.strip(), again.id), ("1", "1", first.id))


class Background(Case):
    box: Sandbox

    def setUp(self) -> None:
        super().setUp()
        self.box = self.sandbox()

    def test_an_execution_is_waited_for_and_its_output_read_by_offset(self) -> None:
        execution = self.box.start_command("printf 0123456789; read line; echo", stdin="x\n")
        result = execution.wait()
        self.assertEqual((result.stdout, result.exit_code), ("0123456789\n", 0))
        self.assertEqual(execution.output(offset=4), b"456789\n")
        self.assertEqual(b"".join(execution.follow(offset=8)), b"89\n")
        self.assertEqual(execution.output("stderr"), b"")
        self.assertTrue(execution.info().ended)

    def test_a_wait_times_out_and_the_execution_continues(self) -> None:
        execution = self.box.start_command("while [ ! -e go ]; do sleep 0.05; done; echo went")
        with self.assertRaises(WaitTimeoutError):
            execution.wait(timeout=0.3)
        self.assertFalse(execution.info().ended)
        self.box.files.write("/workspace/go", "")
        self.assertEqual(execution.wait(timeout=120).stdout, "went\n")

    def test_cancel_kills_every_process_of_the_execution(self) -> None:
        execution = self.box.start_command("sleep 600 & sleep 600")
        self.assertEqual(execution.cancel().ended_by, "killed")
        self.assertEqual(execution.wait().ended_by, "killed")

    def test_a_handle_is_made_again_from_the_ids(self) -> None:
        execution = self.box.start_code("echo hello")
        other = Sandbox.connect(self.box.id, client=self.client).execution(execution.id)
        self.assertEqual(other.wait().stdout, "hello\n")
        self.assertIn(execution.id, [info.id for info in self.box.executions()])


class Input(Case):
    """Standard input that is written while the program runs."""

    def setUp(self) -> None:
        super().setUp()
        self.box = self.sandbox()

    def test_a_dialog_with_the_program(self) -> None:
        with self.box.stream_command("while read line; do echo you said $line; done; echo bye", stdin_open=True) as stream:
            next(stream)
            for word in ("one", "two"):
                stream.execution.write_stdin(f"{word}\n")
                event = next(stream)
                assert event.type == "stdout"
                self.assertEqual(event.text, f"you said {word}\n")
            stream.execution.close_stdin()
            self.assertEqual(stream.result().stdout, "bye\n")

    def test_no_byte_arrives_twice_after_a_cut(self) -> None:
        box = Sandbox(self.through(), self.box.info)
        execution = box.start_command("cat", stdin_open=True)
        for n in range(3):
            box._http.close()
            box = Sandbox(self.through(0, 0), self.box.info)
            execution = box.execution(execution.id)
            execution.write_stdin(f"{n}" * 100000)
        execution.close_stdin()
        self.assertEqual(execution.wait().stdout, "0" * 100000 + "1" * 100000 + "2" * 100000)

    def test_a_lost_answer_to_the_last_piece_is_not_an_error(self) -> None:
        execution = self.box.start_command("cat", stdin_open=True)
        Sandbox(self.through(100000, 0), self.box.info).execution(execution.id).write_stdin("all of it", close=True)
        self.assertEqual(execution.wait().stdout, "all of it")

    def test_writing_to_a_closed_or_waited_for_input_is_refused(self) -> None:
        with self.assertRaises(ConflictError):
            self.box.start_command("sleep 600").write_stdin("x")
        with self.assertRaisesRegex(TypeError, "stdin_open"):
            cast(Any, self.box.run_command)("cat", stdin_open=True)
