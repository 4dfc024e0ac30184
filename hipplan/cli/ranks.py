"""Plans for ranks without a group: --ranks and --rank, loading for each rank, and merging their diagnostics."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING

from hipplan.cli.arguments import Parser, WrongUsage, source_of
from hipplan.errors import Diagnostic, MachineError, PlanError
from hipplan.language.findings import in_order
from hipplan.language.rank import RANKS_MAX

if TYPE_CHECKING:
    from hipplan.language.loader import PlanSource
    from hipplan.program.program import Program
    from hipplan.ranks.all_ranks import AllRanks


def ranks_option(parser: Parser) -> None:
    about = (
        "for a plan with ranks: how many (default: the plan's count, else its per_node, else 1); "
        "at most 1024 are checked"
    )
    parser.add_argument("--ranks", metavar="N", type=_count, help=about)


def rank_option(parser: Parser) -> None:
    parser.add_argument(
        "--rank", metavar="N", type=_number, help="for a plan with ranks: show the program of this rank"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= RANKS_MAX:
        raise argparse.ArgumentTypeError(f"not a number from 1 to {RANKS_MAX}: {text[:40]!r}")
    return int(text)


def _number(text: str) -> int:
    if not text.isdecimal() or int(text[:9]) >= RANKS_MAX:
        raise argparse.ArgumentTypeError(f"not a number from 0 to {RANKS_MAX - 1}: {text[:40]!r}")
    return int(text)


def read_again(file: str) -> Callable[[], PlanSource]:
    """A function that opens a plan's file again; standard input is read once and kept. Raises PlanError."""
    if file != "-":
        path = source_of(file)
        return lambda: path
    from hipplan.language.source import read_all

    data = read_all(source_of(file), "<stdin>")
    return lambda: _Stdin(data)


class _Stdin(BytesIO):
    name = "<stdin>"


def refuse_without_ranks(given: Namespace) -> None:
    """Raises WrongUsage for options that need a plan with `ranks:`."""
    for option in ("ranks", "rank"):
        if getattr(given, option, None) is not None:
            raise WrongUsage(f"--{option}: the plan has no ranks; add ranks: {{}} to it if it should")


def programs_of_ranks(all_ranks: AllRanks) -> list[Program]:
    """The program of each rank. Raises PlanError or MachineError with the diagnostics of all ranks."""
    programs: list[Program] = []
    for program_of in (all_ranks.own, all_ranks.whole):  # first each rank's own program, then with other ranks' memory
        programs.clear()
        by_rank: list[Sequence[Diagnostic]] = []
        errors: list[MachineError | PlanError] = []
        for rank in all_ranks.ranks:
            try:
                programs.append(program_of(rank.rank))
                by_rank.append(programs[-1].warnings)
            except (MachineError, PlanError) as error:
                errors.append(error)
                by_rank.append(error.diagnostics)
        if errors:  # an invalid plan outweighs a machine that is too small
            kind = PlanError if any(isinstance(error, PlanError) for error in errors) else MachineError
            raise kind(in_order(together(by_rank)))
    return programs


def together(by_rank: Sequence[Sequence[Diagnostic]]) -> list[Diagnostic]:
    """The diagnostics of all ranks, without duplicates. One that not all ranks have names its ranks."""
    ranks: dict[tuple[str, str, str], list[int]] = {}
    first: dict[tuple[str, str, str], Diagnostic] = {}
    for rank, diagnostics in enumerate(by_rank):
        for diagnostic in diagnostics:
            key = diagnostic.code, diagnostic.summary, str(diagnostic.span)
            first.setdefault(key, diagnostic)
            if rank not in ranks.setdefault(key, []):
                ranks[key].append(rank)
    whole = len(by_rank)
    return [_named(diagnostic, ranks[key], whole) for key, diagnostic in first.items()]


def _named(diagnostic: Diagnostic, ranks: Sequence[int], whole: int) -> Diagnostic:
    if len(ranks) == whole or diagnostic.left_out:
        return diagnostic
    note = f"in rank{'s' if len(ranks) > 1 else ''} {spans(ranks)} of {whole}"
    return replace(diagnostic, notes=(*diagnostic.notes, note))


def spans(numbers: Iterable[int]) -> str:
    """1, 2, 3, 7 as "1-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
