"""Contents compiled: which bytes of which object, moved by whom.

Pure arithmetic: files are opened when the plan is applied. memory.py decides which device moves which bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from hipplan.errors import Span
from hipplan.files.dtypes import BYTE, dtype_of
from hipplan.files.tensorfiles import WantedBytes, is_safetensors
from hipplan.files.values import encode
from hipplan.kinds.lives import lies
from hipplan.kinds.pinned.live import CreatePinnedBuffer
from hipplan.kinds.stream.live import CreateStream
from hipplan.language.findings import Findings
from hipplan.machines.machine import Machine
from hipplan.program.content_steps import STREAMS, ContentStep, Copy, Fill, LoadFiles, MemoryPart, Staging, Taken
from hipplan.program.memo import Memo
from hipplan.program.memory import Memory, Refused
from hipplan.program.program import Program
from hipplan.program.resources import Resource
from hipplan.program.runs import without
from hipplan.program.series import Series
from hipplan.program.steps import CPU_ORDINAL, Step
from hipplan.units import full_size

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan
    from hipplan.language.model import Content

STAGING = "#contents."
"""Prefix of the names of lanes (pinned memory and streams for copies). No other name begins so."""


def fill(memory: Memory, name: str, value: float | bool, dtype: str, origin: Span | None = None) -> Fill:
    """Raises Refused: there is no such dtype or it cannot hold the value, other sizes, no right."""
    resource = memory.by_name[name]
    try:
        kind = resource.dtype or (dtype_of(dtype) if dtype else BYTE).name
        pattern = encode(kind, value)
    except ValueError as error:
        raise Refused("HP105", f"'{name}' cannot be filled: {error}") from None
    if resource.size % len(pattern):
        raise Refused("HP421", f"'{name}' has {resource.size} bytes, not a multiple of the size of {kind}")
    shown = f"{str(value).lower() if isinstance(value, bool) else value} ({kind})"
    parts = memory.parts(name, "rw")
    if memory.only_holders and len(set(pattern)) > 1:  # copies within the memory repeat it
        parts = tuple(share for part in parts for share in _filled(memory, name, part))
    return Fill(name=name, parts=parts, value=shown, pattern=pattern.hex(), origin=origin)


def copy(memory: Memory, name: str, source: str, origin: Span | None = None) -> Copy:
    """Raises Refused: other sizes, other dtypes, overlapping bytes, no right."""
    to, from_ = memory.by_name[name], memory.by_name[source]
    if to.size != from_.size:
        raise Refused(
            "HP421", f"'{name}' has {full_size(to.size)}, '{source}' has {full_size(from_.size)}",
            hint="a copy needs the same number of bytes",
        )  # fmt: skip
    if to.dtype and from_.dtype and to.dtype != from_.dtype:
        raise Refused(
            "HP421", f"'{name}' is {to.dtype}, '{source}' is {from_.dtype}", hint="dtypes are never converted"
        )
    whole = (to.inside or name, from_.inside or source)
    if whole[0] == whole[1] and to.offset < from_.offset + from_.size and from_.offset < to.offset + to.size:
        raise Refused("HP213", f"'{source}' and '{name}' are the same memory")
    pairs, staged = route(memory, name, source)
    return Copy(name=name, source=source, pairs=pairs, staged=staged, origin=origin)


def route(memory: Memory, name: str, source: str) -> tuple[tuple[tuple[MemoryPart, MemoryPart], ...], bool]:
    """(to, from) for each part of a copy of as many bytes as both have, and whether it goes through pinned memory.

    Raises Refused: no device has the rights.
    """
    places = lies(memory.by_name[name].kind), lies(memory.by_name[source].kind)
    pairs = tuple(_paired(memory.parts(name, "rw"), memory.parts(source, "r")))
    if memory.only_holders:
        pairs = tuple(share for to, from_ in pairs for share in _copied(memory, name, to, from_))
    staged = memory.only_holders and not all(may_copy_at_once(memory, a, b) for a, b in pairs)
    if "anywhere" in places and not staged:  # it is wherever it was used last: the other side's device copies
        pairs = tuple(_by_one_device(a, b, managed_first=places[0] == "anywhere") for a, b in pairs)
    return pairs, staged


def may_copy_at_once(memory: Memory, to: MemoryPart, from_: MemoryPart) -> bool:
    """Whether both devices may use both sides: HIP decides which of the two copies."""
    if to.device == from_.device:
        return True
    if CPU_ORDINAL in (to.device, from_.device):
        return False  # up to 6.4 HIP copies with the device that the host memory was pinned with
    return memory.reaches(to, from_.device, "rw") and memory.opens_no_more(from_, to.device)


HOST_GPU = 0
"""The GPU that copies within host memory on AMD, whichever stream is used: hipplan creates that memory with this id in
its location, and HIP reads the id as the owner's. Where this GPU has no right it faults, so the CPU moves the bytes."""


