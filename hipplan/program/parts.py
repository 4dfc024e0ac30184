"""Memory of other ranks: describes a rank's shared memory for the others, and adds others' memory to a program. Pure.

A part is the memory that one rank made for a region that others map. In the other ranks it is an ordinary region: an
address range, memory imported chunk by chunk, and tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Annotated, NamedTuple

from pydantic import Field

from hipplan.errors import Diagnostic, MachineError, Span
from hipplan.files.dtypes import BY_NAME
from hipplan.kinds.allocation.live import ImportAllocation
from hipplan.kinds.reservation.live import Reserve
from hipplan.language.host import HOST
from hipplan.language.objects import ResolvedRegion, bare_uuid
from hipplan.machines.machine import FALLBACK_GRANULARITY
from hipplan.program import steps
from hipplan.program.addresses import at_addresses
from hipplan.program.difference import Difference
from hipplan.program.imported import mapping_steps, no_link, range_for
from hipplan.program.on_demand import Repeated
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, PlacedTensor, mapping_of, memory_of
from hipplan.program.series import counted, segments
from hipplan.program.window import STEP, stride_for
from hipplan.units import about_size, round_up

Bytes = Annotated[int, Field(gt=0, lt=2**63)]
_CHUNKS_MAX = 1_000_000
"""Of a rank's memory for one region: a short message could mean more than this process has memory for."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """One piece of a rank's memory."""

    device: str
    """The name in that rank's plan of the device that has it."""
    uuid: str
    """The UUID of that device; empty if the runtime does not report it."""
    size: Bytes


@dataclass(frozen=True, kw_only=True)
class OfferedChunks:
    """Pieces of a rank's memory, of which the first few repeat."""

    again: tuple[Chunk, ...]
    count: Annotated[int, Field(le=_CHUNKS_MAX)]
    """How many there are in all."""

    def __post_init__(self) -> None:
        """Raises ValueError: there are fewer than repeat. It came from another process."""
        if not 0 < len(self.again) <= self.count:
            raise ValueError(f"{self.count} chunks cannot repeat {len(self.again)}")

    def all(self) -> Repeated[Chunk]:
        return Repeated(self.again, self.count)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(chunk.size * self.all().count_of(place) for place, chunk in enumerate(self.again))


