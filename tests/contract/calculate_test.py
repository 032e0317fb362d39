#!/usr/bin/env python3
"""calculate_test.py API_TESTD RUNTIME - POST /v1/calculate and the tool mathematical_solve, against
the same real server as api_test.py; prints TAP.
"""
import sys
import time
from fractions import Fraction

import api_test
import tools_test

CASES = []


def case(function):
    CASES.append(function)
    return function


def calculate(s, **body):
    a = s.call("POST", "/v1/calculate", body)
    assert a.status == 200, (body, a.body)
    return a.json


def refused(s, body, status, code):
    a = s.call("POST", "/v1/calculate", body)
    assert (a.status, a.json["error"]["code"]) == (status, code), (body, a.body)
    return a.json["error"]["message"]


@case
def an_expression_has_an_exact_answer(s):
    a = calculate(s, expression="1/3 + 1/6", steps=True)
    assert (a["answer"], a["fraction"], a["decimal"], a["exact"], a["decimalExact"]) == ("0.5", "1/2", "0.5", True, True), a
    assert a["steps"][-1] == "1/3 + 1/6 = 0.5" and a["confidence"] == 0.95 and a["method"] == "expression", a
    a = calculate(s, expression="1/3", digits=5)
    assert (a["answer"], a["decimal"], a["decimalExact"], a["digits"]) == ("1/3", "0.33333", False, 5) and "steps" not in a, a
    a = calculate(s, expression="sqrt(2)", digits=1000)
    assert not a["exact"] and len(a["decimal"]) == 1001 and "fraction" not in a, a
    assert calculate(s, expression="1 < 2")["answer"] == "true"


@case
def a_problem_may_be_in_words(s):
    a = calculate(s, problem="What is subtract 3 from 10?")
    assert (a["answer"], a["confidence"], a["expression"], a["method"]) == ("7", 0.85, "10 - 3", "words"), a
    a = calculate(s, problem="Who are you?")
    assert (a["answer"], a["confidence"], a["problemType"]) == (None, 0.1, "unknown") and a["explanation"], a
    assert calculate(s, problem="Calculate 2.5 + 1")["answer"] == "3.5"
    refused(s, {"expression": "What is 2 + 2?"}, 400, "calculation_syntax")


@case
def an_error_has_a_code_and_names_the_character(s):
    assert "character 2" in refused(s, {"expression": "1/0"}, 422, "division_by_zero")
    assert "character 1" in refused(s, {"expression": "sqrt(-1)"}, 422, "calculation_undefined")
    assert "character 2" in refused(s, {"expression": "9**9**9"}, 422, "calculation_too_large")
    assert "character 4" in refused(s, {"expression": "2 +"}, 400, "calculation_syntax")
    for body in ({}, {"expression": "1", "problem": "1"}, {"expression": ""}, {"expression": "1", "digits": 0}, {"expression": "1", "digits": 1001},
                 {"expression": "1" * 4097}, {"expression": 1}, {"expression": "1", "step": True}):
        refused(s, body, 400, "invalid_request")


@case
def credentials_need_the_scope_of_executions(s):
    assert s.call("POST", "/v1/calculate", {"expression": "1"}, key=False).status == 401
    reader = s.call("POST", "/v1/keys", {"name": "reader", "scopes": ["files:read"]}).json["key"]
    assert s.call("POST", "/v1/calculate", {"expression": "1"}, key=reader).status == 403


@case
def outcomes_are_counted(s):
    outcomes = ("success", "not_understood", "refused", "too_large")
    count = lambda: [tools_test.figure(s, f'cove_calculate_total{{outcome="{o}"}}') for o in outcomes]
    before = count()
    calculate(s, expression="1")
    calculate(s, problem="hello")
    refused(s, {"expression": "1/0"}, 422, "division_by_zero")
    refused(s, {"expression": "2**99999"}, 422, "calculation_too_large")
    assert [after - n for after, n in zip(count(), before)] == [1, 1, 1, 1]


@case
def hostile_expressions_leave_the_server_responsive(s):
    for text in ("9**" * 1300 + "9", "(" * 4000, "+".join(["1e-9999"] * 500), "+".join(["exp(1/3)"] * 400), "1000000!", "max(" * 1000,
                 "binomial(1e9999,1e9998)", "sin(1e9999)"):
        begin = time.monotonic()
        a = s.call("POST", "/v1/calculate", {"expression": text, "digits": 1000})
        assert a.status in (400, 422) and time.monotonic() - begin < 1, (text[:40], a.body)


@case
def capabilities_state_the_bounds(s):
    a = s.call("GET", "/v1/capabilities").json["calculator"]
    assert (a["maxBytes"], a["maxDigits"], a["maxValueDigits"]) == (4096, 1000, 10000) and "sqrt" in a["functions"], a


@case
def the_tool_has_the_five_keys(s):
    solve = lambda problem: tools_test.answered(s, "mathematical_solve", s.call("POST", "/v1/tools/mathematical_solve", {"problem": problem}))
    a = solve("What is 15% of 80?")
    assert not a["isError"] and a["text"] == "12", a
    assert a["result"] == {"answer": "12", "reasoning_steps": ["15% = 0.15", "0.15 * 80 = 12"], "confidence": 0.95, "problem_type": "percentage",
                           "solution_method": "expression"}, a
    assert solve("add 3 to 4")["result"]["reasoning_steps"][0] == "The problem means 4 + 3"
    a = solve("1/3")["result"]
    assert Fraction(a["answer"]) == Fraction(1, 3) and a["reasoning_steps"][-1].startswith("1/3 \u2248 0.33333"), a
    a = solve("Who are you?")
    assert a["isError"] and a["result"]["answer"] is None and a["result"]["confidence"] == 0.1 and a["result"]["reasoning_steps"], a
    a = solve("divide 1 by 0")
    assert a["isError"] and a["result"]["error"]["code"] == "division_by_zero", a
    assert s.call("POST", "/v1/tools/mathematical_solve", {}).status == 400


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
