"""The filler of a holder, as it starts it: `hipplan up` with --filler. It reports errors to the process that started
it."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hipplan.cli.arguments import print_notice, show_warnings, source_of
from hipplan.cli.interrupts import Interrupted, Interrupts
from hipplan.cli.progress import Bars
from hipplan.cli.variables import load_plan

if TYPE_CHECKING:
    from hipplan.holders.filler import ToHolder

_ABOUT = {"fill": "filling memory", "save": "saving memory", "restore": "restoring memory"}


def run(given: Namespace) -> int:
    from hipplan.holders.filler import ToHolder
    from hipplan.layout.undo import hurry

    to = ToHolder(given.filler)
    work = _work(given, to)
    with Interrupts(hurry) as interrupts, Bars() as bars:

        def progressed(done: int, total: int) -> None:
            interrupts.check()
            with contextlib.suppress(OSError):  # a closed terminal is no reason to stop
                bars.steps(done, total)

        def moved(done: int, total: int) -> None:
            interrupts.check()
            with contextlib.suppress(OSError):
                bars.bytes(_ABOUT[to.task], done, total)

        try:
            work(on_progress=progressed, on_bytes=moved)
        except Interrupted as interrupted:
            with contextlib.suppress(OSError):
                print(f"{interrupted}: rolled back", file=sys.stderr)
            if isinstance(interrupted.__cause__, Exception):
                raise interrupted.__cause__ from None
            return interrupted.exit_code
    return 0


def _work(given: Namespace, to: ToHolder) -> Callable[..., None]:
    """What the holder wants done, ready to begin: of on_progress and on_bytes."""
    from hipplan.holders.filler import fill, prepared, restore, save
    from hipplan.machines.profiles import load_machine
    from hipplan.machines.runtimes import choose
    from hipplan.program.lock import Locked

    plan = load_plan(source_of(given.file), given) if to.task == "fill" else None
    profile = load_machine(given.machine) if given.machine else None
    lock = None if given.locked is None or plan is None else Locked(given.locked)
    chosen = choose(given.runtime, profile)
    print_notice(chosen.notice)
    if plan is None:
        return partial(save if to.task == "save" else restore, chosen, to)
    program = prepared(plan, chosen, profile, lock, to.beside)
    to.require_same(program)
    show_warnings(program.warnings, given)
    return partial(fill, program, chosen, to, locked=lock is not None)
