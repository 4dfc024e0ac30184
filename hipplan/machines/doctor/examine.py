"""The whole examination of a machine, as a DoctorReport."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hipplan.machines import drivers
from hipplan.machines.doctor import devices, libraries, system, variables
from hipplan.machines.doctor.asking import RuntimeAnswer, ask
from hipplan.machines.doctor.libraries import LibraryFile
from hipplan.machines.doctor.report import LEVELS, DoctorReport, Finding
from hipplan.machines.place import System

Ask = Callable[[str], RuntimeAnswer]

FAMILIES = ("amd", "cuda")
_VENDOR = {"amd": "AMD", "cuda": "NVIDIA"}


def examine(
    place: System | None = None,
    asked: Ask = ask,
    only: str | None = None,
    packages: Mapping[str, str] | None = None,
) -> DoctorReport:
    """Examine the machine.

    only: amd or cuda; it is an error if that does not work. asked, packages: how to query a driver, and the folders of
    packages with libraries; tests replace them.
    """
    place = place or System.here()
    copies_found = libraries.copies(place, packages)
    findings = [*system.examined(place), *libraries.examined(place, copies_found), *variables.examined(place)]
    facts: dict[str, Any] = {
        "system": system.facts(place),
        "libraries": [copy._asdict() for copy in copies_found],
        "environment": place.set_variables(variables.names()),
        "runtimes": {},
    }
    is_pure = importlib.util.find_spec("hipplan._core") is None
    for family in FAMILIES if only is None else (only,):
        if only is None and (is_pure or not _is_there(place, family, copies_found)):
            continue
        answer = asked(family)
        if answer.machine is None:
            facts["runtimes"][family] = {"problem": answer.summary}
            findings += _refused(place, family, answer, is_wanted=only is not None)
        else:
            facts["runtimes"][family] = {**answer.runtime, "machine": answer.machine.model_dump(exclude_none=True)}
            findings += devices.examined(place, answer.machine)
    if is_pure:
        findings.append(_PURE)
    elif not facts["runtimes"]:
        findings.append(_NOTHING)
    return DoctorReport(facts, sorted(findings, key=lambda finding: LEVELS.index(finding.level)))


_NOTHING = Finding(
    "note",
    "runtime.none",
    "this machine has no GPU that HIP or CUDA could use: plans are checked, and applied on the simulator",
    "to apply plans on a GPU, install the driver, and ROCm for AMD; in a container, pass the GPU in",
)


_PURE = Finding(
    "warning",
    "hipplan.compiled",
    "this is the pure-Python hipplan: it checks plans, and cannot apply one",
    "install a wheel for this Python and platform, or `pip install .` in the source folder with a C++ compiler at hand",
)


def _is_there(place: System, family: str, copies: list[LibraryFile]) -> bool:
    """Whether a query makes sense: there is a library or the kernel's driver."""
    return any(copy.family == family for copy in copies) or bool(drivers.version_of(place, family))


def _refused(place: System, family: str, answer: RuntimeAnswer, *, is_wanted: bool) -> Iterator[Finding]:
    """A library that finds no GPU is an error only if there is a GPU, or the runtime was requested."""
    vendor = system.AMD if family == "amd" else system.NVIDIA
    has_hardware = bool(drivers.version_of(place, family)) or vendor in system.on_the_bus(place)
    is_error = is_wanted or has_hardware or answer.is_broken
    do = answer.hint or "look at the driver, and at what the container is given"
    summary = f"{family}: {answer.summary}"
    why = answer.why if is_error else f"its library is installed, but this machine shows no {_VENDOR[family]} GPU"
    yield Finding("error" if is_error else "note", f"runtime.{family}", summary, do, why)
    if drivers.is_here(place, family):
        yield Finding(
            "note",
            "runtime.simulator",
            f"{_VENDOR[family]}'s driver is loaded: commands without --runtime are refused (HP407), and not simulated",
            "choose the simulator where you want it: --runtime sim, or HIPPLAN_RUNTIME=sim",
        )
