"""Environment variables that change what a layout is, or how fast it moves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hipplan.machines.doctor.report import Finding, Level
from hipplan.machines.place import System


class _Known(NamedTuple):
    level: Level
    matches: str
    """A pattern of the values that are reported."""
    summary: str
    do: str


_ON, _OFF, _ANY = r"(?i)1|2|3|true|yes|on", r"(?i)0|false|no|off", r".+"

_HIDES = "only devices that it names are there, counted from 0 in its order"
_HIDES_DO = "read ordinals in plans, and profiles of `hipplan machine`, as what it leaves; unset it to see all"

VARIABLES: dict[str, tuple[_Known, ...]] = {
    "ROCR_VISIBLE_DEVICES": (_Known("note", _ANY, _HIDES, _HIDES_DO),),
    "HIP_VISIBLE_DEVICES": (_Known("note", _ANY, _HIDES, _HIDES_DO),),
    "GPU_DEVICE_ORDINAL": (_Known("note", _ANY, _HIDES, _HIDES_DO),),
    "CUDA_VISIBLE_DEVICES": (
        _Known("warning", r"|-1|NoDevFiles", "it hides every device from CUDA", "unset it to use a GPU"),
        _Known("note", _ANY, _HIDES, _HIDES_DO),
    ),
    "HSA_XNACK": (
        _Known("note", _ON, "GPUs may fault on pages: managed memory migrates, and kernels built without xnack are "
               "slower or refused", "unset it where no plan has managed memory that migrates"),
        _Known("note", _OFF, "GPUs do not fault on pages: managed memory stays on the host, where GPUs reach it over "
               "the link", "set HSA_XNACK=1 on MI200 and MI300 for plans with `requires: {xnack: true}`"),
    ),
    "HSA_ENABLE_SDMA": (
        _Known("warning", _OFF, "copies take the GPU's compute units, so that copy and compute get in each other's way",
               "unset it"),
    ),
    "HIP_VMEM_MANAGE_SUPPORT": (
        _Known("error", _OFF, "virtual memory management is switched off: plans with reservations and regions are "
               "refused (HP304)", "unset it"),
    ),
    "HIP_HIDDEN_FREE_MEM": (
        _Known("warning", r"[1-9]\d*", "so many free MB of each device are reported as in use", "unset it"),
    ),
    "GPU_SINGLE_ALLOC_PERCENT": (
        _Known("warning", _ANY, "one allocation may only be so many percent of a device", "unset it"),
    ),
    "GPU_MAX_ALLOC_PERCENT": (
        _Known("warning", _ANY, "one allocation may only be so many percent of a device", "unset it"),
    ),
    "GPU_MAX_HEAP_SIZE": (
        _Known("warning", _ANY, "only so many percent of a device can be allocated", "unset it"),
    ),
    "HSA_OVERRIDE_GFX_VERSION": (
        _Known("warning", _ANY, "the GPU says that it is another one than it is",
               "unset it, unless you know why it is set"),
    ),
    "AMD_SERIALIZE_COPY": (
        _Known("warning", r"[1-9]\d*", "each copy is waited for: nothing overlaps", "unset it after debugging"),
    ),
    "AMD_SERIALIZE_KERNEL": (
        _Known("warning", r"[1-9]\d*", "each kernel is waited for: nothing overlaps", "unset it after debugging"),
    ),
    "HIP_LAUNCH_BLOCKING": (
        _Known("warning", _ON, "each kernel is waited for: nothing overlaps", "unset it after debugging"),
    ),
    "CUDA_LAUNCH_BLOCKING": (
        _Known("warning", _ON, "each kernel is waited for: nothing overlaps", "unset it after debugging"),
    ),
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": (
        _Known("warning", _ANY, "this process may only have so much of each device", "unset it, or plan for less"),
    ),
    "NCCL_CUMEM_ENABLE": (
        _Known("warning", _OFF, "NCCL does not register memory that a plan maps", "unset it, or set it to 1"),
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        _Known("warning", _ON, "PyTorch uses no pools, and so not layout.torch_pool either",
               "unset it after debugging"),
    ),
    "HIPPLAN_RUNTIME": (
        _Known("error", r"(?!(?:auto|amd|cuda|sim)$)(?!.*\.so$)[^/]+", "there is no such runtime",
               "set it to auto, amd, cuda, sim or the path of a HIP library, or unset it"),
        _Known("note", _ANY, "it is the runtime wherever --runtime and runtime= are left out",
               "unset it to have the first that has a device"),
    ),
    "HIPPLAN_SOCKETS": (
        _Known("error", r"[^/].*", "a holder or `hipplan verify` needs an absolute path", "set it to one, or unset it"),
        _Known("note", _ANY, "`hipplan verify` and `attach` find only processes with the same value",
               "unset it to find all processes of this user"),
    ),
    "HIPSIM_PROFILE": (
        _Known("note", _ANY, "the simulator is this machine, and not the default one", "unset it for the default"),
    ),
    "HIPSIM_FAIL": (
        _Known("warning", _ANY, "calls of the simulator are made to fail", "unset it after testing"),
    ),
}  # fmt: skip
"""Variable -> the findings for its values; the first pattern that matches counts."""

_PYTORCH = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""The three names that this setting has in different releases."""


