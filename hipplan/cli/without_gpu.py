"""--without-gpu: the same command again, on ROCm's own library over the stand-in for AMD's driver."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from hipplan.cli.arguments import WrongUsage, print_notice


def wanted(given: Namespace) -> bool:
    """Whether the command must be run again with --without-gpu: not on a machine that it finds already, but for
    --machine, which asks for another one.
    """
    found_already = "KFDSIM_MACHINE" in os.environ and getattr(given, "machine", None) is None
    return getattr(given, "without_gpu", False) and not found_already


def again(arguments: list[str], given: Namespace) -> int:
    """Run `hipplan ARGUMENTS` without a GPU; returns its exit code.

    Raises WrongUsage, RuntimeUnavailable, ProfileError, MachineError.
    """
    from hipplan.machines import without_gpu
    from hipplan.machines.libraries import amd_library
    from hipplan.machines.profiles import load_machine
    from hipplan.machines.simulator import DEFAULT_MACHINE

    chosen = given.runtime or os.environ.get("HIPPLAN_RUNTIME") or "amd"
    if chosen in ("sim", "cuda"):
        raise WrongUsage(f"--without-gpu: it is for AMD's library, and not for the runtime {chosen}")
    library = amd_library() if chosen in ("amd", "auto") else Path(chosen).absolute()
    machine = load_machine(getattr(given, "machine", None) or DEFAULT_MACHINE)
    without_gpu.check(library, machine)
    print_notice(without_gpu.NOTICE)
    command = [sys.executable, "-m", "hipplan", *_without_machine(arguments), "--runtime", str(library)]
    return without_gpu.run(command, library, machine)


def _without_machine(arguments: list[str]) -> list[str]:
    """The arguments without --machine, which is for the stand-in: the inner command sees a real machine."""
    left: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument != "--machine" and not argument.startswith("--machine="):
            left.append(argument)
        skip = not skip and argument == "--machine"
    return left
