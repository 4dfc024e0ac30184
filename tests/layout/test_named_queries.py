"""A query that fails while a layout is read back names the object: the driver knows only an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hipplan
from hipplan import _core
from tests.conftest import Simulator

MIB = 2**20
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {"w": {"device": "gpu.0", "size": 4 * MIB, "chunk": 2 * MIB}},
    "buffers": {
        "d": {"kind": "device", "device": "gpu.0", "size": 4096},
        "m": {"kind": "managed", "size": 4096, "advice": [{"advise": "read_mostly"}]},
    },
}
ACTS: dict[str, Callable[[hipplan.Layout], Any]] = {
    "verify": lambda layout: layout.verify(),
    "drift": lambda layout: layout.drift(),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("hipMemGetAllocationPropertiesFromHandle@2", "w#1"),
        ("hipMemGetAddressRange@1", "w[0]"),
        ("hipMemGetAccess@4", "w[1]"),
        ("hipPointerGetAttributes@1", "d"),
        ("hipMemRangeGetAttribute@1", "m"),
    ],
)
def test_a_failed_query_names_the_object(call: str, name: str, act: str, sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim", answer=False) as layout:
        sim.runtime.arm_faults(f"{call}=hipErrorUnknown")
        with pytest.raises(_core.HipError, match="hipErrorUnknown") as raised:
            ACTS[act](layout)
        sim.runtime.arm_faults("")
        assert raised.value.subject.startswith(f"'{name}', the ")
        assert raised.value.subject in str(raised.value)


def test_so_does_a_change_that_is_rolled_back(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim", answer=False) as layout:
        sim.runtime.arm_faults("hipMemGetAccess@3=hipErrorUnknown")
        with pytest.raises(hipplan.ApplyError, match=r"reading back failed for 'w\[1\]', the memory at 0x"):
            layout.seal("w")
        sim.runtime.arm_faults("")
        assert layout.drift() == []
