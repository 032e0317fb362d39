"""Secrets: values that sandboxes use without seeing them."""
from __future__ import annotations

import asyncio
from typing import List

from cove import AsyncCove
from cove.errors import InvalidRequestError, NotFoundError

from support import Case


class Secrets(Case):
    def test_a_secret_is_set_listed_and_deleted_and_no_answer_has_its_value(self) -> None:
        secret = self.client.secrets.set("openai", "sk-first-value")
        self.assertEqual((secret.name, secret.generation, secret.uses, secret.last_used_at), ("openai", 1, 0, None))
        again = self.client.secrets.set("openai", "sk-second-value")
        self.assertEqual((again.generation, again.created_at), (2, secret.created_at))
        self.assertEqual([s.name for s in self.client.secrets.list()], ["openai"])
        self.assertNotIn("sk-second-value", repr(self.client.secrets.get("openai")))
        self.assertEqual(self.client.secrets.set("openai", "sk-second-value", hosts=["api.openai.com"]).hosts, ["api.openai.com"])
        self.assertEqual(self.client.secrets.set("openai", "sk-third-value").hosts, ["api.openai.com"])
        self.assertEqual(self.client.secrets.set("openai", "sk-third-value", hosts=()).hosts, [])
        self.client.secrets.delete("openai")
        with self.assertRaises(NotFoundError) as caught:
            self.client.secrets.get("openai")
        self.assertEqual(caught.exception.code, "secret_not_found")
        with self.assertRaises(NotFoundError):
            self.client.secrets.delete("openai")

    def test_a_name_or_a_value_that_cannot_be_sent_is_refused(self) -> None:
        for name, value in (("Upper", "long enough"), ("a", "a whole line\n"), ("a", ""), ("a", "7 bytes"), ("a", "x" * 1025)):
            with self.assertRaises(InvalidRequestError):
                self.client.secrets.set(name, value)

    def test_secrets_are_set_and_listed_with_asyncio(self) -> None:
        async def found() -> List[str]:
            async with AsyncCove(self.server.url, self.server.key) as client:
                await client.secrets.set("key", "a value of a test")
                return [secret.name async for secret in client.secrets.list()]

        self.addCleanup(self.client.secrets.delete, "key")
        self.assertEqual(asyncio.run(found()), ["key"])
