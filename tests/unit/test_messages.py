"""What people write by habit, and the one error, with its hint, that it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipplan.errors import Diagnostic, PlanError
from hipplan.language.loader import load
from hipplan.lowering import pieces
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.lowering.lowered import lowered
from hipplan.machines.profiles import load_machine
from tests.unit.test_bad_input import outcome_of

HEAD = "hipplan: 1\ndevices: {gpu: {count: 2}}\n"
NBSP = "\N{NO-BREAK SPACE}"
IN_PLACE = "type a space in place of the no-break space U+00A0"


def errors_of(text: str) -> list[Diagnostic]:
    with pytest.raises(PlanError) as refused:
        load(text)
    return [*refused.value.diagnostics]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("vars:\n  {}: 3\n", 4, 3),
        ("vars:\n  a: 2\n  {}: 3\n  b: 4\n", 5, 3),
        ("vars: {{a: 2, {}: 3}}\n", 3, 14),
        ('vars:\n  "{}": 3\n', 4, 3),
        ("objects:\n- {}: 3\n", 4, 3),
    ],
)
def test_a_key_that_is_too_long_for_yaml_is_called_so(text: str, line: int, column: int) -> None:
    (error,) = errors_of(HEAD + text.format("x" * 1100))

    assert error.code == "HP004" and error.summary.startswith("a key has at most 1,024 characters, not 1,10")
    assert error.span is not None and (error.span.line, error.span.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "line", "summary", "hint"),
    [
        (
            "buffers:\n  a: {kind:device, size: 1MiB}\n",
            4,
            "there is no key 'kind:device' here",
            "put a space after the colon: kind: device",
        ),
        (
            "buffers:\n  a:\n    kind:device\n    size: 1MiB\n",
            5,
            "the key 'kind' has no space after its colon",
            "write kind: device",
        ),
        (
            "buffers:\n  a:\n    kind: device\n    size:1MiB\n",
            6,
            "the key 'size' has no space after its colon",
            "write size: 1MiB",
        ),
        (
            "buffers:\n  a: kind:device\n",
            4,
            "'a' must be a mapping, not text",
            "put a space after the colon: kind: device",
        ),
        (
            "buffers:\n  a: {kind: device, size: 1,048,576}\n",
            4,
            "inside braces the comma in 1,048,576 ends the value",
            "write 1048576",
        ),
        (
            "buffers:\n  a: {size: 1,048,576, kind: device}\n",
            4,
            "inside braces the comma in 1,048,576 ends the value",
            "write 1048576",
        ),
        ("buffers:\n  a:\n    kind: device\n    size: 1,048,576\n", 6, "'1,048,576' is not a size", "write 1048576"),
        (
            "buffers:\n  a: {kind: device, size: {{ sz }}}\n",
            4,
            "a list or mapping cannot be a key",
            "a variable is $(sz)",
        ),
        ("buffers:\n  a: {kind: device, size: '{{ sz }}'}\n", 4, "'{{ sz }}' is not a size", "write $(sz)"),
        (
            "vars: {n: 100_000_000}\nbuffers: {a: {kind: pinned, size: $(n)}, b: {kind: pinned, size: $(n * 2)}}\n",
            3,
            "100_000_000 is text, not a number",
            "write 100000000",
        ),
        (
            "vars:\n  a: $(b * 2)\n  b: 1MiB\nbuffers:\n  x: {kind: pinned, size: $(a)}\n",
            4,
            "the variable 'b' is not defined",
            "move it up: it is declared at <text>:5:3, below this",
        ),
        (
            "vars:\n  a: $(a)\n",
            4,
            "the variable 'a' is not defined",
            "a variable has no value yet where it is declared: use another name",
        ),
        ("buffers:\n  a\n    kind: device\n    size: 1MiB\n", 4, "the key 'a' has no colon after it", "write a:"),
        (
            "buffers:\n  a:\n    kind: device\n    size 1MiB\n    count: 2\n",
            6,
            "the key 'size' has no colon after it",
            "write size: 1MiB",
        ),
        (
            "buffers:\n  a:\n  kind: device\n  size: 1MiB\n",
            5,
            "'a' is empty: 'kind' below it is not indented",
            "indent kind: and the keys after it, so that they are below a:",
        ),
        (
            "buffers:\na: {kind: pinned, size: 1MiB}\n",
            4,
            "'buffers' is empty: 'a' below it is not indented",
            "indent a: and the keys after it, so that they are below buffers:",
        ),
        (
            "buffers:\n  a:\n   kind: device\n    size: 1MiB\n",
            6,
            "this line is indented more than the key before it",
            "keys of one mapping begin in the same column",
        ),
        (
            f"buffers:\n  a:\n{NBSP}   kind: device\n    size: 1MiB\n",
            5,
            "YAML does not take this character for a space",
            IN_PLACE,
        ),
        (
            f"buffers:\n  a:\n    kind:{NBSP}device\n    size: 1MiB\n",
            5,
            "YAML does not take this character for a space",
            IN_PLACE,
        ),
        (f"buffers:\n  a: {{kind: device,{NBSP}size: 1MiB}}\n", 4, f"there is no key '{NBSP}size' here", IN_PLACE),
        (f"buffers:\n  a: {{kind: device{NBSP}, size: 1MiB}}\n", 4, f"'kind' cannot be 'device{NBSP}'", IN_PLACE),
        (f"buffers:\n  a: {{kind: device, size: 1{NBSP}MiB}}\n", 4, "'1\\xa0MiB' is not a size", IN_PLACE),
        ("buffers:\n  a: {kind: pinned, size: 1MiB, numa: 0}\n", 4, "'numa' cannot be 0", "write numa: near"),
        (
            "regions:\n  r: {device: gpu.0, size: 1MiB, access: {gpu.0: on}}\n",
            4,
            "'gpu.0' cannot be 'on'",
            "write r or rw",
        ),
        (
            "regions:\n  r: {device: gpu.0, size: 1MiB, access: {gpu.0: w}}\n",
            4,
            "'gpu.0' cannot be 'w'",
            "write r or rw",
        ),
    ],
    ids=lambda value: None,
)
def test_a_habit_gets_one_error_that_says_what_to_write(text: str, line: int, summary: str, hint: str) -> None:
    (error,) = errors_of(HEAD + text)

    assert (error.summary, error.hint) == (summary, hint)
    assert error.span is not None
    assert error.span.line == line


def test_text_in_quotes_may_look_like_a_grouped_number() -> None:
    plan = load("hipplan: 1\nvars: {run: '2_000'}\nname: run-$(run)\n")

    assert plan.plan.name == "run-2_000"


def test_a_block_of_text_above_an_error_is_no_key_without_a_colon() -> None:
    (error,) = errors_of("hipplan: 1\nvars:\n  note: |\n    hello\n  other: a: b\n")

    assert error.summary == "mapping values are not allowed in this context"


@pytest.mark.parametrize("given", [0x680000000001, 0x680000000FFF, 1])
def test_the_suggested_address_is_written_as_one_and_is_accepted(given: int, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    body = HEAD + "reservations: {m: {size: 4MiB, address: %s, address_policy: exact}}\n"
    plan.write_text(body % hex(given))
    code, answer = outcome_of("validate", str(plan), "--machine", "mi300x-8")

    assert code == 3
    assert f"the address of 'm' cannot be {hex(given)}" in answer
    suggested = answer.partition("hint: use ")[2].split()
    assert suggested[0].startswith("0x")
    for address in suggested[::2]:
        plan.write_text(body % address)
        assert outcome_of("validate", str(plan), "--machine", "mi300x-8")[0] == 0


def test_two_devices_of_one_ordinal_are_one_error_also_on_a_machine(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("hipplan: 1\ndevices: {a: {ordinal: 0}, b: {ordinal: 0}}\n")
    code, answer = outcome_of("validate", str(tmp_path / "plan.yaml"), "--machine", "sim-2")

    assert code == 2
    assert answer.count("error[") == 1
    assert "HP214]: 'b' and 'a' are the same device" in answer


def test_what_a_release_needs_is_said_with_what_it_leads_to() -> None:
    text = """hipplan: 1
