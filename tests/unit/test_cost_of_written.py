"""A program is written in few calls for each step: thousands share their place in the plan and their rights."""

from __future__ import annotations

import hipplan
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.program import written
from hipplan.program.program import Program
from tests.python_calls import CHUNK, calls_of

CALLS_OF_STEP_MAX = 20
"""Python calls; JSON itself makes most of them."""


def program(count: int) -> Program:
    region = {"device": "gpu.0", "size": count * CHUNK, "chunk": CHUNK}
    return compile_plan(hipplan.load({"hipplan": 1, "regions": {"cache": region}}), "mi300x-8")


def test_a_step_is_written_in_few_calls() -> None:
    costs = []
    for count in (100, 100, 1100):  # the first one also pays for what is kept
        made = program(count)
        written.write(made)
        costs.append(calls_of(lambda made=made: (written.write(made), written.digest(made))).python)
    assert costs[2] - costs[1] <= 2 * 3 * 1000 * CALLS_OF_STEP_MAX


def test_what_is_written_is_read() -> None:
    made = program(40)
    assert written.read(written.write(made)) == made