def examined(place: System) -> Iterator[Finding]:
    """A finding for each variable that is set and matters."""
    for name, meanings in VARIABLES.items():
        value = place.environ.get(name)
        if value is None:
            continue
        for known in meanings:
            if re.fullmatch(known.matches, value.strip()):
                yield Finding(known.level, f"environment.{name}", f"{_shown(name, value)}: {known.summary}", known.do)
                break
    for name in _PYTORCH:
        yield from _pytorch(name, place.environ.get(name, ""))
    yield from _several(place)
    preloaded = place.environ.get("LD_PRELOAD", "")
    if re.search(r"hip|cuda|hsa|rocr", preloaded, re.I):
        summary = f"{_shown('LD_PRELOAD', preloaded)}: another library may answer the driver's calls"
        yield Finding("warning", "environment.LD_PRELOAD", summary, "unset it, unless you know why it is set")


def names() -> tuple[str, ...]:
    """The variables that are checked."""
    return (*VARIABLES, *_PYTORCH, "LD_PRELOAD")


def _shown(name: str, value: str) -> str:
    return f"{name}={value[:60]}" + ("..." if len(value) > 60 else "")


def _pytorch(name: str, value: str) -> Iterator[Finding]:
    topic = f"environment.{name}"
    if re.search(r"expandable_segments\s*:\s*True", value, re.I):
        yield Finding(
            "warning",
            topic,
            f"{name}: with expandable segments PyTorch's pools may not use layout.torch_pool",
            "leave expandable_segments out where you use torch_pool",
            "PyTorch maps such segments itself, not through a pool's allocator (pytorch/pytorch 147851)",
        )
    if re.search(r"backend\s*:\s*cudaMallocAsync", value, re.I):
        do = "leave the backend out where you use torch_pool"
        yield Finding("warning", topic, f"{name}: with cudaMallocAsync PyTorch has no pools for layout.torch_pool", do)
    if share := re.search(r"per_process_memory_fraction\s*:\s*([01]?\.\d+|[01])\s*(?:,|$)", value):
        summary = f"{name}: PyTorch and its cache take at most {float(share[1]):.0%} of each GPU"
        do = "let plans fit into the rest: size: fill takes what is free, and PyTorch's cache is not free"
        yield Finding("note", topic, summary, do, "hipplan cannot take memory that PyTorch's cache holds")


def _several(place: System) -> Iterator[Finding]:
    hip, cuda, rocr = (place.environ.get(f"{prefix}_VISIBLE_DEVICES", "") for prefix in ("HIP", "CUDA", "ROCR"))
    if hip and cuda and hip != cuda:
        summary = "HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES differ: HIP takes the first, CUDA the second"
        yield Finding("warning", "environment.VISIBLE_DEVICES", summary, "set one of them, or both to the same")
    if rocr and (hip or cuda):
        summary = "ROCR_VISIBLE_DEVICES is applied first: the other variable counts from 0 in what that leaves"
        yield Finding("warning", "environment.ROCR_VISIBLE_DEVICES", summary, "set one of them")
