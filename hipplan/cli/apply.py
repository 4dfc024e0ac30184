"""hipplan apply: apply a plan, all or nothing; report; hold it until ^C or SIGTERM; tear it down.

The contents of the plan are loaded first; --save writes memory to files before the tear down.
While it is held, `hipplan verify` in another process reads it back; `hipplan replay` shows what --record wrote.
--machine names the machine that the simulator simulates.
--group applies together with other ranks, all or none: torch within torchrun, mpi within mpirun (needs mpi4py), or a
fresh folder that all of them see.
--format json prints JSON documents, one a line: when applied, when torn down, and one for an error.
Exit code: 0 done, 2 invalid plan, 3 the machine cannot hold it, 4 failed and rolled back, 5 something could not be
freed, 7 it cannot be read whether the group commits, 129, 130 and 143 interrupted by SIGHUP, ^C and SIGTERM.

Examples:
  hipplan apply plan.yaml
  hipplan apply plan.yaml --once --runtime sim
  hipplan apply plan.yaml --locked plan.lock --record apply.jsonl
  hipplan apply plan.yaml --once --save weights=weights.safetensors
  hipplan apply plan.yaml --group mpi
  hipplan apply plan.yaml --group /scratch/run-17
"""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from hipplan.cli.arguments import (
    Parser,
    WrongUsage,
    format_option,
    not_empty,
    not_over,
    plan_file,
    print_failure,
    print_notice,
    quiet_option,
    seconds,
    show_warnings,
    source_of,
)
from hipplan.cli.interrupts import Interrupted, Interrupts
from hipplan.cli.progress import Bars
from hipplan.cli.signals import at_end
from hipplan.cli.streams import has_reader
from hipplan.cli.variables import load_plan, plan_options
from hipplan.errors import ApplyError, GroupError, GroupInDoubt, LeakError, suggest
from hipplan.files import strict_json
from hipplan.files.output import check_replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from hipplan.kinds.allocation.live import ImportAllocation
    from hipplan.language.loader import LoadedPlan
    from hipplan.layout.layout import Layout
    from hipplan.layout.record import Recorder
    from hipplan.machines.runtimes import Chosen
    from hipplan.program.difference import Difference
    from hipplan.program.program import Program
    from hipplan.ranks.agreement import Agreement, LayoutRanks


def declare(parser: Parser) -> None:
    plan_file(parser)
    parser.add_argument("--once", action="store_true", help="tear down at once instead of holding the layout until ^C")
    about = "do not read the result back from the driver"
    about_save = "at the end, save an object's bytes to a file: .npy, .safetensors, else raw bytes; may be repeated"
    parser.add_argument("--save", metavar="NAME=FILE", action="append", default=[], help=about_save)
    parser.add_argument("--no-verify", dest="verify", action="store_false", help=about)
    about = "a file that `hipplan lock` wrote: apply exactly that, with the same addresses, or report what differs"
    parser.add_argument("--locked", metavar="LOCK", type=not_empty, help=about)
    about = "record each step, with its time and result, as JSON lines"
    parser.add_argument("--record", metavar="FILE", help=about)
    about = "with --record: without what names this host, its user, paths, serial numbers of devices, and the commit"
    parser.add_argument("--anonymous", action="store_true", help=about)
    about = "apply together with other ranks, all or none: torch, mpi, or a new folder that all ranks share"
    parser.add_argument("--group", metavar="torch|mpi|DIR", type=not_empty, help=about)
    about = "with --group: how many seconds a rank that is ready waits for the others (default: 60)"
    parser.add_argument("--timeout", metavar="S", type=seconds, default=60.0, help=about)
    plan_options(parser)
    quiet_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    if given.record == "-":
        raise WrongUsage("--record: the report goes to standard output; name a file (such as ./- or /dev/stderr)")
    saves = _saves(given.save)
    written = [("--record", given.record), *(("--save", file) for _, file in saves)]
    not_over(written, given.file, given.locked, given.machine, *given.var_file)
    for _, file in saves:
        check_replacing(file, "--save:")
    ranks = _ranks(given)
    if ranks is not None and saves:
        raise WrongUsage(
            "--save: every rank would write the same file; call layout.save() with a different name in each rank"
        )
    with (
        _end_of_all(given),
        at_end(partial(_notify_ranks, ranks)),
        ranks.agreeing("apply") if ranks else nullcontext() as agreement,
    ):
        return _prepared(given, saves, written, ranks, agreement)