@dataclass(frozen=True, kw_only=True)
class RankPart:
    """A rank's memory for one region."""

    region: str
    """Its name in the plan."""
    stretches: tuple[OfferedChunks, ...]
    """In the order of addresses."""
    asked: Bytes
    reserve: Bytes
    """Bytes of addresses."""
    alignment: Annotated[int, Field(ge=0, lt=2**63)]
    """The alignment of the first address; 0: none of its own."""
    tensors: tuple[PlacedTensor, ...]
    """With their names in that rank."""

    def __post_init__(self) -> None:
        """Raises ValueError: the description is impossible. It came from another process."""
        if sum(stretch.count for stretch in self.stretches) > _CHUNKS_MAX:
            raise ValueError(f"'{self.region[:60]}' has more than {_CHUNKS_MAX} chunks")
        mapped = sum(stretch.size for stretch in self.stretches)
        if not 0 < mapped <= self.reserve:
            raise ValueError(f"'{self.region[:60]}' has {mapped} bytes in {self.reserve} bytes of addresses")
        for tensor in self.tensors:
            sound = tensor.dtype in BY_NAME and prod(tensor.shape) * BY_NAME[tensor.dtype].size <= tensor.size
            inside = 0 <= tensor.offset <= tensor.offset + tensor.size <= mapped
            if not (sound and inside and tensor.name.startswith(f"{self.region}.")):
                raise ValueError(f"'{tensor.name[:60]}' is no tensor in '{self.region[:60]}'")

    def chunks(self) -> Iterator[Chunk]:
        """All pieces, in the order of addresses."""
        return chain.from_iterable(stretch.all() for stretch in self.stretches)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The memory that a rank offers to the other ranks of its node."""

    rank: Annotated[int, Field(ge=0)]
    parts: tuple[RankPart, ...]
    needs: Mapping[str, int]
    """UUID of a device -> bytes that the rank takes there."""


def offer_of(program: Program) -> Offer:
    """The offer of a rank, from its own program."""
    needs = {_uuid(program, name): size for name, size in program.bytes_by_device().items()}
    return Offer(rank=program.rank.rank, parts=tuple(_own_parts(program)), needs=needs)


def name_here(program: Program, rank: int, region: str) -> str:
    """The name in this rank's program of another rank's region."""
    one_maker = region in program.shared and program.shared[region].region.spec.rank is not None
    own = one_maker or rank == program.rank.rank
    return region if own else f"{region}{steps.RANK_SIGN}{rank}"


class SymmetricPlace(NamedTuple):
    """The place of a part in the range that has the same address in all ranks."""

    offset: int
    size: int
    alignment: int


def symmetric(program: Program, offers: Sequence[Offer]) -> dict[str, SymmetricPlace]:
    """Name in this rank -> place. offers: of all ranks of the node in order, with this rank's own."""
    places: dict[str, SymmetricPlace] = {}
    end = 0
    for region, shared in program.shared.items():
        if shared.region.spec.addresses != "symmetric":
            continue
        parts = [(offer.rank, part) for offer in offers for part in offer.parts if part.region == region]
        alignment = max((part.alignment for _, part in parts), default=0)
        step = max(FALLBACK_GRANULARITY, alignment)
        stride = round_up(stride_for(max((part.reserve for _, part in parts), default=step)), step)
        end = round_up(end, max(step, min(stride, STEP)))
        for rank, part in parts:
            places[name_here(program, rank, region)] = SymmetricPlace(end, part.reserve, alignment)
            end += stride
    return places


def placed_already(old: Program | None, program: Program, offers: Sequence[Offer]) -> dict[str, int]:
    """Name in this rank -> address, of symmetric objects that must not move: all parts of a region stay, or none."""
    if old is None:
        return {}
    there = {name: step for name, step in old.reservations.items() if step.exact}
    wanted, moving = symmetric(program, offers), set[str]()
    for offer in offers:
        for part in offer.parts:
            name = name_here(program, offer.rank, part.region)
            was, place = there.get(name), wanted.get(name)
            if was is None or place is None or was.size < place.size or was.address % max(1, place.alignment):
                moving.add(part.region)
    stay = ((offer.rank, part.region) for offer in offers for part in offer.parts if part.region not in moving)
    names = [name_here(program, rank, region) for rank, region in stay]
    return {name: there[name].address for name in names}


def with_parts(program: Program, offers: Sequence[Offer], places: Mapping[str, int]) -> Program:
    """The program with the memory of the node's other ranks, which replaces any that it mapped before.

    offers: of the other ranks. places: name in this rank -> address, of parts with symmetric addresses.
    Raises MachineError: HP301 ranks that share a device need more than it has, HP307 memory that is out of reach.
    """
    program = _without_parts(program)
    adding = _Adding(program)
    for offer in offers:
        for part in offer.parts:
            adding.add(offer.rank, part)
    beside = adding.check_sums(offers)
    if adding.errors:
        raise MachineError(adding.errors)
    first: list[steps.Step] = []  # before anything else can take those addresses
    rest: list[steps.Step] = []
    for step in (*program.steps, *adding.steps):
        if isinstance(step, Reserve) and step.name in places:
            first.append(replace(step.at_address(places[step.name]), alignment=0))
        else:
            rest.append(step)
    return replace(
        program,
        steps=(*first, *rest),
        devices={**program.devices, **adding.devices},
        selectors={**program.selectors, **dict.fromkeys(adding.devices, "of another rank")},
        regions={**program.regions, **adding.regions},
        parts=adding.parts,
        beside=beside,
    )


