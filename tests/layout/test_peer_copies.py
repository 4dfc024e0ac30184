"""A peer copy is waited for on both GPUs: AMD's 6.4 may return before it is done, and one of them runs it.

tests/amd/test_copies.py copies on AMD's own library. A copy of the simulator is done when it returns: here the calls
tell what is waited for.
"""

from __future__ import annotations

import itertools
import json
from ctypes import c_int
from pathlib import Path
from typing import Any

import pytest

from hipplan.machines.machine import Machine, sim_profile
from tests.conformance.hip import Hip, access
from tests.conftest import Simulator

SIZE = 2 * 2**20
LINKED: dict[str, Any] = {
    "name": "three-linked",
    "devices": [{"name": "GPU", "arch": "gfx942", "memory": "16GiB", "vmm": True}] * 3,
    "meshes": [{"devices": [0, 1, 2], "type": "xgmi", "hops": 1}],
}


@pytest.mark.parametrize("release", ["6.4.43484", "7.2.53211"])
@pytest.mark.parametrize(("source", "to", "current"), [*itertools.product((0, 1), (0, 1), (0, 1, 2))])
def test_it_is_waited_for_on_both_gpus_whichever_is_current(
    source: int, to: int, current: int, release: str, sim: Simulator, tmp_path: Path
) -> None:
    """gpu.2 has no right on the memory; on 7.x the current GPU takes part in a copy."""
    sim.runtime.configure(sim_profile(Machine.model_validate(LINKED | {"hip_version": release})))
    hip, rights = Hip(sim.runtime.path), [access(device) for device in {source, to}]
    with hip.mapped(SIZE, *rights, device=source) as old, hip.mapped(SIZE, *rights, device=to) as new:
        sim.fill(old, 7, SIZE)
        hip.hipSetDevice(current)
        sim.runtime.trace_to(str(tmp_path / "trace"))
        try:
            sim.runtime.copy_peer(new, to, old, source, SIZE)
        finally:
            sim.runtime.trace_to("")
        assert hip.get("hipGetDevice", c_int) == current
        assert set(sim.read(new, SIZE)) == {7}
    hip.hipSetDevice(0)

    where, waited = current, []
    for line in (tmp_path / "trace").read_text().splitlines():
        call = json.loads(line)
        if call["call"] == "hipSetDevice":
            where = call["args"]["device"]
        elif call["call"] in ("hipMemcpyPeer", "hipStreamSynchronize"):
            waited.append((call["call"], where))
    copied, *waits = waited
    assert copied == ("hipMemcpyPeer", source)
    assert waits == [("hipStreamSynchronize", device) for device in dict.fromkeys((source, to))]
