"""What the caller passes with `bind`: his memory, registered, and descriptors, imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hipplan
from tests.conftest import Simulator

BASE: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 1}}}
REGISTERED = BASE | {"buffers": {"mine": {"kind": "registered", "bind": "memory"}}}


def test_a_descriptor_that_is_passed_anew_is_new_memory(sim: Simulator, tmp_path: Path) -> None:
    """Its number may be one that was closed meanwhile."""
    shared = {"size": "2MiB", "shareable": "posix_fd"}
    mapped = {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}}
    theirs = BASE | {"allocations": {"a": shared}, "reservations": mapped}
    ours = theirs | {"allocations": {"a": {**shared, "bind": "a"}}}
    with hipplan.apply(theirs, runtime="sim") as first, hipplan.apply(theirs, runtime="sim") as second:
        first.fill("r[0]", 1)
        second.fill("r[0]", 2)
        descriptor = first.export("a")
        with hipplan.apply(ours, runtime="sim", bind={"a": descriptor}) as layout:
            os.close(descriptor)
            again = second.export("a")
            assert again == descriptor
            assert not layout.update(ours)
            layout.update(ours, bind={"a": again})
            os.close(again)
            layout.save("r[0]", tmp_path / "found.bin")
            assert (tmp_path / "found.bin").read_bytes() == bytes([2]) * (2 << 20)


def test_the_same_memory_in_another_object_stays_registered(sim: Simulator) -> None:
    memory = bytearray(8192)
    with hipplan.apply(REGISTERED, runtime="sim", bind={"memory": memory}) as layout:
        assert layout.update(REGISTERED, bind={"memory": memoryview(memory)}).empty
        assert layout.drift() == []