def _copied(memory: Memory, name: str, to: MemoryPart, from_: MemoryPart) -> Iterator[tuple[MemoryPart, MemoryPart]]:
    """A pair, or its shares if the CPU copies some of them. Raises Refused: the CPU may not."""
    if CPU_ORDINAL in (to.device, from_.device):
        yield to, from_  # a buffer, which has the owner that it was made with
        return
    shares = tuple(_paired([*memory.by_place(to)], [*memory.by_place(from_)]))
    within = [a.device == b.device == CPU_ORDINAL and not _gpu_copies(memory, a, b) for a, b in shares]
    if not any(within):
        yield to, from_
        return
    for (a, b), on_host in zip(shares, within, strict=True):
        if on_host and _may_copy(memory, a, b, CPU_ORDINAL):
            yield a, b
        elif on_host and HOST_GPU not in (to.device, from_.device) and not _may_copy(memory, a, b, HOST_GPU):
            raise _refused(memory, f"copy to '{name}'")
        else:  # that GPU copies, or it is staged
            yield replace(a, device=to.device), replace(b, device=from_.device)


def _filled(memory: Memory, name: str, part: MemoryPart) -> Iterator[MemoryPart]:
    """A part to fill by copies within it, or its shares if the CPU fills some. Raises Refused: the CPU may not."""
    shares: list[MemoryPart] = []
    for share in memory.by_place(part) if part.device != CPU_ORDINAL else ():
        if share.device != CPU_ORDINAL or _gpu_copies(memory, share, share):
            shares.append(replace(share, device=part.device))
        elif memory.reaches(share, CPU_ORDINAL, "rw"):
            shares.append(share)
        elif memory.reaches(share, HOST_GPU, "rw"):
            shares.append(replace(share, device=part.device))
        else:
            raise _refused(memory, f"repeat a value in '{name}'")
    yield from shares if any(share.device != part.device for share in shares) else [part]


def _gpu_copies(memory: Memory, to: MemoryPart, from_: MemoryPart) -> bool:
    return memory.knows_owner_of_host and _may_copy(memory, to, from_, HOST_GPU)


def _may_copy(memory: Memory, to: MemoryPart, from_: MemoryPart, ordinal: int) -> bool:
    return memory.reaches(to, ordinal, "rw") and memory.reaches(from_, ordinal, "r")


def _refused(memory: Memory, what: str) -> Refused:
    first = next((device for device, ordinal in memory.devices.items() if ordinal == HOST_GPU), "the first GPU")
    return Refused(
        "HP213", f"no device may {what} within the host's memory",
        why=f"on AMD {first} does it or the CPU, and neither has the right",
        hint="give the host rw access to it",
    )  # fmt: skip


def _by_one_device(to: MemoryPart, from_: MemoryPart, *, managed_first: bool) -> tuple[MemoryPart, MemoryPart]:
    """Both parts for one device, so that HIP makes no peer copy: that device always has access to managed memory."""
    if CPU_ORDINAL in (to.device, from_.device):
        return to, from_
    device = from_.device if managed_first else to.device
    return replace(to, device=device), replace(from_, device=device)


def _paired(left: Sequence[MemoryPart], right: Sequence[MemoryPart]) -> Iterator[tuple[MemoryPart, MemoryPart]]:
    """Pairs of equal size, cut at the boundaries of both; of as many bytes as both have."""
    a, b = list(reversed(left)), list(reversed(right))
    while a and b:
        first, second = a.pop(), b.pop()
        size = min(first.size, second.size)
        yield first.cut(0, size), second.cut(0, size)
        for rest, part in ((a, first), (b, second)):
            if part.size > size:
                rest.append(part.cut(size, part.size - size))


