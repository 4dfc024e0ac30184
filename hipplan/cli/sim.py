"""hipplan sim: run a program that loads libamdhip64 on the simulator; the exit code is that of the program.

With --library it runs on ROCm's own library, unmodified, over a stand-in for AMD's driver and GPUs
(docs/without-gpu.md); without it, on hipplan's simulator of HIP (docs/simulator.md).

Examples:
  hipplan sim -- python my_script.py
  hipplan sim --machine mi300x-8 --hip-version 6.3 -- ./my_program --its-own-option
  hipplan sim --library /opt/rocm/lib/libamdhip64.so.7 --machine mi300x-8 -- ./my_program
  hipplan sim --fail hipMemMap@3=hipErrorOutOfMemory --trace calls.jsonl -- ./my_program
"""

from __future__ import annotations

import os
import re
from argparse import Namespace
from pathlib import Path

from hipplan.cli.arguments import Parser, WrongUsage, machine_option, not_empty, print_notice
from hipplan.errors import Diagnostic, RuntimeUnavailable, reason_of

_PLACE = re.compile(r"^profile line \d+ (?='[a-z_.]+=)")
"""A line of the profile that is made of the options, which nobody has written."""
_FAIL = "make calls fail, such as hipMemMap@3=hipErrorOutOfMemory; with --library, such as alloc_memory_of_gpu@3=ENOMEM"


def declare(parser: Parser) -> None:
    parser.add_argument("command", metavar="CMD", nargs="*", help="the program and its arguments, preferably after --")
    machine_option(parser)
    about = "run on this libamdhip64 of ROCm, without a GPU"
    parser.add_argument("--library", metavar="FILE", type=not_empty, help=about)
    parser.add_argument("--hip-version", metavar="X.Y", help="the HIP release to simulate, such as 6.3 or 7.2")
    about = "a defect of a HIP release to simulate, such as map_failure_hidden (repeatable; see docs/simulator.md)"
    parser.add_argument("--quirk", metavar="NAME", action="append", default=[], help=about)
    parser.add_argument("--fail", metavar="RULES", help=_FAIL)
    about = "with --library: a launch of a kernel is hipErrorNotSupported, and not a Success that does nothing"
    parser.add_argument("--refuse-kernels", action="store_true", help=about)
    parser.add_argument("--trace", metavar="FILE", help="append a JSON line per call to a file")
    parser.set_defaults(rest=[])


def run(given: Namespace) -> int:
    command = [*given.command, *given.rest]
    if not command:
        raise WrongUsage("no program to run; name it after --")
    try:
        return _on_library(command, given) if given.library else _on_simulator(command, given)
    except OSError as error:
        diagnostic = Diagnostic("HP407", str(error))
        if error.errno:  # without errno the simulator itself is missing
            hint = "name an executable program after --"
            diagnostic = Diagnostic("HP407", f"'{command[0]}' cannot be started: {reason_of(error)}", hint=hint)
        raise RuntimeUnavailable(diagnostic) from None


def _on_library(command: list[str], given: Namespace) -> int:
    from hipplan.machines import without_gpu
    from hipplan.machines.profiles import load_machine
    from hipplan.machines.simulator import DEFAULT_MACHINE

    if given.hip_version is not None:
        raise WrongUsage("--hip-version: a library has a version of its own; leave it or --library out")
    if given.quirk:
        raise WrongUsage("--quirk: the simulator's; a library has defects of its own")
    if given.trace is not None:
        raise WrongUsage(
            "--trace: the simulator's; with --library AMD_LOG_LEVEL=3 shows HIP's calls, KFDSIM_VERBOSE=2 the driver's"
        )
    library, machine = Path(given.library).absolute(), load_machine(given.machine or DEFAULT_MACHINE)
    try:
        without_gpu.check(library, machine, given.fail)
    except ValueError as error:
        raise WrongUsage(f"--fail: {error}") from None
    print_notice(without_gpu.NOTICE)
    variables = {} if given.fail is None else {"KFDSIM_FAIL": given.fail}
    if given.refuse_kernels:
        variables["KFDSIM_REFUSE_KERNELS"] = "1"
    return without_gpu.run(command, library, machine, variables)


def _on_simulator(command: list[str], given: Namespace) -> int:
    from hipplan.machines.simulator import refusal
    from hipplan.machines.simulator import run as simulate

    if given.refuse_kernels:
        raise WrongUsage("--refuse-kernels: it is for --library; the simulator refuses every launch anyway")
    options = {"HIPSIM_FAIL": given.fail, "HIPSIM_TRACE": given.trace}
    variables = {name: value for name, value in options.items() if value is not None}
    profile = _profile(given)
    if why := refusal(profile, variables):
        by_option = {*variables, *(() if profile is None else ("HIPSIM_PROFILE",))}
        variable, _, rest = why.partition(": ")
        shown = rest if variable in by_option else why
        raise WrongUsage(f"the simulator cannot start: {_PLACE.sub('', shown)}")
    return simulate(command, profile, variables)


def _profile(given: Namespace) -> str | None:
    """The simulator's profile text; None: HIPSIM_PROFILE as it is. Raises WrongUsage, ProfileError."""
    from hipplan.machines.machine import sim_profile
    from hipplan.machines.profiles import load_machine
    from hipplan.machines.simulator import DEFAULT_MACHINE

    by_variable = os.environ.get("HIPSIM_PROFILE")
    if by_variable is not None and given.machine is not None:
        print_notice("HIPSIM_PROFILE is not used: --machine names the machine")
        by_variable = None
    if given.hip_version is not None and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){1,2}", given.hip_version):
        raise WrongUsage(f"--hip-version: '{given.hip_version}' is not a version such as 6.3")
    if by_variable is not None:  # a later line takes the place of an earlier one
        lines = [f"hip_version={given.hip_version}"] if given.hip_version else []
        lines += [f"quirk.{quirk}=1" for quirk in given.quirk]
        return "\n".join([by_variable, *lines, ""]) if lines else None
    profile = load_machine(given.machine or DEFAULT_MACHINE)
    version, quirks = given.hip_version or profile.hip_version, [*profile.quirks, *given.quirk]
    return sim_profile(profile.model_copy(update={"hip_version": version, "quirks": quirks}))
