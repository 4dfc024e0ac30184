"""size: fill and size: 80%: decided for a machine, after everything else on the device."""

from __future__ import annotations

from typing import Any

import pytest

import hipplan
from hipplan.errors import HipplanError
from hipplan.kinds.reservation.live import Reserve
from hipplan.language.canonical import canonical
from hipplan.language.source import load_yaml
from hipplan.lowering.compiler import compile_change
from hipplan.machines.machine import Machine
from hipplan.program import open_sizes, written
from hipplan.program.lock import lock, sizes_of
from hipplan.program.program import Program

GIB = 2**30
MEMORY = 64 * GIB


def machine(in_use: int = 0, memory: int | None = MEMORY, other: int = MEMORY) -> Machine:
    """Two devices with a granularity of 2 MiB."""
    sim = hipplan.machine("sim-2")
    known: dict[str, Any] = {"granularity_minimum": 4096, "granularity_recommended": 2 << 20}
    devices = [
        device.model_copy(update={**known, "memory": size, "in_use": used})
        for device, size, used in zip(sim.devices, (memory, other), (in_use, 0), strict=True)
    ]
    return sim.model_copy(update={"devices": devices})


def plan(**nouns: Any) -> dict[str, Any]:
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, **nouns}


def compiled(there: Machine | None = None, **nouns: Any) -> Program:
    return hipplan.compile(hipplan.load(plan(**nouns)), there or machine())


def sizes(program: Program) -> dict[str, int]:
    return {resource.name: resource.size for resource in program.resources if resource.kind in ("region", "device")}


