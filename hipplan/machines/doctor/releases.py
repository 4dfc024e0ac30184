"""Defects of known releases that may affect a plan, and how hipplan avoids them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hipplan.machines.doctor.report import Finding, Level


class _Defect(NamedTuple):
    topic: str
    first: tuple[int, ...]
    """The first release that has it."""
    behind: tuple[int, ...]
    """The first later release without it."""
    level: Level
    summary: str
    do: str
    source: str


_EVER = (99,)

AMD = (
    _Defect("sharing", (6, 1), (6, 2), "warning", "memory cannot be exported or imported",
            "use HIP 6.2 or later for `shareable: posix_fd` and for ranks", "ROCm/clr CHANGELOG"),
    _Defect("release_order", (6, 1), (6, 3), "warning",
            "memory may stay in use where it is released before it is unmapped, which hipplan does not do",
            "use HIP 6.4.2 or later where other libraries map memory too", "ROCm/clr CHANGELOG"),
    _Defect("access_takes_others", (6, 1), (6, 3), "note",
            "setting access for one device revokes that of all others: hipplan sets it in one call, and reads them "
            "back",
            "nothing, unless another library changes rights of the same memory", "ROCR-Runtime, set_access"),
    _Defect("unmap_pieces", (6, 1), (7, 0), "note",
            "unmapping several pieces at once leaves the range in use: hipplan unmaps each by itself",
            "nothing, unless another library unmaps memory", "ROCm/ROCR-Runtime 285"),
    _Defect("set_access_order", (7, 0), (7, 3), "warning",
            "rights on one of several pieces of other sizes may be refused: hipplan makes only calls that are sure, "
            "and refuses plans that would need others (HP309)",
            "give what lies in one reservation equal sizes, or use another release", "ROCm/rocm-systems 2516"),
    _Defect("copy_opens", (7, 0), _EVER, "note",
            "a copy from memory that a device may only read lets it write there, for good: hipplan copies through "
            "pinned memory instead, which takes longer",
            "do not call hipMemcpy on memory that a plan lets a device only read", "seen on AMD's library 7.2"),
    _Defect("memory_comes_late", (7, 2), (7, 12), "warning",
            "memory may come back only with its range of addresses: sleep is refused where that is so (HP440)",
            "close the layout to give memory back", "ROCm issue 6021"),
    _Defect("export_again", (7, 14), (7, 15), "note",
            "memory cannot be exported again once its first descriptor is closed: hipplan keeps one open",
            "nothing, unless other libraries export the same memory", "ROCm/rocm-systems 8440"),
    _Defect("peer_rights", (7, 14), (7, 15), "warning",
            "as others report, rights for a peer that are set after those of a mapping's own device spoil the mapping",
            "read contents back where peers have rights, or use another release", "openxla/xla 46576"),
    _Defect("descriptors_stay", (7, 14), (7, 15), "note",
            "as others report, descriptors of virtual memory stay open after it is freed",
            "raise `ulimit -n` for processes that make many layouts", "pytorch/pytorch 192814"),
    _Defect("fresh_memory", (6, 1), _EVER, "note",
            "as others report, new memory may hold other bytes than zeros, or read as zeros for milliseconds after "
            "it is written",
            "give a plan contents where its first bytes count", "vllm 44972, ROCm/rocm-systems 11693"),
    _Defect("host_access_to_imports", (7, 15), _EVER, "note",
            "the host gets no access to imported memory",
            "leave `host` out of the access of what is imported", "ROCm/rocm-systems 11185"),
)  # fmt: skip


def examined(family: str, version: tuple[int, ...]) -> Iterator[Finding]:
    """A finding for each known defect of this version."""
    if family != "amd":
        return
    release = ".".join(map(str, version[:2]))
    for defect in AMD:
        if defect.first <= version < defect.behind:
            summary = f"HIP {release}: {defect.summary}"
            yield Finding(defect.level, f"release.{defect.topic}", summary, defect.do, defect.source)
