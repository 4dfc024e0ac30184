"""The verbs: every way to change a live layout, with what it needs.

A method of a layout makes a value, such as Grow("kv", by="1GiB"); its type is a row of VERBS; the engine (engine.py)
carries it out. A row's `plan` finds the change that the verb means, from the layout's state and the value. It changes
nothing, and is a pure function of the program, with two exceptions: an update measures the machine that it compiles a
plan for, and in a group the ranks exchange which memory of each other they map. With every verb the engine stops the
pools for PyTorch whose regions go; sleeping.py stops those that sleep or wake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from hipplan.errors import ApplyError, Diagnostic
from hipplan.language.host import is_host
from hipplan.layout import questions
from hipplan.layout.holding import Holding, LayoutAgreement
from hipplan.layout.state import State
from hipplan.lowering.lowered import Lowering, require_way_back
from hipplan.lowering.pieces import growth_steps
from hipplan.program import away, contents, extend, patterns, remake, resize, sealing, sleepers, sleeping
from hipplan.program.backups import MAPPED
from hipplan.program.borders import Part
from hipplan.program.content_steps import Staging
from hipplan.program.difference import Difference, difference
from hipplan.program.program import Program
from hipplan.program.refusals import cannot_sleep
from hipplan.program.resize import Size, require
from hipplan.program.resources import RANGES
from hipplan.program.sleeping_bytes import plan_name_of

AgreementOrNone: TypeAlias = LayoutAgreement | None
"""The other ranks, where the layout has a group."""

_SEALABLE = (*RANGES, "mapping")


class NewPlan(Protocol):
    """What an update leads to."""

    def change(self, state: State, group: AgreementOrNone) -> Difference: ...


@dataclass(frozen=True, slots=True)
class Update:
    """layout.update()."""

    to: NewPlan


@dataclass(frozen=True, slots=True)
class Grow:
    """layout.grow()."""

    name: str
    by: Size | None
    to: Size | None
    free: Mapping[str, int] | None = None
    """Bytes that the devices have, where a region overflows to the host."""


@dataclass(frozen=True, slots=True)
class Shrink:
    """layout.shrink()."""

    name: str
    by: Size | None
    to: Size | None


@dataclass(frozen=True, slots=True)
class Remap:
    """layout.remap()."""

    name: str
    part: Part | None
    device: str | None
    keep_bytes: bool
    retain: bool


@dataclass(frozen=True, slots=True)
class Seal:
    """layout.seal()."""

    name: str


@dataclass(frozen=True, slots=True)
class Unseal:
    """layout.unseal()."""

    name: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """layout.sleep(), of what is no pool for PyTorch."""

    names: tuple[str, ...]
    to: str
    """Where the bytes are meanwhile (backups.py)."""
    file: str
    unchanged: tuple[str, ...]
    checked: bool
    """The copy has a checksum."""


@dataclass(frozen=True, slots=True)
class Wake:
    """layout.wake(), of what has no memory."""

    names: tuple[str, ...] | None
    """None: all of it."""
    retain: bool


@dataclass(frozen=True, slots=True)
class ComeHome:
    """layout.wake(), of what sleeps on the host, still mapped."""

    names: tuple[str, ...] | None
    """None: all of it."""
    retain: bool


@dataclass(frozen=True, slots=True)
class AddLanes:
    """Streams and pinned memory for moves of bytes, which fill() and others add when they need more."""

    staging: Staging


Wanted: TypeAlias = Update | Grow | Shrink | Remap | Seal | Unseal | Sleep | Wake | ComeHome | AddLanes


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """What the engine must know of a verb."""

    call: str
    """The layout's method. All ranks of a group make this call; empty: a rank makes the change by itself."""
    plan: Callable[[Any, State, AgreementOrNone], Difference]
    """The change that a value means. Raises ApplyError, MachineError; in a group also GroupError."""
    ask: Callable[[Any, Holding, Lowering], None] | None = None
    """Asks the driver and the system what only they know, before anything is changed (questions.py)."""
    takes_turn: bool = False
    """It waits until no other thread moves bytes, and is refused in a callback of such a move."""
    if_attached: bool = False
    """Also a layout that is attached to a holder may do it: it does not change the memory itself."""
    may_lose: bool = False
    """It may lose bytes, addresses or rights that its arguments do not name: so it needs the caller's consent."""


def _updated(wanted: Update, state: State, group: AgreementOrNone) -> Difference:
    return wanted.to.change(state, group)


def _grown(wanted: Grow, state: State, group: AgreementOrNone) -> Difference:
    regions, reservations = _ranges(state.program, wanted.name)
    program = resize.grown(state.program, regions, by=wanted.by, to=wanted.to, free=wanted.free)
    if reservations:
        sizes = growth_steps(state.lowered, reservations)
        program = extend.grown(program, _addresses(state, sizes), by=wanted.by, to=wanted.to)
    return _with_others(state, program, group)


def _shrunk(wanted: Shrink, state: State, group: AgreementOrNone) -> Difference:
    regions, reservations = _ranges(state.program, wanted.name)
    program = resize.shrunk(state.program, regions, by=wanted.by, to=wanted.to)
    if reservations:
        addresses = _addresses(state, dict.fromkeys(reservations, 0))
        program = extend.shrunk(program, addresses, by=wanted.by, to=wanted.to)
    return _with_others(state, program, group)


