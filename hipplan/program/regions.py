"""Regions made concrete for a machine: chunks, parts and the places of tensors.

Everything here is arithmetic. A region becomes allocations (name#0, name#1, ...), a reservation of its own name and
mappings (name[0], ...), so that preflight, steps, verification and undo need no code for regions.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, cycle, islice, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from hipplan.errors import Diagnostic, Span
from hipplan.language.budget import Budget
from hipplan.language.counted import NUMBER
from hipplan.language.findings import Findings
from hipplan.language.model import Attached, Tensor
from hipplan.language.objects import Objects, ResolvedRegion
from hipplan.plain import shown_number
from hipplan.program.chunks import Chunks, chunks_in, parts_for, with_chunk
from hipplan.program.memo import keep
from hipplan.program.on_demand import Repeated, are_many, shortest, turned
from hipplan.program.resources import Access, Resource, everywhere
from hipplan.program.series import Series, counted, segments
from hipplan.units import full_size, round_up

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan

Needed = tuple[str, Tensor, int, int]
"""(name, tensor, alignment of its offset, its bytes: of one row where a dimension is -1)."""

Granularity = Callable[[str], int]
"""Device name -> the granularity of memory on it."""


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int
    open: bool
    """Its size follows the mapped size: one dimension is -1."""


@dataclass(frozen=True)
class SharedRegion:
    """A region that one rank makes and others map, as this rank's plan has it."""

    region: ResolvedRegion
    origin: Span | None = None

    @property
    def right(self) -> str:
        """The right of the ranks that map it."""
        return self.region.spec.map.access if self.region.spec.map else "none"


@dataclass(frozen=True)
class PlacedRegion:
    """A region with its sizes on a machine."""

    region: ResolvedRegion
    chunks: Chunks
    """Its pieces of memory."""
    asked: int
    """The requested bytes: the size, or what the tensors need."""
    tensors: tuple[PlacedTensor, ...]

    def __post_init__(self) -> None:
        if isinstance(self.chunks, list):  # read from JSON
            object.__setattr__(self, "chunks", tuple(self.chunks))

    @cached_property
    def mapped(self) -> int:
        """The bytes of all chunks."""
        return sum(many * size for (_, size), many in counted(self.chunks))

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The region's devices, to which new memory is added, then those that parts of it have moved to."""
        return tuple(dict.fromkeys(chain(self.region.devices, (device for (device, _), _ in counted(self.chunks)))))

    @cached_property
    def parts(self) -> Sequence[tuple[str, int, int]]:
        """(device, start, end) of each contiguous part."""
        parts: list[tuple[str, int, int]] = []
        start = end = 0
        last = ""
        for device, size in self._stretches():
            if last and device != last:
                parts.append((last, start, end))
                start = end
            last, end = device, end + size
        return [*parts, (last, start, end)] if last else parts

    def _stretches(self) -> list[tuple[str, int]]:
        """(device, bytes) of chunks and of chunks together, in the order of addresses."""
        stretches: list[tuple[str, int]] = []
        for part in segments(self.chunks):
            if isinstance(part, Repeated) and len(part.cycle) == 1:
                ((device, size),) = part.cycle
                stretches.append((device, len(part) * size))
            else:
                stretches += part
        return stretches

    def chunk_of_each_device(self) -> dict[str, int]:
        """Device -> the number of one of its chunks."""
        if len(self.devices) == 1 and self.chunks:
            return {self.chunks[0][0]: 0}
        numbers, first = dict.fromkeys((device for (device, _), _ in counted(self.chunks)), 0), 0
        for part in segments(self.chunks):
            few = range(max(0, len(part) - len(part.cycle)) if isinstance(part, Repeated) else 0, len(part))
            numbers |= {part[number][0]: first + number for number in few}
            first += len(part)
        return numbers

    def chunk_at(self, number: int) -> tuple[str, int]:
        """(device, bytes) of the chunk with this number; it may be one that growing would add."""
        if number < len(self.chunks):
            return self.chunks[number]
        holders = self.region.devices
        return holders[number % len(holders)], self.chunk

    @property
    def chunk(self) -> int:
        """The bytes of each chunk that growing adds."""
        if self.chunks:
            return self.chunks[0][1]
        assert self.region.spec.chunk is not None, "lay_out() gives a region that starts empty its chunk"
        return self.region.spec.chunk

    def resources(
        self, access: Mapping[str, Access], attached: Attached = "r", *, sealed: bool = False
    ) -> Iterator[Resource]:
        """The region itself and its tensors, as a user sees them.

        access: device that has memory of it -> who may use that memory now.
        """
        name, first = self.region.name, self.region.devices[0]
        differ = len(set(access.values())) > 1
        common: dict[tuple[str, ...], Access] = {}

        def to_all(shares: tuple[tuple[str, int], ...]) -> Access:
            """What each device may do with all bytes of these holders."""
            if not differ:
                return next(iter(access.values()), ())
            holders = tuple(device for device, _ in shares)
            if holders not in common:
                common[holders] = everywhere(access[device] for device in holders)
            return common[holders]

        whole = self._bytes_by_device(0, self.mapped)
        yield Resource(
            name=name,
            kind="region",
            device=whole[0][0] if whole else first,
            asked=self.asked,
            size=self.mapped,
            access=to_all(whole),
            access_by_holder=tuple(access.items()) if differ else (),
            attached=attached,
            sealed=sealed,
            overflow=self.region.spec.overflow is not None,
            bytes_by_device=whole,
        )
        for tensor in self.tensors:
            shares = self._bytes_by_device(tensor.offset, tensor.size)
            yield Resource(
                name=tensor.name,
                kind="tensor",
                device=shares[0][0] if shares else first,
                asked=tensor.size,
                size=tensor.size,
                access=to_all(shares),
                attached=attached,
                sealed=sealed,
                inside=name,
                offset=tensor.offset,
                dtype=tensor.dtype,
                shape=tensor.shape,
                bytes_by_device=shares if len(shares) > 1 else (),
            )

    def _bytes_by_device(self, start: int, size: int) -> tuple[tuple[str, int], ...]:
        """(device, bytes) of a range, if there is more than one device."""
        if len(self.devices) == 1:
            return ()
        shares: dict[str, int] = {}
        begins = bisect_right(self.parts, start, key=itemgetter(2))  # there may be thousands of parts and of tensors
        for number in range(begins, len(self.parts)):
            device, low, high = self.parts[number]
            if low >= start + size:
                break
            shares[device] = shares.get(device, 0) + min(high, start + size) - max(low, start)
        return tuple(shares.items())


