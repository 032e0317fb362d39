"""The async half is generated from the same code, so only the differences in waiting are tested."""
from __future__ import annotations

import asyncio
import inspect
import os
from typing import Any, AsyncIterator, Awaitable, Callable, List

import anyio

import cove
from cove import AsyncCove, AsyncSandbox, ExitEvent, OutputEvent, Retry, WaitTimeoutError

from support import PATIENCE, Case, Proxy


class Async(Case):
    def go(self, what: Callable[[AsyncCove], Awaitable[None]], *cuts: int) -> None:
        async def main() -> None:
            proxy = Proxy(self.server.port, list(cuts))
            try:
                async with AsyncCove(proxy.url, self.server.key, retry=Retry(window=PATIENCE, first=0.01)) as client:
                    await what(client)
            finally:
                proxy.close()

        asyncio.run(main())

    def test_many_sandboxes_run_at_the_same_time(self) -> None:
        async def many(client: AsyncCove) -> None:
            async with await AsyncSandbox.create("sh", client=client, lifetime=900) as box:
                results = await asyncio.gather(*(box.run_command(f"sleep 0.5; echo {n}", timeout=300) for n in range(8)))
                self.assertEqual([r.stdout for r in results], [f"{n}\n" for n in range(8)])
                self.assertEqual(len([info async for info in box.executions()]), 8)
                mine = client.executions.list(sandbox=box.id, outcome="success")
                self.assertEqual(len([info async for info in mine]), 8)
                self.assertEqual([info async for info in client.executions.list(sandbox=box.id, state="!ended")], [])
            self.assertEqual((await box.refresh()).state, "ended")

        self.go(many)

    def test_a_stream_survives_cut_connections_and_a_killed_server(self) -> None:
        async def stream(client: AsyncCove) -> None:
            async with await AsyncSandbox.create("sh", client=client, lifetime=900, timeout=300) as box:
                seen, killed = b"", False
                async with box.stream_command("echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; exit 3") as events:
                    async for event in events:
                        if isinstance(event, OutputEvent):
                            seen += event.data
                        if seen and not killed:
                            killed = True
                            await asyncio.to_thread(self.server.kill_coved)
                            await box.files.write("/workspace/go", "")
                assert isinstance(event, ExitEvent)
                self.assertEqual((seen, event.exit_code), (b"one\ntwo\n", 3))

        self.go(stream, 0, 900, 1200)

    def test_a_cancelled_task_leaves_the_client_usable(self) -> None:
        async def cancelled(client: AsyncCove) -> None:
            async with await AsyncSandbox.create("sh", client=client, lifetime=900, timeout=300) as box:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(box.run_command("sleep 600"), 0.3)
                self.assertEqual((await box.run_command("echo on")).stdout, "on\n")
                background = await box.start_command("sleep 600")
                with self.assertRaises(WaitTimeoutError):
                    await background.wait(timeout=0.2)
                self.assertEqual((await background.cancel()).ended_by, "killed")

        self.go(cancelled)

    def test_a_cancelled_block_ends_its_sandbox(self) -> None:
        async def cancelled(client: AsyncCove) -> None:
            made: List[AsyncSandbox] = []

            async def block() -> None:
                async with await AsyncSandbox.create("sh", client=client, lifetime=900, timeout=300) as box:
                    made.append(box)
                    await box.run_command("sleep 600")

            task = asyncio.ensure_future(block())
            while not made:
                await asyncio.sleep(0.02)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            with anyio.CancelScope() as scope:
                async with await AsyncSandbox.create("sh", client=client, lifetime=900, timeout=300) as box:
                    made.append(box)
                    scope.cancel()
                    await box.run_command("sleep 600")
            self.assertEqual([(await box.refresh()).state for box in made], ["ended", "ended"])

        self.go(cancelled)

    def test_files_and_trees_do_not_block_the_event_loop(self) -> None:
        os.makedirs(self.path("tree/sub"))
        with open(self.path("tree/sub/f"), "wb") as f:
            f.write(b"z" * 5000000)

        async def pieces() -> AsyncIterator[bytes]:
            yield b"one "
            await asyncio.sleep(0)
            yield b"two"

        async def files(client: AsyncCove) -> None:
            async with await AsyncSandbox.create("sh", client=client, lifetime=900) as box:
                await box.files.write("/workspace/p", pieces())
                self.assertEqual(await box.files.read("/workspace/p"), "one two")
                await box.files.upload_directory(self.path("tree"), "/workspace/t")
                told = await box.files.download_directory("/workspace/t", self.path("back"))
                self.assertEqual((told.files, told.size_bytes), (1, 5000000))
                await box.files.download("/workspace/t/sub/f", self.path("one"))
                self.assertEqual(os.path.getsize(self.path("one")), 5000000)

        self.go(files)

    def test_events_records_and_usage(self) -> None:
        async def read(client: AsyncCove) -> None:
            async with await AsyncSandbox.create("sh", client=client, lifetime=900) as box:
                async with client.events.follow(sandbox=box.id) as events:
                    await box.run_command("true")
                    self.assertEqual([(await events.__anext__()).kind for _ in range(2)], ["execution_started", "execution_ended"])
                self.assertIn(box.id, [s.id for s in (await client.usage.live()).sandboxes])
                self.assertEqual(len([record async for record in client.audit.records(latest=2)]), 2)
            self.assertIn("local", [tenant.name async for tenant in client.tenants.list()])

        self.go(read)

    def test_both_halves_have_the_same_interface(self) -> None:
        for name in ("Cove", "Sandbox", "Execution", "Stream", "Files", "Watch", "Keys", "Templates", "Tenants", "Users", "Roles",
                     "Events", "EventStream", "Audit", "Usages", "Channel", "Session", "Terminal", "Terminals"):
            one, two = getattr(cove, name), getattr(cove, "Async" + name)
            self.assertEqual({n for n in vars(one) if not n.startswith("_")}, {n.replace("aclose", "close") for n in vars(two) if not n.startswith("_")})
            for method, function in inspect.getmembers(one, inspect.isfunction):
                twin: Any = getattr(two, {"close": "aclose"}.get(method, method), None)
                if twin is not None:
                    self.assertEqual(list(inspect.signature(function).parameters), list(inspect.signature(twin).parameters), f"{name}.{method}")
                    self.assertFalse(inspect.iscoroutinefunction(function), f"{name}.{method}")