@contextmanager
def _end_of_all(given: Namespace) -> Iterator[None]:
    """End all ranks of mpirun if one fails: MPI's exit would wait for all of them."""
    try:
        yield
    except (GroupError, GroupInDoubt) as error:
        if given.group == "mpi" and error.diagnostics[0].code in ("HP431", "HP432", "HP434"):
            from hipplan.ranks.mpi import abort

            print_failure(error, given.format == "json")
            abort(int(error.exit_code))
        raise


def _ranks(given: Namespace) -> LayoutRanks | None:
    """Raises SettingError; the ranks but the first are quiet."""
    if given.group is None:
        return None
    from hipplan.ranks.agreement import LayoutRanks
    from hipplan.ranks.groups import group

    ranks_group = group(given.group)
    given.quiet = given.quiet or ranks_group.rank > 0
    return LayoutRanks(ranks_group, given.timeout)


def _prepared(
    given: Namespace,
    saves: list[tuple[str, str]],
    written: list[tuple[str, str]],
    ranks: LayoutRanks | None,
    agreement: Agreement | None,
) -> int:
    plan = load_plan(source_of(given.file), given, None if agreement is None else agreement.rank)
    not_over(written, *plan.files)
    # These import pydantic, so they come after load_plan(), which imports it without a search for plugins.
    from hipplan.layout.assembly import target
    from hipplan.layout.prepare import with_others
    from hipplan.layout.record import recording

    with (
        recording(given.record, plan, locked=given.locked, anonymous=given.anonymous) as record,
        at_end(partial(_record_end, record, plan)),
    ):
        where = target(given.runtime, given.machine, given.locked)
        chosen = where.chosen
        print_notice(chosen.notice)
        program, of_lock = where.program(plan)
        print_notice(of_lock)
        show_warnings(program.warnings, given)
        _check_saves(saves, program)
        if agreement is not None:
            program = with_others(program, agreement, chosen.runtime)
        return _apply(program, chosen, given, record, saves, ranks, agreement)


def _notify_ranks(ranks: LayoutRanks | None, signal_number: int) -> None:
    if ranks is not None and ranks.under_way is not None:
        ranks.under_way.fail(Interrupted(signal_number))


def _record_end(record: Recorder | None, plan: LoadedPlan, signal_number: int) -> None:
    if record is not None:
        record.refused(plan, Interrupted(signal_number))


def _apply(
    program: Program,
    chosen: Chosen,
    given: Namespace,
    record: Recorder | None,
    saves: list[tuple[str, str]],
    ranks: LayoutRanks | None,
    agreement: Agreement | None,
) -> int:
    from hipplan.layout.options import Options
    from hipplan.layout.run import run as apply
    from hipplan.layout.undo import answer_interrupt

    as_json = given.format == "json"
    with Interrupts(answer_interrupt) as interrupts:
        try:
            with Bars() as bars:

                def progressed(done: int, total: int) -> None:
                    interrupts.check()
                    bars.steps(done, total)

                def moved(done: int, total: int) -> None:
                    interrupts.check()
                    bars.bytes("filling memory", done, total)

                options = Options(
                    on_progress=progressed,
                    on_bytes=moved,
                    verify=given.verify,
                    record=record,
                    together=None if agreement is None else _Interruptible(agreement, interrupts),
                )
                layout = apply(program, chosen.runtime, options, notice=chosen.notice, ranks=ranks)
        except Interrupted as interrupted:
            if agreement is not None:
                agreement.fail(interrupted)
            print(f"{interrupted}: rolled back", file=sys.stderr)
            cause = interrupted.__cause__
            if isinstance(cause, Exception):
                raise cause from None
            return interrupted.exit_code
        try:
            if as_json or not given.quiet:
                _report(layout, as_json)
                sys.stdout.flush()
            if not given.once and has_reader():  # whoever ends a pipe such as `| head` waits for the layout's end
                _wait_for_end(layout, interrupts, given.quiet)
        finally:  # also if standard output is closed or full
            code = _save(layout, saves, as_json)
            _tear_down(layout, as_json, given.quiet)
    # Also for a signal that came after the last step: it must be answered.
    return code or (128 + interrupts.number if interrupts.number else 0)


