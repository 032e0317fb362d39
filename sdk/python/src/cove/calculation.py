"""The result of the calculator. A module of its own, because most programs need neither decimal nor
fractions."""
from __future__ import annotations

import dataclasses
from decimal import Decimal
from fractions import Fraction
from typing import Any, List, Mapping, Optional

from ._json import decode, raw


def fraction_of(text: str) -> Fraction:
    """Without the bound of `int` on the number of digits of a text."""
    numerator, _, denominator = text.partition("/")
    return Fraction(Decimal(numerator)) / Fraction(Decimal(denominator or 1))


@dataclasses.dataclass(frozen=True)
class Calculation:
    """The result of an expression."""

    answer: Optional[str]
    """Exact if possible, otherwise rounded; "true" or "false" for a comparison; None: the problem
    was not understood."""
    exact: bool
    """`answer` is the value itself and not rounded."""
    problem_type: str
    """arithmetic, percentage, function, comparison or unknown"""
    method: str
    """expression, words or none"""
    confidence: float
    """0.95 for a formula, 0.85 for words, 0.1 for a problem that was not understood."""
    fraction: Optional[Fraction] = dataclasses.field(default=None, metadata={"convert": fraction_of})
    """The exact value; None: it is not known."""
    decimal: Optional[Decimal] = dataclasses.field(default=None, metadata={"convert": Decimal})
    """The value, rounded unless `decimal_exact`; None for a comparison."""
    decimal_exact: bool = False
    digits: Optional[int] = None
    """Significant digits to which `decimal` was rounded."""
    error_bound: Optional[Decimal] = dataclasses.field(default=None, metadata={"convert": Decimal})
    """The value is 0 within this bound."""
    expression: Optional[str] = None
    """The formula that was computed."""
    explanation: Optional[str] = None
    """Why the problem was not understood."""
    steps: List[str] = dataclasses.field(default_factory=list)
    omitted_steps: int = 0
    raw: Mapping[str, Any] = raw()

    def __str__(self) -> str:
        return self.answer or ""

    def __float__(self) -> float:
        if self.decimal is None:
            raise ValueError("the result is not a number")
        return float(self.decimal)


def calculation_of(answer: Any) -> Calculation:
    return decode(Calculation, answer)