def _ranges(program: Program, pattern: str) -> tuple[list[str], list[str]]:
    """(regions, reservations) that a name or a pattern means; a reservation includes the addresses that were added
    behind it. Raises ApplyError (HP420, HP441)."""
    kinds = {name: require(program, name, *RANGES) for name in patterns.chosen(program, [pattern], *RANGES)}
    regions = [name for name, kind in kinds.items() if kind == "region"]
    return regions, extend.without_added(program, [name for name, kind in kinds.items() if kind != "region"])


def _addresses(state: State, sizes: Mapping[str, int]) -> dict[str, extend.LiveRange]:
    """sizes: reservation -> what its new size is a multiple of; 0: of the granularity."""
    return {name: extend.LiveRange(state.address_of(name), state.size_of, size) for name, size in sizes.items()}


def _remapped(wanted: Remap, state: State, group: AgreementOrNone) -> Difference:
    return remake.remapped(
        state.program, wanted.name,
        part=wanted.part, device=wanted.device, keep_bytes=wanted.keep_bytes, retain=wanted.retain,
    )  # fmt: skip


def _sealed(wanted: Seal, state: State, group: AgreementOrNone) -> Difference:
    names = patterns.chosen(state.program, [wanted.name], *_SEALABLE)
    return _with_others(state, sealing.sealed(state.program, names), group)


def _unsealed(wanted: Unseal, state: State, group: AgreementOrNone) -> Difference:
    names = patterns.chosen(state.program, [wanted.name], *_SEALABLE)
    return _with_others(state, sealing.unsealed(state.program, names), group)


def _asleep(wanted: Sleep, state: State, group: AgreementOrNone) -> Difference:
    return sleeping.falls_asleep(
        state.program, wanted.names,
        to=wanted.to, file=wanted.file, unchanged=wanted.unchanged, checked=wanted.checked,
    )  # fmt: skip


def _awake(wanted: Wake, state: State, group: AgreementOrNone) -> Difference:
    return sleeping.wakes_up(state.program, wanted.names, retain=wanted.retain)


def _at_home(wanted: ComeHome, state: State, group: AgreementOrNone) -> Difference:
    memory = sleepers.units_away(state.program, wanted.names)
    return away.comes_home(state.program, memory, retain=wanted.retain)


def _with_lanes(wanted: AddLanes, state: State, group: AgreementOrNone) -> Difference:
    return difference(state.program, contents.with_lanes(state.program, wanted.staging))


def _with_others(state: State, program: Program, group: AgreementOrNone) -> Difference:
    """The change to a program, which also maps the memory of other ranks."""
    whole = program if group is None else group.meet(program, state.runtime, state.program)
    return difference(state.program, whole)


def _before_growth(wanted: Grow, holding: Holding, change: Lowering) -> None:
    if wanted.free is not None:
        questions.require_host_memory(change.lowered)


def _before_remap(wanted: Remap, holding: Holding, change: Lowering) -> None:
    """Raises ApplyError (HP440): this HIP would keep the GPU's memory too."""
    if wanted.device is None or not is_host(wanted.device):
        return
    questions.require_host_memory(change.lowered)
    if memory := questions.kept_with_its_range(holding, change.planned):
        name, (why, hint) = plan_name_of(change.planned.old, memory), questions.KEPT_WITH_ITS_RANGE
        raise ApplyError(Diagnostic("HP440", f"'{name}' cannot move to the host", why=why, hint=hint))


def _before_sleep(wanted: Sleep, holding: Holding, change: Lowering) -> None:
    if wanted.to != MAPPED:
        require_way_back(change, wanted.names)
    questions.require_writable(change.planned)
    questions.require_alone(holding.state, change.planned)
    questions.require_host_memory(change.lowered)
    if memory := questions.kept_with_its_range(holding, change.planned):
        raise cannot_sleep(plan_name_of(change.planned.old, memory), *questions.KEPT_WITH_ITS_RANGE)


def _before_wake(wanted: Wake | ComeHome, holding: Holding, change: Lowering) -> None:
    questions.require_room(holding.state, change.planned)


VERBS: Mapping[type[Any], Verb] = {
    Update: Verb(call="update", plan=_updated, takes_turn=True, may_lose=True),
    Grow: Verb(call="grow", plan=_grown, ask=_before_growth),
    Shrink: Verb(call="shrink", plan=_shrunk),
    Remap: Verb(call="remap", plan=_remapped, ask=_before_remap, takes_turn=True),
    Seal: Verb(call="seal", plan=_sealed, takes_turn=True, if_attached=True),
    Unseal: Verb(call="unseal", plan=_unsealed, if_attached=True),
    Sleep: Verb(call="sleep", plan=_asleep, ask=_before_sleep, takes_turn=True),
    Wake: Verb(call="wake", plan=_awake, ask=_before_wake, takes_turn=True),
    ComeHome: Verb(call="wake", plan=_at_home, ask=_before_wake, takes_turn=True),
    AddLanes: Verb(call="", plan=_with_lanes, if_attached=True),
}
"""The table. Seal takes the turn, because a copy that is under way would write what is read-only."""
