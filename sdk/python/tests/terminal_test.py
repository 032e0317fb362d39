"""Terminals: input, resizing, leaving and attaching again."""
from __future__ import annotations

from cove import Execution, OutputEvent

from support import Case


class Terminals(Case):
    def shown(self, terminal: Execution, text: str) -> str:
        """Reads the terminal from its beginning until it has shown the text."""
        whole = ""
        with terminal.stream() as events:
            for event in events:
                if isinstance(event, OutputEvent):
                    whole += event.text
                    if text in whole:
                        return whole
        raise AssertionError(f"{text!r} is not in {whole!r}")

    def test_a_shell_takes_input_is_resized_and_attached_again(self) -> None:
        box = self.sandbox()
        terminal = box.start_terminal(["sh", "-i"], rows=30, cols=100, env={"PS1": "% "})
        terminal.write_stdin("stty size; echo $TERM\n")
        self.assertIn("30 100", self.shown(terminal, "xterm-256color"))
        terminal.resize(40, 120)
        terminal.write_stdin("until stty size | grep 40' '120; do sleep 0.1; done\n")
        self.shown(terminal, "40 120\r\n")
        again = box.execution(terminal.id)
        again.write_stdin("exit 5\n")
        self.assertEqual(terminal.wait().exit_code, 5)

    def test_a_signal_reaches_the_foreground_process(self) -> None:
        terminal = self.sandbox().start_terminal("trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.05; done")
        self.shown(terminal, "up")
        terminal.signal("INT")
        self.assertEqual(terminal.wait().exit_code, 3)
        self.assertIn("caught", self.shown(terminal, "caught"))
