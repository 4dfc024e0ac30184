"""Resolves regions: devices, access, names of tensors, and sizes as far as the plan alone determines them."""

from __future__ import annotations

from collections.abc import Mapping

from hipplan.language.host import is_host
from hipplan.language.model import OTHERS, OWNER, Region
from hipplan.language.objects import Path, ResolvedRegion
from hipplan.language.resolve.devices import Devices
from hipplan.language.resolve.names import Names
from hipplan.plain import counted
from hipplan.units import full_size, round_up


def resolve_region(name: str, spec: Region, path: Path, names: Names, devices: Devices) -> ResolvedRegion:
    """Resolves one region and reports its errors."""
    is_open = isinstance(spec.size, str) and spec.size != "auto"
    why = f"size: {spec.size} is a part of a GPU's memory" if is_open else ""
    if spec.devices is not None:
        holders = devices.several(spec.devices, (*path, "devices"), why)
    else:
        holders = (devices.holder(spec.device, (*path, "device"), why),)
    gpus = () if not all(map(is_host, holders)) else (devices.first,)
    if spec.sizes is not None and len(spec.sizes) != len(holders):
        summary = f"{counted(len(spec.sizes), 'size')} for {counted(len(holders), 'device')}"
        names.report("HP107", summary, (*path, "sizes"), hint="write one size for each device")
    access = _access(spec, (*(name for name in holders if not is_host(name)), *gpus), (*path, "access"), devices)
    if spec.range_size is not None and isinstance(spec.size, int) and spec.range_size < spec.size:
        names.report(
            "HP206",
            f"'{name}' maps {full_size(spec.size)}, more than it reserves",
            (*path, "reserve"),
            why=f"it reserves {full_size(spec.range_size)}",
            hint="reserve at least the mapped size",
        )
    shared = f"'{name}', {counted(len(spec.tensors), 'tensor')} for {counted(len(access), 'device')},"
    characters = sum(len(device) + len(right) for device, right in access.items())  # of each tensor, in a preview
    names.ask("characters of access", len(spec.tensors) * characters, shared, path)
    _tensors(name, spec, holders, path, names)
    if isinstance(spec.size, int) and not any(tensor.device for tensor in spec.tensors.values()):
        _check_room(name, spec, spec.size, path, names)
    return ResolvedRegion(name, spec, holders, access, path, gpus)


def check_tags(regions: Mapping[str, ResolvedRegion], names: Names) -> None:
    """HP204: two pools for PyTorch with one tag on one device."""
    taken: dict[tuple[str, str], str] = {}
    for name, region in regions.items():
        if region.spec.torch is None:
            continue
        tag, device = region.spec.torch.tag, region.devices[0]
        other = taken.setdefault((tag, device), name)
        if other != name:
            summary = f"'{other}' and '{name}' both have the tag '{tag}' on {device}"
            names.report("HP204", summary, (*region.path, "torch", "tag"), hint="give one of them another tag")


def _access(spec: Region, holders: tuple[str, ...], path: Path, devices: Devices) -> dict[str, str]:
    """Device -> right on memory of the region that another device holds."""
    if spec.access is None:
        return dict.fromkeys(holders, "rw")
    named = {name: right for name, right in spec.access.items() if name not in (OWNER, OTHERS)}
    given = devices.access(named, path)
    if OTHERS not in spec.access:
        return given
    given = given | dict.fromkeys(holders, spec.access[OTHERS])
    return given | {name: right for name, right in named.items() if name in given}


def _check_room(region: str, spec: Region, size: int, path: Path, names: Names) -> None:
    """HP212: tensors need more than the written size. Some machines round the size up, but not all."""
    end = 0
    for short, tensor in spec.tensors.items():
        start = round_up(end, tensor.step)
        end = start + tensor.bytes_least
        if end > size:
            left = full_size(max(0, size - start))
            names.report(
                "HP212",
                f"'{region}.{short}' needs {full_size(tensor.bytes_least)}, '{region}' has {left} left for it",
                (*path, "tensors", short),
                hint="make the region larger, or remove its size",
            )
            return


def _tensors(region: str, spec: Region, holders: tuple[str, ...], path: Path, names: Names) -> None:
    for short, tensor in spec.tensors.items():
        where = (*path, "tensors", short)
        names.take(f"{region}.{short}", where)
        if tensor.device is None:
            continue
        if tensor.device not in holders:
            names.missing("HP201", "devices", tensor.device, (*where, "device"), lambda: holders)
        elif spec.spread != "blocks":
            names.report(
                "HP107",
                f"'{region}.{short}' cannot be on one device of an interleaved region",
                (*where, "device"),
                hint="use spread: blocks, or remove device",
            )
