"""Plans for ranks: each reads its own part of the same document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import hipplan
from hipplan.kinds.mapping.live import Map
from hipplan.language.loader import examine
from hipplan.lowering.compiler import compile_change
from hipplan.program.steps import Step
from hipplan.ranks.all_ranks import AllRanks, ranks_of

MIB = 2**20


def load(text: str, rank: int = 0, ranks: int = 4, per_node: int = 2, **more: Any) -> hipplan.LoadedPlan:
    place = hipplan.Rank(rank=rank, ranks=ranks, local_rank=rank % per_node, node=rank // per_node)
    return hipplan.load("hipplan: 1\n" + text, rank=place, **more)


def codes(text: str, rank: int = 0, ranks: int = 4) -> list[str]:
    place = hipplan.Rank(rank=rank, ranks=ranks, local_rank=rank % 2, node=rank // 2)
    try:
        return [item.code for item in examine("hipplan: 1\n" + text, rank=place)[1]]
    except hipplan.PlanError as error:
        return [diagnostic.code for diagnostic in error.diagnostics]


def test_each_rank_has_its_own_values() -> None:
    text = "ranks: {}\nbuffers: {b: {kind: pinned, size: $(1000 * rank + 100 * ranks + 10 * local_rank + node + 1)}}"
    assert [load(text, rank).objects.buffers["b"].spec.size for rank in range(4)] == [401, 1411, 2402, 3412]


def test_without_a_group_a_process_is_the_only_rank() -> None:
    plan = hipplan.load("hipplan: 1\nranks: {}\nbuffers: {b: {kind: pinned, size: $(ranks * 4096 + rank)}}")
    assert plan.objects.buffers["b"].spec.size == 4096


@pytest.mark.parametrize(
    ("rank", "made"),
    [(0, {"all", "zero", "first"}), (1, {"all"}), (2, {"all", "first"}), (3, {"all", "three"})],
)
def test_what_one_rank_makes_is_its_alone(rank: int, made: set[str]) -> None:
    plan = load(
        """ranks: {}
buffers:
  all: {kind: pinned, size: 1MiB}
  zero: {kind: pinned, size: 1MiB, rank: 0}
  first: {kind: device, size: 1MiB, rank: first_of_node}
  three: {kind: managed, size: 1MiB, rank: 3}