def moved(change: Difference, places: Mapping[str, int]) -> Difference:
    """The same change with these addresses for objects with symmetric addresses."""
    new, opened = at_addresses(change.new, places), change.opened and at_addresses(change.opened, places)
    ranges = new.reservations
    additions = tuple(ranges[step.name] if step.makes == "reservation" else step for step in change.additions)
    return replace(change, new=new, opened=opened, additions=additions)


def _without_parts(program: Program) -> Program:
    if not program.parts:
        return program
    gone = set(program.parts)
    for name in program.parts:
        for number in range(len(program.regions[name].chunks)):
            gone |= {memory_of(name, number), mapping_of(name, number)}
    return replace(
        program,
        steps=tuple(step for step in program.steps if step.name not in gone),
        devices={name: ordinal for name, ordinal in program.devices.items() if steps.RANK_SIGN not in name},
        selectors={name: chosen for name, chosen in program.selectors.items() if steps.RANK_SIGN not in name},
        regions={name: region for name, region in program.regions.items() if name not in gone},
        parts={},
    )


def _own_parts(program: Program) -> Iterator[RankPart]:
    reserved = {name: step.size for name, step in program.reservations.items()}
    for name in program.shared:
        placed = program.regions.get(name)
        if placed is None or name in program.parts:
            continue
        uuids = {device: _uuid(program, device) for (device, _), _ in counted(placed.chunks)}
        yield RankPart(
            region=name,
            stretches=tuple(_stretches(placed, uuids)),
            asked=placed.asked,
            reserve=reserved[name],
            alignment=placed.region.spec.alignment or 0,
            tensors=placed.tensors,
        )


def _stretches(placed: PlacedRegion, uuids: Mapping[str, str]) -> Iterator[OfferedChunks]:
    """uuids: of the region's devices."""
    for part in segments(placed.chunks):
        some, count = (part.cycle, len(part)) if isinstance(part, Repeated) else (tuple(part), len(part))
        if count:
            again = tuple(Chunk(device=device, uuid=uuids[device], size=size) for device, size in some)
            yield OfferedChunks(again=again, count=count)


def _uuid(program: Program, device: str) -> str:
    known = program.measured.devices[program.devices[device]].uuid if program.measured else None
    return bare_uuid(known or "")


