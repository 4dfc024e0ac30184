"""How bytes are moved: by how many, through what, and what is left when it is stopped."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from operator import mul
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan import ApplyError, _core
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.run import run
from hipplan.program.content_steps import STAGING_MAX
from hipplan.program.contents import staging_name
from tests.conftest import Simulator
from tests.pauses import during, interrupt

KIB, MIB = 2**10, 2**20
RNG = numpy.random.default_rng(7)


def two_buffers(size: int) -> dict[str, Any]:
    buffers = {f"b{device}": {"kind": "device", "device": f"gpu.{device}", "size": size} for device in (0, 1)}
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": buffers}


def read(sim: Simulator, layout: Layout, name: str) -> bytes:
    piece = layout[name]
    return sim.read(piece.address, piece.nbytes)


@pytest.mark.parametrize(
    ("moved", "pinned"),
    [
        (1, 64 * KIB),
        (100 * KIB + 1, 104 * KIB),
        (MIB, MIB),
        (MIB + 1, MIB),
        (1 << 30, 16 * MIB),
        ((1 << 30) + 1, 32 * MIB),
        (1 << 37, STAGING_MAX),
    ],
)
def test_what_is_pinned_is_sized_by_what_passes_through_it(moved: int, pinned: int) -> None:
    document = two_buffers(moved) | {"contents": {"b0": {"file": "f"}}}
    program = hipplan.compile(hipplan.load(document), hipplan.machine("sim-2"))
    sizes = {resource.name: resource.size for resource in program.resources if resource.kind == "pinned"}

    assert sizes == {staging_name(0): pinned}


def test_what_a_device_does_alone_pins_next_to_nothing() -> None:
    contents = {"b0": {"value": 0}, "b1": {"copy_of": "b0"}}
    program = hipplan.compile(
        hipplan.load(two_buffers(1 << 34) | {"contents": contents}),
        hipplan.machine("sim-2").model_copy(update={"runtime": "cuda"}),
    )

    assert {resource.size for resource in program.resources if resource.kind == "pinned"} == {64 * KIB}


def test_a_larger_load_makes_it_larger_and_a_smaller_one_leaves_it(sim: Simulator, tmp_path: Path) -> None:
    data = RNG.bytes(8 * MIB)
    (tmp_path / "big").write_bytes(data)
    (tmp_path / "small").write_bytes(data[: 64 * KIB])
    document = two_buffers(8 * MIB)
    document["buffers"]["s"] = {"kind": "device", "size": 64 * KIB}
    with hipplan.apply(document, runtime="sim") as layout:
        addresses = [layout[name].address for name in document["buffers"]]
        layout.load("s", tmp_path / "small")
        small, alive = layout[staging_name(0)].nbytes, len(sim.alive())
        layout.load("b0", tmp_path / "big")
        large = layout[staging_name(0)]
        layout.load("s", tmp_path / "small")

        assert (small, large.nbytes) == (64 * KIB, MIB)
        assert layout[staging_name(0)].address == large.address
        assert len(sim.alive()) == alive
        assert [layout[name].address for name in document["buffers"]] == addresses
        assert (read(sim, layout, "b0"), read(sim, layout, "s")) == (data, data[: 64 * KIB])
    assert sim.alive() == set()


def test_an_update_pins_only_for_what_it_loads(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(8 * MIB))
    document = two_buffers(8 * MIB)
    with hipplan.apply(document | {"contents": {"b0": {"file": str(tmp_path / "f")}}}, runtime="sim") as layout:
        before = layout[staging_name(0)].address
        document["buffers"]["more"] = {"kind": "device", "size": 4096}
        contents = {name: {"file": str(tmp_path / "f")} for name in ("b0", "b1")}
        contents["more"] = {"file": str(tmp_path / "f"), "at": 0}
        layout.update(document | {"contents": contents})

        assert layout[staging_name(0)].address == before
        assert staging_name(1) not in layout


def test_all_devices_are_filled_at_once(sim: Simulator, tmp_path: Path) -> None:
    data, trace = RNG.bytes(16 * MIB), tmp_path / "trace"
    (tmp_path / "f").write_bytes(data)
    document = two_buffers(16 * MIB)
    document["contents"] = {name: {"file": str(tmp_path / "f")} for name in document["buffers"]}
    program = hipplan.compile(hipplan.load(document), hipplan.machine("sim-2"))
    sim.runtime.arm_faults("hipMemcpyAsync@1+=delay:5")
    sim.runtime.trace_to(str(trace))
    try:
        with run(program, sim.runtime) as layout:
            sim.runtime.trace_to("")
            sim.runtime.arm_faults("")
            begins = [layout[name].address for name in document["buffers"]]
            assert [read(sim, layout, name) for name in document["buffers"]] == [data, data]
    finally:
        sim.runtime.trace_to("")
        sim.runtime.arm_faults("")
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    to = [int(line["args"]["dst"], 16) for line in lines if line["call"] == "hipMemcpyAsync"]
    of = [[n for n, at in enumerate(to) if begin <= at < begin + 16 * MIB] for begin in begins]

    assert min(of[0]) < max(of[1])
    assert min(of[1]) < max(of[0])


@pytest.mark.parametrize("processors", [0, 1, 2, 7, 64])
def test_any_number_of_threads_moves_the_same_bytes(processors: int, sim: Simulator, tmp_path: Path) -> None:
    data = RNG.bytes(9 * MIB + 17)
    path, back = tmp_path / "f", tmp_path / "back"
    path.write_bytes(data)
    back.write_bytes(bytes(len(data)))
    document = two_buffers(len(data))
    document["buffers"]["p"] = {"kind": "pinned", "size": 777_777}
    document["streams"] = {"s": {}}
    sums = []
    with hipplan.apply(document, runtime="sim") as layout, path.open("rb") as source, back.open("r+b") as target:
        state = layout._holding.state
        at, staging = layout["b0"].address, layout["p"].address
        for descriptor in (source.fileno(), target.fileno()):
            filler = _core.Filler(layout.runtime, processors)
            filler.add_device(0, [state.stream_of("s")], staging, 777_777)
            if descriptor == source.fileno():
                filler.load("b0", 0, at, len(data), descriptor, 0, len(data), len(data), 0, 0)
            else:
                filler.save("b0", 0, at, len(data), descriptor, 0, 0)
            filler.run()
            sums += filler.take_sums()

        assert read(sim, layout, "b0") == data
        assert sums == [checksum(sim, data, 0)] * 2
        filler.sum("f", 0, len(data) - 5, target.fileno(), 5, 1)
        filler.run()
        assert filler.take_sums() == [0, (sums[0] - checksum(sim, data[:5], 0)) % PRIME]
    assert back.read_bytes() == data


PRIME = 2**127 - 1


def checksum(sim: Simulator, data: bytes, position: int) -> int:
    """Of bytes at a position."""
    memory = ctypes.create_string_buffer(data, len(data))
    filler = _core.Filler(sim.runtime)
    filler.sum("memory", ctypes.addressof(memory), len(data), -1, position, 0)
    filler.run()
    (total,) = filler.take_sums()
    return total


@pytest.mark.parametrize("position", [0, 3, 2040, 2048, 10**12 + 1])
def test_a_checksum_is_a_sum_of_words_each_times_its_own_factor(position: int, sim: Simulator) -> None:
    """Two blocks of 2 KiB and a bit: as Python computes it from the factors, which a word of 1 shows."""
    data = RNG.bytes(4096 + 8 + 5)
    begin = position // 8 * 8
    padded = bytes(position - begin) + data
    words = [int.from_bytes(padded[at : at + 8], "little") for at in range(0, len(padded), 8)]
    factors = [checksum(sim, b"\1", begin + 8 * number) for number in range(len(words))]

    assert len(set(factors)) == len(words)
    assert checksum(sim, data, position) == sum(map(mul, words, factors)) % PRIME


def test_a_checksum_differs_for_other_bytes_and_other_places(sim: Simulator) -> None:
    data = bytearray(RNG.bytes(4096))
    whole = checksum(sim, bytes(data), 0)
    others = {checksum(sim, bytes(data), 8), checksum(sim, bytes(data[2048:] + data[:2048]), 0)}
    for bit in range(0, 8 * len(data), 7):
        data[bit // 8] ^= 1 << bit % 8
        others.add(checksum(sim, bytes(data), 0))
        data[bit // 8] ^= 1 << bit % 8

    assert whole not in others
    assert len(others) == 2 + len(range(0, 8 * len(data), 7))
    assert checksum(sim, bytes(data), 0) == whole


@pytest.mark.parametrize("row", [1, 100, 512, 4096, 9000, 16 * KIB])
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_columns_of_any_width_arrive(row: int, parts: int, sim: Simulator, tmp_path: Path) -> None:
    """What lies between two rows is read with them, or not."""
    rows = max(3, 6 * MIB // row) if row >= 512 else 20_000
    array = RNG.integers(0, 256, (rows, row * parts), "u1")
    numpy.save(tmp_path / "f.npy", array)
    tensors = {"t": {"dtype": "u8", "shape": [rows, row]}}
    regions = {f"r{n}": {"device": f"gpu.{n % 2}", "tensors": tensors} for n in range(parts)}
    contents = {f"r{n}.t": {"file": str(tmp_path / "f.npy"), "part": n, "parts": parts} for n in range(parts)}
    document = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": regions, "contents": contents}
    with hipplan.apply(document, runtime="sim") as layout:
        for n in range(parts):
            assert read(sim, layout, f"r{n}.t") == array[:, row * n : row * (n + 1)].tobytes()


@pytest.mark.parametrize("left", [0, 5 * MIB, 16 * MIB - 1])
def test_a_file_truncated_during_copies_rolls_back(left: int, sim: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(16 * MIB))
    document = two_buffers(16 * MIB) | {"contents": {"b0": {"file": str(path)}, "b1": {"file": str(path)}}}
    program = hipplan.compile(hipplan.load(document), hipplan.machine("sim-2"))
    with pytest.raises(ApplyError, match="became shorter"):
        run(program, sim.runtime, Options(on_step=lambda number, step: os.truncate(path, left)))
    assert sim.alive() == set()


def test_what_is_read_only_as_staging_is_refused(sim: Simulator) -> None:
    filler = _core.Filler(sim.runtime)
    for streams, size in (([], 4096), ([0], 31)):
        with pytest.raises(ValueError, match="without lanes"):
            filler.add_device(0, streams, 4096, size)
    filler.fill("x", 0, 4096, 16, b"\0")
    with pytest.raises(ValueError, match="no lane for device 0"):
        filler.run()


@contextmanager
def many_lanes(sim: Simulator, folder: Path) -> Iterator[tuple[Layout, Callable[[], _core.Filler], bytes]]:
    """A layout, and what loads 6 MiB to each of two devices with several threads each."""
    data = RNG.bytes(6 * MIB)
    (folder / "f").write_bytes(data)
    document = two_buffers(len(data))
    for device in (0, 1):
        document["buffers"][f"p{device}"] = {"kind": "pinned", "device": f"gpu.{device}", "size": 4 * MIB}
    document["streams"] = {f"s{device}": {"device": f"gpu.{device}"} for device in (0, 1)}
    with hipplan.apply(document, runtime="sim") as layout, (folder / "f").open("rb") as file:

        def loading() -> _core.Filler:
            filler = _core.Filler(layout.runtime, 8)
            for device in (0, 1):
                stream = layout._holding.state.stream_of(f"s{device}")
                filler.add_device(device, [stream], layout[f"p{device}"].address, 4 * MIB)
                to = layout[f"b{device}"].address
                filler.load("b", device, to, len(data), file.fileno(), 0, len(data), len(data), 0)
            return filler

        yield layout, loading, data


@pytest.mark.parametrize("forever", ["", "+"])
def test_a_failure_in_any_thread_is_reported_after_all_have_ended(forever: str, sim: Simulator, tmp_path: Path) -> None:
    with many_lanes(sim, tmp_path) as (layout, loading, data):
        for n in count(1):
            sim.runtime.arm_faults(f"*@{n}{forever}=hipErrorUnknown")
            try:
                loading().run()
            except _core.HipError as error:
                assert error.code == 999
            fired = sim.runtime.faults_fired()
            sim.runtime.arm_faults("")
            if not fired:
                break
        assert n > 2 * 12  # a copy and a wait of each piece, on each device
        assert [read(sim, layout, f"b{device}") for device in (0, 1)] == [data, data]


def test_whichever_call_fails_when_more_is_pinned_the_layout_stays_unchanged(sim: Simulator, tmp_path: Path) -> None:
    data = RNG.bytes(6 * MIB)
    (tmp_path / "f").write_bytes(data)
    with hipplan.apply(two_buffers(len(data)), runtime="sim") as layout:
        layout.fill("b0", 1)
        before = sim.alive()
        for n in count(1):
            sim.runtime.arm_faults(f"*@{n}=hipErrorOutOfMemory")
            failed = False
            try:
                layout.load("b0", tmp_path / "f")
            except (ApplyError, hipplan.LeakError):
                failed = True
            fired = sim.runtime.faults_fired()
            sim.runtime.arm_faults("")
            if not fired:
                break
            assert layout[staging_name(0)].nbytes in ((64 * KIB, MIB) if failed else (MIB,))
            assert layout[staging_name(0)].nbytes == MIB or sim.alive() == before
        assert n > 10
        assert read(sim, layout, "b0") == data
    assert not [key for key in sim.alive() if key in before]


def test_an_interrupt_amid_a_copy_ends_the_others_and_rolls_back(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(64 * MIB))
    document = two_buffers(64 * MIB) | {"contents": {name: {"file": str(tmp_path / "f")} for name in ("b0", "b1")}}
    program = hipplan.compile(hipplan.load(document), hipplan.machine("sim-2"))
    seen: list[int] = []
    with during(sim, tmp_path, "hipMemcpyAsync@3", interrupt), pytest.raises(KeyboardInterrupt):
        run(program, sim.runtime, Options(on_bytes=lambda done, total: seen.append(done)))

    assert sim.alive() == set()
    assert max(seen, default=0) < 2 * 64 * MIB


@pytest.mark.parametrize("processors", [2, 16])
def test_bytes_pass_through_the_pinned_memory_of_two_devices_in_both_directions(
    processors: int, sim: Simulator, tmp_path: Path
) -> None:
    """As on AMD between devices that have no right to one another's memory: each copies its own alone."""
    size, room = 8 * MIB + 48, (4 * MIB, 3 * MIB)
    document = two_buffers(size)
    document["buffers"] |= {
        f"{name}{device}": {"kind": kind, "device": f"gpu.{device}", "size": length}
        for device in (0, 1)
        for name, kind, length in (("t", "device", size), ("p", "pinned", room[device]), ("h", "pinned", size))
    }
    document["streams"] = {f"s{device}": {"device": f"gpu.{device}"} for device in (0, 1)}
    data = [RNG.bytes(size), RNG.bytes(size), RNG.bytes(size)]
    with hipplan.apply(document, runtime="sim", machine="sim-2-unlinked") as layout:
        at = {name: layout[name].address for name in document["buffers"]}
        for name, one in zip(("b0", "b1", "h0"), data, strict=True):
            sim.write(at[name], one)
        filler = _core.Filler(layout.runtime, processors)
        for device in (0, 1):
            stream = layout._holding.state.stream_of(f"s{device}")
            filler.add_device(device, [stream], at[f"p{device}"], room[device])
        filler.copy("x", 0, at["t0"], 1, at["b1"], size, True)
        filler.copy("x", 1, at["t1"], 0, at["b0"], size, True)
        filler.copy("x", -1, at["h1"], 1, at["b1"], size, True)
        filler.run()
        filler.copy("x", 1, at["b1"], -1, at["h0"], size, True)
        filler.run()

        assert [read(sim, layout, name) for name in ("t0", "t1", "h1", "b1")] == [data[1], data[0], data[1], data[2]]