def refused(there: Machine | None = None, **nouns: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(HipplanError) as caught:
        compiled(there, **nouns)
    return [(found.code, found.summary, found.hint) for found in caught.value.diagnostics]


def buffer(size: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "device", "size": size, **more}


def test_a_fill_takes_what_everything_else_leaves_less_the_reserve() -> None:
    program = compiled(
        machine(in_use=3 * GIB),
        allocations={"a": {"size": 1}},  # padded to 2 MiB
        buffers={"w": buffer("5GiB"), "pinned": {"kind": "pinned", "size": "1GiB"}},
        regions={"first": {"size": "1GiB", "chunk": "768MiB"}, "kv": {"size": "fill", "reserve": "25%"}},
    )
    left = MEMORY - 3 * GIB - (2 << 20) - 5 * GIB - 2 * 768 * 2**20 - MEMORY // 4

    assert sizes(program)["kv"] == left
    assert program.open_sizes == {"kv": "fill, reserve: 25%"}
    assert open_sizes.note(program) == f"decided for sim-2: kv is 38.5GiB ({left:,} bytes) (fill, reserve: 25%)"


def test_a_percentage_is_of_the_memory_and_not_of_what_is_free() -> None:
    program = compiled(
        machine(in_use=20 * GIB),
        regions={"kv": {"size": "fill"}, "weights": {"size": "50%"}, "other": {"size": "12.5 %", "device": "gpu.1"}},
    )

    assert sizes(program) == {"weights": 32 * GIB, "other": 8 * GIB, "kv": 12 * GIB}


@pytest.mark.parametrize(
    ("region", "size"),
    [
        ({"size": "fill", "chunk": "10GiB"}, 60 * GIB),
        ({"size": "33%", "chunk": "10GiB"}, 20 * GIB),
        ({"size": "33%"}, MEMORY * 33 // 100 // (2 << 20) * (2 << 20)),
        ({"size": "fill", "reserve": "5000001"}, (MEMORY - 5000001) // (2 << 20) * (2 << 20)),
    ],
)
def test_sizes_are_rounded_down_to_whole_chunks_or_to_the_granularity(region: dict[str, Any], size: int) -> None:
    program = compiled(regions={"kv": region})

    assert sizes(program) == {"kv": size}
    assert next(resource for resource in program.resources if resource.name == "kv").waste == 0


@pytest.mark.parametrize("spread", [{}, {"chunk": "1GiB"}, {"chunk": "1GiB", "spread": "interleave"}])
def test_each_device_of_a_region_gives_as_much_as_the_one_with_least_room(spread: dict[str, Any]) -> None:
    region = {"devices": ["gpu.*"], **spread}
    small = machine(other=16 * GIB)
    filled = compiled(small, regions={"kv": {**region, "size": "fill", "reserve": "1GiB"}})
    shared = compiled(small, regions={"kv": {**region, "size": "50%"}})

    assert filled.bytes_by_device() == {"gpu.0": 15 * GIB, "gpu.1": 15 * GIB}
    assert shared.bytes_by_device() == {"gpu.0": 8 * GIB, "gpu.1": 8 * GIB}


def test_a_region_that_fills_in_chunks_can_grow_into_memory_that_becomes_free() -> None:
    def reserved(**region: Any) -> int:
        program = compiled(buffers={"w": buffer("4GiB")}, regions={"kv": {"size": "fill", **region}})
        (step,) = [step for step in program.steps if isinstance(step, Reserve)]
        return step.size

    assert reserved() == 60 * GIB
    assert reserved(chunk="1GiB", reserve="10GiB") == MEMORY
    assert reserved(chunk="1GiB", devices=["gpu.*"], spread="interleave") == 2 * MEMORY
    assert reserved(chunk="1GiB", devices=["gpu.*"]) == 2 * 60 * GIB  # blocks cannot grow


def test_buffers_fill_too_and_tensors_follow() -> None:
    tensors = {"head": {"dtype": "u8", "shape": [GIB]}, "pages": {"dtype": "u8", "shape": [-1, 4096]}}
    program = compiled(
        regions={"kv": {"size": "50%", "tensors": tensors}},
        buffers={"rest": buffer("fill", reserve="2GiB"), "parts": buffer("5%", count=2, device="gpu.1")},
        contents={"rest": {"value": 0}, "kv.head": {"value": 1}},
    )
    shapes = {resource.name: resource.shape for resource in program.resources if resource.kind == "tensor"}
    part = MEMORY // 20 // (2 << 20) * (2 << 20)

    assert sizes(program) == {"kv": 32 * GIB, "rest": 30 * GIB, "parts.0": part, "parts.1": part}
    assert shapes == {"kv.head": (GIB,), "kv.pages": (31 * GIB // 4096, 4096)}


def test_a_size_may_come_from_a_variable() -> None:
    program = compiled(vars={"kv": "fill", "n": 25}, regions={"kv": {"size": "$(kv)"}, "w": {"size": "$(n * 2)%"}})

    assert sizes(program) == {"kv": 32 * GIB, "w": 32 * GIB}


def test_a_plan_without_a_machine_leaves_them_open() -> None:
    loaded = hipplan.load(plan(regions={"kv": {"size": "fill", "reserve": "10 %", "chunk": "1GiB"}}))

    assert loaded.plan.regions["kv"].size == "fill"
    assert (loaded.plan.regions["kv"].reserve, loaded.plan.regions["kv"].range_size) == ("10%", None)


@pytest.mark.parametrize(
    ("nouns", "found"),
    [
        (
            {"regions": {"kv": {"size": "fill", "reserve": "100%"}}},
            "nothing of gpu.0 is left for 'kv' to fill",
        ),
        (
            {"regions": {"kv": {"size": "fill", "chunk": "2GiB"}}, "buffers": {"w": {**buffer("63GiB")}}},
            "nothing of gpu.0 is left for 'kv' to fill",
        ),
        (
            {"buffers": {"kv": buffer("fill", reserve="64GiB")}},
            "nothing of gpu.0 is left for 'kv' to fill",
        ),
        (
            {"regions": {"kv": {"size": "1%", "chunk": "1GiB"}}},
            "1% of gpu.0 is less than one step of 'kv'",
        ),
        (
            {"regions": {"kv": {"size": "60%"}, "w": {"size": "50%"}}},
            "gpu.0 needs about 70.4GiB, 6552MiB more than is free",
        ),
    ],
)
def test_memory_that_is_short_is_an_error_with_what_to_do(nouns: dict[str, Any], found: str) -> None:
    ((code, summary, hint),) = refused(**nouns)

    assert (code, summary) == ("HP301", found)
    assert hint


def test_a_device_without_known_memory_cannot_be_filled() -> None:
    ((code, summary, _),) = refused(machine(memory=None), regions={"kv": {"size": "80%"}})

    assert (code, summary) == ("HP301", "the memory of gpu.0 is unknown, so 'kv' has no size")


def test_other_errors_are_reported_beside_it() -> None:
    found = refused(
        regions={"kv": {"size": "fill"}, "w": {"size": "99%", "tensors": {"t": {"dtype": "u8", "shape": [2**40]}}}},
        buffers={"b": buffer("2TiB")},
    )

    assert sorted(code for code, _, _ in found) == ["HP212", "HP301", "HP301"]


def test_a_percentage_past_the_reserved_addresses() -> None:
    region = {"size": "50%", "reserve": "1GiB", "chunk": "1GiB"}
    found = refused(regions={"kv": region})

    assert ("HP206", "'kv' maps 32GiB, more than it reserves", "reserve at least the mapped size") in found
    assert sizes(compiled(regions={"kv": {**region, "reserve": "40GiB"}})) == {"kv": 32 * GIB}


@pytest.mark.parametrize(
    ("nouns", "code", "summary", "hint"),
    [
        (
            {"regions": {"a": {"size": "fill"}, "b": {"size": "fill", "devices": ["gpu.*"]}}},
            "HP107",
            "'a' and 'b' both fill gpu.0",
            "give all but one of them a share of the memory, such as size: 30%, or bytes",
        ),
        (
            {"buffers": {"b": buffer("fill", count=2)}},
            "HP107",
            "'b.0' and 'b.1' both fill gpu.0",
            "give all but one of them a share of the memory, such as size: 30%, or bytes",
        ),
        (
            {"buffers": {"b": {"kind": "pinned", "size": "fill"}}},
            "HP013",
            "'fill' is not a size",
            "only regions and device buffers can be as large as a device's memory allows",
        ),
        (
            {"allocations": {"a": {"size": "80%"}}},
            "HP013",
            "'80%' is not a size",
            "only regions and device buffers can be as large as a device's memory allows",
        ),
        ({"regions": {"a": {"size": "fill", "device": "host"}}}, "HP201", "the host is not a device",
         "name a device, or remove it"),
        ({"regions": {"a": {"size": "Full"}}}, "HP013", "'Full' is not a size", "write fill"),
        ({"regions": {"a": {"size": 0.9}}}, "HP103", "expected a byte size, not 0.9", "write 90%"),
        ({"regions": {"a": {"size": "0%"}}}, "HP105", "a share of nothing", "remove it"),
        ({"regions": {"a": {"size": "101%"}}}, "HP013", "101% is more than all of it", "write at most 100%"),
        ({"regions": {"a": {"size": "08%"}}}, "HP015", "'08%' begins with a zero", "write 8%"),
        ({"regions": {"a": {"size": "x%"}}}, "HP013", "'x%' is not a percentage", "write it as 80%"),
        (
            {"regions": {"a": {"size": "80%", "reserve": "10%"}}},
            "HP107",
            "a reserve of 10% needs size: fill",
            "write size: fill, or bytes: reserve: 64GiB",
        ),
        ({"buffers": {"b": buffer("80%", reserve="1GiB")}}, "HP107", "reserve needs size: fill", "remove reserve"),
        ({"regions": {"a": {"size": "fill", "devices": ["gpu.*"], "spread": "interleave"}}}, "HP107",
         "interleaving and growing need a chunk", "add chunk: 1GiB"),
    ],
)  # fmt: skip
def test_mistakes_need_no_machine(nouns: dict[str, Any], code: str, summary: str, hint: str) -> None:
    with pytest.raises(HipplanError) as caught:
        hipplan.load(plan(**nouns))
    (found,) = caught.value.diagnostics

    assert (found.code, found.summary, found.hint) == (code, summary, hint)


def test_one_fill_on_each_device_is_no_mistake() -> None:
    program = compiled(regions={"kv": {"each": "gpu", "device": "$(each)", "size": "fill"}})

    assert sizes(program) == {"kv.0": MEMORY, "kv.1": MEMORY}


def test_a_lock_keeps_what_was_decided(tmp_path: Any) -> None:
    nouns = {"regions": {"kv": {"size": "fill", "reserve": "10%", "chunk": "1GiB"}}, "buffers": {"b": buffer("10%")}}
    locked = lock(compiled(**nouns))
    busy, loaded = machine(in_use=4 * GIB), hipplan.load(plan(**nouns))

    again = hipplan.compile(loaded, busy, sizes=locked.sizes)
    assert lock(again).sizes == locked.sizes != lock(hipplan.compile(loaded, busy)).sizes
    assert sizes_of(None) == {}
    with pytest.raises(HipplanError, match="HP301"):
        hipplan.compile(loaded, machine(in_use=20 * GIB), sizes=locked.sizes)


def test_an_update_keeps_a_size_while_the_plan_says_the_same() -> None:
    def after(there: Machine, **nouns: Any) -> dict[str, int]:
        return sizes(compile_change(old, hipplan.load(plan(**nouns)), there).new)

    kv: dict[str, Any] = {"size": "fill", "reserve": "25%", "chunk": "1GiB"}
    old = compiled(regions={"kv": kv}, buffers={"b": buffer("10%")})
    of_buffer = sizes(old)["b"]
    assert sizes(old)["kv"] == 41 * GIB

    more = {"b": buffer("10%"), "more": buffer("6GiB", device="gpu.0")}
    busy = machine(in_use=2 * GIB)
    assert after(busy, regions={"kv": kv}, buffers=more) == {"kv": 41 * GIB, "b": of_buffer, "more": 6 * GIB}
    assert after(machine(), regions={"kv": {**kv, "reserve": "30%"}}, buffers={"b": buffer("10%")})["kv"] == 38 * GIB
    assert after(machine(), regions={"kv": {**kv, "size": "50%", "reserve": None}}) == {"kv": 32 * GIB}


def test_a_program_with_open_sizes_is_written_and_read_back() -> None:
    program = compiled(regions={"kv": {"size": "fill", "reserve": "10%", "chunk": "1GiB", "devices": ["gpu.*"]}})

    assert written.read(written.write(program)) == program


def test_fmt_keeps_them() -> None:
    text = "hipplan: 1\nregions:\n  kv: {size: 80%}\n  rest: {size: fill, device: gpu.1, reserve: 12.5%}\n"

    assert canonical(load_yaml(text)).replace("device: gpu.1, size: fill", "size: fill, device: gpu.1") == text
