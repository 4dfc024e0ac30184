"""The filler process: `hipplan up` with --filler, as a holder starts it. It reports errors to the process that has
requested its work from the holder."""

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
from hipplan.start import without_plugins

if TYPE_CHECKING:
    from hipplan.holders.filler import HolderConnection

_ABOUT = {"fill": "filling memory", "save": "saving memory", "restore": "restoring memory"}


def run(given: Namespace) -> int:
    without_plugins()
    from hipplan.holders.filler import HolderConnection
    from hipplan.layout.undo import answer_interrupt

    holder = HolderConnection(given.filler)
    work = _work(given, holder)
    with Interrupts(answer_interrupt) as interrupts, Bars() as bars:

        def progressed(done: int, total: int) -> None:
            interrupts.check()
            with contextlib.suppress(OSError):  # a closed terminal is no reason to stop
                bars.steps(done, total)

        def moved(done: int, total: int) -> None:
            interrupts.check()
            with contextlib.suppress(OSError):
                bars.bytes(_ABOUT[holder.task], done, total)

        try:
            work(on_progress=progressed, on_bytes=moved)
        except Interrupted as interrupted:
            with contextlib.suppress(OSError):
                print(f"{interrupted}: rolled back", file=sys.stderr)
            if isinstance(interrupted.__cause__, Exception):
                raise interrupted.__cause__ from None
            return interrupted.exit_code
    return 0


def _work(given: Namespace, holder: HolderConnection) -> Callable[..., None]:
    """The task that the holder requests, as a function of on_progress and on_bytes."""
    from hipplan.holders.filler import fill, program_to_hold, restore, save
    from hipplan.layout.assembly import target

    plan = load_plan(source_of(given.file), given) if holder.task == "fill" else None
    where = target(given.runtime, given.machine, None if plan is None else given.locked)
    print_notice(where.chosen.notice)
    if plan is None:
        return partial(save if holder.task == "save" else restore, where.chosen, holder)
    program = program_to_hold(plan, where, holder.beside, holder.sizes_kept(plan))
    holder.require_same_plan(program)
    holder.require_consent(program)
    show_warnings(program.warnings, given)
    return partial(fill, program, where.chosen, holder, locked=where.lock is not None)
