"""What Python programs pass: accepted wherever it can only mean one thing, else refused in words."""

from __future__ import annotations

from collections import ChainMap, UserDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import hipplan
from hipplan.machines.profiles import to_yaml
from hipplan.machines.simulator import library_path
from tests.conftest import ROOT, Simulator

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
MIB = 2**20


def plan(**nouns: Any) -> dict[str, Any]:
    return {"hipplan": 1, **nouns}


def test_vars_come_before_loading(sim: Simulator) -> None:
    size = plan(vars={"mib": 1}, buffers={"b": {"kind": "pinned", "size": "$(mib * 1MiB)"}})
    with_default, with_two = hipplan.load(size), hipplan.load(size, vars={"mib": 2})

    with pytest.raises(TypeError, match=r"the plan is already loaded: pass vars to hipplan\.load\(\)"):
        hipplan.apply(with_default, vars={"mib": 2}, runtime="sim")
    assert sim.alive() == set()
    with hipplan.apply(with_default, vars={}, runtime="sim") as layout:
        with pytest.raises(TypeError, match="the plan is already loaded: pass vars"):
            layout.update(with_default, vars={"mib": 2})
        assert layout["b"].size == MIB
        layout.update(with_two, lose="*")
        assert layout["b"].size == 2 * MIB


@pytest.mark.parametrize("given", ["a=b", ["a=b"], 5])
def test_vars_are_a_mapping(given: Any) -> None:
    with pytest.raises(TypeError, match=f"vars must be a mapping of names to values, not {type(given).__name__}"):
        hipplan.load(QUICKSTART, vars=given)


@pytest.mark.parametrize("given", [b"hipplan: 1\n", None, 5, ["hipplan"]])
@pytest.mark.parametrize(
    "use",
    [hipplan.load, hipplan.apply, lambda given: hipplan.compile(given, "sim-2")],
    ids=["load", "apply", "compile"],
)
def test_a_plan_of_the_wrong_type_is_reported(use: Callable[[Any], object], given: Any) -> None:
    wanted = f"expected a path, a text, an open stream or a mapping, not {type(given).__name__}"
    with pytest.raises(TypeError, match=wanted):
        use(given)


@pytest.mark.parametrize("kind", [MappingProxyType, UserDict, ChainMap])
def test_any_mapping_is_good_in_a_plan(kind: Callable[[Any], Any]) -> None:
    def as_kind(value: Any) -> Any:
        if isinstance(value, dict):
            return kind({key: as_kind(inner) for key, inner in value.items()})
        return [as_kind(inner) for inner in value] if isinstance(value, list) else value

    tensors = {"a.$(i)": {"each": {"i": 4}, "dtype": "f32", "shape": [4]}}
    of_dicts = plan(
        vars={"n": 3},
        devices={"gpu": {"count": 2}},
        regions={"kv": {"each": "gpu", "device": "$(each)", "tensors": tensors}},
        allocations={"c": {"size": "2MiB", "count": "$(n)"}},
        reservations={"r": {"mappings": [{"each": {"i": 2}, "allocation": "c.$(i)", "access": {"gpu.0": "rw"}}]}},
    )
    assert hipplan.load(as_kind(of_dicts)).digest == hipplan.load(of_dicts).digest


@pytest.mark.parametrize("given", [3, "3", None])
def test_a_rank_is_one(given: Any) -> None:
    with pytest.raises(TypeError, match=r"rank must be a hipplan\.Rank, such as Rank\(rank=3, ranks=8\), not"):
        hipplan.load(plan(ranks={}), rank=given)


@pytest.mark.parametrize(
    ("given", "error"),
    [({"rank": 5, "ranks": 2}, ValueError), ({"rank": -1}, ValueError), ({"ranks": 0}, ValueError),
     ({"rank": "0"}, TypeError), ({"node": True}, TypeError), ({"local_rank": -1}, ValueError),
     ({"node": -1}, ValueError)],
)  # fmt: skip
def test_a_rank_is_one_of_its_group(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        hipplan.Rank(**given)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda layout: layout.sleep("kv", force="yes"), "force must be True or False, not str"),
        (lambda layout: layout.sleep("kv", checksum="x"), "checksum must be True or False"),
        (lambda layout: layout.sleep("kv", on_map=3), "on_map must be a function, not int"),
        (lambda layout: layout.wake(retain="yes"), "retain must be True or False"),
        (lambda layout: layout.remap("kv", retain=None), "retain must be True or False, not NoneType"),
        (lambda layout: layout.remap("kv", keep_bytes="no"), "keep_bytes must be True or False"),
        (lambda layout: layout.close(force="yes"), "force must be True or False"),
        (lambda layout: layout.close(force=float("nan")), "force must be True or False, not float"),
        (lambda layout: layout.wake(retain=2), "retain must be True or False, not int"),
        (lambda layout: layout.wake(on_bytes=3), "on_bytes must be a function"),
        (lambda layout: layout.sleep("kv", on_bytes=3), "on_bytes must be a function"),
        (lambda layout: layout.fill("kv", 3, on_bytes=3), "on_bytes must be a function"),
        (lambda layout: layout.update(plan(), lose="*", on_step=3), "on_step must be a function"),
        (lambda layout: layout.update(plan(), lose="*", verify="x"), "verify must be True or False"),
        (lambda layout: hipplan.apply(plan(), runtime="sim", answer="x"), "answer must be True or False"),
        (lambda layout: hipplan.apply(plan(), runtime="sim", on_bytes=3), "on_bytes must be a function"),
        (lambda layout: hipplan.load(plan(), include_anywhere="no"), "include_anywhere must be True or False"),
    ],
)
def test_a_wrong_flag_changes_nothing(call: Callable[[hipplan.Layout], object], says: str, sim: Simulator) -> None:
    both = plan(regions={"kv": {"size": 2 * MIB}, "asleep": {"size": 2 * MIB}})
    with hipplan.apply(both, runtime="sim") as layout:
        layout.sleep("asleep", force=np.False_)
        with pytest.raises(TypeError, match=says):
            call(layout)
        assert layout.asleep == {"asleep": "host"} and not layout.closed


