"""The kernel's drivers of GPUs: whether they are loaded, and what keeps this process from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hipplan.machines.place import System

_KFD, _NVIDIA_CONTROL = "/dev/kfd", "/dev/nvidiactl"


class Obstacle(NamedTuple):
    """Why this process cannot use a driver."""

    topic: str
    summary: str
    do: str
    """What to do about it."""


def version_of(place: System, family: str) -> str:
    """The version of the kernel's driver, or that it is unknown; empty if the driver is not loaded."""
    return _amdgpu(place) if family == "amd" else _nvidia(place)


def _amdgpu(place: System) -> str:
    if not place.path("/sys/module/amdgpu").exists() and not place.path(_KFD).exists():
        return ""
    return place.text("/sys/module/amdgpu/version") or "of this kernel"


def _nvidia(place: System) -> str:
    version_text = place.text("/proc/driver/nvidia/version")
    version = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", version_text)
    return version[1] if version else "of an unknown version" if version_text else ""


def is_here(place: System, family: str) -> bool:
    """Whether a loaded driver has its control device here. A container may see a driver of the host and no device."""
    control = _KFD if family == "amd" else _NVIDIA_CONTROL
    return bool(version_of(place, family)) and place.path(control).exists()


def obstacles(place: System, family: str) -> Iterator[Obstacle]:
    """What keeps this process from a driver that is loaded."""
    if not version_of(place, family):
        return
    if family == "amd":
        do = "add yourself to the groups render and video, and log in again"
        yield from _closed(place, "amd", (_KFD,), do)
        if not place.matches("/dev/dri", "renderD*") and place.path(_KFD).exists():
            summary = "/dev/dri has no render node, which memory is mapped through"
            yield Obstacle("driver.amd.render", summary, "give the container --device /dev/dri")
    else:
        do = "run `nvidia-modprobe -u -c 0` as root, or give the container the GPU (--gpus all)"
        yield from _closed(place, "nvidia", (_NVIDIA_CONTROL, "/dev/nvidia-uvm"), do)


def _closed(place: System, vendor: str, files: tuple[str, ...], do: str) -> Iterator[Obstacle]:
    for file in files:
        if not place.path(file).exists():
            given = f"give the container --device {file}, or load the driver" if vendor == "amd" else do
            yield Obstacle(f"driver.{vendor}.device", f"{file} is not there, though the driver is", given)
        elif not place.may_open(file):
            yield Obstacle(f"driver.{vendor}.device", f"this user may not open {file}", do)
