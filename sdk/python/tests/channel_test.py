"""Channels and terminals over a WebSocket: parallel executions, input, and the failures that they
survive.
"""
from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
import subprocess
import threading
from typing import Callable, List

from cove import (AsyncCove, AsyncSandbox, AsyncSession, Channel, ChannelEvent, Cove, ExitEvent, OutputEvent, ResizeEvent, Retry, Sandbox, Session, StartedEvent, Terminal,
                  WaitTimeoutError)
from cove.errors import (ConflictError, ConnectionLostError, CoveError, InvalidRequestError, NotFoundError, ProtocolError, SandboxEndedError,
                         ServerNotTrustedError, UnauthorizedError)
from cove._call import closed_error

from support import PATIENCE, Case, Proxy, wait_for

COUNT = "i=0; while [ $i -lt 3000 ]; do echo line $i; echo LINE $i >&2; i=$((i+1)); done; printf '\\377'; exit 7"
COUNTED = "".join(f"line {i}\n" for i in range(3000)).encode() + b"\xff"


class OnAChannel(Case):
    def channel(self, box: Sandbox, client: Cove) -> Channel:
        made = Sandbox(client, box.info).channel()
        self.addCleanup(made.close)
        return made

    def shown(self, session: Session, text: str) -> str:
        """Reads until the session has shown the text."""
        whole = ""
        for event in session:
            whole += event.text if isinstance(event, OutputEvent) else ""
            if text in whole:
                return whole
        raise AssertionError(f"{text!r} is not in {whole!r}")

    def behind(self, work: Callable[[], None]) -> Callable[[], None]:
        """Runs `work` in a thread; the returned function waits for the thread and raises its
        exception."""
        met: List[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:
                met.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def join() -> None:
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive(), "the thread did not end")
            if met:
                raise met[0]

        return join