def load(memory: Memory, name: str, spec: Content, path: str, origin: Span | None = None) -> tuple[Taken, ...]:
    """What one entry of `contents` loads from a file; for a region, from a file of tensors, all of its tensors.

    Raises Refused.
    """
    resource = memory.by_name[name]
    tensors = memory.tensors(name) if is_safetensors(path) and spec.tensor is None else ()
    if resource.kind == "region" and path.endswith(".npy"):
        raise Refused("HP421", f"'{name}' is a region, but {path} holds one array", hint="name one of its tensors")
    return tuple(_taken(memory, tensor, spec, path, origin) for tensor in tensors or (resource,))


def _taken(memory: Memory, resource: Resource, spec: Content, path: str, origin: Span | None) -> Taken:
    short = resource.name[len(resource.inside) + 1 :] if resource.kind == "tensor" else ""
    wanted = WantedBytes(
        name=resource.name,
        size=resource.size,
        asked=resource.asked,
        dtype=resource.dtype,
        shape=resource.shape,
        file=path,
        at=spec.at,
        tensor=spec.tensor or short,
        part=spec.part or 0,
        parts=spec.parts or 1,
    )
    parts = memory.parts(resource.name, "rw")
    begins = accumulate((part.size for part in parts), initial=0)
    return Taken(wanted, tuple(zip(begins, parts, strict=False)), origin)


def together(named: Sequence[tuple[str, tuple[Taken, ...]]]) -> LoadFiles:
    """One step of several loads, which may happen in any order."""
    loads = tuple(load for _, taken in named for load in taken)
    name = named[0][0] if len(named) == 1 else f"{named[0][0]} and {len(named) - 1} more"
    files = tuple(dict.fromkeys(load.wanted.file for load in loads))
    return LoadFiles(name=name, loads=loads, files=files, origin=loads[0].origin)


def lower(
    plan: LoadedPlan, resources: Iterable[Resource], devices: Mapping[str, int], machine: Machine, findings: Findings
) -> tuple[ContentStep, ...]:
    """The contents of a plan as steps, in the plan's order. Neighbouring loads of different memory become one step."""
    if not plan.objects.contents:
        return ()
    memory, budget = Memory(resources, devices, machine=machine), plan.budget
    steps: list[ContentStep] = []
    pending: list[tuple[str, tuple[Taken, ...]]] = []
    names: set[str] = set()
    shared: set[str] = set()
    for name, spec in plan.objects.contents.items():
        if not memory.by_name.keys() >= {name, spec.copy_of or name}:
            continue  # a tensor of this region does not fit, which HP212 reports
        place = ("contents", name)
        span = plan.span(*place, key=True)
        pieces = sum(memory.pieces(side) - 1 for side in (name, spec.copy_of) if side)
        budget.take("pieces", pieces, f"what '{name}' holds", partial(plan.span, *place, key=True))
        try:
            if spec.file is not None:
                if pending and _meets(memory.by_name[name], names, shared):
                    steps.append(together(pending))
                    pending, names, shared = [], set(), set()
                names.add(name)
                shared.add(_shared(memory.by_name[name]))
                path, origin = plan.path_of(spec.file), plan.span(*place, "file")
                pending.append((name, load(memory, name, spec, path, origin)))
                continue
            if pending:
                steps.append(together(pending))
                pending, names, shared = [], set(), set()
            if spec.copy_of is not None:
                steps.append(copy(memory, name, spec.copy_of, span))
            elif spec.value is not None:
                steps.append(fill(memory, name, spec.value, spec.dtype or "", span))
        except Refused as refused:
            findings.add(refused.diagnostic(span))
    return (*steps, together(pending)) if pending else tuple(steps)


def _shared(resource: Resource) -> str:
    """The name that others with the same bytes share: the region of a tensor, the allocation of a mapping."""
    return resource.memory or resource.inside


