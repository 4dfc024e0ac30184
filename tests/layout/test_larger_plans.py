"""plans/MACHINE/*.yaml: plans for the machine their folder is named after, applied on the simulator as that machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipplan.errors import ApplyError
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.lowering.compiler import compile  # noqa: A004
from hipplan.machines.profiles import load_machine
from hipplan.machines.runtimes import choose
from hipplan.program.program import Program
from tests.conftest import ROOT, Simulator

LARGER = sorted(set((ROOT / "plans").glob("*/*.yaml")) - set((ROOT / "plans/ranks").iterdir()))

every_plan = pytest.mark.parametrize("plan", LARGER, ids=lambda path: f"{path.parent.name}-{path.stem}")


@every_plan
def test_it_is_applied_verified_and_freed(plan: Path, sim: Simulator) -> None:
    machine = load_machine(plan.parent.name)
    chosen = choose("sim", machine)
    layout = run(prepare(load(plan), chosen, machine), chosen.runtime)
    undone = layout.close()

    assert undone.leaks == ()
    assert layout.checks


@every_plan
def test_a_call_that_fails_leaves_nothing(plan: Path, sim: Simulator) -> None:
    machine = load_machine(plan.parent.name)
    chosen = choose("sim", machine)
    program = prepare(load(plan), chosen, machine)
    calls = len(program.steps)
    for n in range(1, calls + 1, max(1, calls // 50)):
        sim.runtime.arm_faults(f"*@{n}=hipErrorOutOfMemory")
        try:
            run(program, chosen.runtime).close()
        except ApplyError as error:
            assert error.leaks == ()

        assert sim.runtime.faults_fired() == 1
        assert sim.alive() == set()


def llama(**variables: int) -> Program:
    machine = load_machine("mi300x-8")
    return compile(load(ROOT / "plans" / "mi300x-8" / "llama-3-70b.yaml", variables), machine)


@pytest.mark.parametrize("ranks", [1, 4, 8])
def test_llama_has_all_its_tensors_and_bytes(ranks: int) -> None:
    """723 tensors, 141,107,412,992 bytes; the norms are on every rank."""
    tensors = [
        resource
        for resource in llama(tp=ranks).resources
        if resource.kind == "tensor" and resource.inside.startswith("rank")
    ]
    norms = sum(tensor.size for tensor in tensors if "norm" in tensor.name and tensor.inside == "rank.0")

    assert len(tensors) == 723 * ranks
    assert norms == (2 * 80 + 1) * 8192 * 2
    assert sum(tensor.size for tensor in tensors) == 141_107_412_992 + (ranks - 1) * norms
    assert {tensor.shape for tensor in tensors if tensor.name.endswith("79.mlp.down_proj.weight")} == {
        (8192, 28672 // ranks)
    }


def test_llama_wastes_a_hundredth_at_most_and_takes_a_handle_a_rank() -> None:
    program = llama(tp=4)
    ranks = [
        resource for resource in program.resources if resource.kind == "region" and resource.name.startswith("rank")
    ]

    assert sum(rank.size for rank in ranks) / 141_107_412_992 <= 1.01
    assert sum(step.call == "hipMemCreate" for step in program.steps) == 4 + 4 * 16