@pytest.mark.parametrize(
    "look",
    [
        lambda layout, name: layout[name],
        lambda layout, name: layout.tensors(name),
        lambda layout, name: layout.watch(name, on_map=print),
        lambda layout, name: layout.trim(name),
        lambda layout, name: layout["b"].on(name),
    ],
)
def test_a_name_without_end_is_cut(look: Callable[[hipplan.Layout, str], object], sim: Simulator) -> None:
    with hipplan.apply(plan(buffers={"b": {"kind": "pinned", "size": MIB}}), runtime="sim") as layout:
        with pytest.raises((KeyError, BufferError)) as caught:
            look(layout, "x" * 100_000)
        assert len(str(caught.value)) < 200


def test_an_empty_path_is_no_folder() -> None:
    with pytest.raises(hipplan.PlanError, match="the path is empty"):
        hipplan.load("")
    with pytest.raises(hipplan.PlanError, match=r"HP001.*\n.*text of one line is read as a path"):
        hipplan.load('{"hipplan": 1}')


def test_a_machine_is_a_name_a_path_or_itself(sim: Simulator, tmp_path: Path) -> None:
    machine = hipplan.machine("sim-2")
    (box := tmp_path / "box.yaml").write_text(to_yaml(machine))

    assert hipplan.machine(machine) is machine
    for given in (machine, "sim-2", box, str(box)):
        assert hipplan.compile(QUICKSTART, machine=given).machine == "sim-2"
        with hipplan.apply(QUICKSTART, runtime="sim", machine=given) as layout:
            assert layout.program.machine == "sim-2"
    with pytest.raises(TypeError, match="not int"):
        hipplan.compile(QUICKSTART, machine=2)  # type: ignore[arg-type]


def test_a_runtime_may_be_a_path(sim: Simulator) -> None:
    with hipplan.apply(QUICKSTART, runtime=Path(library_path())) as layout:
        assert layout.runtime.path == str(library_path())
    with pytest.raises(hipplan.RuntimeUnavailable, match="there is no runtime"):
        hipplan.apply(QUICKSTART, runtime=f"{library_path()}\0.so")


def test_integers_of_numpy_and_tuples_are_good_in_a_plan(sim: Simulator) -> None:
    tensors = {"t": {"dtype": "f32", "shape": (np.int64(4), 4)}}
    document = plan(
        vars={"n": np.uint8(2)},
        buffers={"b": {"kind": "pinned", "size": np.int64(64), "each": (1, np.int16(2))}},
        regions={"r": {"size": np.int32(2 * MIB), "tensors": tensors}},
        contents={"r.t": {"value": np.float32(1.5)}, "b.0": {"value": np.uint8(7)}},
    )

    with hipplan.apply(document, vars={"n": np.int64(3)}, runtime="sim") as layout:
        assert [name for name in layout if name.startswith("b")] == ["b.0", "b.1"]
        assert (np.from_dlpack(layout["b.0"]) == 7).all()
        assert layout["r.t"].shape == (4, 4)
        assert layout.program.variables == {"n": 3}
    with hipplan.apply({**document, "vars": {"n": 2}}, runtime="sim") as other:
        assert other.program.variables == {"n": 2}


def test_a_plan_of_numpy_s_numbers_is_the_plan_of_python_s() -> None:
    def sized(size: Any) -> dict[str, Any]:
        return plan(buffers={"b": {"kind": "pinned", "size": size}})

    assert hipplan.load(sized(np.int64(MIB))).digest == hipplan.load(sized(MIB)).digest


@pytest.mark.parametrize(
    ("size", "description"),
    [(True, "true or false"), (1.5, "a fraction"), (np.float64(2), "a fraction"), ([1], "a list"), ({}, "a mapping"),
     ({1}, "a set"), (np.zeros(2), "a numpy.ndarray"), (None, "nothing")],
)  # fmt: skip
def test_what_is_no_size_is_called_what_it_is(size: Any, description: str) -> None:
    with pytest.raises(hipplan.PlanError, match=f"HP103.*expected a byte size, not {description}"):
        hipplan.load(plan(buffers={"b": {"kind": "pinned", "size": size}}))