contents: {zero: {value: 1}, all: {value: 2}, three: {value: 3}}
""",
        rank,
    )
    assert {*plan.objects.buffers} == made
    assert plan.objects.contents.keys() == made & {"zero", "all", "three"}


def test_the_digest_of_all_is_that_of_the_document_and_its_variables() -> None:
    text = "ranks: {}\nvars: {n: 1}\nbuffers: {b: {kind: pinned, size: $(n * 4096 + rank)}}"
    first, second = load(text, 0), load(text, 1)
    assert first.digest != second.digest
    assert first.digest_of_all == second.digest_of_all
    assert first.digest_of_all != load(text, 0, vars={"n": 2}).digest_of_all
    assert first.digest_of_all != load(text.replace("4096", "8192"), 0).digest_of_all


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ranks: {count: 4, per_node: 2}", []),
        ("ranks: {count: 8}", ["HP215"]),
        ("ranks: {count: 0}", ["HP105"]),
        ("ranks: {per_node: x}", ["HP103"]),
        ("ranks: 4", ["HP103"]),
        ("ranks: {nodes: 2}", ["HP101"]),
        ("ranks: {}\nbuffers: {b: {kind: pinned, size: 1MiB, rank: 4}}", ["HP215"]),
        ("ranks: {}\nbuffers: {b: {kind: pinned, size: 1MiB, rank: -1}}", ["HP104"]),
        ("ranks: {}\nbuffers: {b: {kind: pinned, size: 1MiB, rank: last}}", ["HP104"]),
        ("buffers: {b: {kind: pinned, size: 1MiB, rank: 0}}", ["HP107"]),
        ("regions: {r: {size: 2MiB, map: {ranks: node}}}", ["HP107"]),
        ("ranks: {}\nregions: {r: {size: 2MiB, map: {ranks: all}}}", ["HP104"]),
        ("ranks: {}\nregions: {r: {size: 2MiB, map: {ranks: node, access: none}}}", ["HP104"]),
        ("ranks: {}\nregions: {r: {size: 2MiB, addresses: symmetric}}", ["HP107"]),
        ("ranks: {}\nregions: {r: {size: 2MiB, seal: true, map: {ranks: node, access: rw}}}", ["HP107"]),
        ("ranks: {}\nvars: {rank: 0}\nbuffers: {b: {kind: pinned, size: $(rank + 1)}}", ["HP106"]),
        ("buffers: {b: {kind: pinned, size: $(rank + 1)}}", ["HP021"]),
        (
            "ranks: {}\nallocations: {a: {size: 2MiB, rank: 1}}\nreservations: {v: {mappings: [{allocation: a}]}}",
            ["HP202"],
        ),
        ("ranks: {}\nbuffers: {b: {kind: pinned, size: 1MiB}}\ncontents: {c: {value: 1}}", ["HP213"]),
    ],
)
def test_mistakes_have_their_codes(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_a_node_with_more_ranks_than_the_plan_is_for_is_refused() -> None:
    assert codes("ranks: {per_node: 1}", rank=1) == ["HP215"]
    assert codes("ranks: {per_node: 1}", rank=2) == []


def test_a_name_that_another_rank_has_is_explained() -> None:
    managed = "{kind: managed, size: 1MiB, prefetch: [{to: gpu.0, stream: s}]}"
    text = f"ranks: {{}}\nstreams: {{s: {{rank: 1}}}}\nbuffers: {{m: {managed}}}"
    with pytest.raises(hipplan.PlanError, match="only rank 1 makes 's'"):
        load(text, 0)
    load(text.replace("kind: managed", "rank: 1, kind: managed"), 0)


def test_a_variable_of_ranks_is_explained_where_the_plan_has_none() -> None:
    with pytest.raises(hipplan.PlanError, match=r"add ranks: \{\}"):
        hipplan.load("hipplan: 1\nbuffers: {b: {kind: pinned, size: $(local_rank)}}")


SHARED = """ranks: {per_node: 2}
devices: {gpu: {ordinal: $(local_rank)}}
regions:
  heap: {device: gpu, size: $((rank + 1) * 4MiB), chunk: 4MiB, map: {ranks: node, access: rw}, addresses: symmetric}
  weights: {device: gpu, rank: first_of_node, size: 6MiB, map: {ranks: node}, seal: true}
"""


def ranks_of_plan(text: str = SHARED, machine: str = "sim-2", ranks: int = 4) -> AllRanks:
    first = load(text, 0, ranks)

    def read(rank: hipplan.Rank) -> hipplan.LoadedPlan:
        return hipplan.load("hipplan: 1\n" + text, rank=rank)

    return AllRanks(ranks_of(first, ranks), read, hipplan.machine(machine))


def test_a_rank_maps_what_the_ranks_of_its_node_make() -> None:
    programs = [ranks_of_plan().whole(rank) for rank in range(4)]
    assert [program.parts for program in programs] == [
        {"heap@1": 1}, {"heap@0": 0, "weights": 0}, {"heap@3": 3}, {"heap@2": 2, "weights": 2}
    ]  # fmt: skip
    assert [{name: program.regions[name].mapped // MIB for name in program.parts} for program in programs] == [
        {"heap@1": 8}, {"heap@0": 4, "weights": 6}, {"heap@3": 16}, {"heap@2": 12, "weights": 6}
    ]  # fmt: skip
    access = {resource.name: dict(resource.access) for resource in programs[1].resources if resource.kind == "region"}
    assert access == {
        "heap": {"gpu": "rw"},
        "heap@0": {"gpu@0": "rw", "gpu": "rw"},
        "weights": {"gpu@0": "r", "gpu": "r"},
    }


def test_an_own_program_is_what_is_left_without_the_others() -> None:
    ranks = ranks_of_plan()
    whole = ranks.whole(1)
    assert ranks.meet(1, whole) == whole
    assert whole != ranks.own(1)


def test_devices_without_a_link_cannot_map_each_other() -> None:
    with pytest.raises(hipplan.MachineError) as caught:
        ranks_of_plan(machine="sim-2-unlinked").whole(0)
    assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"HP307"}
    assert caught.value.diagnostics[0].span is not None


def test_ranks_on_one_device_are_added_up() -> None:
    memory = int(hipplan.machine("sim-2").devices[0].memory or 0)
    text = (
        SHARED.replace("$(local_rank)", "0")
        .replace("size: 6MiB", f"size: {memory * 7 // 10}")
        .replace("$((rank + 1) * 4MiB), chunk: 4MiB", f"{memory // 5}")
    )
    with pytest.raises(hipplan.MachineError, match="the ranks 0, 1 together"):
        ranks_of_plan(text).whole(0)


def test_what_is_left_out_of_ranks_is_no_plan_for_ranks() -> None:
    assert codes("ranks:\nbuffers: {b: {kind: pinned, size: $(rank + 1)}}") == ["HP021"]
    assert codes("ranks: null\nvars: {rank: 3}\nbuffers: {b: {kind: pinned, size: $(rank)}}") == []


def test_a_copy_of_what_another_rank_has_is_explained() -> None:
    text = """ranks: {}