def lay_out(plan: LoadedPlan, granularity: Granularity, findings: Findings) -> dict[str, PlacedRegion]:
    """Every region of a plan. HP212: a tensor does not fit. Raises PlanError (HP023): too many chunks."""
    budget = plan.budget
    regions = plan.objects.regions
    return {name: _lay_out(region, plan, granularity, findings, budget) for name, region in regions.items()}


def memory_of(region: str, chunk: int | str) -> str:
    """The name of the allocation behind a chunk. chunk: its number, or "0..3" for several."""
    return f"{region}#{chunk}"


def mapping_of(region: str, chunk: int | str) -> str:
    """The name of the mapping of a chunk. chunk: as of memory_of()."""
    return f"{region}[{chunk}]"


class Numbers(NamedTuple):
    """What numbers_in() returns."""

    of: str
    """The name before the number."""
    is_memory: bool
    """Whether it is a name of memory_of(), not of mapping_of()."""
    first: int
    last: int | None
    """None: one number."""


_NUMBERED = re.compile(rf"([^#[]+)(?:#{NUMBER}(?:\.\.{NUMBER})?|\[{NUMBER}(?:\.\.{NUMBER})?\])").fullmatch


def numbers_in(name: str) -> Numbers | None:
    """Which chunks' memory or mapping has this name: kv#0..3 and kv[0..3] stand for several. None: it is no chunk's."""
    if (match := _NUMBERED(name)) is None:
        return None
    of, memory, last_memory, mapping, last_mapping = match.groups()
    first, last = (mapping, last_mapping) if memory is None else (memory, last_memory)
    return Numbers(of, memory is not None, int(first), None if last is None else int(last))


def moved(region: PlacedRegion, places: Iterable[tuple[range, Sequence[str]]]) -> PlacedRegion:
    """The same region with chunks on other devices. places: (numbers of chunks, the devices that they have in turn)."""
    chunks = Series(region.chunks)
    alone: dict[int, tuple[str, int]] = {}
    together: dict[int, Chunks] = {}
    for numbers, devices in places:
        if not are_many(len(numbers)):  # without a look at others
            alone |= {n: (device, chunks[n][1]) for n, device in zip(numbers, cycle(devices))}
            continue
        number = numbers.start
        for part in chunks.parts_between(numbers.start, numbers.stop):
            now = turned(tuple(devices), number - numbers.start)
            if isinstance(part, Repeated):
                few = min(len(part), math.lcm(len(part.cycle), len(now)))
                both = zip(islice(cycle(now), few), part, strict=False)
                together[number] = Repeated(shortest([(device, size) for device, (_, size) in both]), len(part))
            else:
                alone |= {n: (device, size) for n, device, (_, size) in zip(count(number), cycle(now), part)}
            number += len(part)
    made = replace(region, chunks=(chunks.with_parts(together) if together else chunks).with_changed(alone))
    keep(made, mapped=region.mapped)
    return made


