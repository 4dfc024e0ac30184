"""Which machine and library this is, without what names one device or one host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipplan.checkup.question import Bench, Question, Seen
from hipplan.machines.discover import discover
from hipplan.units import version_text

_OF_ONE: Any = {"devices": {"__all__": {"uuid", "pci", "in_use"}}, "name": True, "sources": True}
"""Fields of a machine's description that name this one."""


def _profile(bench: Bench) -> Seen:
    runtime = bench.chosen.runtime
    machine = discover(bench.chosen)
    return {
        "kind": bench.chosen.kind,
        "library": Path(runtime.path).name,
        "HIP": version_text(runtime.version),
        "driver": version_text(runtime.driver_version()),
        "machine": machine.model_dump(mode="json", exclude_none=True, exclude=_OF_ONE),
        "free": [runtime.memory_info(ordinal)[0] for ordinal in range(bench.devices)],
    }


def _left(bench: Bench) -> Seen:
    return {"free": [bench.chosen.runtime.memory_info(ordinal)[0] for ordinal in range(bench.devices)]}


QUESTIONS = (Question("machine", _profile, limit_s=60),)
AT_THE_END = (Question("free memory", _left),)
