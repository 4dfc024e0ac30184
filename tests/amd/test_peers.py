"""Peer links on AMD's own library: 7.2 opens mappings with them. hipplan closes its own again, and spares others."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.layout.layout import Layout
from tests.conformance.hip import Hip

TIMES = 3 if "HIPPLAN_QUICK" in os.environ else 100
BASE: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 2}}}
MAPPED: dict[str, Any] = BASE | {
    "name": "mapped",
    "allocations": {"long": {"device": "gpu.0", "size": "4MiB"}, "short": {"device": "gpu.0", "size": "2MiB"}},
    "reservations": {
        "uneven": {
            "access": {"gpu.0": "rw", "gpu.1": "r"},
            "mappings": [{"allocation": "long"}, {"allocation": "short"}],
        }
    },
    "regions": {
        "own": {"device": "gpu.0", "size": "8MiB", "chunk": "2MiB", "access": {"gpu.0": "rw"}},
        "read": {"device": "gpu.1", "size": "2MiB", "access": {"gpu.0": "r", "gpu.1": "r"}},
        "sealed": {"device": "gpu.1", "size": "2MiB", "access": {"gpu.*": "rw"}, "seal": True},
    },
    "contents": {"sealed": {"value": 7}},
}
LINKED = MAPPED | {"peers": "all"}


@pytest.fixture(scope="module")
def runtime(release: str) -> str:
    return os.environ["HIPPLAN_RUNTIME"]


def rights(layout: Layout) -> dict[str, tuple[int, int]]:
    """Of the two devices, on each mapping or the first one of a region."""
    places = {name: layout[name].address for name in ("uneven[0]", "uneven[1]", "own", "read", "sealed")}
    return {name: (layout.runtime.access(0, at), layout.runtime.access(1, at)) for name, at in places.items()}


def test_a_link_opens_a_mapping_on_7_2(release: str, runtime: str) -> None:
    """What the rest of these tests is about."""
    hip = Hip(runtime)
    with hipplan.apply(MAPPED, runtime=runtime) as layout:
        before = rights(layout)
        for device in (0, 1):
            hip.hipSetDevice(device)
            assert hip.hipDeviceEnablePeerAccess(1 - device, 0) == 0
            assert hip.hipDeviceDisablePeerAccess(1 - device) == 0
        hip.hipSetDevice(0)
        now = rights(layout)
        assert bool(layout.drift()) == (release == "7.2")
        assert now == before if release == "6.4" else [now["own"][1], now["uneven[1]"][1], now["read"][0]] == [3, 3, 3]


def test_an_update_that_adds_links_keeps_every_right_each_time(
    release: str, runtime: str, record_property: Callable[[str, object], None]
) -> None:
    for _ in range(TIMES):
        with hipplan.apply(MAPPED, runtime=runtime) as layout:
            before = rights(layout)
            layout.update(LINKED)
            assert rights(layout) == before
            assert layout.drift() == []
    record_property("updates with links", TIMES)


def test_an_update_that_fails_behind_its_links_leaves_every_right_each_time(
    release: str, runtime: str, record_property: Callable[[str, object], None]
) -> None:
    class Stop(Exception):
        pass

    def stop(number: int, step: Any) -> None:
        if step.call == "hipMalloc":
            raise Stop

    more = LINKED | {"buffers": {"b": {"kind": "device", "device": "gpu.0", "size": "1MiB"}}}
    with hipplan.apply(MAPPED, runtime=runtime) as layout:
        before = rights(layout)
        for _ in range(TIMES):
            with pytest.raises(Stop):
                layout.update(more, on_step=stop)
            assert rights(layout) == before
    record_property("updates with links rolled back", TIMES)


def test_links_of_a_second_layout_never_open_the_first_one_s_memory(
    release: str, runtime: str, record_property: Callable[[str, object], None]
) -> None:
    refused = pytest.raises(ApplyError, match=r"HP424.*would open '.*' of the layout 'mapped'")
    for _ in range(TIMES):
        with hipplan.apply(MAPPED, runtime=runtime) as first:
            with refused if release == "7.2" else nullcontext():
                hipplan.apply(BASE | {"peers": "all"}, runtime=runtime).close()
            assert first.drift() == []
        with hipplan.apply(LINKED, runtime=runtime) as first, hipplan.apply(LINKED, runtime=runtime) as second:
            first.close()
            second.remap("own")
            with hipplan.apply(BASE | {"peers": "all"}, runtime=runtime):
                assert second.drift() == []
    record_property("layouts beside others with links", TIMES)
