"""Streams and the failures that they survive: no output is lost or repeated, and no program runs
twice.
"""
from __future__ import annotations

import os
import signal

from cove import Cove, ExitEvent, OutputEvent, Retry, Sandbox, StartedEvent, Stream
from cove.errors import ConnectionLostError, ProtocolError
from cove.events import LineSplitter, StreamProgress

from support import Case, wait_for

COUNT = "i=0; while [ $i -lt 4000 ]; do echo line $i; echo LINE $i >&2; i=$((i+1)); done; printf '\\377'; exit 7"
COUNTED = "".join(f"line {i}\n" for i in range(4000)).encode() + b"\xff"


class Streams(Case):
    def assertWhole(self, stream: Stream) -> None:
        """Asserts that the stream has every byte once, in order, and the end."""
        events = list(stream)
        self.assertIsInstance(events[0], StartedEvent)
        self.assertEqual(sum(isinstance(e, StartedEvent) for e in events), 1)
        for name, want in (("stdout", COUNTED), ("stderr", COUNTED[:-1].upper())):
            pieces = [e for e in events if isinstance(e, OutputEvent) and e.type == name]
            self.assertEqual(b"".join(p.data for p in pieces), want)
            self.assertEqual([p.offset for p in pieces], [sum(len(q.data) for q in pieces[:n]) for n in range(len(pieces))])
        last = events[-1]
        assert isinstance(last, ExitEvent)
        self.assertEqual((last.exit_code, last.ended_by), (7, "exit"))

    def test_events_arrive_in_order_and_once(self) -> None:
        self.assertWhole(self.sandbox().stream_command(COUNT))

    def test_one_connection_serves_consecutive_executions(self) -> None:
        box = Sandbox(self.through(), self.sandbox().info)
        for _ in range(5):
            box.run_command("echo x").check()
        self.assertEqual(self.proxy.connections, 1)

    def test_output_arrives_while_the_program_runs(self) -> None:
        box = self.sandbox()
        with box.stream_command("echo first; while [ ! -e go ]; do sleep 0.05; done; echo second") as stream:
            self.assertIsInstance(next(stream), StartedEvent)
            event = next(stream)
            assert event.type == "stdout"
            self.assertEqual(event.text, "first\n")
            box.files.write("/workspace/go", "")
            result = stream.result()
        self.assertEqual((result.stdout, result.exit_code), ("second\n", 0))

    def test_closing_a_stream_does_not_end_the_execution(self) -> None:
        box = self.sandbox()
        with box.stream_command("echo here; while [ ! -e go ]; do sleep 0.05; done; echo there") as stream:
            next(stream)
        box.files.write("/workspace/go", "")
        self.assertEqual(stream.execution.wait().stdout, "here\nthere\n")

    def test_a_stream_cut_anywhere_resumes_without_loss_or_repetition(self) -> None:
        box = self.sandbox()
        cuts = [1, 100, 700, 900, 1000, 1500, 3000, 5000, 9000]
        client = self.through(*cuts)
        self.assertWhole(Sandbox(client, box.info).stream_command(COUNT))
        self.assertGreater(self.proxy.connections, len(cuts))

    def test_a_program_runs_once_if_the_answer_is_cut(self) -> None:
        box = self.sandbox()
        result = Sandbox(self.through(0, 0, 5, 50), box.info).run_command("echo x >> log; wc -l < log")
        self.assertEqual((result.stdout.strip(), result.exit_code), ("1", 0))
        self.assertEqual(len(list(box.executions())), 1)

    def test_one_sandbox_is_created_if_the_answer_is_cut(self) -> None:
        made = self.sandbox(self.through(0, 10, 100), metadata={"cut": self.id()[-80:]})
        self.assertEqual([s.id for s in Sandbox.list(metadata={"cut": self.id()[-80:]}, client=self.client)], [made.id])

    def test_a_stream_resumes_after_the_server_was_killed(self) -> None:
        box = self.sandbox()
        script = "for i in 1 2 3; do echo $i; done; while [ ! -e go ]; do sleep 0.05; done; for i in 4 5 6; do echo $i; done; exit 4"
        events = box.stream_command(script)
        seen = b""
        while seen != b"1\n2\n3\n":
            event = next(events)
            seen += event.data if isinstance(event, OutputEvent) else b""
        self.server.kill_coved()
        box.files.write("/workspace/go", "")
        rest = events.result()
        self.assertEqual((seen + rest.stdout_bytes, rest.exit_code, rest.ended_by), (b"1\n2\n3\n4\n5\n6\n", 4, "exit"))
        self.assertEqual(box.execution(rest.id).wait().stdout, "1\n2\n3\n4\n5\n6\n")
        self.assertEqual(len(list(box.executions())), 1)

    def test_a_hanging_server_is_noticed_and_the_request_repeated(self) -> None:
        box = self.sandbox()
        pid = wait_for(lambda: self.server.pid("coved"))
        client = Cove(socket=self.server.socket, timeout=1, retry=Retry(window=1))
        self.addCleanup(client.close)
        os.kill(pid, signal.SIGSTOP)
        try:
            with self.assertRaises(ConnectionLostError):
                client.version()
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(box.run_command("echo on").stdout, "on\n")


class Progresses(Case):
    """StreamProgress without a server."""

    def setUp(self) -> None:
        pass

    @staticmethod
    def piece(offset: int, text: str, stream: str = "stdout") -> bytes:
        return f'{{"type":"output","stream":"{stream}","offset":{offset},"data":"{text}"}}'.encode()

    def test_a_repeated_piece_is_cut_to_its_new_part(self) -> None:
        progress = StreamProgress("ex1")
        self.assertEqual(progress.take(self.piece(0, "abc")), OutputEvent("stdout", b"abc", 0))
        self.assertIsNone(progress.take(self.piece(0, "abc")))
        self.assertEqual(progress.take(self.piece(1, "bcde")), OutputEvent("stdout", b"de", 3))
        self.assertEqual(progress.take(self.piece(0, "x", "stderr")), OutputEvent("stderr", b"x", 0))

    def test_a_missing_piece_is_an_error(self) -> None:
        progress = StreamProgress("ex1", stdout=5)
        with self.assertRaises(ProtocolError):
            progress.take(self.piece(6, "x"))

    def test_malformed_lines_are_errors_and_unknown_events_are_ignored(self) -> None:
        progress = StreamProgress("ex1")
        for line in (b"{", b"[]", b'{"type":"output"}', b'{"type":"output","stream":"stdout","offset":0,"base64":"?"}', b'{"type":"end"}',
                     b'{"type":"output","stream":"tty","offset":0,"data":""}'):
            with self.assertRaises(ProtocolError, msg=line):
                progress.take(line)
        self.assertIsNone(progress.take(b'{"type":"heartbeat"}'))
        self.assertIsNone(progress.take(b'{"type":"of another time"}'))

    def test_only_newlines_end_a_line_wherever_pieces_are_cut(self) -> None:
        text = 'a\u2028b\r\n\n{"c":"\u0085"}\nrest'.encode()
        for size in (1, 2, 3, 100):
            lines = LineSplitter()
            found = [line for at in range(0, len(text), size) for line in lines.feed(text[at:at + size])]
            self.assertEqual(found, ["a\u2028b\r".encode(), '{"c":"\u0085"}'.encode()])
            self.assertEqual(lines.rest, b"rest")
