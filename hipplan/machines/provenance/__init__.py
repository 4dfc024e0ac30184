"""Where numbers come from: all of a machine that could explain them, as JSON. What cannot be read is null, with a
reason.

In: a runtime, the machine that a program was compiled for, the kernel's files. Out: `collect()`, for a record of an
apply and for results of experiments.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from hipplan import __version__
from hipplan.machines import drivers
from hipplan.machines.elf import build_id
from hipplan.machines.family import family_of
from hipplan.machines.machine import Machine
from hipplan.machines.place import System
from hipplan.machines.provenance import gpus, host, repository
from hipplan.machines.provenance.anonymous import without_names
from hipplan.machines.provenance.reading import FactReading

Facts = dict[str, Any]
_PREFIXES = (
    "AMD_",
    "CUDA_",
    "GPU_",
    "HIP_",
    "HIPPLAN_",
    "HIPSIM_",
    "HSA_",
    "NCCL_",
    "PYTORCH_",
    "RCCL_",
    "ROCM_",
    "ROCR_",
)
"""Environment variables that change what a driver or a framework does begin with one of these."""
_VALUE_MAX = 1000


def collect(
    runtime: Mapping[str, Any] | None, machine: Machine | None, *, anonymous: bool = False, place: System | None = None
) -> Facts:
    """The facts. runtime: of described(); None: there is none. machine: as it was measured before the memory was made.

    anonymous: without what names the host, its user, paths, serial numbers of devices, and the commit. Raises nothing.
    """
    place = place or System.here()
    reading = FactReading()
    facts: Facts = {
        "hipplan": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "runtime": reading.fact(
            "runtime", lambda: _runtime(runtime, place), "the plan was refused before one was opened"
        ),
        **host.facts(place, reading),
        "gpus": gpus.facts(machine, place, reading),
        "environment": _environment(place),
        "host": platform.node(),
        "folder": repository.state(os.getcwd, reading),
    }
    if anonymous:
        _anonymize(facts, reading)
    return {**facts, "unread": reading.reasons}


def kind_of(family: str, place: System) -> str:
    """simulator, amd, cuda, or "amd without a GPU": over the stand-in for its driver, whose times are not a GPU's."""
    if family == "amd" and "KFDSIM_MACHINE" in place.environ:
        return "amd without a GPU"
    return "simulator" if family == "sim" else family


def _runtime(runtime: Mapping[str, Any] | None, place: System) -> Facts | None:
    if not runtime:
        return None
    path = str(runtime["path"])
    family = family_of(path)
    return {
        "kind": kind_of(family, place),
        **runtime,
        "build_id": build_id(path),
        "kernel_driver": drivers.version_of(place, family) or None if family != "sim" else None,
    }


def _environment(place: System) -> dict[str, str]:
    return {
        name: value[:_VALUE_MAX]
        for name, value in sorted(place.environ.items())
        if name.startswith(_PREFIXES) and value.isprintable()
    }


def _anonymize(facts: Facts, reading: FactReading) -> None:
    for key in ("host", "folder"):
        facts[key] = None
        reading.reasons[key] = "anonymous"
    facts["environment"] = {
        name: "(a path)" if "/" in value else without_names(value) for name, value in facts["environment"].items()
    }
    for key, reason in reading.reasons.items():
        reading.reasons[key] = without_names(reason)
    if facts["runtime"]:
        facts["runtime"]["path"] = facts["runtime"]["path"].rpartition("/")[2]
    for gpu in facts["gpus"] or ():
        gpu["uuid"] = None
