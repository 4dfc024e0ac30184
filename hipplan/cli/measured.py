"""The machine of a verb: a profile, or this machine, measured, with a notice if it is simulated."""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import WrongUsage, print_notice
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine


def machine_of(given: Namespace) -> Machine:
    """The machine of --machine, else this one through --runtime. Raises MachineError, RuntimeUnavailable."""
    if given.machine and given.runtime:
        raise WrongUsage("--machine names a profile and uses no runtime: leave --runtime out")
    return load_machine(given.machine) if given.machine else measured(given.runtime)


def measured(runtime: str | None) -> Machine:
    """This machine's profile. Raises RuntimeUnavailable."""
    from hipplan.machines.discover import discover
    from hipplan.machines.runtimes import choose

    chosen = choose(runtime)
    print_notice(chosen.notice)
    return discover(chosen)