class Channels(OnAChannel):
    def test_many_executions_share_one_connection(self) -> None:
        box = self.sandbox()
        client = self.through()
        with self.channel(box, client) as channel:
            sessions = [channel.start_command(f"echo {n}; cat >&2; exit {n}", stdin_open=True) for n in range(6)]
            for n, session in enumerate(sessions):
                session.write(f"to {n}", close=True)
            for n, session in reversed([*enumerate(sessions)]):
                result = session.wait()
                self.assertEqual((result.stdout, result.stderr, result.exit_code), (f"{n}\n", f"to {n}", n))
        self.assertEqual(self.proxy.connections, 1)

    def test_events_arrive_in_order_and_the_exit_is_last(self) -> None:
        box = self.sandbox(runtime="sh")
        with box.channel() as channel, channel.start_code("echo out; exit 3") as session:
            events: List[ChannelEvent] = list(session)
            self.assertIsInstance(events[0], StartedEvent)
            self.assertEqual(b"".join(e.data for e in events if isinstance(e, OutputEvent)), b"out\n")
            last = events[-1]
            assert isinstance(last, ExitEvent)
            self.assertEqual((last.exit_code, last.execution.id), (3, session.id))
            self.assertIsNone(session.read())
            self.assertEqual(session.execution.wait().stdout, "out\n")
            with self.assertRaises(ProtocolError):
                session.wait()

    def test_output_is_complete_and_not_repeated_after_cuts_anywhere(self) -> None:
        box = self.sandbox()
        cuts = [1, 150, 400, 900, 1500, 3000, 5000, 9000, 20000]
        channel = self.channel(box, self.through(*cuts))
        one, two = channel.start_command(COUNT), channel.start_command(COUNT)
        first, second = one.wait(), two.wait()
        for result in (first, second):
            self.assertEqual((result.stdout_bytes, result.stderr_bytes, result.exit_code), (COUNTED, COUNTED[:-1].upper(), 7))
        self.assertGreater(self.proxy.connections, len(cuts))
        self.assertEqual(len(list(box.executions())), 2)

    def test_an_execution_starts_once_if_its_request_is_cut(self) -> None:
        box = self.sandbox()
        channel = self.channel(box, self.through(ups=[10, 300, 400, 500, 600, 700]))
        for n in range(3):
            result = channel.start_command("echo x >> log; wc -l < log").wait()
            self.assertEqual((result.stdout.strip(), result.exit_code), (f"{n + 1}", 0))
        self.assertEqual(len(list(box.executions())), 3)

    def test_input_arrives_once_with_cuts_in_both_directions(self) -> None:
        box = self.sandbox()
        data = os.urandom(1500000)
        channel = self.channel(box, self.through(2000, 1 << 20, 4000, ups=[5000, 100000, 70000, 200000, 1000, 600000]))
        session = channel.start_command("cat", stdin_open=True)
        join = self.behind(lambda: session.write(data, close=True))
        result = session.wait()
        join()
        self.assertEqual(hashlib.sha256(result.stdout_bytes).hexdigest(), hashlib.sha256(data).hexdigest())
        self.assertGreater(self.proxy.connections, 6)

    def test_a_writer_waits_for_a_program_that_does_not_read_without_blocking_others(self) -> None:
        box = self.sandbox()
        with box.channel() as channel:
            slow = channel.start_command("while [ ! -e go ]; do sleep 0.05; done; wc -c", stdin_open=True)
            join = self.behind(lambda: slow.write(b"x" * 1000000, close=True))
            self.assertEqual(channel.start_command("echo brisk").wait().stdout, "brisk\n")
            self.assertIsInstance(slow.read(), StartedEvent)
            with self.assertRaises(WaitTimeoutError):
                slow.read(timeout=0.2)
            box.files.write("/workspace/go", "")
            join()
            self.assertEqual(slow.wait().stdout.strip(), "1000000")

    def test_a_channel_resumes_after_the_server_was_killed(self) -> None:
        box = self.sandbox()
        with box.channel() as channel:
            session = channel.start_command("echo one; cat", stdin_open=True)
            self.shown(session, "one\n")
            self.server.kill_coved()
            session.write("two\n", close=True)
            self.assertEqual(session.wait().stdout, "two\n")
        self.assertEqual(len(list(box.executions())), 1)

    def test_unread_output_waits_at_the_server(self) -> None:
        box = self.sandbox()
        with box.channel() as channel:
            flood = channel.start_command("head -c 7000000 /dev/zero | tr '\\0' x; cat", stdin_open=True)
            calm = channel.start_command("while [ ! -e go ]; do sleep 0.05; done; echo calm")
            wait_for(lambda: flood.execution.info().stdout_bytes == 7000000)
            for _ in range(3):  # its reader receives messages for all sessions
                with self.assertRaises(WaitTimeoutError):
                    while calm.read(timeout=1):
                        pass
            self.assertLess(flood._waiting_bytes, 6000000)
            flood.write("end", close=True)
            self.assertEqual(flood.wait().stdout, "x" * 7000000 + "end")
            box.files.write("/workspace/go", "")
            self.assertEqual(calm.wait().stdout, "calm\n")

    def test_an_execution_is_followed_from_any_offset(self) -> None:
        box = self.sandbox()
        started = box.start_command("printf 0123456789; printf abc >&2; cat", stdin_open=True)
        wait_for(lambda: started.info().stdout_bytes == 10 and started.info().stderr_bytes == 3)
        with box.channel() as one, box.channel() as two:
            session, other = one.follow(started.id, stdout_offset=7, stderr_offset=1), two.follow(started.id, tail_bytes=2)
            with self.assertRaises(ConflictError):
                one.follow(started.id)
            session.write("!", close=True)
            self.assertEqual((lambda r: (r.stdout, r.stderr))(session.wait()), ("789!", "bc"))
            self.assertEqual((lambda r: (r.stdout, r.stderr))(other.wait()), ("89!", "bc"))
            self.assertEqual(session.offsets, {"stdout": 11, "stderr": 3})
            again = two.follow(started.id, stdout_offset=11)  # it has ended
            self.assertEqual(again.wait().exit_code, 0)

    def test_closing_a_session_does_not_end_the_execution(self) -> None:
        box = self.sandbox()
        with box.channel() as channel:
            session = channel.start_command("echo here; while [ ! -e go ]; do sleep 0.05; done; echo there")
            session.close()
            self.assertEqual(list(session), [])
            box.files.write("/workspace/go", "")
            self.assertEqual(channel.follow(session.id).wait().stdout, "here\nthere\n")

    def test_signals_and_cancel(self) -> None:
        box = self.sandbox()
        with box.channel() as channel:
            session = channel.start_command("trap 'echo caught; exit 5' TERM; echo up; while :; do sleep 0.05; done")
            self.shown(session, "up")
            session.signal("TERM")
            self.assertEqual(session.wait().exit_code, 5)
            session = channel.start_command("sleep 600")
            session.cancel()
            self.assertEqual(session.wait().ended_by, "killed")
            session.cancel()  # the execution has ended already

    def test_an_error_is_raised_by_its_own_call_and_the_channel_stays_open(self) -> None:
        box = self.sandbox()
        with box.channel() as channel:
            session = channel.start_command("cat", stdin_open=True)
            with self.assertRaises(ConflictError):
                session.resize(10, 10)
            with self.assertRaises(InvalidRequestError):
                session.signal("NONE")
            with self.assertRaises(NotFoundError):
                channel.follow("ex" + "a" * 20)
            with self.assertRaises(InvalidRequestError):
                channel.start_command("true", cwd="\0")
            session.write("still here", close=True)
            self.assertEqual(session.wait().stdout, "still here")
            with self.assertRaises(ConflictError):
                session.write("too late")

    def test_an_idempotency_key_determines_the_execution_id(self) -> None:
        box = self.sandbox()
        with box.channel() as one, box.channel() as two:
            first = one.start_command("echo once >> log; cat log", idempotency_key="build 17")
            second = two.start_command("echo once >> log; cat log", idempotency_key="build 17")
            self.assertEqual((first.id, first.wait().stdout), (second.id, second.wait().stdout))
        self.assertEqual(len(list(box.executions())), 1)

    def test_the_status_is_sent(self) -> None:
        box = self.sandbox()
        with box.channel(status_interval=0.5) as channel:
            session = channel.start_command("sleep 600")

            def told() -> bool:
                with self.assertRaises(WaitTimeoutError):
                    while session.read(timeout=0.3):
                        pass
                return channel.status is not None and channel.status.memory_bytes is not None

            wait_for(told)
            assert channel.status is not None
            self.assertEqual(channel.status.state, "running")

    def test_a_channel_over_tls_trusts_the_given_authority(self) -> None:
        cert, key = self.path("cert.pem"), self.path("key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-days",
                        "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        proxy = Proxy(self.server.port, [], (), context)
        self.addCleanup(proxy.close)
        box = self.sandbox()
        data = os.urandom(300000)
        with Cove(proxy.url, self.server.key, cacert=cert) as client, self.channel(box, client) as channel:
            session = channel.start_command("cat", stdin_open=True)
            join = self.behind(lambda: session.write(data, close=True))
            self.assertEqual(session.wait().stdout_bytes, data)
            join()
        with Cove(proxy.url, self.server.key) as client, self.assertRaises(ServerNotTrustedError):
            self.channel(box, client).__enter__()


class Ends(OnAChannel):
    def test_a_revoked_key_closes_the_channel(self) -> None:
        box = self.sandbox()
        key = self.client.keys.create("short", ["executions", "sandboxes:read"])
        client = Cove(self.server.url, key.key)
        self.addCleanup(client.close)
        channel = self.channel(box, client)
        session = channel.start_command("sleep 600")
        self.client.keys.revoke(key.id)
        with self.assertRaises(UnauthorizedError):
            list(session)
        with self.assertRaises(UnauthorizedError):
            channel.start_command("true")

    def test_output_is_delivered_when_the_sandbox_ends(self) -> None:
        box = self.sandbox()
        with box.channel() as channel:
            session = channel.start_command("echo last words; sleep 600")
            wait_for(lambda: session.execution.info().stdout_bytes)
            box.delete()
            result = session.wait()
            self.assertEqual((result.stdout, result.ended_by), ("last words\n", "killed"))
            with self.assertRaises(SandboxEndedError):
                channel.start_command("true")
        with self.assertRaises(SandboxEndedError), box.channel():
            pass

    def test_output_is_delivered_after_the_sandbox_ended_unnoticed(self) -> None:
        box = self.sandbox()
        client = self.through(3000)
        channel = self.channel(box, client)
        session = channel.start_command("echo seen; while [ ! -e go ]; do sleep 0.05; done; head -c 20000 /dev/zero | tr '\\0' y; sleep 600")
        self.shown(session, "seen\n")
        box.files.write("/workspace/go", "")
        wait_for(lambda: session.execution.info().stdout_bytes == 20005)
        box.delete()  # nothing was read meanwhile
        result = session.wait()
        self.assertEqual((result.stdout, result.ended_by), ("y" * 20000, "killed"))

    def test_each_close_code_raises_its_error_class(self) -> None:
        for code, kind in ((1000, ConnectionLostError), (1001, ConnectionLostError), (1006, ConnectionLostError), (1011, ConnectionLostError),
                           (1013, ConnectionLostError), (4401, UnauthorizedError), (4410, SandboxEndedError), (1002, ProtocolError), (1009, ProtocolError)):
            self.assertIs(type(closed_error(code, "", "here")), kind, code)

    def test_an_unreachable_server_is_reported_soon(self) -> None:
        box = self.sandbox()
        with Cove("http://127.0.0.1:9", retry=Retry(window=0.2)) as client, self.assertRaises(CoveError):
            self.channel(box, client).__enter__()


class Terminals(OnAChannel):
    def terminal(self, box: Sandbox, client: Cove, command: str) -> Terminal:
        made = Sandbox(client, box.info).terminals.create(command)
        self.addCleanup(made.close)
        return made

    def test_a_shell_takes_input_is_resized_left_and_attached_again(self) -> None:
        box = self.sandbox()
        with box.terminals.create(["sh", "-i"], rows=30, cols=100, env={"PS1": "% "}) as terminal:
            terminal.write("stty size; echo $TERM\n")
            self.assertIn("30 100", self.shown(terminal, "xterm-256color\r\n"))
            terminal.resize(40, 120)
            terminal.write("until stty size | grep 40' '120; do sleep 0.1; done\n")
            self.shown(terminal, "40 120\r\n")
        self.assertEqual([info.id for info in box.terminals.list()], [terminal.id])
        with box.terminals.attach(terminal.id, tail_bytes=0) as again:
            self.assertEqual((again.rows, again.cols), (40, 120))
            again.write("exit 5\n")
            self.assertEqual(again.wait().exit_code, 5)
        self.assertEqual(list(box.terminals.list()), [])

    def test_several_viewers_see_the_same_output_and_all_may_type(self) -> None:
        box = self.sandbox()
        with box.terminals.create("stty -echo; echo up; cat") as one:
            self.shown(one, "up")
            with box.terminals.attach(one.id) as two:
                self.shown(two, "up")
                for n in range(3):
                    one.write(f"from one {n}\n")
                    two.write(f"from two {n}\n")
                for seat in (one, two):
                    seen = self.shown(seat, "from two 2\r\n")
                    self.assertEqual([seen.count(f"from {who} {n}\r\n") for who in ("one", "two") for n in range(3)], [1] * 6)
                two.resize(50, 60)
                event = one.read(timeout=PATIENCE)
                self.assertEqual((event, one.rows, one.cols), (ResizeEvent(50, 60), 50, 60))
                one.write("\x04")
                self.assertEqual((one.wait().exit_code, two.wait().exit_code), (0, 0))

    def test_keystrokes_arrive_once_despite_cuts(self) -> None:
        box = self.sandbox()
        typed = "".join(f"{n:03d} " for n in range(120))
        client = self.through(700, 1500, 4000, 2500, ups=[400, 600, 900, 1500, 1100, 2000, 3500])
        terminal = self.terminal(box, client, f"stty raw -echo; printf up; head -c {len(typed)} > typed; echo done")
        self.shown(terminal, "up")
        for at in range(0, len(typed), 4):
            terminal.write(typed[at:at + 4])
        self.shown(terminal, "done")
        self.assertEqual(terminal.wait().exit_code, 0)
        self.assertEqual(box.files.read("/workspace/typed"), typed)
        self.assertGreater(self.proxy.connections, 6)

    def test_a_sole_writer_resumes_after_a_cut(self) -> None:
        box = self.sandbox()
        mine = self.terminal(box, self.through(), "stty raw -echo; printf up; head -c 2 > typed; echo done")
        self.shown(mine, "up")
        self.proxy.heard.clear()
        join = self.behind(lambda: mine.write("a"))
        wait_for(lambda: self.typed_by_now(box, mine) == 1)
        self.proxy.cut()
        join()
        mine.write("b")
        self.shown(mine, "done")
        self.assertEqual(box.files.read("/workspace/typed"), "ab")

    def typed_by_now(self, box: Sandbox, terminal: Terminal) -> int:
        """Bytes of input that the terminal has received, from all clients."""
        return int(self.client._http.json(box.execution(terminal.id)._stdin_call(b"", None, False))["stdinBytes"])

    def test_a_cut_while_others_type_is_reported_to_the_writer(self) -> None:
        box = self.sandbox()
        mine = self.terminal(box, self.through(), "stty raw -echo; printf up; cat")
        self.shown(mine, "up")
        self.proxy.heard.clear()
        join = self.behind(lambda: mine.write("a"))
        wait_for(lambda: self.typed_by_now(box, mine) == 1)
        with box.terminals.attach(mine.id) as yours:
            yours.write("b")
            self.proxy.cut()
            with self.assertRaises(ConnectionLostError) as met:
                join()
            self.assertIn("type the missing part again", met.exception.fix or "")
            mine.write("c")
            for seat in (mine, yours):
                self.shown(seat, "c")
        mine.cancel()

    def test_a_terminal_that_dropped_its_beginning_shows_the_rest(self) -> None:
        box = self.sandbox()
        with box.terminals.create("head -c 300000 /dev/zero | tr '\\0' z; echo end; cat", output_bytes=65536) as terminal:
            self.shown(terminal, "end")
            with box.terminals.attach(terminal.id) as late:
                first = next(event for event in late if isinstance(event, OutputEvent))
                self.assertGreater(first.offset, 0)
                self.shown(late, "end")
            event = next(event for event in terminal.execution.stream() if isinstance(event, OutputEvent))
            self.assertGreater(event.offset, 0)


class Awaited(Case):
    def test_many_tasks_on_one_channel_survive_cuts(self) -> None:
        async def one(session: AsyncSession, n: int) -> None:
            await session.write(f"to {n}\n" * 2000, close=True)
            result = await session.wait()
            self.assertEqual((result.stdout, result.exit_code), (f"to {n}\n" * 2000, n))

        async def main() -> None:
            proxy = Proxy(self.server.port, [300, 3000, 9000], [2000, 9000])
            try:
                async with AsyncCove(proxy.url, self.server.key, retry=Retry(window=PATIENCE, first=0.01)) as client:
                    made = self.sandbox()
                    async with AsyncSandbox(client, made.info).channel() as channel:
                        sessions = [await channel.start_command(f"cat; exit {n}", stdin_open=True) for n in range(6)]
                        await asyncio.gather(*(one(session, n) for n, session in enumerate(sessions)))
                    self.assertEqual(len([info async for info in AsyncSandbox(client, made.info).executions()]), 6)
            finally:
                proxy.close()

        asyncio.run(main())

    def test_a_cancelled_task_takes_no_messages_from_the_others(self) -> None:
        async def main() -> None:
            async with AsyncCove(self.server.url, self.server.key) as client:
                async with await AsyncSandbox.create("sh", client=client, lifetime=900, timeout=300) as box, box.channel() as channel:
                    slow = await channel.start_command("while [ ! -e go ]; do echo tick; sleep 0.01; done; echo over")
                    for _ in range(20):
                        with self.assertRaises(asyncio.TimeoutError):
                            await asyncio.wait_for((await channel.start_command("sleep 600")).wait(), 0.02)
                    await box.files.write("/workspace/go", "")
                    whole = (await slow.wait()).stdout
                    self.assertEqual(whole, "tick\n" * whole.count("tick") + "over\n")

        asyncio.run(main())

    def test_a_terminal(self) -> None:
        async def main() -> None:
            async with AsyncCove(socket=self.server.socket) as client:
                async with await AsyncSandbox.create("sh", client=client, lifetime=900) as box:
                    seen = b""
                    async with await box.terminals.create("stty -echo; echo up; cat; exit 4") as terminal:
                        while b"up" not in seen:
                            event = await terminal.read()
                            seen += event.data if isinstance(event, OutputEvent) else b""
                        await terminal.write("typed\n\x04")
                        result = await terminal.wait()
                        self.assertEqual((result.stdout.replace("\r", "").split(), result.exit_code), (["typed"], 4))

        asyncio.run(main())