regions: {r: {rank: 0, size: 2MiB, tensors: {t: {dtype: f32, shape: [4]}}}}
buffers: {a: {kind: device, size: 16}, b: {kind: device, size: 16, rank: 0}}
contents: {COPY: {copy_of: r.t}}
"""
    load(text.replace("COPY", "b"), 0)
    load(text.replace("COPY", "b"), 1)
    load(text.replace("COPY", "a"), 0)
    with pytest.raises(hipplan.PlanError, match=r"only rank 0 makes 'r\.t': give its copies the same rank:"):
        load(text.replace("COPY", "a"), 1)


@pytest.mark.parametrize(
    ("region", "said"),
    [
        (
            "heap: {rank: $(rank), device: gpu, size: 2MiB",
            "rank 1 makes 'heap' for others to map, but rank 0 makes it too",
        ),
        (
            "heap$(rank): {device: gpu, size: 2MiB",
            "rank 1 makes 'heap1' for others to map, but rank 0 has no such region",
        ),
    ],
)
def test_regions_that_others_map_have_one_name_and_rank_in_all(region: str, said: str) -> None:
    text = f"ranks: {{}}\ndevices: {{gpu: {{ordinal: $(local_rank)}}}}\nregions: {{{region}, map: {{ranks: node}}}}}}\n"
    with pytest.raises(hipplan.MachineError, match=said):
        ranks_of_plan(text, ranks=2).whole(0)


@pytest.mark.parametrize("release", ["6.4.0", "7.1.0"])
def test_each_step_comes_after_what_it_needs_whatever_the_names(release: str) -> None:
    """With ten ranks and more the order of names is not that of numbers. HIP 7.1 gives a range its rights in one call
    where its chunks are not alike."""
    text = """ranks: {}
devices: {gpu: {ordinal: $(local_rank % 2)}}
regions:
  z: {device: gpu, size: SIZE, chunk: 4MiB, reserve: 32MiB, map: {ranks: node, access: rw}, addresses: symmetric}
  a: {device: gpu, size: SIZE, chunk: 4MiB, reserve: 32MiB, map: {ranks: node, access: rw}}
"""
    small, large = (ranks_of_plan(text.replace("SIZE", size), ranks=12) for size in ("6MiB", "14MiB"))
    for ranks in (small, large):
        ranks.machine = ranks.machine.model_copy(update={"hip_version": release})
    for rank in range(12):
        old = small.whole(rank)
        require_order((), old.steps)
        change = compile_change(old, large.load(large.ranks[rank]), large.machine, meet=large.meeting(rank))
        assert sum(isinstance(step, Map) for step in change.additions) == 12 * 2 * 2
        require_order(old.steps, change.additions)


def require_order(before: Sequence[Step], made: Sequence[Step]) -> None:
    ready = {step.name for step in before}
    for step in made:
        if isinstance(step, Map):
            assert {step.reservation, step.allocation} <= ready, step
        elif not step.makes:
            assert step.name in ready, step
        ready.add(step.name)
