"""Variables that are lists: a value by itself, wherever a list is expected."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import PlanError
from hipplan.language.expression import ExpressionError, substitute
from hipplan.language.loader import load
from hipplan.program.lock import Locked, lock, to_yaml

PLAN = """hipplan: 1
vars: {heads: 32, gpus: [gpu.0, gpu.1], page: [-1, $(heads), 128], sizes: [1MiB, 2MiB], none: []}
devices: {gpu: {count: 4}}
regions:
  kv: {devices: $(gpus), size: 64MiB, tensors: {p: {dtype: bf16, shape: $(page)}}}
  w: {each: {g: $(gpus), s: $(sizes)}, device: $(g), size: $(s)}
  no: {each: $(none), size: 1MiB}
"""


def regions(**given: Any) -> dict[str, Any]:
    plan = load(io.StringIO(PLAN), given)
    return {name: (region.devices, region.spec) for name, region in plan.objects.regions.items()}


def errors(text: str, **given: Any) -> list[tuple[str, str]]:
    with pytest.raises(PlanError) as caught:
        load(io.StringIO(f"hipplan: 1\n{text}"), given)
    return [(found.code, found.summary) for found in caught.value.diagnostics]


def test_lists_stand_for_shapes_devices_and_repetitions() -> None:
    made = regions()

    assert list(made) == ["kv", "w.0.0", "w.0.1", "w.1.0", "w.1.1"]
    assert made["kv"][0] == ("gpu.0", "gpu.1")
    assert made["kv"][1].tensors["p"].shape == [-1, 32, 128]
    assert (made["w.1.1"][0], made["w.1.1"][1].size) == (("gpu.1",), 2 << 20)


@pytest.mark.parametrize("given", [["gpu.3", "gpu.2"], ("gpu.3", "gpu.2"), "gpu.3,gpu.2", "[gpu.3, 'gpu.2']"])
def test_they_may_be_given(given: Any) -> None:
    assert regions(gpus=given)["kv"][0] == ("gpu.3", "gpu.2")


@pytest.mark.parametrize(
    ("given", "called"),
    [(None, "nothing"), (b"a", "a bytes"), ({"a": 1}, "a mapping"), (object(), "an object"), ({1}, "a set")],
)
def test_what_is_given_is_a_value(given: Any, called: str) -> None:
    wanted = "must be an integer, true, false or text"
    assert errors("vars: {a: x}\n", a=given) == [
        ("HP103", f"the variable 'a' {wanted}, or a list of those, not {called}")
    ]
    assert errors("vars: {a: [x]}\n", a=[given])[0][0] == "HP103"
    assert errors("vars: {a: x}\n", a=[given]) == [
        ("HP103", f"the variable 'a' {wanted}, as its default is, not a list")
    ]


def test_paths_and_fractions_become_text() -> None:
    text = "hipplan: 1\nvars: {a: x}\n"
    given = [load(io.StringIO(text), {"a": value}).plan.vars["a"] for value in (Path("b/c"), 1.5, numpy.int64(3), True)]
    assert given == ["b/c", "1.5", 3, True]
    given = [
        load(io.StringIO(text), {"a": value}).plan.vars["a"]
        for value in (numpy.True_, Decimal("1.50"), numpy.float32(2.5))
    ]
    assert given == [True, "1.50", "2.5"]


def test_what_is_given_has_the_types_of_the_default() -> None:
    assert regions(page="-1,64")["kv"][1].tensors["p"].shape == [-1, 64]
    assert regions(none="")["kv"]
    assert list(load(io.StringIO(PLAN), {"none": "a,b"}).objects.regions)[-2:] == ["no.0", "no.1"]
    assert load(io.StringIO("hipplan: 1\nvars: {a: ['1']}\n"), {"a": "2,true"}).plan.vars == {"a": ["2", "true"]}
    assert load(io.StringIO("hipplan: 1\nvars: {a: [true]}\n"), {"a": "false"}).plan.vars == {"a": [False]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("buffers: {b: {kind: device, size: $(l)KiB}}", ("HP022", "a list cannot be part of a text")),
        ("buffers: {b.$(l): {kind: device, size: 1}}", ("HP022", "a list cannot be part of a text")),
        ("buffers: {$(l): {kind: device, size: 1}}", ("HP022", "a list cannot be part of a text")),
        ("buffers: {b: {kind: device, size: $(l * 2)}}", ("HP022", "a list is not a number")),
        ("buffers: {b: {kind: device, size: $(-l)}}", ("HP022", "a list is not a number")),
        ("buffers: {b: {kind: device, size: $(l)}}", ("HP103", "expected a byte size, not a list")),
        ("regions: {r: {tensors: {t: {dtype: u8, shape: [$(l)]}}}}",
         ("HP103", "'shape[0]' must be an integer, not a list")),
    ],
)  # fmt: skip
def test_a_list_is_only_a_value_by_itself(text: str, found: tuple[str, str]) -> None:
    assert errors(f"vars: {{l: [1, 2]}}\n{text}\n") == [found]


@pytest.mark.parametrize("value", ["[1.5]", "[[1]]", "[{a: 1}]", "{a: 1}", "[null]", "1.5"])
def test_a_variable_holds_scalars_or_a_list_of_them(value: str) -> None:
    message = "the variable 'v' must be an integer, true, false or text, or a list of those"

    assert errors(f"vars: {{v: {value}}}\n") == [("HP103", message)]


def test_a_list_for_a_variable_that_is_none_is_an_error() -> None:
    message = "the variable 'n' must be an integer, true, false or text, as its default is, not a list"

    assert errors("vars: {n: 1}\nbuffers: {b: {kind: device, size: $(n)}}\n", n=[3]) == [("HP103", message)]


def test_lists_count_against_the_limits_wherever_they_are_used() -> None:
    many = ", ".join(["1"] * 10_000)
    text = f"vars: {{l: [{many}]}}\nregions: {{r: {{each: 9000, tensors: {{t: {{dtype: u8, shape: $(l)}}}}}}}}\n"
    long = ", ".join(["x" * 4000] * 100)
    wide = f"vars: {{l: [{long}]}}\nregions: {{r: {{each: 9000, devices: $(l), size: 1MiB}}}}\n"

    assert [code for code, _ in errors(text)] == ["HP023"]
    assert [code for code, _ in errors(wide)] == ["HP023"]


def test_the_digest_and_the_lock_have_them(tmp_path: Any) -> None:
    path = tmp_path / "plan.lock"
    program, other = (
        hipplan.compile(load(io.StringIO(PLAN), given), "mi300x-8") for given in ({}, {"sizes": "1MiB,4MiB"})
    )
    path.write_text(to_yaml(lock(program)))

    assert Locked(path).lock == lock(program)
    assert Locked(path).lock.plan.variables["page"] == [-1, 32, 128]
    assert program.digest != other.digest
    with pytest.raises(PlanError, match="the variable 'sizes' is") as caught:
        Locked(path).placed(other)
    assert "--var sizes=['1MiB', '2MiB']" in str(caught.value)


def test_a_list_within_a_text_is_marked_from_its_first_character_to_its_last() -> None:
    with pytest.raises(ExpressionError) as caught:
        substitute("no $(list) here", {"list": [1, 2]})

    assert (caught.value.start, caught.value.length) == (len("no "), len("$(list)"))