devices: {gpu: {count: 2}}
allocations: {a: {device: gpu.0, size: 6MiB}, b: {device: gpu.0, size: 2MiB}}
reservations: {model: {mappings: [{allocation: a, access: {gpu.0: rw}}, {allocation: b, access: {gpu.1: rw}}]}}
"""
    program = compile_plan(load(text), load_machine("sim-2").model_copy(update={"hip_version": "7.2.53211"}))

    assert pieces.note(lowered(program)) == "HIP 7.0 to 7.2 needs equal pieces, so 'model[0]' is mapped in 3 pieces"


def test_ranges_that_get_their_access_at_once_are_a_note_too() -> None:
    text = """hipplan: 1
devices: {gpu: {count: 1}}
allocations: {a: {device: gpu.0, size: 6MiB}, b: {device: gpu.0, size: 2MiB}}
reservations: {m: {access: {gpu.0: rw}, mappings: [{allocation: a}, {allocation: b}]}}
"""
    program = compile_plan(load(text), load_machine("sim-2").model_copy(update={"hip_version": "7.2.53211"}))

    assert pieces.note(lowered(program)) == (
        "HIP 7.0 to 7.2 gives access to unequal mappings only all at once, "
        "so the mappings of 'm' get their access in one call"
    )


def test_the_limit_of_a_text_that_is_too_long_is_named() -> None:
    """The sentence was pydantic's."""
    with pytest.raises(PlanError) as raised:
        load({"hipplan": 1, "name": "n" * 300})
    (error,) = raised.value.diagnostics
    assert (error.code, error.summary) == ("HP105", "'name' has at most 256 characters, not 300")
