"""Memory that hipMemCreate makes on the host, on AMD's own library: who may use it, what the CPU's rights are, and that
other processes can map it. hipplan's moves there and back are in tests/hardware."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from ctypes import byref, c_int, c_ulonglong, c_void_p
from pathlib import Path

import pytest

from tests.conformance.hip import (
    DEVICE,
    HOST,
    INVALID_VALUE,
    NONE,
    PIECE,
    POSIX_FD,
    READ,
    READ_WRITE,
    SUCCESS,
    AccessDesc,
    AllocationProp,
    Hip,
    Location,
    access,
    prop,
)

HOST_NUMA, HOST_NUMA_CURRENT = 3, 4
CPU_MAY = access(0, READ_WRITE, HOST)


@pytest.fixture
def hip(release: str) -> Hip:
    return Hip(os.environ["HIPPLAN_RUNTIME"])


@pytest.fixture
def tier(hip: Hip, release: str) -> Hip:
    if release == "6.4":
        pytest.skip("6.4 has no memory on the host")
    return hip


def created(hip: Hip, properties: AllocationProp) -> tuple[int, int]:
    """The code, and the handle."""
    handle = c_void_p()
    code = hip.hipMemCreate(byref(handle), PIECE, byref(properties), 0)
    return code, int(handle.value or 0)


def set_access(hip: Hip, address: int, size: int, *given: AccessDesc) -> int:
    return hip.hipMemSetAccess(address, size, (AccessDesc * len(given))(*given), len(given))


def get_access(hip: Hip, address: int, location: int, number: int = 0) -> tuple[int, int]:
    flags = c_ulonglong(99)
    return hip.hipMemGetAccess(byref(flags), byref(Location(location, number)), address), flags.value


@pytest.fixture
def chunks(tier: Hip) -> Iterator[int]:
    """The address of a piece on the host, and behind it one on the first GPU."""
    with (
        tier.reservation(4 * PIECE) as base,
        tier.allocation(PIECE, prop(0, location=HOST)) as there,
        tier.allocation(PIECE, prop(0)) as here,
        tier.mapping(base, PIECE, there, access(0)),
        tier.mapping(base + PIECE, PIECE, here, access(0)),
    ):
        yield base


@pytest.mark.parametrize("location", [HOST, HOST_NUMA, HOST_NUMA_CURRENT])
def test_only_7_2_makes_it_and_on_no_chosen_node(hip: Hip, release: str, location: int) -> None:
    code, handle = created(hip, prop(0, location=location))
    assert code == (SUCCESS if release == "7.2" and location == HOST else INVALID_VALUE)
    if code == SUCCESS:
        assert hip.hipMemRelease(handle) == SUCCESS


def test_every_gpu_may_use_it_linked_or_not(chunks: int, tier: Hip) -> None:
    """The third GPU of the stand-in has no link to the others."""
    assert tier.devices == 3
    assert set_access(tier, chunks, PIECE, access(0), access(1, READ), access(2)) == SUCCESS
    assert [get_access(tier, chunks, DEVICE, device) for device in range(3)] == [(0, 3), (0, 1), (0, 3)]
    data = bytes(range(256)) * 16
    for device in (0, 2):
        tier.hipSetDevice(device)
        assert (tier.write(chunks, data), tier.read(chunks, len(data))) == (SUCCESS, data)
    tier.hipSetDevice(0)


def test_rights_of_the_cpu_are_taken_everywhere_and_cannot_be_read_back(chunks: int, tier: Hip) -> None:
    """CUDA refuses them on a GPU's chunk and on a mixed range."""
    assert set_access(tier, chunks, PIECE, CPU_MAY) == SUCCESS
    assert set_access(tier, chunks + PIECE, PIECE, CPU_MAY) == SUCCESS
    assert set_access(tier, chunks, 2 * PIECE, access(0), CPU_MAY) == SUCCESS
    assert [get_access(tier, chunks + at, HOST)[0] for at in (0, PIECE)] == [INVALID_VALUE] * 2
    assert tier.write(chunks, b"by the GPU") == SUCCESS
    assert ctypes.string_at(chunks, 10) == b"by the GPU"
    ctypes.memmove(chunks, b"by the CPU", 10)
    assert tier.read(chunks, 10) == b"by the CPU"
    assert set_access(tier, chunks, PIECE, access(1, NONE)) == SUCCESS
    assert get_access(tier, chunks, DEVICE, 1) == (SUCCESS, NONE)


def test_a_descriptor_of_it_is_imported_and_mapped(chunks: int, tier: Hip) -> None:
    code, handle = created(tier, prop(0, location=HOST, handle=POSIX_FD))
    assert code == SUCCESS
    descriptor, imported = c_int(-1), c_void_p()
    assert tier.hipMemExportToShareableHandle(byref(descriptor), handle, POSIX_FD, 0) == SUCCESS
    assert tier.hipMemImportFromShareableHandle(byref(imported), descriptor.value, POSIX_FD) == SUCCESS
    with tier.mapping(chunks + 2 * PIECE, PIECE, handle, access(0)):
        assert tier.write(chunks + 2 * PIECE, b"shared") == SUCCESS
        with tier.mapping(chunks + 3 * PIECE, PIECE, int(imported.value or 0), access(1), CPU_MAY):
            assert ctypes.string_at(chunks + 3 * PIECE, 6) == b"shared"
    os.close(descriptor.value)
    for each in (imported.value, handle):
        assert tier.hipMemRelease(each) == SUCCESS


PLAN = """hipplan: 1
devices: {gpu: {count: 2}}
regions:
  model: {devices: [gpu.0, host], sizes: [2MiB, 4MiB], chunk: 2MiB, access: {gpu.*: rw}, attached: rw}
contents: {model: {value: 7}}
"""
ATTACHES = """
import sys, hipplan
with hipplan.attach("w", answer=False) as layout:
    print(layout["model"].address, *sorted({*layout.read("model").tolist()}), layout.drift())
    layout.fill("model", int(sys.argv[1]))
"""


def test_a_holder_of_it_is_attached_by_other_processes(release: str, tmp_path: Path) -> None:
    (plan := tmp_path / "plan.yaml").write_text(PLAN)
    environment = os.environ | {"HIPPLAN_SOCKETS": str(tmp_path / "holders")}

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, *arguments]
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)

    up = ran("-m", "hipplan", "up", str(plan), "--name", "w", "--quiet")
    if release == "6.4":
        assert up.returncode == 3 and "HP309" in up.stderr
        return
    assert up.returncode == 0, up.stderr
    try:
        seen = [ran("-c", ATTACHES, str(value)) for value in (8, 9, 10)]
    finally:
        down = ran("-m", "hipplan", "down", "w", "--wait", "--quiet")
    assert [each.returncode for each in (*seen, down)] == [0] * 4, [each.stderr for each in (*seen, down)]
    lines = [each.stdout.split(maxsplit=1) for each in seen]
    assert len({address for address, _ in lines}) == 1
    assert [rest for _, rest in lines] == ["7 []\n", "8 []\n", "9 []\n"]
