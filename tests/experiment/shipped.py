"""The experiments in experiments/, and the calls that the programs which they follow make.

Each expectation is read from the source of such a program: the page beside the experiment has the file and the lines.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen
from tests.conftest import ROOT

FOLDER = ROOT / "experiments"
EXPERIMENTS = sorted(FOLDER.glob("*/*.experiment.yaml"))
MAKES = {
    "hipMalloc", "hipHostMalloc", "hipHostRegister", "hipMallocManaged", "hipDeviceEnablePeerAccess", "hipMemCreate",
    "hipMemAddressReserve", "hipMemMap", "hipMemSetAccess", "hipMemAdvise", "hipMemPrefetchAsync",
    "hipStreamCreateWithFlags",
}  # fmt: skip
"""The calls that make or change memory and who may use it."""
CALLS: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    (
        "multi-gpu-comm/stream-buffers",
        {"holder": "gpu.1", "links": 1},
        {"hipMalloc": 3, "hipDeviceEnablePeerAccess": 1},
    ),
    ("multi-gpu-comm/stream-buffers", {"holder": "gpu.0", "links": 0}, {"hipMalloc": 3}),
    ("comm-scope/gpu-to-gpu", {"to": "gpu.1"}, {"hipMalloc": 2}),
    ("comm-scope/gpu-to-gpu", {"to": "gpu.0"}, {"hipMalloc": 2}),
    ("comm-scope/pinned", {}, {"hipHostMalloc": 1, "hipMalloc": 1}),
    ("comm-scope/prefetch", {}, {"hipMallocManaged": 1}),
    ("comm-scope/prefetch", {"gpus": 1, "device": "gpu.0"}, {"hipMallocManaged": 1}),
    ("comm-scope/implicit-managed", {}, {"hipMallocManaged": 1, "hipMemAdvise": 2}),
    ("comm-scope/implicit-managed", {"grain": "unset_coarse_grain"}, {"hipMallocManaged": 1, "hipMemAdvise": 2}),
    ("comm-scope/implicit-mapped", {}, {"hipHostMalloc": 1}),
    ("comm-scope/implicit-peer", {}, {"hipMalloc": 1, "hipDeviceEnablePeerAccess": 1}),
    ("mi300a/allocators", {"allocator": "device"}, {"hipMalloc": 2}),
    ("mi300a/allocators", {"allocator": "pinned"}, {"hipMalloc": 1, "hipHostMalloc": 1}),
    ("mi300a/allocators", {"allocator": "managed"}, {"hipMalloc": 1, "hipMallocManaged": 1}),
]
each_plan = pytest.mark.parametrize(
    ("plan", "variables", "expected"),
    CALLS,
    ids=[" ".join([plan, *map(str, variables.values())]) for plan, variables, _ in CALLS],
)


def calls_of(plan: str, variables: dict[str, Any], chosen: Chosen, trace: Path) -> Counter[str]:
    """How often each call of MAKES reaches the library while a plan is applied."""
    program = prepare(load(FOLDER / f"{plan}.yaml", variables), chosen, None)
    chosen.runtime.trace_to(str(trace))
    try:
        layout = run(program, chosen.runtime)
    finally:
        chosen.runtime.trace_to("")
    layout.close()
    calls = Counter(json.loads(line)["call"] for line in trace.read_text().splitlines())
    return Counter({call: count for call, count in calls.items() if call in MAKES})