class _Interruptible:
    """An agreement whose waits end when a signal arrives."""

    def __init__(self, agreement: Agreement, interrupts: Interrupts) -> None:
        self._agreement = agreement
        self._interrupts = interrupts
        agreement.look = interrupts.check

    @property
    def to_place(self) -> Container[str]:
        return self._agreement.to_place

    def deadline(self) -> float:
        return self._agreement.deadline()

    def all_placed(self, taken: ApplyError | None) -> bool:
        return self._agreement.all_placed(taken)

    def at_other_addresses(self, change: Difference) -> Difference:
        return self._agreement.at_other_addresses(change)

    def exchange(self, imports: Sequence[ImportAllocation], share: Callable[[str], int]) -> Mapping[str, int]:
        return self._agreement.exchange(imports, share)

    def vote(self, deliver: Callable[[], None]) -> BaseException | None:
        def look() -> None:
            deliver()
            self._interrupts.check()

        late = self._agreement.vote(look)
        return None if isinstance(late, Interrupted) else late  # the command ends when it is raised later


def _saves(given: list[str]) -> list[tuple[str, str]]:
    """NAME=FILE of --save as pairs."""
    pairs = []
    for number in given:
        name, equals, file = number.partition("=")
        if not equals or not name or not file:
            raise WrongUsage(f"--save: '{number}' is not NAME=FILE")
        if file == "-":
            raise WrongUsage("--save: the report goes to standard output; name a file (./- for one named -)")
        pairs.append((name, file))
    return pairs


def _check_saves(saves: list[tuple[str, str]], program: Program) -> None:
    """Check now that everything can be saved at the end. Raises WrongUsage, PlanError."""
    from hipplan.layout.transfers import check_save
    from hipplan.program.memory import FILLED

    known = [resource.name for resource in program.resources if resource.kind in FILLED]
    for name, file in saves:
        if name not in known:
            message = f"--save: the plan has no buffer, region, tensor or mapping '{name}'; {suggest(name, known)}"
            raise WrongUsage(message.rstrip("; "))
        check_save(program, name, file)


def _save(layout: Layout, saves: list[tuple[str, str]], as_json: bool) -> int:
    """Save everything that can be saved; returns the exit code. Signals are handled afterwards."""
    code = 0
    for name, file in saves:
        try:
            with Bars() as bars:
                layout.save(name, file, on_bytes=lambda done, total: bars.bytes(f"saving {name}", done, total))  # noqa: B023
        except ApplyError as error:
            print_failure(error, as_json)
            code = error.exit_code
    return code


def _wait_for_end(layout: Layout, interrupts: Interrupts, quiet: bool) -> None:
    from hipplan.processes.answering import allow_verify, answers

    allow_verify(layout)
    with answers() as listener:
        if not quiet:
            print("holding; ^C or SIGTERM tears it down", file=sys.stderr, flush=True)
        interrupts.wait(listener)


def _report(layout: Layout, as_json: bool) -> None:
    from hipplan.layout.undo import retried_text
    from hipplan.machines.runtimes import version_of
    from hipplan.plain import counted
    from hipplan.program.difference import from_nothing
    from hipplan.show import render, render_json, summary

    if as_json:
        print(strict_json.dumps(render_json.layout_json(layout)), flush=True)
        return
    program = layout.program
    checks = f"{counted(len(layout.checks), 'check')} passed" if layout.checks else "not verified"
    steps = counted(from_nothing(program).step_count, "step")
    where = f"{program.machine}, {version_of(layout.runtime)}"
    render.print_line(f"{program.name}: applied on {where}; {steps}, {checks}", style="bold")
    render.print_line(render.devices_text(program, here=True))
    shown = summary.outline(program.resources)
    print(render.resources_table(shown, layout))
    if len(shown) < len(program.resources):
        render.print_line(f"{len(program.resources) - len(shown)} more objects: --format json has all of them")
    print(render.totals(program))
    if layout.retries:
        render.print_line(retried_text(layout.retries))
    sys.stdout.flush()


def _tear_down(layout: Layout, as_json: bool, quiet: bool) -> None:
    from hipplan.show import render_json

    try:
        undone = layout.close()
    except LeakError as error:
        if as_json and error.undone is not None:
            with suppress(OSError):  # the leak matters more than this report
                print(strict_json.dumps(render_json.undone_json(error.undone)), flush=True)
        raise
    if as_json:
        print(strict_json.dumps(render_json.undone_json(undone)), flush=True)
    elif not quiet:
        print(f"torn down: {undone.summary()}", flush=True)
