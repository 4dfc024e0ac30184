"""Choosing a runtime: a shared library with HIP's C ABI (amd, cuda, sim, or one of them by path)."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from hipplan import _core
from hipplan.errors import Diagnostic, RuntimeUnavailable, SettingError, suggest
from hipplan.forks import HINT
from hipplan.machines import drivers
from hipplan.machines.family import Family, family_of
from hipplan.machines.libraries import open_amd, open_library, were_opened_elsewhere
from hipplan.machines.machine import Machine, sim_profile
from hipplan.machines.place import System
from hipplan.machines.simulator import DEFAULT_MACHINE, library_path, refusal
from hipplan.units import version_text

CHOICES = ("auto", "amd", "cuda", "sim")
IDLE_NOTICE_S = 10.0

_lock = threading.Lock()
_simulated: dict[str, tuple[str, Machine]] = {}
"""Simulators that run, by path: (profile text, machine)."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """An open runtime and how it was chosen."""

    kind: Family
    """The vendor of the library."""
    runtime: _core.Runtime
    notice: str
    """A notice to the user about the choice, or empty."""
    machine: Machine | None = None
    """The machine that the simulator plays; None for real machines."""


def version_of(runtime: _core.Runtime) -> str:
    """The runtime's HIP version and library: "HIP 7.2 (libhipsim.so)"."""
    short = version_text(runtime.version).rpartition(".")[0]
    return f"HIP {short} ({Path(runtime.path).name})"


def choose(wanted: str | os.PathLike[str] | None = None, machine: Machine | None = None) -> Chosen:
    """Opens a runtime.

    wanted: auto, amd, cuda, sim or a path; None: HIPPLAN_RUNTIME, else auto. `auto` takes amd if it has a
    device, else cuda if it has one. Without either it takes the simulator, and reports that in `notice`; but where a
    GPU's driver is loaded, it raises RuntimeUnavailable (HP407) with the reason why that cannot be used.
    machine: the machine to simulate; only for sim.
    Raises RuntimeUnavailable (HP407) with the places searched; SettingError (HP407, HP415) for an unknown name of a
    runtime, and for an environment variable with an invalid value.
    """
    idle_notice_s()  # raises here, because nothing may fail where the value is used
    if not (wanted is None or isinstance(wanted, (str, os.PathLike))):
        raise TypeError(f"runtime must be a name or a path, not {type(wanted).__name__}")
    variable = os.environ.get("HIPPLAN_RUNTIME")
    if wanted or not variable:
        return _chosen(os.fsdecode(wanted or "auto"), machine)
    try:
        return _chosen(variable, machine)
    except RuntimeUnavailable as error:
        candidates = [
            diagnostic  # it names another variable
            if diagnostic.code == "HP415"
            else replace(diagnostic, notes=(*diagnostic.notes, "set by: HIPPLAN_RUNTIME"))
            for diagnostic in error.diagnostics
        ]
        raise type(error)(candidates) from None


def idle_notice_s() -> float:
    """How long a device may be busy before it is reported. Raises SettingError (HP415)."""
    text = os.environ.get("HIPPLAN_IDLE_NOTICE")
    if not text:
        return IDLE_NOTICE_S
    with contextlib.suppress(ValueError):
        if math.isfinite(seconds := float(text)) and seconds >= 0:
            return seconds
    raise _wrong_setting("HIPPLAN_IDLE_NOTICE", f"'{text}' is not a number of seconds", "write it as 10 or 0.5")


def _wrong_setting(variable: str, why: str, hint: str = "") -> SettingError:
    return SettingError(Diagnostic("HP415", f"the environment variable {variable} is wrong", why=why, hint=hint))


def _chosen(wanted: str, machine: Machine | None) -> Chosen:
    if were_opened_elsewhere():
        why = "HIP and CUDA work only in the process that initialised them, not in a forked child"
        raise RuntimeUnavailable(
            Diagnostic("HP407", "this process was forked from one that had opened a runtime", why=why, hint=HINT)
        )
    if wanted == "sim":
        return _chosen_simulator(machine)
    if wanted == "amd":
        return Chosen("amd", _with_devices(open_amd(), "amd"), "")
    if wanted == "cuda":
        library = Path(_core.__file__).with_name("libhipcuda.so")
        return Chosen("cuda", _with_devices(open_library(str(library)), "cuda"), "")
    if wanted != "auto":
        if not _may_be_a_path(wanted) or (os.sep not in wanted and not wanted.endswith(".so")):
            hint = f"it is one of {', '.join(CHOICES)}, or a path such as ./libamdhip64.so.7"
            near = suggest(wanted, CHOICES)
            raise SettingError(Diagnostic("HP407", f"there is no runtime '{wanted}'", hint=f"{near} {hint}".lstrip()))
        kind = family_of(wanted)
        if kind == "sim" and machine is not None:
            return _chosen_simulator(machine, path=wanted)
        return known(_with_devices(open_library(wanted), kind))
    if machine is not None and machine.runtime == "sim":
        return _chosen_simulator(machine)
    return _auto(machine)


