"""Names in objects that have another error: they are looked up anyway, so that one run reports both."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any

from hipplan.kinds.plans import BUFFERS
from hipplan.language.model import OTHERS, OWNER
from hipplan.language.objects import Path
from hipplan.language.resolve.devices import Devices
from hipplan.language.resolve.mappings import Mappings
from hipplan.language.resolve.names import Names

_DEVICES: list[Path] = [
    ("streams", "*", "device"),
    ("buffers", "*", "device"),
    ("peers", "*", "device"),
    ("peers", "*", "peer"),
]
_HOLDERS: list[Path] = [("regions", "*", "device")]
_LOCATIONS: list[Path] = [
    ("allocations", "*", "device"),
    *(("buffers", "*", *path) for kind in BUFFERS for path in kind.located),
]
_FAMILIES: list[Path] = [
    ("reservations", "*", "access"),
    ("reservations", "*", "mappings", "*", "access"),
    ("regions", "*", "access"),
    ("regions", "*", "devices"),
]
_ALLOCATIONS: list[Path] = [("reservations", "*", "mappings", "*", "allocation")]
_STREAMS: list[Path] = [("buffers", "*", *path) for kind in BUFFERS for path in kind.streamed]

LeftOut = Mapping[Path, Any]
"""Objects that were left out because of an error: (noun, name) -> data as written."""


def devices_named(left_out: LeftOut) -> Iterator[str]:
    """Every name of a device in the left-out objects."""
    for _, name in _texts(left_out, [*_DEVICES, *_HOLDERS, *_LOCATIONS]):
        yield name
    for _, several in _found(left_out, _FAMILIES):
        yield from _names_in(several)


def check_references(
    left_out: LeftOut, names: Names, devices: Devices, mappings: Mappings, streams: Collection[str]
) -> None:
    """HP201, HP202 and HP203 in the left-out objects."""
    for path, name in _texts(left_out, _DEVICES):
        devices.device(name, path)
    for path, name in _texts(left_out, _HOLDERS):
        devices.holder(name, path)
    for path, name in _texts(left_out, _LOCATIONS):
        devices.location(name, path)
    for path, several in _found(left_out, _FAMILIES):
        if isinstance(several, dict):
            words = (OWNER, OTHERS) if path[0] == "regions" else ()
            devices.access({name: "none" for name in _names_in(several) if name not in words}, path)
        elif isinstance(several, list) and len(list(_names_in(several))) == len(several):
            devices.several(several, path)
    for path, name in _texts(left_out, _ALLOCATIONS):
        mappings.matching(name, path[:-1])
    for path, name in _texts(left_out, _STREAMS):
        if name not in streams:
            names.missing("HP203", "streams", name, path, lambda: streams)


def _names_in(several: Any) -> Iterator[str]:
    if isinstance(several, (dict, list)):
        yield from (name for name in several if isinstance(name, str) and "$(" not in name)


def _texts(left_out: LeftOut, patterns: list[Path]) -> Iterator[tuple[Path, str]]:
    for path, value in _found(left_out, patterns):
        if isinstance(value, str) and "$(" not in value:
            yield path, value


def _found(left_out: LeftOut, patterns: list[Path]) -> Iterator[tuple[Path, Any]]:
    """(path, value) of everything that matches the patterns; * is every key of a mapping and every item of a list."""
    for path, data in left_out.items():
        for pattern in patterns:
            if pattern[0] == path[0]:
                yield from _below(data, pattern[len(path) :], path)


def _below(data: Any, pattern: Path, path: Path) -> Iterator[tuple[Path, Any]]:
    if not pattern:
        yield path, data
        return
    step, *rest = pattern
    items: Iterable[tuple[Hashable, Any]] = ()
    if isinstance(data, dict):
        items = data.items() if step == "*" else [(step, data[step])] if step in data else ()
    elif isinstance(data, list) and step == "*":
        items = enumerate(data)
    for key, value in items:
        yield from _below(value, tuple(rest), (*path, key))
