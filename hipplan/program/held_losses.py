"""What a holder loses when it replaces its memory by that of another plan. Pure.

The new memory is filled beside the old, so its addresses and the bytes of its contents are no losses. Lost are bytes
that attached processes may have written, names that the new plan lacks, and rights that attached processes had.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from hipplan.language.host import HOST, is_host
from hipplan.language.objects import bare_uuid
from hipplan.plain import counted
from hipplan.program.consent import is_allowed, patterns_for, refusal
from hipplan.program.held import Limit, has_writers, limit, mappings
from hipplan.program.losses import less, overlapping, ranges_of
from hipplan.program.program import Program
from hipplan.program.resources import Resource
from hipplan.units import about_size


class HeldLoss(NamedTuple):
    """What one object of the old program loses."""

    what: Literal["byte", "name", "right"]
    kind: str
    name: str
    inside: str
    """The region or reservation that it is in; empty if it is in none."""
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.text}"


def require_consent(old: Program, new: Program, *, given: Limit, access: Limit, lose: Sequence[str]) -> None:
    """Raises ApplyError (HP423): something is lost that `lose` does not name. Arguments as of losses_of_holder()."""
    refused = [loss for loss in losses_of_holder(old, new, given=given, access=access) if not is_allowed(loss, lose)]
    if refused:
        patterns = (f"--lose {shlex.quote(pattern)}" for pattern in [*lose, *patterns_for(refused, old.resources)])
        hint = f"the holder keeps its memory; if this is meant, add {' '.join(patterns)}"
        raise refusal(f"the new plan would lose {total_text(refused)}", map(str, refused), hint)


def losses_of_holder(old: Program, new: Program, *, given: Limit, access: Limit) -> list[HeldLoss]:
    """What attached processes find no more. given: the most that one of them was attached with since the old memory was
    filled. access: the most that the holder allows, now and then."""
    return [*_written(old, given), *_names(old, new), *_rights(old, new, access)]


def total_text(lost: list[HeldLoss]) -> str:
    """How much that is, in words."""
    counts = {what: sum(loss.what == what for loss in lost) for what in ("byte", "name", "right")}
    bytes_of = f"bytes of {counted(counts['byte'], 'object')}" if counts["byte"] else ""
    others = (counted(counts[what], what) for what in ("name", "right") if counts[what])
    *parts, last = filter(None, [bytes_of, *others])
    return f"{', '.join(parts)} and {last}" if parts else last


def _written(old: Program, given: Limit) -> Iterator[HeldLoss]:
    """Memory that an attached process could write."""
    known = {resource.name: resource for resource in old.resources}
    sizes: dict[str, int] = {}
    owners: dict[str, Resource] = {}
    for mapping in mappings(old):
        if limit(mapping, given) == "rw" and has_writers(mapping, old) and mapping.memory not in sizes:
            owners[mapping.memory] = known[mapping.inside if mapping.inside in old.regions else mapping.memory]
            sizes[mapping.memory] = known[mapping.memory].size
    for owner in dict.fromkeys(owners.values()):
        size = sum(sizes[memory] for memory in sizes if owners[memory] is owner)
        text = f"{about_size(size)} that attached processes may have written"
        yield HeldLoss("byte", owner.kind, owner.name, "", text)


def _names(old: Program, new: Program) -> Iterator[HeldLoss]:
    names = {resource.name for resource in new.resources}
    for resource in old.resources:
        is_chunk = "#" in resource.name or (resource.memory != "" and resource.inside in old.regions)
        if resource.name not in names and not is_chunk and resource.inside not in old.regions.keys() - names:
            yield HeldLoss("name", resource.kind, resource.name, resource.inside, "is not in the new plan")


def _rights(old: Program, new: Program, access: Limit) -> Iterator[HeldLoss]:
    """Rights at the same places of ranges of the same name."""
    before, now = ranges_of(old), ranges_of(new)
    names = {_identity(old, name): name for name in (*old.devices, HOST)}
    reported = set()
    for range_, maps in before.items():
        for was, is_now in overlapping(maps, now.get(range_, ())):
            had, have = _rights_of(was, old, access), _rights_of(is_now, new, access)
            for who, right in less(had, have):
                of = ("region", range_, "") if range_ in old.regions else (was.kind, was.name, range_)
                loss = HeldLoss("right", *of, f"{names[who]} loses {right} in attached processes")
                if loss not in reported:
                    reported.add(loss)
                    yield loss


def _rights_of(mapping: Resource, program: Program, access: Limit) -> Mapping[str, str]:
    """What each device may do in an attached process, which may unseal what it may write."""
    most = limit(mapping, access)
    given = program.sealed.get(mapping.name, mapping.access) if most == "rw" else mapping.access
    return {_identity(program, who): min(right, most) for who, right in given}


def _identity(program: Program, device: str) -> str:
    """What names a device in the process that filled the old memory and in the one that fills the new."""
    if is_host(device):
        return device
    ordinal, known = program.devices[device], program.measured.devices if program.measured else []
    uuid = known[ordinal].uuid if ordinal < len(known) else None
    return bare_uuid(uuid) if uuid else str(ordinal)
