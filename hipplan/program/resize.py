"""Grows and shrinks regions: makes the new program; the change is the difference of the two. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, Rights, SetAccess, rights_of
from hipplan.kinds.reservation.live import Reserve
from hipplan.language.base import FILL
from hipplan.language.budget import LIMITS
from hipplan.language.host import is_host, node_of
from hipplan.program import patterns, steps
from hipplan.program.chunk_runs import MappingRun, MemoryRun
from hipplan.program.chunks import Chunks
from hipplan.program.gathering import pays
from hipplan.program.memo import keep, kept
from hipplan.program.on_demand import Repeated, are_many, repeated
from hipplan.program.program import Program
from hipplan.program.refusals import MAPPED_ON_HOST, refuse, refuse_asleep
from hipplan.program.regions import PlacedRegion, fitted_shape, mapping_of, memory_of
from hipplan.program.runs import Run
from hipplan.program.series import Series, counted
from hipplan.units import SizeError, format_size, full_size, parse_size

Size = int | str
AnyStep = TypeVar("AnyStep", bound=steps.Step)

CHUNKS_MAX = LIMITS["steps"] // 3
"""Chunks of one region at most, as in a plan: memory, mapping and rights take a step each."""


def grown(
    program: Program,
    names: Iterable[str],
    *,
    by: Size | None = None,
    to: Size | None = None,
    free: Mapping[str, int] | None = None,
) -> Program:
    """The program with more memory at the end of regions: of each at least `by` bytes more, or at least `to` in all.
    free: of regions that overflow to the host, bytes that their devices have.

    Raises ApplyError (HP420): no room.
    """
    left, given = None if free is None else {**free}, [*names]
    # Those that cannot go on on the host come first.
    in_turn = sorted(given, key=lambda name: program.regions[name].region.spec.overflow is not None)
    made = {name: _longer(program, name, by, to, left) for name in in_turn}
    return _with_chunks(program, [made[name] for name in given])


def _longer(program: Program, name: str, by: Size | None, to: Size | None, free: dict[str, int] | None) -> PlacedRegion:
    """A region with more chunks. free: as of grown(); what they take is subtracted. Raises as grown()."""
    region = program.regions[name]
    wanted = to_bytes(region.mapped, by, to, sign=1)
    require_unsealed(program, mapping_of(name, 0))
    chunk = region.chunk
    count = max(len(region.chunks), -(-wanted // chunk)) if wanted > region.mapped else len(region.chunks)
    if count > len(region.chunks) and len(region.region.devices) > 1 and region.region.spec.spread == "blocks":
        raise refuse(f"'{name}' is spread in blocks: it cannot grow", hint="use spread: interleave")
    room = find(program, Reserve, name).size
    if count * chunk > room:
        raise refuse(
            f"'{name}' cannot grow to {full_size(count * chunk)}: it reserves {full_size(room)}",
            why=f"{full_size(region.mapped)} are mapped, in chunks of {full_size(chunk)}",
            hint=("" if region.region.spec.chunk else "give it a chunk: then ")
            + "it reserves as many addresses as its devices have memory"
            if program.open_sizes.get(name, "").startswith(FILL)
            else f"write reserve: {format_size(count * chunk)} into the plan, then apply it again",
        )
    if count > max(CHUNKS_MAX, len(region.chunks)):
        raise refuse(
            f"'{name}' cannot grow to {full_size(count * chunk)}: that would be {count:,} chunks",
            why=f"each chunk of {full_size(chunk)} costs driver calls; a region has at most {CHUNKS_MAX:,}",
            hint="write a larger chunk: into the plan, then apply it again",
        )
    return _resized(region, count, _overflowing(region, count, free))


def _overflowing(region: PlacedRegion, count: int, free: dict[str, int] | None) -> dict[int, str]:
    """The new chunks that their devices have no room for -> host. free: as of _longer()."""
    out: dict[int, str] = {}
    if free is None:
        return out
    for number in range(len(region.chunks), count):
        device, size = region.chunk_at(number)
        free[device] = free.get(device, 0) - size
        if free[device] < 0 and region.region.spec.overflow is not None:
            free[device] += size
            out[number] = region.region.spec.overflow
    return out


def shrunk(program: Program, names: Iterable[str], *, by: Size | None = None, to: Size | None = None) -> Program:
    """The program without whole chunks at the end of regions: of each at most `by` bytes less, or so that at least `to`
    stay.

    Raises ApplyError (HP420): a tensor is in the part to be freed.
    """
    return _with_chunks(program, [_shorter(program, name, by, to) for name in names])


def _shorter(program: Program, name: str, by: Size | None, to: Size | None) -> PlacedRegion:
    """A region with fewer chunks. Raises as shrunk()."""
    region = program.regions[name]
    wanted = to_bytes(region.mapped, by, to, sign=-1)
    count = len(region.chunks)
    mapped = region.mapped
    while count > 0 and mapped - region.chunks[count - 1][1] >= wanted:
        count -= 1
        mapped -= region.chunks[count][1]
    made = _resized(region, count)
    cut = next((tensor for tensor in made.tensors if tensor.size == 0 or tensor.offset + tensor.size > mapped), None)
    if cut is not None or count == 0:
        what = f"'{cut.name}' is in the removed part" if cut is not None else "nothing of it would remain"
        hint = "remove it from the plan and update(), or keep more"
        raise refuse(f"'{name}' cannot shrink to {format_size(mapped)}: {what}", hint=hint)
    return made


def to_bytes(now: int, by: Size | None, to: Size | None, *, sign: int) -> int:
    """The wanted size in bytes; exactly one of `by` and `to` must be given. Raises ApplyError (HP420)."""
    if (by is None) == (to is None):
        raise refuse("pass either by= or to=", hint='for example by="1GiB"')
    given = by if by is not None else to
    try:
        size = parse_size(given)
    except SizeError as error:
        raise refuse(str(error), hint=error.hint) from None
    if size <= 0:
        raise refuse("the size to grow or shrink by, or to, must be more than 0 bytes")
    return now + sign * size if by is not None else size


def find(program: Program, kind: type[AnyStep], name: str) -> AnyStep:
    """The step that makes an object, of one kind. Raises KeyError."""
    step = program.makers[name]
    if isinstance(step, kind):
        return step
    raise KeyError(name)


def require(program: Program, name: str, *kinds: str) -> str:
    """Which of these kinds an object is. Raises ApplyError if there is none (HP420), or if any of it sleeps (HP441)."""
    maker = program.makers.get(name) or next((s for s in program.sleeping if s.name == name and s.makes), None)
    kind = "region" if name in program.regions else maker.makes if maker is not None else ""
    if name in program.parts:
        raise refuse(f"'{name}' is memory of rank {program.parts[name]}: change it in that rank")
    if kind in kinds:
        if program.sleeps(name):
            raise refuse_asleep(name)
        if program.is_away(name):
            raise refuse_asleep(name, MAPPED_ON_HOST)
        _require_no_pool(program, name)
        return kind
    known = [resource.name for resource in program.resources if resource.kind in kinds]
    raise refuse(f"there is no {' or '.join(kinds)} '{name}' to change", hint=patterns.hint(name, known))


def _require_no_pool(program: Program, name: str) -> None:
    """Raises ApplyError (HP420) for a region whose memory is a pool for PyTorch."""
    if name in program.regions and program.regions[name].region.spec.torch is not None:
        why = "it takes memory when tensors come"
        hint = "sleep(), wake() and trim() change it"
        raise refuse(f"'{name}' is a pool for PyTorch", why=why, hint=hint)


def require_memory(program: Program, name: str) -> None:
    """Raises ApplyError (HP420) for a region that is still empty."""
    if name in program.regions and not program.regions[name].chunks:
        raise refuse(f"'{name}' has no memory yet", hint=f'first call grow("{name}", by=...)')


def require_unsealed(program: Program, mapping: str) -> None:
    """Raises ApplyError (HP420) if a mapping is sealed: new memory like it would be read-only."""
    if mapping in program.sealed:
        raise refuse(f"'{mapping}' is sealed: no device could write the new memory", hint="call unseal() first")


def _with_chunks(program: Program, made: Iterable[PlacedRegion]) -> Program:
    """The same program with another number of chunks in some regions: with more in all of them, or with fewer."""
    pairs = [(program.regions[now.region.name], now) for now in made]
    pairs = [(was, now) for was, now in pairs if len(was.chunks) != len(now.chunks)]
    if not pairs:
        return program
    regions = {**program.regions, **{now.region.name: now for _, now in pairs}}
    if len(pairs[0][1].chunks) > len(pairs[0][0].chunks):
        added = sum(len(now.chunks) - len(was.chunks) for was, now in pairs)
        may_be_runs = are_many(added) and pays(program, added)
        new = (_NewChunks(program, was, now).parts(may_be_runs) for was, now in pairs)
        parts = [*chain.from_iterable(new)]
        in_runs = any(isinstance(part, Run) for part in parts)
        return program.grown(Series.joined(parts) if in_runs else tuple(chain.from_iterable(parts)), regions, added)
    fewer = {now.region.name: range(len(now.chunks), len(was.chunks)) for was, now in pairs}
    gone = tuple(chain.from_iterable(_steps_of(program, name, chunks) for name, chunks in fewer.items()))
    sealed = program.sealed
    if sealed:
        names = {mapping_of(name, number) for name, chunks in fewer.items() for number in chunks}
        sealed = {mapping: access for mapping, access in sealed.items() if mapping not in names}
    return program.shrunk(gone, regions, sealed)


def _steps_of(program: Program, region: str, chunks: Iterable[int]) -> Iterator[steps.Step]:
    """The steps of chunks."""
    for number in chunks:
        yield program.makers[memory_of(region, number)]
        yield program.makers[mapping_of(region, number)]
        if (given := program.rights.get(mapping_of(region, number))) is not None:
            yield given


def _resized(region: PlacedRegion, count: int, elsewhere: Mapping[int, str] | None = None) -> PlacedRegion:
    """The same region with this many chunks; tensors stay where they are, open ones follow. elsewhere: new chunks that
    are not on the device whose turn it is, by number."""
    there, elsewhere = len(region.chunks), elsewhere or {}
    chunks = Series(region.chunks)
    if count > there:
        more = _more_chunks(region, count, elsewhere)
        chunks = chunks.with_more(more)
        mapped = region.mapped + sum(many * size for (_, size), many in counted(more))
    else:
        mapped = region.mapped - sum(size for _, size in region.chunks[count:])
        chunks = chunks.first(count)
    specs = region.region.spec.tensors
    tensors = []
    for tensor in region.tensors:
        if tensor.open:
            spec = specs[tensor.name[len(region.region.name) + 1 :]]
            shape, size = fitted_shape(spec, spec.bytes_least, tensor.offset, mapped)
            tensor = replace(tensor, shape=shape, size=size)
        tensors.append(tensor)
    made = replace(region, chunks=chunks, asked=mapped, tensors=tuple(tensors))
    keep(made, mapped=mapped)
    are_known = "devices" in kept(region) and not elsewhere
    if are_known and (count > there or len(region.devices) == len(region.region.devices)):
        keep(made, devices=region.devices)
    return made


def _more_chunks(region: PlacedRegion, count: int, elsewhere: Mapping[int, str]) -> Chunks:
    """The chunks that a region gets until it has so many. elsewhere: as of _resized()."""
    there = len(region.chunks)
    if elsewhere or not are_many(count - there):
        placed = ((number, *region.chunk_at(number)) for number in range(there, count))
        return [(elsewhere.get(number, device), size) for number, device, size in placed]
    every = len(region.region.devices)
    return repeated([region.chunk_at(there + number) for number in range(every)], count - there)


class _NewChunks:
    """The steps of chunks that a region gets: like those of its first one, but with the rights for their own device's
    memory."""

    def __init__(self, program: Program, was: PlacedRegion, made: PlacedRegion) -> None:
        self._program, self._was, self._made = program, was, made
        self._name = made.region.name
        self._create, self._place = _first(program, was)

    def parts(self, may_be_runs: bool) -> Iterator[Sequence[steps.Step]]:
        """The steps in parts; those of many alike chunks are runs, if they may be."""
        chunks, first, at = self._made.chunks, len(self._was.chunks), self._was.mapped
        if not (may_be_runs and are_many(len(chunks) - first)):
            yield tuple(self._one_by_one(chunks[first:], first, at))
            return
        for part in Series(chunks).parts_between(first, len(chunks)):
            yield from self._run(part, first, at) or [tuple(self._one_by_one(part, first, at))]
            first += len(part)
            at += sum(many * size for (_, size), many in counted(part))

    def _run(self, chunks: Chunks, first: int, at: int) -> Sequence[Sequence[steps.Step]]:
        """The runs of alike chunks; none if they are not, or only some have rights."""
        rights = [self._rights(device) for device, _ in chunks.cycle] if isinstance(chunks, Repeated) else []
        if not isinstance(chunks, Repeated) or any(rights) != all(rights):
            return ()
        kinds = [self._memory(number, *kind) for number, kind in enumerate(chunks.cycle, first)]
        memory = MemoryRun(self._name, range(first, first + len(chunks)), kinds)
        return memory, MappingRun(memory, at, self._place.origin, rights)

    def _one_by_one(self, chunks: Chunks, first: int, at: int) -> Iterator[steps.Step]:
        """All memory comes first, as in a run. first: the number of the first chunk. at: its offset in bytes."""
        given = {device: self._rights(device) for device in {device for device, _ in chunks}}
        memory = [self._memory(number, *chunk) for number, chunk in enumerate(chunks, first)]
        yield from memory
        for number, (create, (device, size)) in enumerate(zip(memory, chunks, strict=True), first):
            name = mapping_of(self._name, number)
            yield replace(self._place, name=name, allocation=create.name, offset=at, size=size, asked=size)
            if rights := given[device]:
                yield SetAccess(name=name, rights=rights, origin=self._place.origin)
            at += size

    def _memory(self, number: int, device: str, size: int) -> CreateAllocation:
        where = _where(self._program, device)
        return replace(self._create, name=memory_of(self._name, number), size=size, asked=size, **where)

    def _rights(self, device: str) -> Rights:
        return rights_of(self._made.region.access_to(device), self._program.devices)


def _where(program: Program, device: str) -> dict[str, Any]:
    """The fields of the step that makes memory of a device, or of the host."""
    if not is_host(device):
        return {"device": program.devices[device], "location": "device"}
    node = node_of(device)
    return {"device": node or 0, "location": "host" if node is None else "host_numa"}


def _first(program: Program, region: PlacedRegion) -> tuple[CreateAllocation, Map]:
    """The steps of a region's first chunk; of the one that it would have, if it is empty."""
    name, spec = region.region.name, region.region.spec
    memory, mapping, size = memory_of(name, 0), mapping_of(name, 0), region.chunk
    if region.chunks:
        return find(program, CreateAllocation, memory), find(program, Map, mapping)
    origin, device = program.makers[name].origin, program.devices[region.region.devices[0]]
    create = CreateAllocation(
        name=memory, origin=origin, device=device, size=size, asked=size, type="pinned", location="device",
        shareable="none", rdma=spec.rdma,
    )  # fmt: skip
    return create, Map(mapping, origin, name, memory, 0, size, size)