class _Adding:
    """Collects the steps that map other ranks' parts."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.steps: list[steps.Step] = []
        self.devices: dict[str, int] = {}
        """Devices of other ranks that this process sees too and uses to move their memory."""
        self.regions: dict[str, PlacedRegion] = {}
        self.parts: dict[str, int] = {}
        self.errors: list[Diagnostic] = []
        there = program.measured.devices if program.measured else ()
        self._ordinals = {bare_uuid(device.uuid): ordinal for ordinal, device in enumerate(there) if device.uuid}
        self._names = {ordinal: name for name, ordinal in program.devices.items()}

    def add(self, rank: int, part: RankPart) -> None:
        program = self._program
        shared = program.shared.get(part.region)
        name = name_here(program, rank, part.region)
        if shared is None or name in program.regions or name in self.regions:
            self._refuse(rank, part.region)
            return
        labels = {chunk.device: self._label(rank, chunk) for stretch in part.stretches for chunk in stretch.again}
        own = _rights(shared.region, program)
        holders = {ordinal: shared.right for _, ordinal in labels.values() if ordinal in self.devices.values()}
        rights = tuple({**holders, **own}.items())
        self._check_reach(name, shared.origin, own, [ordinal for _, ordinal in labels.values()])
        origin = shared.origin
        self.steps.append(range_for(name, part.reserve, part.alignment, origin))
        at = 0
        for number, chunk in enumerate(part.chunks()):
            label, ordinal = labels[chunk.device]
            memory = ImportAllocation(
                name=memory_of(name, number),
                bind=memory_of(part.region, number),
                rank=rank,
                holder=label,
                device=ordinal,
                size=chunk.size,
                asked=chunk.size,
                origin=origin,
            )
            self.steps += (memory, *mapping_steps(memory, mapping_of(name, number), name, at, rights))
            at += chunk.size
        region = _of_other(shared.region, name, tuple(dict.fromkeys(label for label, _ in labels.values())))
        tensors = tuple(replace(tensor, name=name + tensor.name[len(part.region) :]) for tensor in part.tensors)
        chunks = tuple((labels[chunk.device][0], chunk.size) for chunk in part.chunks())
        self.parts[name] = rank
        self.regions[name] = PlacedRegion(region, chunks, part.asked, tensors)

    def _refuse(self, rank: int, region: str) -> None:
        shared, me = self._program.shared.get(region), self._program.rank.rank
        what, origin = ("makes it too", shared.origin) if shared is not None else ("has no such region", None)
        why = f"rank {rank} makes '{region}' for others to map, but rank {me} {what}"
        hint = "write a mapped region with the same name and the same rank: in all ranks"
        self.errors.append(Diagnostic("HP433", "the ranks do not have the same plan", origin, why=why, hint=hint))

    def _label(self, rank: int, chunk: Chunk) -> tuple[str, int]:
        """The name and ordinal in this process of a chunk's device; UNSEEN if the process does not use it."""
        ordinal = self._ordinals.get(chunk.uuid, steps.UNSEEN) if chunk.uuid else steps.UNSEEN
        if ordinal in self._names:
            return self._names[ordinal], ordinal
        name = f"{chunk.device}{steps.RANK_SIGN}{rank}"
        machine = self._program.measured
        if ordinal != steps.UNSEEN and machine is not None and machine.runtime != "cuda":
            self._names[ordinal] = name
            self.devices[name] = ordinal  # on AMD the device that holds memory copies it
        return name, ordinal

    def _check_reach(self, name: str, origin: Span | None, own: Mapping[int, str], holders: Sequence[int]) -> None:
        machine = self._program.measured
        for who in own:
            for holder in dict.fromkeys(holders):
                if machine is not None and (why := no_link(machine, who, holder)):
                    summary = f"{self._names[who]} cannot be given access to '{name}'"
                    hint = "remove map, or start the ranks on devices that are linked"
                    self.errors.append(Diagnostic("HP307", summary, origin, why=why, hint=hint))

    def check_sums(self, offers: Sequence[Offer]) -> dict[str, int]:
        """HP301: the ranks on one device need too much. Returns device -> bytes that the others take on it."""
        program, machine = self._program, self._program.measured
        beside: dict[str, int] = {}
        for name, own in program.bytes_by_device().items():
            others = {offer.rank: size for offer in offers if (size := offer.needs.get(_uuid(program, name), 0))}
            if not others or machine is None or not _uuid(program, name):
                continue
            beside[name] = sum(others.values())
            there, needed = machine.devices[program.devices[name]], own + beside[name]
            if there.memory is not None and needed > there.memory - there.in_use:
                ranks = ", ".join(map(str, sorted([*others, program.rank.rank])))
                summary = f"the ranks {ranks} together need {about_size(needed)} on one device"
                why = f"{there.name} has {about_size(there.memory)}, {about_size(there.in_use)} in use"
                hint = "give each rank a device of its own, or make it smaller"
                self.errors.append(Diagnostic("HP301", summary, why=why, hint=hint))
        return beside


def _of_other(region: ResolvedRegion, name: str, holders: tuple[str, ...]) -> ResolvedRegion:
    """The region as it is in the plan, but as the part of another rank."""
    return region._replace(name=name, devices=holders, access={})


def _rights(region: ResolvedRegion, program: Program) -> dict[int, str]:
    """Ordinal -> right of each device of this rank that maps the region of another."""
    named = (who for who, right in region.access.items() if right != "none")
    right = program.shared[region.name].right
    ordinals = (steps.CPU_ORDINAL if who == HOST else program.devices[who] for who in (*region.devices, *named))
    return dict.fromkeys(ordinals, right)