def _may_be_a_path(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return b"\0" not in os.fsencode(text)
    return False


def known(runtime: _core.Runtime) -> Chosen:
    """How an open runtime was chosen, for code that has only the runtime."""
    _, machine = _simulated.get(runtime.path, ("", None))
    return Chosen(family_of(runtime.path), runtime, "", machine)


def _auto(machine: Machine | None) -> Chosen:
    place = System.here()
    reasons: list[str] = []
    unusable: list[Diagnostic] = []
    kinds: tuple[Family, ...] = ("amd", "cuda")
    for kind in kinds:
        try:
            return _chosen(kind, None)
        except RuntimeUnavailable as error:
            reasons.append(f"{kind}: {error.diagnostics[0].summary}")
            if drivers.is_here(place, kind):
                unusable.append(_unusable(place, kind, error.diagnostics[0]))
    if unusable:
        raise RuntimeUnavailable(unusable)
    notice = f"no GPU found, so this is the simulator: nothing touches real hardware ({'; '.join(reasons)})"
    return _chosen_simulator(machine, notice)


def _unusable(place: System, kind: Family, refused: Diagnostic) -> Diagnostic:
    """HP407 for a driver that is loaded: what the doctor says of it. refused: why its runtime cannot be used."""
    vendor = {"amd": "AMD", "cuda": "NVIDIA"}[kind]
    obstacle = next(drivers.obstacles(place, kind), None)
    reason, do = (refused.summary, refused.hint) if obstacle is None else (obstacle.summary, obstacle.do)
    why = refused.why if obstacle is None else refused.summary
    do = do.removesuffix("; --runtime sim needs no GPU")
    hint = f"{do}; `hipplan doctor` checks it; --runtime sim applies the plan on the simulator".removeprefix("; ")
    return Diagnostic("HP407", f"{vendor}'s driver is loaded, but cannot be used: {reason}", why=why, hint=hint)


def _chosen_simulator(machine: Machine | None, notice: str = "", path: str = "") -> Chosen:
    """path: of a simulator other than the default one."""
    if machine is None and "HIPSIM_PROFILE" not in os.environ:  # with the variable, `hipplan sim` has set the profile
        from hipplan.machines.profiles import load_machine  # reads YAML, which no GPU needs

        machine = load_machine(DEFAULT_MACHINE)
    return Chosen("sim", _with_devices(_simulator(machine, path), "sim"), notice, machine)


def _simulator(machine: Machine | None, path: str) -> _core.Runtime:
    try:
        runtime = open_library(path or str(library_path()))
    except (FileNotFoundError, RuntimeUnavailable) as error:
        raise _not_started(error, path) from None
    if machine is None:
        return runtime
    profile = sim_profile(machine)
    with _lock:
        was, _ = _simulated.get(runtime.path, ("", None))
        if profile == was:
            return runtime
        try:
            runtime.configure(profile)
        except ValueError as error:
            hint = "first close the layouts that use it" if "still alive" in str(error) else ""
            raise RuntimeUnavailable(
                Diagnostic("HP407", f"the simulator cannot simulate {machine.name}", why=str(error), hint=hint)
            ) from None
        _simulated[runtime.path] = profile, machine
    return runtime


def _not_started(error: FileNotFoundError | RuntimeUnavailable, path: str) -> RuntimeUnavailable:
    """Why the simulator did not start: names the environment variable at fault, if it is one."""
    given = None if path else os.environ.get("HIPSIM_LIBRARY")
    if isinstance(error, FileNotFoundError):
        return (
            RuntimeUnavailable(Diagnostic("HP407", str(error)))
            if given is None
            else _wrong_setting("HIPSIM_LIBRARY", str(error))
        )
    if given is not None:
        return _wrong_setting("HIPSIM_LIBRARY", error.diagnostics[0].summary)
    variable, _, why = ("" if path else refusal(None, {})).partition(": ")
    return _wrong_setting(variable, why) if variable.startswith("HIPSIM_") else error


_NO_DEVICE: dict[Family, tuple[str, str]] = {
    "amd": ("no AMD device was found", "the driver, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES"),
    "cuda": ("no NVIDIA device was found", "the driver and CUDA_VISIBLE_DEVICES"),
    "sim": ("the simulator shows no device", "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES"),
}


def _with_devices(runtime: _core.Runtime, kind: Family) -> _core.Runtime:
    try:
        if runtime.device_count():
            return runtime
    except _core.HipError as error:
        summary = f"the {kind} runtime failed to start: {error.name}"
        raise RuntimeUnavailable(Diagnostic("HP407", summary, why=str(error))) from None
    summary, where = _NO_DEVICE[kind]
    hint = f"look at {where}" + ("" if kind == "sim" else "; --runtime sim needs no GPU")
    raise RuntimeUnavailable(Diagnostic("HP407", runtime.message or summary, why=f"{runtime.path} says so", hint=hint))


def described(runtime: _core.Runtime) -> dict[str, str]:
    """A runtime's library, and the versions that it and its driver report."""
    try:
        driver = version_text(runtime.driver_version())
    except _core.HipError as error:
        driver = error.name
    return {"path": runtime.path, "version": version_text(runtime.version), "driver_version": driver}
