"""The mappings that go as runs go in the order in which single ones go."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, Rights, TakeOut
from hipplan.program.chunk_runs import MappingRun, MemoryRun
from hipplan.program.runs import alike
from hipplan.program.taken_out import TakeOutRun, downward

SIZE = 1 << 21
RW: Rights = ((0, "rw"),)
READ: Rights = ((0, "rw"), (1, "r"))


def memory(device: int, size: int) -> CreateAllocation:
    return CreateAllocation("", None, device, size, size, "pinned", "device", "none")


def run(
    region: str, first: int, count: int, *, size: int = SIZE, at: int = 0, rights: Sequence[Rights] = (RW,)
) -> MappingRun:
    kinds = [memory(device, size) for device in range(len(rights))]
    return MappingRun(MemoryRun(region, range(first, first + count), kinds), at, None, rights)


def single(name: str, at: int) -> Map:
    return Map(name, None, "r", f"{name}.memory", at, SIZE, SIZE)


def take_out(step: Map) -> TakeOut:
    return TakeOut(step.name, step.origin, step.reservation, step.allocation, RW)


def one_by_one(mappings: Sequence[Map | MappingRun]) -> list[TakeOut]:
    """As a layout does whose mappings are in no runs."""
    steps: list[tuple[int, TakeOut]] = []
    for mapped in mappings:
        if isinstance(mapped, Map):
            steps.append((mapped.offset, take_out(mapped)))
            continue
        for chunk in mapped.chunks:
            step = mapped.made(chunk)
            assert isinstance(step, Map)
            rights = mapped.access(chunk).rights
            steps.append((step.offset, TakeOut(step.name, None, step.reservation, step.allocation, rights)))
    return [step for _, step in sorted(steps, key=lambda placed: placed[0], reverse=True)]


CASES: dict[str, list[Map | MappingRun]] = {
    "one region": [run("a", 0, 40)],
    "rights in turn": [run("a", 0, 41, rights=(RW, READ))],
    "in blocks": [run("a", 0, 40), run("a", 40, 35, at=40 * SIZE)],
    "two regions": [run("a", 0, 40), run("b", 0, 60, rights=(RW, READ))],
    "that begin at other places": [run("a", 3, 40, at=3 * SIZE), run("b", 0, 60)],
    "of other sizes": [run("a", 0, 40), run("b", 0, 33, size=2 * SIZE)],
    "not at multiples of their sizes": [run("a", 0, 40), run("b", 0, 40, at=4096)],
    "beside single ones": [
        single("x", 0),
        run("a", 0, 40),
        single("y", 3 * SIZE),
        single("z", 41 * SIZE),
        single("w", 3),
    ],
    "single ones": [single("x", 0), single("y", 0), single("z", 5)],
    "nothing": [],
}


@pytest.mark.parametrize("case", CASES)
def test_runs_go_in_the_order_of_single_mappings(case: str) -> None:
    steps = downward(CASES[case], take_out)
    assert [*steps] == one_by_one(CASES[case])
    assert sum(many for _, many in alike(steps)) == len(steps)
    for number, step in enumerate(steps):
        assert steps[number] == step


def test_runs_of_any_places_go_in_the_order_of_single_mappings() -> None:
    draw = random.Random(1)
    for _ in range(200):
        mappings: list[Map | MappingRun] = [
            single(f"s{n}", draw.randrange(60) * SIZE // 2) for n in range(draw.randrange(4))
        ]
        for name in "abc"[: draw.randrange(1, 4)]:
            rights = draw.choice(((RW,), (RW, READ), (RW, READ, RW)))
            size = draw.choice((SIZE, SIZE, 2 * SIZE))
            mappings.append(
                run(
                    name,
                    draw.randrange(5),
                    draw.randrange(1, 30),
                    size=size,
                    at=draw.randrange(9) * SIZE,
                    rights=rights,
                )
            )
        draw.shuffle(mappings)
        assert [*downward(mappings, take_out)] == one_by_one(mappings)


def test_alike_chunks_go_as_one_run() -> None:
    assert [type(part) for part in downward([run("a", 0, 4000), run("b", 0, 4000)], take_out).segments()] == [
        TakeOutRun
    ]
