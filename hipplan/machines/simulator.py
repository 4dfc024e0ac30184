"""Running any program on the simulated HIP runtime: the launcher behind `hipplan sim -- CMD`.

    from hipplan.machines import simulator
    code = simulator.run(["python", "my_hip_script.py"], profile_text=text)

A program finds the simulator under the names of AMD's libraries, in a temporary folder of links. LD_LIBRARY_PATH gives
it precedence over everything but a program's own RPATH. Nothing is patched or installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hipplan.machines.launcher import launch

DEFAULT_MACHINE = "sim-2"
"""The simulator's default profile."""

LIBRARY = "libhipsim.so"
REFUSES_ABI_5 = "libhipsim_refuse_abi_5.so"
LINKS = {
    "libamdhip64.so": LIBRARY,
    "libamdhip64.so.7": LIBRARY,
    "libamdhip64.so.6": LIBRARY,
    "libamdhip64.so.5": REFUSES_ABI_5,
    LIBRARY: LIBRARY,  # for programs that were linked against one of these links
}
"""Library name that programs load -> the library of the simulator."""


def library_path() -> Path:
    """The simulator: HIPSIM_LIBRARY if that is set, else the one built with this package.

    Raises FileNotFoundError with the paths searched.
    """
    given = os.environ.get("HIPSIM_LIBRARY")
    path = Path(given) if given else package_folder() / LIBRARY
    if not path.is_file():
        why = (
            "HIPSIM_LIBRARY names no file"
            if given
            else "the pure-Python hipplan has no simulator; install the full wheel"
        )
        raise FileNotFoundError(f"no simulator at {path}: {why}")
    return path.resolve()


def environment(profile_text: str | None, folder: Path) -> dict[str, str]:
    """Fills `folder` with links to the simulator and returns the variables that make a program use them.

    profile_text: the machine to simulate, as key=value lines; None: HIPSIM_PROFILE, or two generic devices.
    Raises FileNotFoundError if the simulator is not built.
    """
    library = library_path()
    for name, target in LINKS.items():
        source = library if target == LIBRARY else library.with_name(target)
        (folder / name).symlink_to(source)
    searched = os.environ.get("LD_LIBRARY_PATH")
    variables = {"LD_LIBRARY_PATH": f"{folder}:{searched}" if searched else str(folder)}
    if profile_text is not None:
        variables["HIPSIM_PROFILE"] = profile_text
    return variables


def refusal(profile_text: str | None, variables: Mapping[str, str]) -> str:
    """Why the simulator does not start with these settings and the environment's; empty if it does."""
    settings = {**os.environ, **variables, "HIPSIM_LOG": "stderr"}
    settings.pop("HIPSIM_LEDGER_AT_EXIT", None)  # it is for the program, not for this probe
    if profile_text is not None:
        settings["HIPSIM_PROFILE"] = profile_text
    probe = [sys.executable, "-I", "-S", "-c", _PROBE, str(library_path())]
    errors = subprocess.run(probe, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True).stderr
    lines = errors.decode(errors="replace").splitlines()
    return next((line.removeprefix(_REFUSES) for line in lines if line.startswith(_REFUSES)), "")


_PROBE = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).hipsim_fail(None)"
"""Starts the simulator with a function that is not traced."""
_REFUSES = "hipsim: cannot start: "


def run(command: Sequence[str], profile_text: str | None = None, variables: Mapping[str, str] | None = None) -> int:
    """Runs a program on the simulator and returns its exit code: 128 + n if signal n ended it, as a shell says.

    variables: more for the program's environment, such as HIPSIM_FAIL or HIPSIM_TRACE.
    Signals that are sent to this process alone are passed on; ^C reaches the program by itself.
    Raises FileNotFoundError if the program or the simulator is missing, PermissionError if it cannot be run.
    """

    def settings(folder: Path) -> dict[str, str]:
        return {**environment(profile_text, folder), **(variables or {})}

    return launch(command, settings, "hipsim-")


def package_folder() -> Path:
    """The folder of the compiled parts: that of the module _core, which is elsewhere in an editable install."""
    compiled = importlib.util.find_spec("hipplan._core")
    origin = compiled.origin if compiled else None
    return Path(origin).parent if origin else Path(__file__).parent
