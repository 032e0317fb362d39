#!/usr/bin/env python3
"""reference_test.py COVE_CALC - random expressions give the results of Python's fractions, decimal
and mpmath; prints TAP.

One process of the calculator computes all expressions. The seed is fixed, so a failure repeats.
"""
import decimal
import json
import math
import random
import subprocess
import sys
from fractions import Fraction

try:
    import mpmath
except ImportError:
    mpmath = None

SEED, DIGITS = 20271, 50


class Skip(Exception):
    """The expression divides by zero or its value is too large to be useful."""


def literal(rng):
    kind = rng.randrange(5)
    if kind == 0:
        text = str(rng.randrange(10 ** rng.randrange(1, 25)))
    elif kind == 1:
        text = f"{rng.randrange(10000)}.{rng.randrange(10 ** rng.randrange(1, 12))}"
    elif kind == 2:
        text = f"{rng.randrange(1000)}e{rng.randrange(-20, 20)}"
    elif kind == 3:
        return (number := hex(rng.randrange(1 << 40))), Fraction(int(number, 16))
    else:
        text = str(rng.randrange(100))
    return text, Fraction(text)


def rational(rng, depth):
    """A random expression with parentheses around each operation, and its value."""
    if depth == 0 or rng.random() < 0.1:
        return literal(rng)
    text, value = rational(rng, depth - 1)
    kind = rng.randrange(13)
    if kind == 0:
        return f"-({text})", -value
    if kind == 1:
        power = rng.randrange(-4, 6)
        if (value == 0 and power < 0) or max(abs(value.numerator), value.denominator).bit_length() > 900:
            raise Skip
        return f"(({text}) ** ({power}))", value ** power
    if kind == 2:
        return f"abs({text})", abs(value)
    if kind == 3:
        return f"floor({text})", Fraction(math.floor(value))
    if kind == 4:
        return f"round({text})", Fraction(math.floor(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1))
    if kind == 5:
        return f"({text})%", value / 100
    other_text, other = rational(rng, depth - 1)
    if kind in (6, 7, 8) and other == 0:
        raise Skip
    if kind == 6:
        return f"(({text}) / ({other_text}))", value / other
    if kind == 7:
        return f"(({text}) // ({other_text}))", Fraction(value // other)
    if kind == 8:
        return f"(({text}) mod ({other_text}))", value % other
    if kind == 9:
        return f"max({text}, {other_text})", max(value, other)
    symbol, result = rng.choice([("+", value + other), ("-", value - other), ("*", value * other)])
    return f"(({text}) {symbol} ({other_text}))", result


def flat(rng):
    """Operators without parentheses: Python has the same precedence."""
    text = str(rng.randrange(1, 50))
    for _ in range(rng.randrange(2, 8)):
        text += rng.choice([" + ", " - ", " * ", " / ", " // ", " ** "])
        text += str(rng.randrange(1, 4) if text.endswith("** ") else rng.randrange(1, 50))
    source = "".join(f"F({word})" if word.isdigit() else word for word in text.split(" "))
    value = eval(source, {"F": Fraction})  # numbers and operators of this function only
    if not isinstance(value, Fraction):
        raise Skip
    return text, value


def collect(make, rng, count):
    found = []
    while len(found) < count:
        try:
            text, value = make(rng)
        except (Skip, ZeroDivisionError, OverflowError):
            continue
        if len(text) < 4000 and max(abs(value.numerator), value.denominator).bit_length() < 8000:
            found.append((text, value))
    return found


def calculate(program, texts, digits):
    done = subprocess.run(["calc", "--json", "--digits", str(digits), "-"], executable=program, input="\n".join(texts) + "\n",
                          capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(texts), f"{len(answers)} answers to {len(texts)} expressions: {done.stderr[:300]}"
    return answers


def check_rational(text, value, answer):
    if "error" in answer or not answer["exact"] or Fraction(answer["fraction"]) != value:
        return f"{text}: {str(answer)[:300]}; expected {value}"
    if answer["decimalExact"]:
        return None if Fraction(answer["decimal"]) == value else f"{text}: decimal {answer['decimal']}, not {value}"
    context = decimal.Context(prec=answer["digits"], rounding=decimal.ROUND_HALF_EVEN, Emin=-99999, Emax=99999)
    expected = context.divide(decimal.Decimal(value.numerator), decimal.Decimal(value.denominator))
    return None if decimal.Decimal(answer["decimal"]) == expected else f"{text}: decimal {answer['decimal']}, not {expected}"


# Name, smallest and largest argument.
FUNCTIONS = [("sqrt", 0, 1000), ("cbrt", 0, 1000), ("exp", -50, 50), ("ln", 0, 1000), ("log10", 0, 1000), ("sin", -1000, 1000),
             ("cos", -1000, 1000), ("tan", -1000, 1000), ("asin", -1, 1), ("acos", -1, 1), ("atan", -1000, 1000)]


def irrational(rng):
    """A function of a rational number, or a sum and a power of two of them, and its value."""
    def one():
        name, low, high = rng.choice(FUNCTIONS)
        argument = low + (high - low) * Fraction(rng.randrange(1, 99991), 99991)
        x = mpmath.mpf(argument.numerator) / argument.denominator
        return f"{name}({argument.numerator}/{argument.denominator})", getattr(mpmath, name)(x)

    (text, value), (other_text, other) = one(), one()
    kind = rng.randrange(3)
    if kind == 0:
        return text, value
    if kind == 1:
        return f"{text} + {other_text} * pi", value + other * mpmath.pi
    if value <= 0 or abs(other) > 50:
        raise Skip
    return f"({text}) ** ({other_text})", value ** other


def main():
    program, rng = sys.argv[1], random.Random(SEED)
    tests = [("1,400 nested rational expressions equal fractions.Fraction", collect(lambda r: rational(r, r.randrange(1, 6)), rng, 1400)),
             ("600 expressions without parentheses equal fractions.Fraction", collect(flat, rng, 600))]
    print(f"1..{len(tests) + 1}")
    failed = False
    for number, (title, cases) in enumerate(tests, 1):
        answers = calculate(program, [text for text, _ in cases], DIGITS)
        wrong = [w for (text, value), answer in zip(cases, answers) if (w := check_rational(text, value, answer))]
        failed |= bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {number} - {title}")
        print("".join(f"# {w[:500]}\n" for w in wrong[:5]), end="")
    title = f"{len(tests) + 1} - 400 irrational expressions equal mpmath to {DIGITS} digits"
    if not mpmath:
        print(f"ok {title} # SKIP python3-mpmath is not installed")
        return failed
    mpmath.mp.dps = 2 * DIGITS + 400
    cases = []
    while len(cases) < 400:
        try:
            cases.append(irrational(rng))
        except Skip:
            continue
    answers = calculate(program, [text for text, _ in cases], DIGITS)
    wrong = [f"{text}: {answer}; expected {mpmath.nstr(value, DIGITS)}" for (text, value), answer in zip(cases, answers)
             if answer.get("digits") != DIGITS or decimal.Decimal(answer["decimal"]) !=
             decimal.Context(prec=DIGITS).create_decimal(mpmath.nstr(value, 2 * DIGITS, min_fixed=0, max_fixed=0))]
    print(f"{'not ok' if wrong else 'ok'} {title}")
    print("".join(f"# {w[:500]}\n" for w in wrong[:5]), end="")
    return failed or bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
