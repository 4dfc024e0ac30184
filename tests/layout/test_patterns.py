"""Patterns of names in changes of a live layout: all objects that a pattern means are changed, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, LayoutInUse
from hipplan.layout.layout import Layout
from hipplan.program.patterns import chosen
from tests.conftest import Simulator
from tests.python_calls import instructions_of

MIB = 2**20
KV = {"device": "gpu.0", "size": "2MiB", "chunk": "2MiB", "reserve": "16MiB"}
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {"kv": {"each": 3, **KV}, "other": {"device": "gpu.1", "size": "2MiB"}},
    "allocations": {
        "part": {"device": "gpu.0", "size": "2MiB", "count": 2},
        "spare": {"device": "gpu.1", "size": "2MiB"},
        "in-host": {"device": "host", "size": "2MiB"},
    },
    "reservations": {"view": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "part.*"}]}},
    "buffers": {"staging": {"kind": "pinned", "size": "1MiB"}, "plain": {"kind": "device", "size": "1MiB"}},
}


def sizes(layout: Layout) -> list[int]:
    return [layout[f"kv.{number}"].size // MIB for number in range(3)]


def test_a_pattern_grows_and_shrinks_all_members(layout: Layout) -> None:
    changed = layout.grow("kv.*", to="6MiB")
    assert sizes(layout) == [6, 6, 6]
    assert str(changed).count("grows, 2MiB -> 6MiB") == 3
    layout.shrink("kv.*", by="2MiB")
    assert sizes(layout) == [4, 4, 4]
    assert layout["other"].size == 2 * MIB


def test_if_one_member_cannot_grow_none_does(layout: Layout) -> None:
    layout.grow("kv.1", to="14MiB")
    with pytest.raises(ApplyError, match=r"'kv\.1' cannot grow to 18MiB"):
        layout.grow("kv.*", by="4MiB")
    assert sizes(layout) == [2, 14, 2]


def test_a_view_of_one_member_keeps_all(layout: Layout) -> None:
    layout.grow("kv.*", to="4MiB")
    lease = layout["kv.2"].__dlpack__()
    with pytest.raises(LayoutInUse):
        layout.shrink("kv.*", to="2MiB")
    assert sizes(layout) == [4, 4, 4]
    del lease


def test_a_pattern_moves_all_members(layout: Layout) -> None:
    layout.remap("kv.*", device="gpu.1")
    assert {layout[f"kv.{number}"].devices for number in range(3)} == {("gpu.1",)}


def test_a_pattern_seals_and_unseals(layout: Layout) -> None:
    layout.seal("*")
    sealed = layout.program.sealed
    assert {name.partition("[")[0] for name in sealed} == {"kv.0", "kv.1", "kv.2", "other", "view"}
    layout.unseal("kv.*")
    assert {name.partition("[")[0] for name in layout.program.sealed} == {"other", "view"}
    layout.unseal("*")
    assert not layout.program.sealed


def test_a_pattern_sleeps_and_wakes(layout: Layout) -> None:
    layout.sleep("kv.*", to="drop")
    assert [*layout.asleep] == ["kv.0", "kv.1", "kv.2"]
    layout.wake("*.1")
    assert [*layout.asleep] == ["kv.0", "kv.2"]
    layout.wake("*")
    assert not layout.asleep


def test_sleep_without_names_sleeps_what_can_and_says_what(layout: Layout) -> None:
    addresses = [layout[name].address for name in ("kv.0", "other", "view")]
    done = layout.sleep(to="drop")
    assert [*layout.asleep] == ["kv.0", "kv.1", "kv.2", "other", "part.0", "part.1", "spare"]
    assert "kv.0" in str(done)
    assert "spare" in str(done)
    assert not layout.sleep(to="drop")
    layout.wake()
    assert [layout[name].address for name in ("kv.0", "other", "view")] == addresses


def test_sleep_without_names_keeps_awake_what_would_lose_its_bytes(layout: Layout) -> None:
    layout.sleep()
    assert "spare" not in layout.asleep  # it is mapped nowhere, so nothing can copy its bytes
    assert set(layout.asleep.values()) == {"host"}
    layout.wake()


def test_sleep_without_names_leaves_a_sleeping_file_alone(layout: Layout, tmp_path: Any) -> None:
    layout.sleep("other", to=tmp_path / "bytes.bin")
    layout.sleep(to="drop")
    assert layout.asleep["other"] == "file"
    layout.wake()


@pytest.mark.parametrize(
    "call",
    [
        lambda layout: layout.grow("no.*", by="2MiB"),
        lambda layout: layout.shrink("no.*", by="2MiB"),
        lambda layout: layout.remap("no.*"),
        lambda layout: layout.seal("no.*"),
        lambda layout: layout.unseal("no.*"),
        lambda layout: layout.sleep("no.*"),
        lambda layout: layout.wake("no.*"),
    ],
)
def test_a_pattern_without_members_is_refused(call: Callable[[Layout], Any], layout: Layout) -> None:
    with pytest.raises(ApplyError, match=r"HP420]: no .* is called 'no\.\*'"):
        call(layout)


def grow(layout: Layout) -> Any:
    return layout.grow("kv.*", by="2MiB")


def shrink(layout: Layout) -> Any:
    return layout.shrink("kv.*", by="2MiB")


def seal(layout: Layout) -> Any:
    return layout.seal("kv.*")


def unseal(layout: Layout) -> Any:
    return layout.unseal("kv.*")


@pytest.mark.parametrize(("before", "act"), [(shrink, grow), (grow, shrink), (unseal, seal), (seal, unseal)])
def test_each_member_costs_the_same(
    before: Callable[[Layout], Any], act: Callable[[Layout], Any], sim: Simulator
) -> None:
    """Each looked at all others: the cost was the square of their number."""
    costs = []
    for members in (20, 80):
        plan = {"hipplan": 1, "regions": {"kv": {"each": members, "size": "4MiB", "chunk": "2MiB", "reserve": "16MiB"}}}
        with hipplan.apply(plan, runtime="sim", answer=False) as layout:
            before(layout)
            costs.append(instructions_of(lambda layout=layout: act(layout)))
            assert layout.drift() == []
    assert costs[1] <= 4.4 * costs[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda layout: layout.sleep(""),
        lambda layout: layout.sleep(["kv.0", ""], to="drop"),
        lambda layout: layout.sleep("", to="mapped"),
        lambda layout: layout.wake(""),
        lambda layout: layout.grow("", by="2MiB"),
        lambda layout: layout.seal(""),
    ],
)
def test_an_empty_name_means_nothing(call: Callable[[Layout], Any], layout: Layout) -> None:
    with pytest.raises(ApplyError, match=r"there is no .*''"):
        call(layout)
    assert layout.asleep == {}


def test_the_hint_for_a_family_names_its_pattern(layout: Layout) -> None:
    with pytest.raises(ApplyError, match=r'there are: kv\.0, kv\.1, kv\.2; all of them: "kv\.\*"'):
        layout.grow("kv", by="2MiB")
    with pytest.raises(ApplyError, match=r'all of them: "kv\.\*"'):
        layout.sleep("kv")


def test_what_lies_in_an_object_that_is_meant_too_is_meant_once(layout: Layout) -> None:
    kinds = ("region", "reservation", "mapping", "allocation")
    assert set(chosen(layout.program, ["*"], *kinds)) == {"kv.0", "kv.1", "kv.2", "other", "view", "spare", "in-host"}
    assert chosen(layout.program, ["view[*", "view[0]"], *kinds) == ("view[0]", "view[1]")


@pytest.mark.parametrize("pattern", ["own", "*", "own*"])
def test_addresses_added_behind_a_reservation_are_part_of_it(pattern: str, sim: Simulator) -> None:
    """A pattern took them for reservations of their own: a shrink by one mapping freed three, and all bytes."""
    size = 2 << 20
    reservation = {"size": size, "access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}
    plan = {"hipplan": 1, "allocations": {"a": {"device": "gpu.0", "size": size}}, "reservations": {"own": reservation}}
    with hipplan.apply(plan, runtime="sim", answer=False) as layout:
        for _ in range(3):
            layout.grow("own", by=size)
        layout.fill("own[0]", 7)
        layout.shrink(pattern, by=size)
        assert sum(step.makes == "mapping" for step in layout.program.steps) == 3
        assert set(layout.read("own[0]").tolist()) == {7}
        layout.grow(pattern, by=size)
        assert sum(step.makes == "mapping" for step in layout.program.steps) == 4
        assert layout.drift() == []
