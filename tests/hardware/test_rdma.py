"""Memory for network cards: made, exported as one dma-buf, and registered with NCCL or RCCL, on one GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from tests.hardware.machine import MIB, Machine

SIZE = 32 * MIB


def plan(machine: Machine) -> dict[str, Any]:
    """With memory for RDMA where the device has it; a dma-buf of any memory can be had on AMD from HIP 7.0 on."""
    rdma = machine.runtime.device_attribute(0, "rdma") == 1
    if not rdma and machine.chosen.kind != "amd":
        pytest.skip("this device has no GPUDirect RDMA with virtual memory management")
    region = {"device": "gpu.0", "size": SIZE, "rdma": rdma, "tensors": {"x": {"dtype": "f32", "shape": [SIZE // 4]}}}
    return {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"kv": region}}


def test_a_region_is_one_dma_buf(machine: Machine) -> None:
    with hipplan.apply(plan(machine), runtime=machine.wanted) as layout:
        layout.fill("kv.x", 1.5)
        try:
            exported = layout.export_dma_buf("kv")
        except hipplan.ApplyError as error:
            pytest.skip(f"no dma-buf here: {error.diagnostics[0].notes}")  # an open kernel module is needed
        if machine.chosen.kind == "amd":  # AMD's library never frees memory that had a dma-buf: docs/amd.md
            machine.slack, machine.new_descriptors = SIZE, True
        with exported:
            assert os.lseek(exported.fileno(), 0, os.SEEK_END) >= layout["kv"].size  # as the kernel knows it
            with pytest.raises(hipplan.LayoutInUse):
                layout.remap("kv")
        layout.remap("kv")
        assert (layout.read("kv.x") == 1.5).all()


@pytest.fixture
def nccl(gpu: Machine) -> Iterator[Any]:
    """NCCL's, or RCCL's, C library as PyTorch has loaded it, and a communicator of this process alone."""
    torch = pytest.importorskip("torch")
    gpu.wavers()
    gpu.new_descriptors = True
    torch.cuda.nccl.version()
    mapped = Path("/proc/self/maps").read_text().splitlines()
    name = next((line.split()[-1] for line in mapped if "libnccl" in line or "librccl" in line), None)
    if name is None:
        pytest.skip("this PyTorch has loaded neither NCCL nor RCCL")
    library = ctypes.CDLL(name)
    if not hasattr(library, "ncclCommRegister"):
        pytest.skip("this NCCL registers no user buffers")
    torch.zeros(1, device="cuda:0")
    comm = ctypes.c_void_p()
    assert library.ncclCommInitAll(ctypes.byref(comm), 1, (ctypes.c_int * 1)(0)) == 0
    yield library, comm
    assert library.ncclCommDestroy(comm) == 0


def test_a_region_is_registered_with_nccl_and_ends_before_its_memory_goes(nccl: Any, gpu: Machine) -> None:
    library, comm = nccl
    registered = ctypes.c_void_p()
    events: list[str] = []
    with hipplan.apply(plan(gpu), runtime=gpu.wanted) as layout:

        def register(_: str) -> None:
            piece = layout["kv"]
            address, size = ctypes.c_void_p(piece.address), ctypes.c_size_t(piece.size)
            assert library.ncclCommRegister(comm, address, size, ctypes.byref(registered)) == 0
            events.append("register")

        def deregister(_: str) -> None:
            assert library.ncclCommDeregister(comm, registered) == 0
            events.append("deregister")

        register("kv")
        layout.watch("kv", on_unmap=deregister, on_map=register)
        layout.fill("kv.x", 2.0)
        stream = ctypes.c_void_p(0)
        address, count = ctypes.c_void_p(layout["kv.x"].address), ctypes.c_size_t(SIZE // 4)
        f32, add = 7, 0  # ncclFloat32, ncclSum
        assert library.ncclAllReduce(address, address, count, f32, add, comm, stream) == 0
        gpu.call("hipDeviceSynchronize")
        assert (layout.read("kv.x") == 2.0).all()
        layout.sleep("kv")
        layout.wake("kv")
        layout.remap("kv")
        assert (layout.read("kv.x") == 2.0).all()
    assert events == ["register", "deregister"] * 3
