"""Refuses peer links that would open mappings of other layouts of this process (lowering/openings.py)."""

from __future__ import annotations

from collections.abc import Iterator

from hipplan import _core
from hipplan.layout import holding
from hipplan.layout.state import State
from hipplan.lowering.openings import Mapped, first_links, opened_by, openings, peers_of, refused
from hipplan.program.change import Change


def require_closed(change: Change, state: State, native: _core.Holdings) -> None:
    """Raises ApplyError (HP424) before the first driver call. state, native: of the layout that changes."""
    links, machine = first_links(change), change.new.measured
    if not links or machine is None:
        return
    others = [other.state for other in holding.live() if other.native is not native]
    others = [other for other in others if other.runtime.path == state.runtime.path]
    reached = {peer for other in others for peer in peers_of(other.program)}
    links = {peer: link for peer, link in links.items() if peer not in reached}
    own, kept = list(_mapped(state)), {step.name for step in opened_by(change)}
    closed_again = {piece.address for piece in own if piece.name in kept}
    everything = [*own, *(piece for other in others for piece in _mapped(other))] if links else []
    for piece, link, widened in openings(everything, links, machine):
        if piece.address not in closed_again:
            hint = "apply the plan with the link first, close the other layout, give rw access, or leave the link out"
            raise refused(piece.name, piece.layout, link, widened, hint=hint)


def _mapped(state: State) -> Iterator[Mapped]:
    program = state.lowered
    try:
        for step in program.mappings():
            access, device = program.rights.get(step.name), program.owners[step.name]
            given = {} if access is None else dict(access.rights)
            yield Mapped(state.address_of(step.name), step.size, device, given, step.name, program.name)
    except IndexError:  # another thread closes that layout
        return
