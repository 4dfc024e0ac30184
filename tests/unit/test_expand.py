"""vars, $(...), each and include; and that every message points at what the user wrote."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipplan.errors import Diagnostic, PlanError
from hipplan.language.expand import expand
from hipplan.language.expression import ExpressionError, substitute
from hipplan.language.loader import load

SCOPE = {"a": 4, "b": 6, "kib": "1KiB", "yes": True, "rank": "gpu.1", "rank.index": 1}


def expanded(text: str, **given: Any) -> dict[str, Any]:
    document = expand(io.StringIO(text), given)
    assert not document.findings, document.findings
    data: dict[str, Any] = document.data
    return data


def refused(text: str, **given: Any) -> list[Diagnostic]:
    with pytest.raises(PlanError) as raised:
        load(io.StringIO("hipplan: 1\n" + text), given)
    return list(raised.value.diagnostics)


def seen(found: list[Diagnostic]) -> list[tuple[str, int, int]]:
    return [(d.code, d.span.line, d.span.column) if d.span else (d.code, 0, 0) for d in found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(a)", 4),
        ("$( a + 2*3 - (b//2) % 4 )", 7),
        ("$(2 + 3 * 4)", 14),
        ("$((2 + 3) * 4)", 20),
        ("$(10 - 4 - 3)", 3),
        ("$(-a + 5)", 1),
        ("$(7 // 2)", 3),
        ("$(0x10)", 16),
        ("$(64MiB * a)", 2**28),
        ("$(1.5GiB)", 3 * 2**29),
        ("$(kib * 2)", 2048),
        ("$(kib)", "1KiB"),
        ("$(yes)", True),
        ("$(rank)", "gpu.1"),
        ("$(rank.index)", 1),
        ("kv.$(a).$(b)", "kv.4.6"),
        ("$(a)MiB", "4MiB"),
        ("$$(a)", "$(a)"),
        ("x$$(a)$(a)", "x$(a)4"),
        ("$", "$"),
    ],
)
def test_expressions(text: str, value: object) -> None:
    result = substitute(text, SCOPE)

    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "code", "start"),
    [
        ("$(a", "HP020", 0),
        ("$()", "HP020", 2),
        ("$(a b)", "HP020", 4),
        ("$(a / b)", "HP020", 4),
        ("$(a ** b)", "HP020", 5),
        ("$(__import__('os'))", "HP021", 2),
        ("$(a.b())", "HP021", 2),
        ("$(1.5)", "HP020", 2),
        ("$((a)", "HP020", 0),
        ("$(" + "(" * 100 + "a", "HP020", 34),
        ("$(" + "-" * 1000 + "a)", "HP020", 34),
        ("$(c)", "HP021", 2),
        ("x$(a)$(c)", "HP021", 7),
        ("$(1 // 0)", "HP022", 4),
        ("$(1 + 010)", "HP022", 6),
        ("$(012MiB)", "HP022", 2),
        ("$(1 % 0)", "HP022", 4),
        ("$(yes + 1)", "HP022", 6),
        ("$(rank + 1)", "HP022", 7),
        ("$(16383PiB * 2)", "HP022", 11),
        ("$(" + "9" * 30 + ")", "HP022", 2),
        ("$(a)" * 2000, "HP020", 0),
    ],
)
def test_expressions_that_are_invalid(text: str, code: str, start: int) -> None:
    with pytest.raises(ExpressionError) as raised:
        substitute(text, SCOPE)

    assert (raised.value.diagnostic.code, raised.value.start) == (code, start)


@given(st.text(alphabet="ab1()+-*/% $.MiKB0x", max_size=60))
def test_any_text_gives_a_value_or_an_expression_error(text: str) -> None:
    try:
        substitute(f"$({text})", SCOPE)
    except ExpressionError as error:
        assert 0 <= error.start <= len(text) + 3


SUM = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
        lambda three: f"({three[0]} {three[1]} {three[2]})"
    ),
    max_leaves=8,
)


@given(SUM)
def test_arithmetic_agrees_with_python(text: str) -> None:
    try:
        wanted = eval(text)  # our own generated sum of integers
    except ZeroDivisionError:
        wanted = None
    try:
        assert substitute(f"$({text})", {}) == wanted
    except ExpressionError as error:
        assert wanted is None or abs(wanted) >= 0
        assert error.diagnostic.code == "HP022"


def test_vars_use_those_above_and_are_overridden_from_outside() -> None:
    text = "vars: {n: 4, twice: $(n * 2), name: x$(n)}\na: [$(twice), $(name)]\n"

    assert expanded(text)["a"] == [8, "x4"]
    assert expanded(text, n="3")["a"] == [6, "x3"]
    assert expanded(text, n=3, twice=1)["a"] == [1, "x3"]


def test_a_value_from_outside_takes_the_type_of_the_default() -> None:
    text = "vars: {n: 1, flag: false, size: 1MiB}\na: [$(n), $(flag), $(size)]\n"

    assert expanded(text, n="2", flag="true", size="7")["a"] == [2, True, "7"]


def test_what_was_given_from_outside_is_reported_where_it_is_used() -> None:
    text = "hipplan: 1\nvars: {kv: 1, n: 2, b: false}\nbuffers:\n  a: {kind: device, size: $(n * (kv))}\n"
    text += "  b: {kind: pinned, size: $(n), coherent: $(b)}\n"
    with pytest.raises(PlanError) as raised:
        load(io.StringIO(text), {"kv": "16M", "n": 3})
    with pytest.raises(PlanError) as also:
        load(io.StringIO(text), {"kv": 16, "b": "True"})

    (size,) = raised.value.diagnostics
    (flag,) = also.value.diagnostics
    assert (size.code, size.notes) == (
        "HP022",
        ("given: n=3 (not the plan's own value)", "given: kv=16M (not the plan's own value)"),
    )
    assert (flag.code, flag.notes) == ("HP103", ("given: b=True (not the plan's own value)",))
    assert flag.hint == "in YAML 1.2 the booleans are true and false"


@pytest.mark.parametrize("written", ["", "5", "[n]"])
def test_vars_are_a_mapping_or_left_out(written: str) -> None:
    with pytest.raises(PlanError, match=r"HP103.*'vars' must be a mapping, not"):
        load(io.StringIO(f"hipplan: 1\nvars: {written}\n"))


def test_each_over_devices_numbers_lists_and_products() -> None:
    data = expanded(
        "devices: {gpu: {count: 2}}\n"
        "allocations:\n"
        "  a: {each: gpu, device: $(each), size: 1}\n"
        "  b: {each: 2, size: $(each + 1)}\n"
        "  c$(each): {each: [x, 7], size: 1}\n"
        "  d: {each: {l: {from: 4, count: 2, step: 3}, r: gpu}, device: $(r), size: $(l * 10 + r.index + index)}\n"
    )["allocations"]

    assert list(data) == ["a.0", "a.1", "b.0", "b.1", "cx", "c7", "d.0.0", "d.0.1", "d.1.0", "d.1.1"]
    assert [data[name]["device"] for name in ("a.0", "a.1", "d.0.1")] == ["gpu.0", "gpu.1", "gpu.1"]
    assert [data[f"d.{i}.{j}"]["size"] for i in (0, 1) for j in (0, 1)] == [40, 42, 72, 74]
    assert "each" not in data["a.0"]


def test_each_in_lists_sees_the_each_around_it() -> None:
    data = expanded(
        "reservations:\n"
        "  r:\n"
        "    each: {g: 2}\n"
        "    mappings: [{allocation: first}, {each: {l: 2}, allocation: a.$(g).$(l)}, {allocation: z}]\n"
    )["reservations"]

    assert [m["allocation"] for m in data["r.1"]["mappings"]] == ["first", "a.1.0", "a.1.1", "z"]


def test_keys_may_hold_expressions() -> None:
    assert expanded("vars: {d: gpu.1}\na: {$(d): rw, gpu.0: r}\n")["a"] == {"gpu.1": "rw", "gpu.0": "r"}


def test_a_screenful_describes_eighty_layers_on_eight_devices() -> None:
    plan = load(
        io.StringIO(
            "hipplan: 1\n"
            "devices: {gpu: {count: 8}}\n"
            "allocations:\n"
            "  layer: {each: {layer: 80, rank: gpu}, device: $(rank), size: 110MiB}\n"
            "reservations:\n"
            "  model:\n"
            "    each: gpu\n"
            "    access: {$(each): rw}\n"
            "    mappings: [{each: {layer: 80}, allocation: layer.$(layer).$(each.index)}]\n"
        )
    )

    assert len(plan.objects.allocations) == 640
    assert [len(r.mappings) for r in plan.objects.reservations.values()] == [80] * 8
    assert plan.objects.reservations["model.7"].mappings[3].allocation == "layer.3.7"
    assert plan.objects.reservations["model.7"].mappings[3].access == {"gpu.7": "rw"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("buffers: {a: {kind: device, size: $(n)}}\n", [("HP021", 2, 37)]),
        ('buffers: {a: {kind: device, size: "$(n)"}}\n', [("HP021", 2, 38)]),
        ("buffers:\n  a:\n    kind: device\n    size: $(1 //\n      0)\n", [("HP022", 5, 11)]),
        ("vars: {n: 1.5}\n", [("HP103", 2, 11)]),
        ("vars: {n-1: 1}\n", [("HP106", 2, 8)]),
        ("allocations: {a: {each: gpu, size: 1}}\n", [("HP024", 2, 25)]),
        ("allocations: {a: {each: -1, size: 1}}\n", [("HP024", 2, 25)]),
        ("allocations: {a: {each: {from: 1}, size: 1}}\n", [("HP024", 2, 25)]),
        ("allocations: {a: {each: [[1]], size: 1}}\n", [("HP024", 2, 25)]),
        ("allocations: {a: {each: {x y: 2}, size: 1}}\n", [("HP024", 2, 25)]),
        ("allocations: {a: {each: {x: 1000, y: 1000}, size: 1}}\n", [("HP023", 2, 25)]),
        ("allocations: {a: {each: 600001, size: 1}}\n", [("HP023", 2, 25)]),
        ("allocations: {a: {each: {from: 2, count: 0x7fffffffffffffff}, size: 1}}\n", [("HP023", 2, 25)]),
        ("buffers: {a$(1): {kind: device, each: 2, size: 1}}\n", [("HP204", 2, 11)]),
        ("requires: {each: 2}\n", [("HP101", 2, 12)]),
    ],
)
def test_mistakes_are_reported_where_they_stand(text: str, where: list[tuple[str, int, int]]) -> None:
    assert seen(refused(text)) == where


def test_a_mistake_in_something_repeated_is_reported_once_with_the_repetition() -> None:
    (result,) = refused("allocations: {a: {each: 3, device: gpu, size: 1}}\n")

    assert result.span is not None
    assert (result.span.line, result.span.column, result.span.expansion) == (2, 36, "a.0 (each=0)")
    assert result.notes == ("and: 2 more of this each",)


def test_mistakes_of_all_kinds_come_together_without_following_mistakes() -> None:
    result = refused(
        "allocations:\n"
        "  a: {size: $(n), device: gpu.0}\n"
        "  b: {sizes: 1}\n"
        "  c: {size: 1}\n"
        "  c: {size: 2}\n"
        "reservations:\n"
        "  r: {mappings: [{allocation: a}, {allocation: b}, {allocation: d}]}\n"
    )

    assert seen(result) == [
        ("HP021", 3, 15), ("HP102", 4, 3), ("HP101", 4, 7), ("HP005", 6, 3), ("HP202", 8, 65)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "allocations: {a: {device: gpu.0, device: host, numa_node: 0, size: 1}}",
        "allocations: {a: {each: 2, device: gpu.0, device: host, numa_node: 0, size: 1}}",
        "allocations: {a: {size: 4}}\nreservations: {r: {size: 2, size: 4, mappings: [{allocation: a}]}}",
        "allocations: {a: {size: 4}}\n"
        "reservations: {r: {mappings: [{allocation: a, at: 0, at: 4}, {allocation: a, at: 0}]}}",
        "allocations: {a: {bind: x, shareable: posix_fd, size: 1}, a: {count: 2, size: 1}}\n"
        "reservations: {r: {mappings: [{allocation: a.1}, {allocation: a.*}]}}",
        "buffers: {b: {kind: pinned, size: 1}, b: {kind: managed, size: 1, attach: host}}",
        "buffers: {b: {kind: pinned, kind: managed, size: 1, attach: host}}",
        "buffers: {b: {kind: pinned, size: 1}}\nbuffers: {b: {kind: managed, size: 1, attach: host}}",
        "devices: {gpu: {count: 1}, gpu: {count: 2}}\nbuffers: {b: {kind: device, size: 1, device: gpu.1}}",
        "vars: {n: 0, n: 1}\nbuffers: {b: {kind: device, size: $(n)}}",
        "regions: {r: {size: auto, size: 1MiB}}",
        "regions: {r: {tensors: {t: {dtype: u8, shape: [1]}}}}\ncontents: {r.t: {file: x.bin, file: y, dtype: u8}}",
        "regions: {r: {tensors: {t.$(each): {each: 2, dtype: u8, dtype: f32, shape: [-1]}}}}",
    ],
)
def test_nothing_else_follows_from_a_key_that_appears_twice(text: str) -> None:
    assert [diagnostic.code for diagnostic in refused(f"{text}\n")] == ["HP005"]


def test_other_mistakes_beside_a_key_that_appears_twice_are_reported() -> None:
    result = refused(
        "buffers:\n"
        "  a: {kind: pinned, size: 1, size: 2, portabel: true}\n"
        "  b: {kind: pinned, size: 1, size: 2, portable: 3}\n"
        "regions:\n"
        "  r: {tensors: {t: {dtype: u8, shape: [1]}, t: {dtype: u8, shape: [2], share: [1]}}}\n"
    )

    assert seen(result) == [
        ("HP005", 3, 30), ("HP101", 3, 39), ("HP005", 4, 30), ("HP103", 4, 49), ("HP005", 6, 45), ("HP101", 6, 72)
    ]  # fmt: skip


def test_unknown_variables_from_outside_are_refused() -> None:
    (result,) = refused("vars: {chunks: 1}\n", chunk=2)

    assert (result.code, result.hint) == ("HP210", "did you mean 'chunks'?")


@pytest.mark.parametrize(
    "text",
    [
        "vars: {a: " + "x" * 4000 + ", b: $(a)$(a), c: $(b)$(b)}\n",
        "".join(["vars:\n  v0: 2\n", *(f"  v{i}: $(v{i - 1} * v{i - 1})\n" for i in range(1, 100))]),
        "allocations: {a: {each: 250000, size: 1}}\n" + "reservations: {r: {each: 250000, size: 1}}\n",
        "reservations: {r: {each: 2000, mappings: [{each: 2000, allocation: a}]}}\n",
        "allocations: {a: {size: 1, count: 250000}}\n"
        "reservations: {r: {mappings: [" + "{allocation: a.*}, " * 1000 + "]}}\n",
        "allocations: {" + ", ".join(f"n{i}: {{device: x{i}, size: 1}}" for i in range(5000)) + "}\n",
    ],
    ids=["texts", "squares", "objects", "mappings", "patterns", "names"],
)
def test_expansion_is_bounded(text: str) -> None:
    start = time.process_time()

    assert refused(text)
    assert time.process_time() - start < 20


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text("hipplan: 1\n" + text)
    return folder / "plan.yaml"


def test_included_plans_bring_their_names_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts", kv="include: more.yaml\nvars: {n: 2}\nbuffers: {kv: {kind: device, size: $(n)}}\n")
    write(tmp_path / "parts", more="buffers: {m: {kind: device, size: 1}}\n")
    plan = load(write(tmp_path, plan="include: [parts/kv.yaml]\nvars: {n: 3}\nbuffers: {x: {kind: device, size: 5}}\n"))

    assert {name: buffer.spec.size for name, buffer in plan.objects.buffers.items()} == {"m": 1, "kv": 3, "x": 5}
    assert str(plan.span("buffers", "kv", "size")).endswith("parts/kv.yaml:4:36")


@pytest.mark.parametrize(
    ("plan", "other", "code"),
    [
        ("include: none.yaml\n", "", "HP025"),
        ("include: [5]\n", "", "HP025"),
        ("include: ../x.yaml\n", "", "HP025"),
        ("include: /etc/passwd\n", "", "HP025"),
        ("include: plan.yaml\n", "", "HP025"),
        ("include: [other.yaml, other.yaml]\n", "", "HP025"),
        ("include: other.yaml\n", "include: plan.yaml\n", "HP025"),
        ("include: other.yaml\n", "requires: {vmm: true}\n", "HP025"),
        ("include: other.yaml\n", "bufers: {}\n", "HP101"),
        ("include: other.yaml\n", "buffers: [1]\n", "HP103"),
        ("include: other.yaml\n", "a: [\n", "HP004"),
        (
            "include: other.yaml\nbuffers: {b: {kind: device, size: 1}}\n",
            "buffers: {b: {kind: device, size: 1}}\n",
            "HP204",
        ),
    ],
)
def test_includes_that_are_refused(tmp_path: Path, plan: str, other: str, code: str) -> None:
    with pytest.raises(PlanError) as raised:
        load(write(tmp_path, plan=plan, other=other))

    assert [d.code for d in raised.value.diagnostics] == [code]


def test_a_variable_of_two_included_files_needs_the_word_of_one_that_includes_both(tmp_path: Path) -> None:
    write(tmp_path, f="vars: {kv: 16}\n", g="include: h.yaml\nvars: {kv: 8}\n", h="vars: {kv: 4, n: 1}\n")
    plan = "include: [f.yaml, g.yaml]\nbuffers: {b: {kind: device, size: $(kv + n)}}\n"
    with pytest.raises(PlanError) as raised:
        load(write(tmp_path, plan=plan))

    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, str(diagnostic.span).endswith("g.yaml:3:8"), "f.yaml:2:8" in diagnostic.label) == (
        "HP204",
        True,
        True,
    )
    assert "or define it in" in diagnostic.hint
    good = load(write(tmp_path, plan=plan + "vars: {kv: 2}\n"))
    assert good.objects.buffers["b"].spec.size == 3


def test_an_include_may_leave_the_folder_when_allowed(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    write(tmp_path, common="buffers: {b: {kind: device, size: 1}}\n")

    plan = load(write(tmp_path / "plans", plan="include: ../common.yaml\n"), include_anywhere=True)

    assert list(plan.objects.buffers) == ["b"]


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    write(tmp_path, secret="buffers: {b: {kind: device, size: 1}}\n")
    (tmp_path / "plans" / "inside.yaml").symlink_to(tmp_path / "secret.yaml")

    with pytest.raises(PlanError) as raised:
        load(write(tmp_path / "plans", plan="include: inside.yaml\n"))

    assert [d.code for d in raised.value.diagnostics] == ["HP025"]


def test_each_among_the_tensors_of_a_region_that_is_repeated() -> None:
    text = (
        "devices: {gpu: {count: 2}}\n"
        "regions:\n"
        "  rank:\n"
        "    each: gpu\n"
        "    device: $(each)\n"
        "    tensors:\n"
        "      layer.$(n).wq: {each: {n: 2}, dtype: bf16, shape: [$(n + 1), 8]}\n"
        "      norm: {each: 2, dtype: f32, shape: [4]}\n"
        "      head: {dtype: f32, shape: [4]}\n"
    )
    regions = expanded(text)["regions"]

    assert list(regions) == ["rank.0", "rank.1"]
    for rank in regions.values():
        assert list(rank["tensors"]) == ["layer.0.wq", "layer.1.wq", "norm.0", "norm.1", "head"]
        assert [t["shape"] for t in rank["tensors"].values()] == [[1, 8], [2, 8], [4], [4], [4]]


@pytest.mark.parametrize(
    ("tensor", "code", "column"),
    [("dtype: bf61, shape: [8]", "HP104", 44), ("dtype: bf16, shape: [$(n + m)]", "HP021", 64)],
)
def test_a_mistake_in_a_repeated_tensor_is_shown_where_it_was_written(tensor: str, code: str, column: int) -> None:
    text = (
        "regions:\n"
        "  rank:\n"
        "    each: 2\n"
        "    tensors:\n"
        f"      layer.$(n).wq: {{each: {{n: 2}}, {tensor}}}\n"
    )  # fmt: skip
    result = refused(text)

    assert seen(result) == [(code, 6, column)]
    assert result[0].span is not None
    assert result[0].span.expansion == "rank.0 (each=0), layer.0.wq (n=0)"


def test_two_repetitions_of_a_tensor_need_two_names() -> None:
    (only,) = refused("regions: {r: {tensors: {wq$(1): {each: 2, dtype: bf16, shape: [8]}}}}\n")

    assert (only.code, only.summary) == ("HP204", "the name 'wq1' is used twice")


def test_what_is_nested_too_deep_is_reported_as_that() -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"x": deep}
    with pytest.raises(PlanError, match=r"HP009.*nested deeper than 64 levels"):
        load({"hipplan": 1, "vars": {"n": 1}, "buffers": {"b": deep, "c$(n)": {"kind": "device", "size": "$(n)"}}})
