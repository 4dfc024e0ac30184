"""A program's memory as ribbons: one for each reservation or region, then buffers and unmapped allocations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from hipplan.kinds import lives
from hipplan.pictures.looks import OF_NOBODY, OF_SIGNS, Owners
from hipplan.pictures.managed import advised, tracks
from hipplan.pictures.scene import Box, Chip, Ribbon, Track
from hipplan.pictures.svg import offset
from hipplan.plain import counted
from hipplan.program import steps
from hipplan.program.program import Program
from hipplan.program.resources import RANGES, Access, Resource
from hipplan.units import about_size, full_size

PIECES_MAX = 400
"""At most so many pieces of one ribbon have a box each."""
TENSORS_MAX = 10_000
"""At most so many tensors of a picture have a box each."""
RIBBONS_MAX = 200
_SHOWN_WHO = 4
_NUMBERS = re.compile(r"[0-9]+")
_SHADES = 3
BUFFERS = ("allocation", *sorted(lives.BUFFERS))
"""Kinds of memory without a reservation, in the order in which they are drawn."""


@dataclass(frozen=True, slots=True)
class MappedStretch:
    """Adjacent mapped memory with equal properties."""

    start: int
    end: int
    asked_end: int
    device: str
    access: Access
    state: str
    """sealed, asleep, or nothing."""
    name: str
    memory: str
    sign: str = ""
    """The sign in a difference."""
    count: int = 1


class MemoryRibbons:
    """The ribbons of one program."""

    def __init__(
        self,
        program: Program,
        owners: Owners,
        addresses: Mapping[str, int] | None = None,
        tensors_in_all: int = 0,
        sign_of: Callable[[Resource], str] | None = None,
        change_of: Callable[[Resource], str] = lambda _: "",
        alone: Container[str] = (),
    ) -> None:
        """addresses: of a live layout. tensors_in_all: of the whole picture. sign_of: the sign in a difference.
        change_of: what happens to a buffer in a difference. alone: buffers with ribbons of their own, besides those
        with advice."""
        self.program = program
        self.owners = owners
        self.sign_of = sign_of or (lambda _: "")
        self._change_of = change_of
        self._is_change = sign_of is not None
        self._addresses = addresses or {}
        self._together = -(-tensors_in_all // TENSORS_MAX) or 1
        self._inside: dict[str, list[Resource]] = defaultdict(list)
        self._tensors: dict[str, list[Resource]] = defaultdict(list)
        for resource in program.resources:
            if resource.kind in ("mapping", "tensor"):
                (self._inside if resource.kind == "mapping" else self._tensors)[resource.inside].append(resource)
        self._reserved = program.reservations
        self._advised = advised(program)
        self._alone = alone
        self._about: dict[str, list[str]] = defaultdict(list)
        for _, step in program.single:
            if not step.makes and not step.is_content and not step.awaits_stream:
                self._about[step.name].append(f"{step.call}: {step.describe()}")

    def ranges(self) -> list[Resource]:
        """Regions and reservations, which have ribbons of their own."""
        return [resource for resource in self.program.resources if resource.kind in RANGES and "#" not in resource.name]

    def ribbons(self) -> Iterator[Ribbon]:
        ranges = self.ranges()
        seen: set[object] = set()
        for range_ in ranges[:RIBBONS_MAX]:
            ribbon = self.ribbon(range_)
            alike = _shape(ribbon)
            yield replace(ribbon, flat=alike in seen)
            seen.add(alike)
        if rest := ranges[RIBBONS_MAX:]:
            yield self._side_by_side("more", f"{len(rest)} more reservations", rest)
        buffers = self.buffers()
        alone = [buffer for buffer in buffers if buffer.name in self._advised or buffer.name in self._alone]
        yield from map(self._managed, alone[:RIBBONS_MAX])
        drawn = {buffer.name for buffer in alone[:RIBBONS_MAX]}
        if rest := [buffer for buffer in buffers if buffer.name not in drawn]:
            yield self._side_by_side("buffers", "buffers", rest)

    def buffers(self) -> list[Resource]:
        """Buffers and unmapped allocations, by kind; a # in a name marks hipplan's own."""
        mapped = {mapping.memory for mappings in self._inside.values() for mapping in mappings}
        alone = [resource for resource in self.program.resources
                 if resource.kind in BUFFERS and resource.name not in mapped and "#" not in resource.name]  # fmt: skip
        return sorted(alone, key=lambda buffer: BUFFERS.index(buffer.kind))

    def ribbon(self, of: Resource) -> Ribbon:
        """The ribbon of a reservation or region."""
        pieces = self.pieces(of.name)
        tensors = self._tensors.get(of.name, [])
        boxes = [self._box(piece, of) for piece in pieces]
        if len(boxes) > PIECES_MAX:
            boxes = [self._mixed(group) for group in _in_groups(pieces, PIECES_MAX)]
        tracks = [Track("memory", (*boxes, *self._padding(pieces, tensors)))]
        if tensors:
            tracks.append(Track("tensors", tuple(self._tensor_boxes(tensors)), "tensors"))
        rights = dict.fromkeys(piece.access for piece in pieces)
        if len(rights) > 1:
            tracks += self._access(pieces)
        reserved = self._reserved[of.name].size if of.name in self._reserved else of.size
        mapped = sum(piece.end - piece.start for piece in pieces)
        holders = list(dict.fromkeys(piece.device for piece in pieces))
        facts = about_size(mapped) + (f" on {holders[0]}" if len(holders) == 1 else "")
        facts += f", {about_size(reserved)} of addresses" if reserved > mapped else ""
        return Ribbon(
            key=(of.kind, of.name),
            name=of.name,
            kind=of.kind,
            facts=facts + self._where(of.name) + (f", {counted(len(tensors), 'tensor')}" if tensors else ""),
            size=max(reserved, mapped),
            tracks=tuple(tracks),
            chips=(*self._states(of.name, pieces), *(_who(next(iter(rights))) if len(rights) == 1 else ())),
        )

    def pieces(self, inside: str) -> list[MappedStretch]:
        """The mapped pieces. Equal neighbours are one piece in a region, or if there are very many."""
        mapped = sorted(self._inside.get(inside, []), key=attrgetter("offset"))
        pieces = [
            MappedStretch(mapping.offset, mapping.offset + mapping.size, mapping.offset + mapping.asked, mapping.device,
                  mapping.access, "asleep" if mapping.asleep else "sealed" * mapping.sealed, mapping.name,
                  mapping.memory, self.sign_of(mapping))
            for mapping in mapped
        ]  # fmt: skip
        if inside not in self.program.regions and len(pieces) <= PIECES_MAX:
            return pieces
        merged: list[MappedStretch] = []
        for piece in pieces:
            last = merged[-1] if merged else None
            if last and last.end == piece.start == last.asked_end and _alike(last, piece):
                merged[-1] = replace(last, end=piece.end, asked_end=piece.asked_end, count=last.count + 1)
            else:
                merged.append(piece)
        return merged

    def _box(self, piece: MappedStretch, of: Resource) -> Box:
        size = full_size(piece.end - piece.start)
        chunks = f", {piece.count} chunks" if piece.count > 1 else ""
        title = [piece.name + (f" and {piece.count - 1} more" if piece.count > 1 else "")]
        memory = "" if of.kind == "region" else f" of {piece.memory}"
        title.append(f"{size}{chunks}{memory} on {piece.device}, at {offset(piece.start)}")
        title.append("access: " + (", ".join(f"{who} {right}" for who, right in piece.access) or "nobody"))
        if piece.state:
            title.append(piece.state)
        label = piece.device + chunks if of.kind == "region" else f"{piece.memory} · {piece.device}"
        look = self._look(piece.device, piece.sign)
        return Box(piece.start, piece.end, f"{look} {piece.state}".rstrip(), label, "\n".join(title))

    def _look(self, holder: str, sign: str) -> str:
        return OF_SIGNS[sign] if sign else self.owners.look(self.program, holder)

    def _mixed(self, pieces: Sequence[MappedStretch]) -> Box:
        """One box for many small pieces."""
        sizes: dict[str, int] = defaultdict(int)
        for piece in pieces:
            sizes[piece.device] += piece.end - piece.start
        who = ", ".join(f"{device} {full_size(size)}" for device, size in sizes.items())
        title = f"{pieces[0].name} to {pieces[-1].name}\n{who}, in turns\nat {offset(pieces[0].start)}"
        look = OF_SIGNS[pieces[0].sign] if pieces[0].sign else self.owners.mixed(self.program, sizes)
        return Box(pieces[0].start, pieces[-1].end, look, ", ".join(sizes), title)

    def _padding(self, pieces: Sequence[MappedStretch], tensors: Sequence[Resource]) -> Iterator[Box]:
        """Mapped bytes that no object of the plan uses."""
        holes = [(piece.asked_end, piece.end) for piece in pieces if piece.asked_end < piece.end]
        if tensors:
            holes = [*_between(sorted((tensor.offset, tensor.offset + tensor.size) for tensor in tensors), pieces)]
        word = "without a tensor" if tensors else "padding"
        for start, end in sorted(sorted(holes, key=lambda hole: hole[0] - hole[1])[:PIECES_MAX]):
            title = f"{word}: {full_size(end - start)}\nat {offset(start)}"
            yield Box(start, end, "padding", "", title)

    def _tensor_boxes(self, tensors: Sequence[Resource]) -> Iterator[Box]:
        """Shaded by family: names that differ in numbers alone."""
        families: dict[str, int] = {}
        for number in range(0, len(tensors), self._together):
            group = tensors[number : number + self._together]
            first, last = group[0], group[-1]
            who = first.devices
            sign = self.sign_of(first)
            look = OF_SIGNS[sign] if sign else self.owners.look(self.program, who[0]) if len(who) == 1 else "several"
            short = first.name[len(first.inside) + 1 :]
            shade = families.setdefault(_NUMBERS.sub("", short), len(families)) % _SHADES
            look += f" f{shade}" if shade and not sign else ""
            if len(group) > 1:
                title = f"{first.name} to {last.name}\n{len(group)} tensors at {offset(first.offset)}"
                yield Box(first.offset, max(piece.offset + piece.size for piece in group), look, short, title)
                continue
            shape = "×".join(map(str, first.shape))
            title = f"{first.name}\n{first.dtype} {shape}, {full_size(first.size)} at {offset(first.offset)}"
            yield Box(first.offset, first.offset + first.size, look, short, f"{title}\non {', '.join(who)}")

    def _access(self, pieces: Sequence[MappedStretch]) -> Iterator[Track]:
        """A track for each device that may use some of it: thick for rw, thin for r."""
        users = dict.fromkeys(who for piece in pieces for who, _ in piece.access)
        for who in users:
            spans: list[tuple[int, int, str]] = []
            for piece in pieces:
                right = dict(piece.access).get(who, "none")
                if spans and spans[-1][1:] == (piece.start, right):
                    spans[-1] = (spans[-1][0], piece.end, right)
                else:
                    spans.append((piece.start, piece.end, right))
            look = OF_NOBODY if self._is_change else self.owners.look(self.program, who)
            boxes = (
                Box(start, end, f"{look} {right}", right,
                    f"{who}: {right}\n{full_size(end - start)} at {offset(start)}")
                for start, end, right in spans if right != "none"
            )  # fmt: skip
            yield Track("access", tuple(boxes), who)

    def _where(self, name: str) -> str:
        if name in self._addresses:
            return f" at {self._addresses[name]:#x}"
        step = self._reserved.get(name)
        if step is None or not step.address:
            return ""
        return f" at {step.address:#x}" + ("" if step.exact else " if free")

    def _states(self, name: str, pieces: Sequence[MappedStretch]) -> Iterator[Chip]:
        shared = self.program.shared.get(name.partition(steps.RANK_SIGN)[0])
        if shared is not None and shared.region.spec.addresses == "symmetric":
            yield Chip("symmetric", "state", "at the same place in every rank")
        for state in dict.fromkeys(piece.state for piece in pieces if piece.state):
            yield Chip(state, f"state {state}")

    def _side_by_side(self, kind: str, about: str, resources: Sequence[Resource]) -> Ribbon:
        """Objects of one kind, with widths by size; their order has no meaning."""
        group = -(-len(resources) // TENSORS_MAX)
        boxes, at = [], 0
        for number in range(0, len(resources), group):
            these = resources[number : number + group]
            end = at + max(1, sum(piece.size for piece in these))
            holder = "" if lives.lies(these[0].kind) == "anywhere" else these[0].device
            look = self._look(holder, self.sign_of(these[0]))
            boxes.append(Box(at, end, look, f"{these[0].name} · {these[0].kind}", self._title(these)))
            at = end
        kinds = Counter(piece.kind for piece in resources)
        facts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        facts += f", {about_size(sum(piece.size for piece in resources))}"
        tracks = (Track("memory", tuple(boxes)),)
        return Ribbon(key=(kind, ""), name=about, kind="", facts=facts, size=at, tracks=tracks, has_addresses=False)

    def _managed(self, buffer: Resource) -> Ribbon:
        """The ribbon of a managed buffer, with the ranges that advice and prefetches are for."""
        look = self._look("", self.sign_of(buffer))
        memory = Track("memory", (Box(0, buffer.size, look, f"{buffer.name} · managed", self._title([buffer])),))
        about = self._advised.get(buffer.name, ())
        ranges = tracks(self.program, self.owners, about, buffer.size, is_change=self._is_change)
        return Ribbon(
            key=(buffer.kind, buffer.name),
            name=buffer.name,
            kind=buffer.kind,
            facts=about_size(buffer.size),
            size=buffer.size,
            tracks=(memory, *ranges),
        )

    def _title(self, resources: Sequence[Resource]) -> str:
        first = resources[0]
        if len(resources) > 1:
            size = full_size(sum(resource.size for resource in resources))
            return f"{first.name} to {resources[-1].name}\n{len(resources)} objects, {size}"
        size = full_size(first.size) if first.size else "as large as what is passed"
        where = f" on {first.device}" if first.device and lives.lies(first.kind) != "anywhere" else ""
        size = f"{first.kind}, {size}"
        facts = [first.name, f"{size}{where}", self._change_of(first), *self._about.get(first.name, [])]
        return "\n".join(filter(None, facts))


def _alike(first: MappedStretch, second: MappedStretch) -> bool:
    alike = (first.device, first.access) == (second.device, second.access)
    return alike and (first.state, first.sign) == (second.state, second.sign)


def _in_groups(pieces: Sequence[MappedStretch], count: int) -> Iterator[Sequence[MappedStretch]]:
    """At most twice as many groups of neighbours, without a hole inside of any."""
    each = -(-len(pieces) // count)
    numbered = enumerate(pieces)
    runs = groupby(numbered, key=lambda pair: pair[0] // each)
    for _, run in runs:
        pieces = [piece for _, piece in run]
        begin = 0
        for number in range(1, len(pieces) + 1):
            if number == len(pieces) or pieces[number].start != pieces[number - 1].end:
                yield pieces[begin:number]
                begin = number


def _between(taken: Sequence[tuple[int, int]], pieces: Sequence[MappedStretch]) -> Iterator[tuple[int, int]]:
    """The parts of the pieces that nothing takes. Both arguments are sorted."""
    number = 0
    for piece in pieces:
        at = piece.start
        while number < len(taken) and taken[number][0] < piece.end:
            low, high = taken[number]
            if low > at:
                yield at, low
            at = max(at, high)
            if high > piece.end:
                break  # it goes on in the next piece
            number += 1
        if at < piece.end:
            yield at, piece.end


def _who(access: Access) -> Iterator[Chip]:
    """One chip for each right that some device has on all of it."""
    for right in ("rw", "r"):
        who = [name for name, given in access if given == right]
        if who:
            shown = ", ".join(who[:_SHOWN_WHO]) + (f" and {len(who) - _SHOWN_WHO} more" * (len(who) > _SHOWN_WHO))
            yield Chip(f"{right}: {shown}", f"right {right}", f"{right}: {', '.join(who)}")
    if not access:
        yield Chip("nobody", "right")


def _shape(ribbon: Ribbon) -> object:
    """A key: of ribbons with the same key, only one is drawn at its full height."""
    boxes = tuple((box.start, box.end, box.label) for track in ribbon.tracks[1:] for box in track.boxes)
    return (ribbon.kind, ribbon.size, boxes) if len(boxes) > 1 else object()
