"""Sleep and wake of a live layout, from what the caller passes to the change that the engine carries out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import replace

from hipplan.errors import ApplyError, LayoutInUse, suggest
from hipplan.files.output import unwritten
from hipplan.files.places import NameInFolder
from hipplan.layout.engine import carry_out
from hipplan.layout.holding import Holding
from hipplan.layout.notice import Notice, OnNames
from hipplan.layout.options import OnBytes, Options
from hipplan.layout.pools_asleep import pools_asleep, pools_awake
from hipplan.layout.torchpool import TorchPool
from hipplan.layout.verbs import ComeHome, Sleep, Wake
from hipplan.program import patterns, sleepers
from hipplan.program.backups import DROP, FILE, HOST, MAPPED
from hipplan.program.difference import Difference, difference
from hipplan.program.inventory import places_asleep
from hipplan.program.lookup import resource_of
from hipplan.program.patterns import Names, listed
from hipplan.program.program import Program
from hipplan.program.refusals import refuse, refuse_asleep
from hipplan.program.regions import memory_of
from hipplan.program.sleeping_bytes import plan_name_of


def sleep(
    holding: Holding,
    torch_pools: Collection[TorchPool],
    names: Names,
    *,
    to: str | os.PathLike[str],
    unchanged: Names,
    checksum: bool | None,
    force: bool,
    on_unmap: OnNames | None,
    on_map: OnNames | None,
    on_bytes: OnBytes | None,
) -> Difference:
    """layout.sleep(). torch_pools: pools inside the layout's memory, whose unused blocks PyTorch frees first."""
    holding.require_open()
    program = holding.state.program
    with pools_asleep(holding, names, to) as others:
        if not others:
            return difference(program, program)
        with holding.turn.taken():
            for pool in torch_pools:
                pool.trim()
            wanted = _wanted(holding.state.program, others, to, listed(unchanged), checksum)
            notice = Notice(wanted.names, on_unmap, on_map)
            if on_map is not None:
                holding.on_map[wanted.names] = on_map
            try:
                return carry_out(holding, wanted, Options(on_bytes=on_bytes, force=force, notice=notice))
            except BaseException as error:
                if not any(_sleeps(holding.state.program, name) for name in wanted.names):
                    holding.on_map.pop(wanted.names, None)
                    notice.take_back()
                if isinstance(error, LayoutInUse):
                    raise LayoutInUse(holding.under_way.explained(replace(error.diagnostics[0], hint=_FORCE))) from None
                raise


def _wanted(
    program: Program, names: Names, to: str | os.PathLike[str], unchanged: tuple[str, ...], checksum: bool | None
) -> Sleep:
    """What is to sleep, and where its bytes go. Raises ApplyError, TypeError, ValueError."""
    given = listed(names)
    kind, file = _place(to)
    if kind == MAPPED and (unchanged or checksum):
        what = "unchanged" if unchanged else "checksum"
        raise refuse(f"{what}= is about a copy, and memory that stays mapped has none", hint=f"leave {what} out")
    chosen = (
        sleepers.able(program, kind) if names is sleepers.ABLE else patterns.chosen(program, given, *sleepers.KINDS)
    )
    same = patterns.chosen(program, unchanged, *sleepers.KINDS)
    return Sleep(chosen, kind, file, same, checked=kind == FILE if checksum is None else checksum)


def _place(to: str | os.PathLike[str]) -> tuple[str, str]:
    """Where bytes go, and the path of a file: one for each file, whatever links lead to its folder.

    Raises ValueError, TypeError, ApplyError.
    """
    if to in (HOST, DROP, MAPPED):
        return str(to), ""
    if not (path := os.fsdecode(to)):
        raise ValueError("to is 'host', 'mapped', 'drop' or the path of a file")
    if "/" not in path and (meant := suggest(path, (HOST, MAPPED, DROP))):
        raise refuse(f"sleep cannot put bytes to '{path}'", hint=f"{meant} A file of that name is ./{path}")
    if path.endswith((".npy", ".safetensors", ".index.json")):
        raise refuse(f"{path} would hold raw bytes, but its extension names another format", hint="name it .bin")
    try:
        with NameInFolder(path) as place:
            return FILE, place.resolved
    except (OSError, ValueError) as error:
        raise ApplyError(unwritten(path, "", error)) from None


_FORCE = (
    "first delete the arrays and tensors made from it, or call sleep(force=True): any use of them, or of a "
    "captured graph, then faults the GPU until wake()"
)


def wake(holding: Holding, names: Names | None, *, retain: bool, on_bytes: OnBytes | None) -> Difference:
    """layout.wake()."""
    holding.require_open()
    program = holding.state.program
    with pools_awake(holding, names, retain=retain) as others:
        if others is not None and not others:
            return difference(program, program)
        options = Options(on_bytes=on_bytes)
        try:
            done = [carry_out(holding, wanted, options) for wanted in _woken(holding.state.program, others, retain)]
            return done[0]
        finally:
            _call_on_map(holding)


def _woken(program: Program, names: Names | None, retain: bool) -> list[Wake | ComeHome]:
    """What is to wake: what was mapped comes home in a change of its own, after the others. Raises ApplyError."""
    wanted = None if names is None else patterns.chosen(program, listed(names), *sleepers.KINDS)
    if not sleepers.units_away(program, wanted):
        return [Wake(wanted, retain)]
    home = ComeHome(wanted, retain)
    return [Wake(wanted, retain), home] if sleepers.is_any_asleep(program, wanted) else [home]


def _call_on_map(holding: Holding) -> None:
    """Calls the on_map of sleep() for memory that is restored."""
    for names, on_map in list(holding.on_map.items()):
        if not any(_sleeps(holding.state.program, name) for name in names):
            del holding.on_map[names]
            if all(resource_of(holding.state.program, name) for name in names):  # else an update took something away
                on_map(names)


def _sleeps(program: Program, name: str) -> bool:
    return program.sleeps(name) or program.is_away(name)


def asleep(program: Program) -> dict[str, str]:
    """layout.asleep"""
    places = places_asleep(program.sleeping, program.backups)
    regions = (name for name in program.regions if memory_of(name, 0) in places)
    alone = (name for name in places if "#" not in name)
    there = {name: places[memory_of(name, 0)] for name in regions} | {name: places[name] for name in alone}
    return there | {plan_name_of(program, memory): MAPPED for memory in program.away}


def require_awake(program: Program, names: Iterable[str]) -> None:
    """Raises ApplyError (HP441)."""
    for name in names:
        if program.sleeps(name):
            raise refuse_asleep(name)
