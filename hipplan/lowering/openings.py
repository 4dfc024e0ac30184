"""Which mappings new peer links open on HIP 7.0 to 7.2, and the steps that close them again. Pure.

There a link to a device gives every device that is linked to it read and write access to the mappings of its memory
that exist, and to what is mapped directly behind them. Disabling the link takes nothing back. Each mapping opens once,
with the first link; one that was made beside a link to its device never does (the simulator's quirk
peer_access_opens_mappings).

So links come before everything else in a change. Directly after them, the mappings of the old program get their rights
again. The same call before the links stores the undo, so that a roll back sets these rights after it has disabled the
links. Mappings of other layouts are never altered: a link that would open them is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from hipplan.errors import ApplyError, Diagnostic
from hipplan.kinds.mapping.live import KeepAccess, Map, Rights, SetAccess
from hipplan.kinds.peer.live import EnablePeer
from hipplan.lowering.pieces import whole_name
from hipplan.lowering.sure_access import Ranges, concerned, right_sets
from hipplan.machines.machine import Machine
from hipplan.program.change import Change
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.program.runs import plain
from hipplan.program.steps import UNSEEN


class Mapped(NamedTuple):
    """A mapping of a layout, at its address."""

    address: int
    size: int
    device: int
    """Whose memory it is, as of facts.Owners."""
    rights: Mapping[int, str]
    name: str
    layout: str
    """The name of its plan."""


def first_links(change: Change) -> dict[int, EnablePeer]:
    """Device -> the first link to it, for devices to which the old program has none. Empty on other releases."""
    if not concerned(change.new.measured):
        return {}
    coming = [step for step in plain(change.additions) if isinstance(step, EnablePeer)]
    links = [*(step for step in change.links if isinstance(step, EnablePeer)), *coming]
    reached = peers_of(change.old) if links else set()
    return {link.peer: link for link in reversed(links) if link.peer not in reached}


def peers_of(program: Program) -> set[int]:
    """The devices to which a program has links."""
    return {step.peer for _, step in program.single if isinstance(step, EnablePeer)}


def with_rights_kept(change: Difference) -> Difference:
    """The change, with steps around its links that keep the rights on mappings of the old program.

    Raises ApplyError (HP424): this release may refuse to set them again.
    """
    kept = tuple(_kept(change))
    if not kept:
        return change
    links = tuple(step for step in change.additions if isinstance(step, EnablePeer))
    return replace(
        change,
        links=(*(replace(step, is_undone=True) for step in kept), *links, *kept),
        additions=tuple(step for step in change.additions if not isinstance(step, EnablePeer)),
    )


def opened_by(change: Change) -> dict[Map, Rights]:
    """The mappings of the old program that new links may open, with the rights that would be lost."""
    links, machine = first_links(change), change.new.measured
    if not links or machine is None:
        return {}
    devices, rights = change.old.owners, right_sets(change.old.steps)
    maps = [*change.old.mappings()]
    memory = {devices[step.name] for step in maps}
    reached = links if UNSEEN in memory else links.keys() & memory
    linked = {device for peer in reached for device in _linked_to(peer, machine)}
    widened = {step: _widened(dict(rights.get(step.name, ())), devices[step.name], linked, machine) for step in maps}
    return {step: kept for step, kept in widened.items() if kept}


def rights_to_read_back(change: Change) -> Program:
    """A program whose steps are the rights on the mappings that the links of a change may have opened."""
    opened = opened_by(change)
    given = change.old.rights
    devices = dict(change.old.devices)
    for widened in opened.values():
        devices |= {f"device {who}": who for who, _ in widened if who not in devices.values()}
    steps = (given.get(step.name, SetAccess(step.name, step.origin, rights=())) for step in opened)
    return replace(change.old, steps=tuple(steps), devices=devices)


def openings(
    mapped: Iterable[Mapped], links: Mapping[int, EnablePeer], machine: Machine
) -> Iterator[tuple[Mapped, EnablePeer, Rights]]:
    """The mappings that links would open, and the rights that would be lost. links: the first to their devices."""
    placed = sorted(mapped, key=lambda piece: piece.address)
    for peer, link in links.items():
        linked, end = _linked_to(peer, machine), 0
        for piece in placed:
            if piece.device in (peer, UNSEEN) or piece.address == end:
                end = piece.address + piece.size
                if widened := _widened(piece.rights, piece.device, linked, machine):
                    yield piece, link, widened


def refused(name: str, layout: str, link: EnablePeer, widened: Rights, *, why: str = "", hint: str) -> ApplyError:
    """HP424: a link would open a mapping."""
    few = ", ".join(f"device {who} (now: {right})" for who, right in widened[:_FEW])
    more = f" and {len(widened) - _FEW} more" if len(widened) > _FEW else ""
    whose = f"'{whole_name(name)}' of the layout '{layout}'"
    opens = f"on HIP 7.0 to 7.2 it gives rw access to mappings that exist, here to {few}{more}"
    return ApplyError(
        Diagnostic(
            "HP424", f"the peer link {link.name} would open {whose}", link.origin, why=f"{opens}{why}", hint=hint
        )
    )


_FEW = 4
"""At most so many devices are shown."""


def _linked_to(peer: int, machine: Machine) -> set[int]:
    return {device for device in range(len(machine.devices)) if device != peer and machine.can_access(device, peer)}


def _widened(rights: Mapping[int, str], device: int, linked: Set[int], machine: Machine) -> Rights:
    """The devices that would get more rights on memory of a device, with their rights now."""
    reach = (who for who in sorted(linked) if device < 0 or machine.can_access(who, device))
    return tuple((who, right) for who in reach if (right := rights.get(who, "none")) != "rw")


def _kept(change: Difference) -> Iterator[KeepAccess]:
    """The calls that give mappings of the old program their rights again. Raises ApplyError (HP424)."""
    opened = opened_by(change)
    if not opened:
        return
    ranges, rights = Ranges(change.old), right_sets(change.old.steps)
    in_range: dict[str, list[Map]] = {}
    for step in change.old.mappings():
        in_range.setdefault(step.reservation, []).append(step)
    for step, widened in opened.items():
        beside = in_range[step.reservation]
        together = len({piece.size for piece in beside}) > 1  # pieces.py
        alike = not together or all(opened.get(piece) == widened for piece in beside)
        now = rights.get(step.name, frozenset())
        if not alike or not ranges.is_sure(step.reservation, step.offset, {now}, together=together):
            link = next(iter(first_links(change).values()))
            why = f"; its rights cannot be set again, because mappings of '{step.reservation}' differ in size"
            raise refused(step.name, change.old.name, link, widened, why=why, hint=_OWN_HINT)
        yield KeepAccess(name=step.name, rights=widened, together=together, is_undone=False, origin=step.origin)


_OWN_HINT = "put the link into the first apply, give rw access, or leave the link out"