def _meets(resource: Resource, names: Set[str], shared: Set[str]) -> bool:
    """Whether the loads collected so far may write some of the same bytes."""
    mapped_twice = resource.memory != "" and resource.memory in shared
    return mapped_twice or resource.name in shared or _shared(resource) in names


def lanes(staging: Staging, machine: Machine | None) -> Iterator[Step]:
    """Lanes: steps for streams and for pinned memory, near each device if its NUMA node is known."""
    for device, size in sorted(staging.items()):
        known = machine.devices[device].numa_node if machine is not None else None
        node, flags = -1 if known is None else known, ("portable",)
        yield CreatePinnedBuffer(staging_name(device), None, device=device, size=size, flags=flags, numa_node=node)
        for number in range(STREAMS):
            yield CreateStream(stream_name(device, number), None, device=device)


def with_lanes(program: Program, staging: Staging) -> Program:
    """The program with lanes for these devices, with at least so much pinned memory."""
    there = lanes_of(program)
    larger = {device: size for device, size in staging.items() if size > there.get(device, 0)}
    if not larger:
        return program
    program = without_lanes(program, larger.keys())
    return replace(program, steps=Series(program.steps).with_more([*lanes(larger, program.measured)]))


def with_lanes_of(old: Program, program: Program) -> Program:
    """The program with exactly the lanes of `old`. Lanes belong to hipplan, not to the plan."""
    devices = set(program.devices.values())
    there = {device: size for device, size in lanes_of(old).items() if device in devices}
    return with_lanes(without_lanes(program, lanes_of(program).keys()), there)


def without_lanes(program: Program, devices: Set[int]) -> Program:
    """The program without lanes for these devices."""
    if not devices:
        return program
    gone = _lane_names(devices)
    return replace(program, steps=without(program.steps, lambda step: step.name in gone, ()))


def lane_names(program: Program) -> set[str]:
    """The names of a program's lanes, which belong to hipplan, not to the plan."""
    return _lane_names(lanes_of(program).keys())


def _lane_names(devices: Iterable[int]) -> set[str]:
    return {name for n in devices for name in (staging_name(n), *(stream_name(n, lane) for lane in range(STREAMS)))}


_lanes: Memo[Program, Mapping[int, int]] = Memo()


def lanes_of(program: Program) -> Mapping[int, int]:
    """The pinned memory of a program's lanes, by device. It is found once: each step of the contents asks for it."""
    return _lanes.value(program, lambda: _lanes_in(program))


def _lanes_in(program: Program) -> Staging:
    made = (step for _, step in program.single if isinstance(step, CreatePinnedBuffer))
    return {step.device: step.size for step in made if step.name == staging_name(step.device)}


def of_new(old: Program, new: Program, stays: Callable[[str], bool]) -> Iterator[ContentStep]:
    """The contents of a program, only for bytes that the program before it does not have.

    stays: whether the memory of a buffer or allocation is kept. Elements of a tensor that lie elsewhere now are new
    too, and bytes of a mapping that the old mapping of its name did not have.
    """
    memory, before = Memory(new.resources, new.devices), {resource.name: resource for resource in old.resources}

    def fresh(name: str, part: MemoryPart) -> Iterator[MemoryPart]:
        end = _end_of_old(memory.by_name[name], before.get(name))
        for behind, piece in memory.behind(part):
            old_bytes = max(0, min(piece.size, end - piece.offset)) if stays(behind) else 0
            if old_bytes < piece.size:
                yield piece.cut(old_bytes, piece.size - old_bytes)

    for step in new.contents:
        if (left := step.only(fresh)) is not None:
            yield left


def _end_of_old(now: Resource, was: Resource | None) -> int:
    """How many first bytes keep their meaning if their memory stays; 0: none."""
    if now.kind == "mapping":
        return now.offset + was.size if was is not None and was.memory == now.memory else 0
    if now.kind != "tensor":
        return now.offset + now.size
    if was is None or (was.inside, was.offset, was.dtype) != (now.inside, now.offset, now.dtype):
        return 0
    return was.offset + was.size if was.shape[1:] == now.shape[1:] else 0


def staging_name(device: int) -> str:
    return f"{STAGING}{device}"


def stream_name(device: int, number: int) -> str:
    return f"{STAGING}{device}.{number}"
