"""A rank of mpirun: mpi_rank.py FOLDER WHAT. What became of it goes to FOLDER/RANK.json."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from mpi4py import MPI

import hipplan
from tests.conftest import ROOT, Simulator
from tests.ranks import scripts, test_agreement, test_parts

SHORT_S = 2.0


def write(sim: Simulator) -> Any:
    """Into the memory of all; then the plan of the repository, where each writes into the next one's."""
    group = hipplan.group(MPI.COMM_WORLD)
    with hipplan.apply(test_parts.PLAN, runtime="sim", group=group) as layout:
        rows = scripts.write_to_all(layout, sim)
    with hipplan.apply(ROOT / "plans" / "ranks" / "symmetric-heap.yaml", runtime="sim", group=group) as layout:
        layout.fill(layout.rank((group.rank + 1) % group.size)["heap.inbox"].name, group.rank + 1)
        layout.barrier()
        inbox = sorted(set(memoryview(scripts.read(layout, "heap.inbox")).cast("f")))
        layout.barrier()
    with hipplan.apply(ROOT / "plans" / "ranks" / "shared-weights.yaml", runtime="sim", group=group) as layout:
        weights = scripts.read(layout, "embedding.table")[:2].hex()
    return rows, inbox, weights


def parts(sim: Simulator) -> Any:
    """Over a communicator of half of the ranks, with another order."""
    world = MPI.COMM_WORLD
    group = hipplan.group(world.Split(world.rank % 2, -world.rank))
    with hipplan.apply(test_agreement.PLAN, runtime="sim", group=group) as layout:
        return group.rank, group.size, layout["part"].size


def fail(sim: Simulator) -> Any:
    """Rank 2 fails, and all go on together."""
    group, answer = hipplan.group(MPI.COMM_WORLD), []
    for faults in ("hipMemCreate@1=2", ""):
        sim.runtime.arm_faults(faults if group.rank == 2 else "")
        try:
            with hipplan.apply(test_agreement.PLAN, runtime="sim", group=group):
                answer.append("committed")
        except hipplan.HipplanError as error:
            answer.append(f"{type(error).__name__} {error.diagnostics[0].code} {error.diagnostics[0].summary}")
        assert not sim.alive()
    return answer


def many(sim: Simulator) -> Any:
    """A long message, and many calls."""
    group = hipplan.group(MPI.COMM_WORLD)
    buffers = {"b" * 200: {"kind": "pinned", "size": "$(rank)"}}
    try:
        hipplan.apply({"hipplan": 1, "ranks": {}, "buffers": buffers}, runtime="sim", group=group)
    except hipplan.HipplanError as error:
        answer = type(error).__name__
    with hipplan.apply(test_agreement.PLAN, runtime="sim", group=group) as layout:
        for _ in range(100):
            layout.barrier()
    return answer


def late(sim: Simulator) -> Any:
    """Rank 2 comes to its second call only when the others have given up."""
    group, answer = hipplan.group(MPI.COMM_WORLD), []
    with hipplan.apply(test_agreement.PLAN, runtime="sim", group=group) as layout:
        if group.rank == 2:
            MPI.COMM_WORLD.Recv(bytearray(1), 0)
        try:
            layout.barrier(SHORT_S)
        except hipplan.GroupError as error:
            answer.append(f"{error.diagnostics[0].code} {error.diagnostics[0].summary}")
        if group.rank == 0:
            MPI.COMM_WORLD.Send(b"1", 2)
    return answer


def absent(sim: Simulator) -> Any:
    """Rank 2 makes no group before the others have given up."""
    if MPI.COMM_WORLD.rank == 2:
        MPI.COMM_WORLD.Recv(bytearray(1), 0)
    group, answer = hipplan.group(MPI.COMM_WORLD), []
    try:
        if group.rank != 2:
            hipplan.apply(test_agreement.PLAN, runtime="sim", group=group, timeout=SHORT_S)
    except hipplan.GroupError as error:
        answer.append(f"{error.diagnostics[0].code} {error.diagnostics[0].why}")
    if group.rank == 0:
        MPI.COMM_WORLD.Send(b"1", 2)
    until = time.monotonic() + scripts.WAIT_S
    while group.store._joining is not None and time.monotonic() < until:
        group.store._go_on()  # Open MPI may crash in MPI_Finalize while a communicator is still being made
        time.sleep(0.001)
    return answer


def raise_later(sim: Simulator) -> Any:
    """Rank 1 raises when all have committed; the others continue, and none waits for it."""
    group = hipplan.group(MPI.COMM_WORLD)
    try:
        with hipplan.apply(test_parts.PLAN, runtime="sim", group=group) as layout:
            if group.rank == 1:
                raise RuntimeError("of the experiment")
            until = time.monotonic() + scripts.WAIT_S
            while 1 not in layout.lost and time.monotonic() < until:
                time.sleep(0.01)
            return layout.lost.get(1), set(scripts.read(layout, layout.rank(1)["heap"].name)) == {0xEE}
    except RuntimeError as error:
        return str(error)


def outlive(sim: Simulator) -> Any:
    """Wrong arguments for hipplan.group(), and a group after MPI_Finalize."""
    group, answer = hipplan.group(MPI.COMM_WORLD), []
    for call in (
        lambda: hipplan.group(MPI.COMM_NULL),
        lambda: hipplan.group(MPI.COMM_WORLD, rank=0, size=1),
    ):
        try:
            call()
        except hipplan.SettingError as error:
            answer.append(error.diagnostics[0].summary)
    with hipplan.apply(test_parts.PLAN, runtime="sim", group=group) as layout:
        MPI.Finalize()
        try:
            layout.barrier(SHORT_S)
        except hipplan.GroupError as error:
            answer.append(f"{error.diagnostics[0].why}")
    return answer


def main(folder: str, what: str) -> None:
    sim = Simulator()
    rank = MPI.COMM_WORLD.rank
    answer = globals()[what](sim)
    Path(folder, f"{rank}.json").write_text(json.dumps({"said": answer, "left": len(sim.alive())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
