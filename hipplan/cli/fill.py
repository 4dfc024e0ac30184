"""The filler of a holder, as it starts it: `hipplan up` with --filler. It reports errors to the process that started
it."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace

from hipplan.cli.arguments import print_notice, show_warnings, source_of
from hipplan.cli.interrupts import Interrupted, Interrupts
from hipplan.cli.progress import Bars
from hipplan.cli.variables import load_plan


def run(given: Namespace) -> int:
    from hipplan.holders.filler import ToHolder, fill, prepared
    from hipplan.layout.undo import hurry
    from hipplan.machines.profiles import load_machine
    from hipplan.machines.runtimes import choose
    from hipplan.program.lock import Locked

    to = ToHolder(given.filler)
    plan = load_plan(source_of(given.file), given)
    profile = load_machine(given.machine) if given.machine else None
    lock = None if given.locked is None else Locked(given.locked)
    chosen = choose(given.runtime, profile)
    print_notice(chosen.notice)
    program = prepared(plan, chosen, profile, lock, to.held)
    show_warnings(program.warnings, given)
    with Interrupts(hurry) as interrupts, Bars() as bars:

        def progressed(done: int, total: int) -> None:
            interrupts.check()
            with contextlib.suppress(OSError):  # a closed terminal is no reason to stop
                bars.steps(done, total)

        def moved(done: int, total: int) -> None:
            interrupts.check()
            with contextlib.suppress(OSError):
                bars.bytes("filling memory", done, total)

        try:
            fill(program, chosen, to, locked=lock is not None, on_progress=progressed, on_bytes=moved)
        except Interrupted as interrupted:
            with contextlib.suppress(OSError):
                print(f"{interrupted}: rolled back", file=sys.stderr)
            if isinstance(interrupted.__cause__, Exception):
                raise interrupted.__cause__ from None
            return interrupted.exit_code
    return 0