def rights_of_attached(objects: Objects) -> dict[str, Attached]:
    """Program.attached, made from the plan's objects."""
    ranges = objects.reservations.values()
    attached: dict[str, Attached] = {
        range_.name: range_.spec.attached for range_ in ranges if range_.spec.attached != "r"
    }
    for range_ in ranges:
        own = range_.spec.attached
        for line in range_.lines:
            if line.first.attached != own:
                attached |= {mapping.name: mapping.attached for mapping in line.members()}
    return attached


def _lay_out(
    region: ResolvedRegion, plan: LoadedPlan, granularity: Granularity, findings: Findings, budget: Budget
) -> PlacedRegion:
    step = max(granularity(device) for device in (*region.devices, *region.gpus))  # to move from one to another
    if region.spec.starts_empty:
        region = region._replace(spec=with_chunk(region.spec, step))
    spec = region.spec

    def ask(chunks: int) -> None:
        links = chunks * len(region.access)
        for kind, number in (("objects", 2 * chunks), ("steps", 1 + 3 * chunks), ("links", links)):
            who = f"'{region.name}', in {shown_number(chunks)} chunks,"
            budget.take(kind, number, who, lambda: plan.span(*region.path))

    tensors = [(short, tensor, tensor.step, tensor.bytes_least) for short, tensor in spec.tensors.items()]
    if spec.sizes is not None:
        asked = sum(spec.sizes)
        needs = dict(zip(region.devices, spec.sizes, strict=True))
        chunks = parts_for(needs, round_up(spec.chunk, step) if spec.chunk else 0, step, ask)
    elif isinstance(spec.size, int):
        asked = spec.size
        chunks = chunks_in(region, asked, step, ask)
    elif any(tensor.device for tensor in spec.tensors.values()):
        needs = dict.fromkeys(region.devices, 0)
        for _, tensor, multiple, size in tensors:
            if tensor.device in needs:
                needs[tensor.device] = round_up(needs[tensor.device], multiple) + size
        asked = sum(needs.values())
        chunks = parts_for(needs, round_up(spec.chunk, step) if spec.chunk else 0, step, ask)
    else:
        asked = 0
        for _, _, multiple, size in tensors:
            asked = round_up(asked, multiple) + size
        chunks = chunks_in(region, asked, step, ask)
    bare = PlacedRegion(region, chunks, asked, ())
    return replace(bare, tensors=tuple(_place(bare, tensors, plan, findings))) if tensors else bare


def _place(placed: PlacedRegion, tensors: Sequence[Needed], plan: LoadedPlan, findings: Findings) -> list[PlacedTensor]:
    """Place each tensor behind the one before it, or behind the last one in its device's part."""
    region = placed.region
    ends = {device: end for device, _, end in placed.parts} if len(region.devices) > 1 else {}
    cursors = {device: start for device, start, _ in placed.parts} if ends else {}
    cursor, out = 0, []
    for short, tensor, step, least in tensors:
        pinned = tensor.device if tensor.device in ends else None
        limit = ends[pinned] if pinned else placed.mapped
        start = round_up(cursors[pinned] if pinned else cursor, step)
        shape, size = fitted_shape(tensor, least, start, limit)
        cursor = start + size
        if pinned:
            cursors[pinned] = cursor
        name = f"{region.name}.{short}"
        if cursor > limit or size == 0:
            findings.add(_too_large(name, tensor, limit - start, plan.span(*region.path, "tensors", short)))
            return []
        out.append(PlacedTensor(name, tensor.dtype, shape, start, size, -1 in tensor.shape))
    if any(tensor.device for tensor in region.spec.tensors.values()):
        _check_overlap(out, plan, region, findings)
    return out


def fitted_shape(tensor: Tensor, row: int, offset: int, limit: int) -> tuple[tuple[int, ...], int]:
    """(shape, bytes) of a tensor; a dimension of -1 gets as many rows as fit before the limit."""
    if -1 not in tensor.shape:
        return tuple(tensor.shape), row
    rows = max(0, limit - offset) // row
    return tuple(rows if n == -1 else n for n in tensor.shape), rows * row


def _too_large(name: str, tensor: Tensor, room: int, span: Span | None) -> Diagnostic:
    return Diagnostic(
        "HP212",
        f"'{name}' needs {full_size(tensor.bytes_least)}, {full_size(max(room, 0))} are left for it",
        span,
        hint="make the region larger, or remove its size",
    )


def _check_overlap(out: list[PlacedTensor], plan: LoadedPlan, region: ResolvedRegion, findings: Findings) -> None:
    """HP212: overlapping tensors. Only those with a given device can overlap one that follows another."""
    for tensor, other in pairwise(sorted(out, key=lambda tensor: tensor.offset)):
        if other.offset < tensor.offset + tensor.size:
            span = plan.span(*region.path, "tensors", other.name[len(region.name) + 1 :])
            summary = f"'{other.name}' overlaps '{tensor.name}'"
            findings.add(Diagnostic("HP212", summary, span, hint="write device: for all tensors of the region"))
