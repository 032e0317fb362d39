"""The calculator."""
from __future__ import annotations

import asyncio
from decimal import Decimal
from fractions import Fraction

import cove
from cove import AsyncCove
from cove.errors import CoveError

from support import Case


class Calculate(Case):
    def test_a_result_has_exact_types(self) -> None:
        done = self.client.calculate("1/3 + 1/6", steps=True)
        self.assertEqual((done.answer, done.fraction, done.decimal, done.exact), ("0.5", Fraction(1, 2), Decimal("0.5"), True))
        self.assertEqual((str(done), float(done), done.steps[-1]), ("0.5", 0.5, "1/3 + 1/6 = 0.5"))
        third = self.client.calculate("1/3", digits=5)
        self.assertEqual((third.answer, third.fraction, third.decimal, third.decimal_exact), ("1/3", Fraction(1, 3), Decimal("0.33333"), False))
        self.assertEqual(self.client.calculate("3 ** 20000").fraction, Fraction(3 ** 20000))

    def test_a_result_that_is_not_rational_says_its_precision(self) -> None:
        done = self.client.calculate("sqrt(2)", digits=10)
        self.assertEqual((done.decimal, done.fraction, done.digits, done.exact), (Decimal("1.414213562"), None, 10, False))
        zero = self.client.calculate("sqrt(2)**2 - 2")
        assert zero.error_bound is not None
        self.assertTrue(zero.answer == "0" and zero.error_bound < Decimal("1e-100"))

    def test_a_problem_without_an_answer_has_an_explanation(self) -> None:
        self.assertEqual(self.client.calculate(problem="subtract 3 from 10").expression, "10 - 3")
        done = self.client.calculate(problem="Who are you?")
        self.assertEqual((done.answer, done.confidence, done.problem_type), (None, 0.1, "unknown"))
        self.assertTrue(done.explanation)
        with self.assertRaises(ValueError):
            float(self.client.calculate("1 < 2"))

    def test_an_error_has_its_code(self) -> None:
        with self.assertRaisesRegex(CoveError, "division by zero") as caught:
            self.client.calculate("1/0")
        self.assertEqual(caught.exception.code, "division_by_zero")


class Async(Case):
    def test_the_async_client_computes_the_same(self) -> None:
        async def compute() -> None:
            async with AsyncCove(self.server.url, self.server.key) as client:
                done = await asyncio.gather(*(client.calculate(f"1/{n}") for n in range(2, 6)))
                self.assertEqual([one.fraction for one in done], [Fraction(1, n) for n in range(2, 6)])

        asyncio.run(compute())


class Names(Case):
    def test_the_module_has_the_class(self) -> None:
        self.assertTrue(callable(cove.calculate) and cove.Calculation.__name__ == "Calculation")
