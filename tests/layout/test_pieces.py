"""Rights on HIP 7.0 to 7.2, which refuse hipMemSetAccess by the order of heap addresses: here in every bad order."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, MachineError
from hipplan.layout.layout import Layout
from hipplan.lowering.lowered import lowered, require_attachable
from hipplan.machines.profiles import load_machine
from hipplan.program import held
from hipplan.program.steps import Step
from tests.conftest import Simulator
from tests.faults.harness import as_release

MIB = 2**20
RIGHTS = {"none": 0, "r": 1, "rw": 3}


def plan(*mappings: tuple[str, dict[str, str] | None, str], **of_allocations: Any) -> dict[str, Any]:
    """Mappings of (size, access, place) in one range, each of an allocation of its own: a, b, c, ..."""
    made: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "allocations": {}}
    placed = []
    for name, (size, access, at) in zip("abcdefgh", mappings, strict=False):
        made["allocations"][name] = {"device": f"gpu.{'abcdefgh'.index(name) % 2}", "size": size, **of_allocations}
        placed.append({"allocation": name, "access": access or {"gpu.0": "rw", "gpu.1": "r"}})
        if at:
            placed[-1]["at"] = at
    made["reservations"] = {"r": {"size": "64MiB", "mappings": placed}}
    return made


UNEQUAL = {
    "unlike rights": plan(
        ("4MiB", {"gpu.0": "rw"}, ""), ("2MiB", {"gpu.0": "r", "gpu.1": "r"}, ""), ("6MiB", {"gpu.1": "rw"}, "")
    ),
    "holes": plan(("6MiB", None, ""), ("2MiB", None, "32MiB"), ("4MiB", None, "48MiB")),
    "alike": plan(("2MiB", None, ""), ("6MiB", None, ""), ("1MiB", None, "")),
    "alike, not in order": plan(("2MiB", None, "8MiB"), ("4MiB", None, "4MiB"), ("6MiB", None, "10MiB")),
    "one has none": plan(("4MiB", {"gpu.0": "rw"}, ""), ("2MiB", {"gpu.0": "none"}, "")),
    "alike and shareable": plan(("2MiB", None, ""), ("6MiB", None, ""), shareable="posix_fd"),
    "one size": plan(("2MiB", {"gpu.0": "r"}, "8MiB"), ("2MiB", {"gpu.1": "rw"}, "32MiB")),
}  # fmt: skip


@pytest.fixture(params=["7.0.51831", "7.2.53211"])
def release(request: pytest.FixtureRequest, sim: Simulator) -> Iterator[str]:
    with as_release(sim, request.param, "set_access_sums_in_heap_order"):
        yield request.param
        assert sim.alive() == set()


def machine(version: str, **more: Any) -> Any:
    return load_machine("sim-2").model_copy(update={"hip_version": version, **more})


def rights_in_force(sim: Simulator) -> list[tuple[int, int, tuple[int, int]]]:
    """(address, bytes, rights of both devices) of what is mapped."""
    pieces = sim.ledger()["mappings"]
    results = [(int(str(piece["address"]), 16), int(piece["size"])) for piece in pieces]
    return [(at, size, (sim.runtime.access(0, at), sim.runtime.access(1, at))) for at, size in results]


def allowed(layout_plan: Any, base: int) -> list[tuple[int, int, tuple[int, int]]]:
    """The same of the mappings of a plan: the highest rights there."""
    out, end = [], 0
    for mapping in layout_plan["reservations"]["r"]["mappings"]:
        size = int(layout_plan["allocations"][mapping["allocation"]]["size"].removesuffix("MiB")) * MIB
        at = int(mapping["at"].removesuffix("MiB")) * MIB if "at" in mapping else end
        end = at + size
        access = mapping["access"]
        out.append((base + at, size, (RIGHTS[access.get("gpu.0", "none")], RIGHTS[access.get("gpu.1", "none")])))
    return out


@pytest.mark.parametrize("what", UNEQUAL)
def test_every_mapping_gets_its_rights_and_never_more(what: str, release: str, sim: Simulator) -> None:
    source = UNEQUAL[what]
    exceeded: list[Any] = []

    def look(number: int, step: Step) -> None:
        there = rights_in_force(sim)
        if there and (base := int(str(sim.ledger()["reservations"][0]["address"]), 16)):
            may = allowed(source, base)
            for at, _, have in there:
                most = next(rights for start, size, rights in may if start <= at < start + size)
                exceeded.extend((step.name, at) for one, other in zip(have, most, strict=True) if one > other)

    with hipplan.apply(source, runtime="sim", on_step=look) as layout:
        assert exceeded == []
        may = allowed(source, layout["r"].address)
        for at, size, rights in may:
            inside = [right for right in rights_in_force(sim) if at <= right[0] < at + size]
            assert {have for _, _, have in inside} == {rights}
            assert sum(size for _, size, _ in inside) == size
        assert layout.drift() == []
        layout.fill("r[0]", 7) if "r[0]" in layout and may[0][2][0] == 3 else None


def shape(program: hipplan.Program) -> Counter[str]:
    return Counter(step.call for step in program.steps)


@pytest.mark.parametrize("what", UNEQUAL)
def test_other_releases_and_cuda_keep_the_memory_in_one_piece(what: str) -> None:
    source = UNEQUAL[what]
    count = len(source["allocations"])
    for other in (machine("6.4.43484"), machine("7.15.0"), machine("7.2.0", runtime="cuda")):
        made = hipplan.compile(source, other)
        assert lowered(made) is made
        assert shape(made)["hipMemCreate"] == shape(made)["hipMemMap"] == count
        assert not any("/" in step.name or getattr(step, "together", False) for step in made.steps)


def test_memory_is_cut_into_pieces_of_one_size_only_where_it_must_be() -> None:
    def sizes(what: str) -> list[int]:
        made = lowered(hipplan.compile(UNEQUAL[what], machine("7.2.53211")))
        return [step.size // MIB for step in made.own_memory()]

    assert sizes("unlike rights") == [2] * 6
    assert sizes("holes") == [2] * 6
    assert sizes("alike") == [2, 6, 1]
    assert sizes("alike and shareable") == [2, 6]
    assert sizes("one size") == [2, 2]


def test_what_people_see_is_in_one_piece(release: str) -> None:
    with hipplan.apply(UNEQUAL["holes"], runtime="sim") as layout:
        assert [name for name in layout if "/" in name] == []
        assert layout["r[0]"].size == 6 * MIB
        assert layout["a"].size == 6 * MIB
        assert [step for step in layout.program.steps if "/" in step.name or getattr(step, "together", False)] == []
        assert layout.program.steps == hipplan.compile(UNEQUAL["holes"], machine(release)).steps
        layout.fill("r[0]", 5)
        assert bytes(layout.runtime.read(layout["r[0]"].address, 6 * MIB)) == bytes([5]) * 6 * MIB


def programs(version: str, sim: Simulator) -> Iterator[tuple[hipplan.Program, int]]:
    """The program of a layout after each change, and how many allocations the driver has."""
    source = UNEQUAL["unlike rights"]
    other = copy.deepcopy(source)
    for mapping in other["reservations"]["r"]["mappings"]:
        mapping["access"] = {"gpu.0": "rw", "gpu.1": "rw"}
    with as_release(sim, version), hipplan.apply(source, runtime="sim") as layout:
        for act in (
            lambda: None,
            lambda: layout.seal("r"),
            lambda: layout.unseal("r"),
            lambda: layout.remap("r", keep_bytes=False),
            lambda: layout.sleep("a"),
            lambda: layout.wake(),
            lambda: layout.grow("r", by="2MiB"),
            lambda: layout.shrink("r", by="2MiB"),
            lambda: layout.sleep("r", to="drop"),
            lambda: layout.update(source, lose="*"),
            lambda: layout.wake(),
            lambda: layout.update(other, lose="*"),
        ):
            act()
            assert layout.drift() == []
            yield layout.program, len(sim.ledger()["allocations"])


def test_after_each_change_the_program_is_that_of_other_releases(sim: Simulator) -> None:
    in_pieces, whole = [*programs("7.2.53211", sim)], [*programs("7.15.0", sim)]
    assert [program.steps for program, _ in in_pieces] == [program.steps for program, _ in whole]
    assert [program.sleeping for program, _ in in_pieces] == [program.sleeping for program, _ in whole]
    assert [count for _, count in in_pieces] == [6, 6, 6, 6, 4, 6, 7, 6, 0, 0, 6, 6]
    assert [count for _, count in whole] == [3, 3, 3, 3, 2, 3, 4, 3, 0, 0, 3, 3]


def test_what_sleeps_wakes_beside_memory_of_another_size_that_came_meanwhile(release: str, sim: Simulator) -> None:
    def of_size(size: str) -> dict[str, Any]:
        return plan(("2MiB", {"gpu.0": "rw"}, ""), (size, {"gpu.1": "rw"}, "16MiB"))

    with hipplan.apply(of_size("2MiB"), runtime="sim") as layout:
        layout.fill("r[0]", 7)
        layout.sleep("a")
        layout.update(of_size("6MiB"), lose="b")
        layout.wake()
        assert [mapping["size"] for mapping in sim.ledger()["mappings"]] == [2 * MIB] * 4
        assert set(layout.read("r[0]").tobytes()) == {7}
        assert layout.drift() == []


@pytest.mark.parametrize("what", UNEQUAL)
def test_everything_changes_in_place_and_back(what: str, release: str, sim: Simulator) -> None:
    """Or is refused before the first driver call."""
    source = UNEQUAL[what]
    other = copy.deepcopy(source)
    for mapping in other["reservations"]["r"]["mappings"]:
        mapping["access"] = {"gpu.0": "rw", "gpu.1": "rw"}
    with hipplan.apply(source, runtime="sim") as layout:
        base = layout["r"].address
        for act in (
            lambda: layout.seal("r"),
            lambda: layout.unseal("r"),
            lambda: layout.update(other, lose="*"),
            lambda: layout.remap("r", keep_bytes=False),
            lambda: layout.remap("b"),
            lambda: layout.grow("r", by="2MiB"),
            lambda: layout.shrink("r", by="2MiB"),
            lambda: layout.grow("r", by="3MiB"),
            lambda: layout.update(source, lose="*"),
        ):
            try:
                act()
            except MachineError as error:
                assert error.diagnostics[0].code == "HP309"
                assert what.startswith("alike")
            assert layout.drift() == []
            assert layout["r"].address == base


REFUSED = {
    "shareable": (plan(("6MiB", None, ""), ("2MiB", None, "32MiB"), shareable="posix_fd"), "'a' is shareable"),
    "too many": (plan(("4097MiB", {"gpu.0": "rw"}, ""), ("2MiB", None, "")), "4099 pieces of 1MiB"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_impossible_rights_are_refused_with_the_release_and_a_workaround(what: str) -> None:
    source, why = REFUSED[what]
    source["reservations"]["r"]["size"] = "16GiB"
    with pytest.raises(MachineError) as caught:
        hipplan.compile(source, machine("7.2.53211", host_memory=2**40))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "HP309"
    assert "HIP 7.2.53211" in diagnostic.summary and why in diagnostic.why and "its own reservation" in diagnostic.hint
    apart = copy.deepcopy(source)
    mappings = apart["reservations"].pop("r")["mappings"]
    apart["reservations"] = {
        f"r{number}": {"mappings": [{"allocation": mapping["allocation"], "access": mapping["access"]}]}
        for number, mapping in enumerate(mappings)
    }
    hipplan.compile(apart, machine("7.2.53211"))
    hipplan.compile(source, machine("7.15.0"))


def test_memory_that_several_ranges_share_has_one_size_of_pieces(release: str) -> None:
    source = plan(("6MiB", None, ""), ("2MiB", None, "32MiB"))
    source["allocations"]["c"] = {"device": "gpu.0", "size": "6MiB"}
    source["reservations"] |= {
        "twice": {"access": {"gpu.0": "r"}, "mappings": [{"allocation": "a"}, {"allocation": "c", "access": {}}]},
        "part": {"mappings": [{"allocation": "a", "size": "3MiB", "access": {"gpu.0": "r"}}]},
    }  # fmt: skip
    with hipplan.apply(source, runtime="sim") as layout:
        assert layout.drift() == []
        layout.runtime.write(layout["r"].address, b"seen through all of them")
        for name in ("r", "twice", "part"):
            assert layout.runtime.read(layout[name].address, 24) == b"seen through all of them"


@pytest.mark.parametrize("what", ["holes", "alike"])
def test_a_change_that_fails_puts_all_rights_back(what: str, release: str, sim: Simulator) -> None:
    other = copy.deepcopy(UNEQUAL[what])
    for mapping in other["reservations"]["r"]["mappings"]:
        mapping["access"] = {"gpu.0": "r"}
    fired = nth = 1
    while fired:
        with hipplan.apply(UNEQUAL[what], runtime="sim") as layout:
            before = rights_in_force(sim)
            sim.runtime.arm_faults(f"hipMemSetAccess@{nth}=hipErrorUnknown")
            try:
                layout.update(other, lose="*")
            except ApplyError as error:
                assert error.exit_code == 4
                assert rights_in_force(sim) == before
            fired = sim.runtime.faults_fired()
            sim.runtime.arm_faults("")
            assert layout.drift() == []
        nth += 1
    assert nth > 3


def test_growing_by_an_odd_size_takes_whole_pieces_where_rights_differ(release: str) -> None:
    with hipplan.apply(UNEQUAL["unlike rights"], runtime="sim") as layout:
        layout.grow("r", by="1MiB")
        assert mapped(layout) == 14 * MIB
        assert layout.drift() == []


def mapped(layout: Layout) -> int:
    return sum(resource.size for resource in layout.program.resources if resource.kind == "mapping")


@pytest.mark.parametrize(
    ("sizes", "rights", "is_refused"),
    [
        (("2MiB", "2MiB"), ("r", "rw"), False),
        (("4MiB", "2MiB"), ("rw", "rw"), False),
        (("4MiB", "2MiB"), ("r", "rw"), True),
    ],
)
def test_mappings_of_different_sizes_have_the_same_rights_in_attached_processes(
    sizes: tuple[str, ...], rights: tuple[str, ...], is_refused: bool
) -> None:
    """An apply gives all of them the same rights, and takes them in one piece."""
    source = plan(*((size, None, "") for size in sizes))
    for mapping, right in zip(source["reservations"]["r"]["mappings"], rights, strict=True):
        mapping["attached"] = right
    program = hipplan.compile(source, machine("7.2.53211"))
    assert shape(lowered(program))["hipMemCreate"] == 2
    holdable = held.holdable(program)
    assert holdable.attached == program.attached
    if not is_refused:
        require_attachable(holdable)
        return
    with pytest.raises(MachineError) as caught:
        require_attachable(holdable)
    (error,) = caught.value.diagnostics
    assert error.code == "HP309"
    assert "in attached processes" in error.why
    require_attachable(held.holdable(hipplan.compile(source, machine("7.15.0"))))


def test_attached_makes_no_difference_for_mappings_that_no_device_may_write() -> None:
    source = plan(("4MiB", {"gpu.0": "r"}, ""), ("2MiB", {"gpu.0": "r"}, ""))
    source["reservations"]["r"]["mappings"][0]["attached"] = "rw"
    require_attachable(held.holdable(hipplan.compile(source, machine("7.2.53211"))))
