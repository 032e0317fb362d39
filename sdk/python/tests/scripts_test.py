"""Scripts: code that ran successfully."""
from __future__ import annotations

import asyncio
import hashlib
from typing import List

from cove import AsyncCove, Script
from cove.errors import NotFoundError

from support import Case

CODE = "# Greets a moose.\necho hello moose\n"


class Scripts(Case):
    def keep(self) -> str:
        box = self.sandbox(runtime="sh")
        return str(box.tools.call("run_sandbox", code=CODE, language="sh").result["script"]["id"])

    def test_a_script_is_found_read_and_deleted(self) -> None:
        kept = self.keep()
        found = list(self.client.scripts.list(search="MOOSE hello"))
        self.assertEqual([script.id for script in found], [kept])
        self.assertEqual((found[0].code, found[0].description, found[0].uses), (None, "Greets a moose.", 1))
        script = self.client.scripts.get(kept)
        self.assertEqual((script.code, script.language, script.size_bytes), (CODE, "sh", len(CODE)))
        self.assertEqual(script.digest, hashlib.sha256(b"sh\0" + CODE.encode()).hexdigest())
        self.assertEqual(list(self.client.scripts.list(search="moose", language="python")), [])
        self.client.scripts.delete(kept)
        with self.assertRaises(NotFoundError):
            self.client.scripts.get(kept)

    def test_scripts_are_listed_with_asyncio(self) -> None:
        async def found() -> List[Script]:
            async with AsyncCove(self.server.url, self.server.key) as client:
                return [script async for script in client.scripts.list(search="moose")]

        kept = self.keep()
        self.addCleanup(self.client.scripts.delete, kept)
        self.assertEqual([script.id for script in asyncio.run(found())], [kept])