@pytest.mark.parametrize("key", [1, None, True, b"b", (1, 2)])
def test_a_name_that_is_no_text_is_reported(key: Any) -> None:
    for noun, value in (("buffers", {"kind": "device", "size": 1}), ("vars", 1), ("contents", {"value": 1})):
        with pytest.raises(hipplan.PlanError, match=f"HP011.*a key of {noun} is "):
            hipplan.load(plan(**{noun: {key: value}}))


def test_a_shape_in_a_plan_is_called_what_it_is() -> None:
    tensors = {"t": {"dtype": "f32", "shape": np.zeros(2)}}
    with pytest.raises(hipplan.PlanError, match=r"'shape' must be a list, not a numpy\.ndarray"):
        hipplan.load(plan(regions={"r": {"size": MIB, "tensors": tensors}}))


def test_arguments_take_integers_of_numpy_and_refuse_what_is_none(sim: Simulator, tmp_path: Path) -> None:
    (file := tmp_path / "f").write_bytes(bytes(range(200)) * 100)
    region = {"size": 2 * MIB, "reserve": 16 * MIB, "chunk": 2 * MIB}
    document = plan(regions={"r": region}, buffers={"b": {"kind": "pinned", "size": 4096}})
    with hipplan.apply(document, runtime="sim") as layout:
        layout.grow("r", by=np.int64(2 * MIB))
        layout.grow("r", to=np.uint32(6 * MIB))
        assert layout["r"].size == 6 * MIB
        for wrong, kind in ((True, "true or false"), (1.5, "a fraction"), ([1], "a list")):
            for move in (layout.grow, layout.shrink):
                with pytest.raises(hipplan.ApplyError, match=f"HP420.*expected a byte size, not {kind}"):
                    move("r", by=wrong)  # type: ignore[operator]
        assert layout["r"].size == 6 * MIB

        layout.load("b", file, at=np.int64(200))
        assert layout["b"].view("u8", np.int64(4096)).shape == (4096,)
        assert layout["b"].view(np.float32, (np.int64(2), -1)).shape == (2, 512)
        layout.fill("b", np.float32(1.5), dtype="f32")
        assert (np.asarray(layout["b"].view(np.float32)) == 1.5).all()
        for shape in (True, 1.5, (2, 2.0), "ab"):
            with pytest.raises(TypeError, match="is not a shape: a shape is one or more integers"):
                layout["b"].view("f32", shape)  # type: ignore[arg-type]


def test_a_view_of_python_s_float_reads_what_numpy_wrote(sim: Simulator) -> None:
    document = plan(buffers={"b": {"kind": "pinned", "size": 64}}, contents={"b": {"value": 2.5, "dtype": "f64"}})
    with hipplan.apply(document, runtime="sim") as layout:
        assert np.asarray(layout["b"].view(float)).tolist() == [2.5] * 8
        assert layout["b"].view("<f4").dtype.name == "f32"


@pytest.mark.parametrize(
    ("use", "wanted"),
    [
        (lambda layout: layout.grow(5, by=MIB), "expected the name of an object, or a pattern, not an integer"),
        (lambda layout: layout.shrink(None, by=MIB), "expected the name of an object, or a pattern, not nothing"),
        (lambda layout: layout.remap(["m"]), "expected the name of an object, or a pattern, not a list"),
        (lambda layout: layout.remap("m", device=1), "expected the name of a device, not an integer"),
        (lambda layout: layout.seal(["m"]), "expected the name of an object, or a pattern, not a list"),
        (lambda layout: layout.unseal(5), "expected the name of an object, or a pattern, not an integer"),
        (lambda layout: layout.trim(5), "expected one name or several, not an integer"),
    ],
)
def test_what_a_change_names_is_text(use: Callable[[hipplan.Layout], object], wanted: str, sim: Simulator) -> None:
    with hipplan.apply(plan(regions={"m": {"size": 2 * MIB}}), runtime="sim") as layout:
        alive = sim.alive()
        with pytest.raises(TypeError, match=wanted):
            use(layout)
        assert sim.alive() == alive


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"timeout": -1}, "timeout is more than 0 seconds, not -1"),
        ({"timeout": "soon"}, "timeout must be a number of seconds, not str"),
        ({"runtime": False}, "runtime must be a name or a path, not bool"),
        ({"runtime": []}, "runtime must be a name or a path, not list"),
    ],
)
def test_what_apply_would_not_use_is_refused_too(given: dict[str, Any], why: str, sim: Simulator) -> None:
    """Without a group nothing waits; and what is empty was taken for a runtime that the caller leaves open."""
    with pytest.raises((TypeError, ValueError), match=why):
        hipplan.apply(plan(), **{"runtime": "sim", **given})
