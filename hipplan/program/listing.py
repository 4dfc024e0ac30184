"""A difference as text: what is made, altered, recreated and freed, by the plan's names, and what that loses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePath
from typing import TypeAlias

from hipplan.errors import Span
from hipplan.files.working_folder import Folder
from hipplan.kinds.lives import lies
from hipplan.program import losses
from hipplan.program.backups import DROP, MAPPED, WHERE
from hipplan.program.change import Change
from hipplan.program.chunk_runs import with_runs_of
from hipplan.program.losses import Loss
from hipplan.program.memo import Memo
from hipplan.program.program import Program
from hipplan.program.regions import memory_of
from hipplan.program.resources import RANGES, Access, Resource
from hipplan.program.runs import plain
from hipplan.program.steps import Step
from hipplan.units import format_size, full_size, short_size

ACTIONS = {"+": "make", "~": "alter", "-/+": "replace", "-": "free"}
"""Sign of a line -> what happens to the object."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the listing: an object that is made, altered, recreated or freed."""

    sign: str
    """`+` made, `~` altered, `-/+` recreated, `-` freed."""
    kind: str
    name: str
    what: str
    origin: Span | None = None
    loss: Loss | None = None
    """What the old object of that name loses; None: nothing."""

    @property
    def action(self) -> str:
        return ACTIONS[self.sign]

    @property
    def text(self) -> str:
        """What happens to it, and what it loses."""
        return "; ".join(filter(None, [self.what, self.loss.words() if self.loss else ""]))

    def __str__(self) -> str:
        return f"{self.sign} {self.kind} {self.name}" + (f": {text}" if (text := self.text) else "")


def lines(change: Change) -> list[Line]:
    """The lines in the order of the new program, then the removed objects. A region and its chunks are one line."""
    change = change.about
    old, new, lost = _ByKey(change.old), _ByKey(change.new), losses.losses(change)
    carried = change.carried  # found once: all steps that carry bytes have to be looked at
    changed_lines = []
    for resource in new.shown():
        was = old.twin(resource, new)
        loss = None if was is None else lost.get((was.kind, was.name))
        if line := _line(resource, was, change, new, carried):
            changed_lines.append(replace(line, loss=loss))
        elif loss is not None:
            span = new.spans.get(resource.name)
            changed_lines.append(Line("~", resource.kind, resource.name, "contents are written into it", span, loss))
    for resource in old.shown():
        if new.twin(resource, old) is None and (resource.kind != "tensor" or resource.inside in change.new.regions):
            loss = lost.get((resource.kind, resource.name))
            changed_lines.append(Line("-", resource.kind, resource.name, _size(resource), loss=loss))
    return changed_lines


def counts(changed_lines: Collection[Line]) -> dict[str, int]:
    """How many objects are made, altered, recreated and freed, and how much they lose."""
    actions = {action: sum(line.action == action for line in changed_lines) for action in ACTIONS.values()}
    return actions | losses.total(_lost(changed_lines))


def summary(changed_lines: Collection[Line]) -> str:
    """The same in words."""
    number = counts(changed_lines)
    actions = ", ".join(f"{number[action]} to {action}" for action in ACTIONS.values() if number[action])
    lost = losses.total_text(_lost(changed_lines))
    return "; ".join(filter(None, [actions, lost and f"{lost} lost"])) or "no changes"


def _lost(changed_lines: Collection[Line]) -> list[Loss]:
    return [line.loss for line in changed_lines if line.loss is not None]


def note(change: Change) -> str:
    """A note about new contents for memory that keeps its bytes: it is not filled again."""
    before, after, filled = _contents(change.old), _contents(change.new), _filled(change)
    stay = [name for name, given in after.items() if name not in filled and not _is_same(before.get(name), given)]
    if not stay:
        return ""
    more = f" and {len(stay) - 3} more" if len(stay) > 3 else ""
    return f"note: other contents of {', '.join(stay[:3])}{more} are not loaded: their bytes stay unchanged"


_Given: TypeAlias = tuple[object, Folder | None]
"""Contents in the plan, with paths of files as the plan writes them, and where these begin if they are relative."""


def _contents(program: Program) -> dict[str, _Given]:
    folder = PurePath(program.source).parent
    contents: dict[str, _Given] = {}
    for step in program.contents:
        is_relative = any(not file.startswith("/") for file in step.files_read)
        begin = program.working_folder if is_relative else None
        contents |= {name: (what, begin) for name, what in step.given(folder)}
    return contents


def _is_same(before: _Given | None, after: _Given) -> bool:
    if before is None or before[0] != after[0]:
        return False
    folders = before[1], after[1]
    return None in folders or folders[0] == folders[1]


_names_filled: Memo[Change, frozenset[str]] = Memo()
_texts: Memo[Change, Mapping[str, list[str]]] = Memo()
"""Found once for all objects of a change: otherwise each would cost a look at all steps."""


def _filled(change: Change) -> frozenset[str]:
    """Names of the objects that the change fills with contents."""
    return _names_filled.value(change, lambda: frozenset(n for step in change.contents for n in step.objects()))


def _altered(change: Change) -> Mapping[str, list[str]]:
    """Object that stays -> what the steps that alter it say in the list."""
    return _texts.value(change, lambda: _listed(plain(change.changes)))


def _listed(some_steps: Iterable[Step]) -> Mapping[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for step in some_steps:
        if text := step.listed():
            texts.setdefault(step.name, []).append(text)
    return texts


class _ByKey:
    """The resources of the old or new program, by the key that finds the same object in the other: those that
    have a line."""

    def __init__(self, program: Program) -> None:
        self.program = program
        everything = (*with_runs_of((), program.steps), *with_runs_of((), program.sleeping))
        self.made = {step.name: key for step in everything if (key := step.key) is not None}
        self.spans = {step.name: step.origin for step in everything}
        self.by_key = {self.key(resource): resource for resource in self.shown()}

    def key(self, resource: Resource) -> tuple[object, ...]:
        if resource.kind in ("mapping", "peer"):
            return self.made[resource.name]
        return resource.kind, resource.name

    def twin(self, resource: Resource, of: _ByKey) -> Resource | None:
        return self.by_key.get(of.key(resource))

    def shown(self) -> Iterator[Resource]:
        """All but chunks of regions and lanes. Names with a # are made by hipplan, not by the plan."""
        for resource in self.program.outer:
            chunk = resource.kind == "mapping" and resource.inside in self.program.regions
            if not chunk and "#" not in resource.name:
                yield resource


def _line(resource: Resource, was: Resource | None, change: Change, new: _ByKey, carried: Set[str]) -> Line | None:
    """The line of an object of the new program, without what it loses. was: the same object of the old program.
    carried: as of the change."""
    span = new.spans.get(resource.name)
    if was is None:
        if resource.kind == "tensor" and resource.inside not in change.old.regions:
            return None  # listed with its region
        return Line("+", resource.kind, resource.name, _size(resource) + ", sealed" * resource.sealed, span)
    if resource.kind == "tensor":
        sign, what = "~", _moved(was, resource)
    elif change.old.is_away(was.name) != change.new.is_away(resource.name):
        sign, what = "~", _mapped_elsewhere(resource, change)
    elif was.asleep or resource.asleep:
        sign, what = "~", _slept(was, resource, change)
    elif _kept(resource, change, new):
        chunks = _recreated_chunks(was, resource, change)
        sign, what = "-/+" if chunks else "~", ", ".join(filter(None, [chunks, *_details(was, resource, change)]))
    else:
        sign, what = "-/+", ", ".join(filter(None, _again(was, resource, change, carried)))
    return Line(sign, resource.kind, resource.name, what, span) if what else None


def _again(was: Resource, now: Resource, change: Change, carried: Set[str]) -> Iterator[str]:
    """How an object is recreated."""
    if now.kind in RANGES and _chunks_recreated(now, change)[0] == 0:
        yield from ("is reserved again", _sizes(was, now), "with its bytes" * (now.kind == "region"))
        return
    yield from ("is recreated", _sizes(was, now), _devices(was, now))
    count, of = _chunks_recreated(now, change)
    yield f"{of - count} of {of} chunks with their bytes" * (count < of)
    yield "with its bytes" * (now.name in carried)


def _slept(was: Resource, now: Resource, change: Change) -> str:
    """How memory fell asleep or woke. Its mappings have no line of their own."""
    if now.kind == "mapping" or bool(was.asleep) == bool(now.asleep):
        return ""
    if now.asleep:
        return f"falls asleep, {_size(now)}, its bytes are {WHERE[now.asleep]}"
    comes_back = was.asleep != DROP or now.name in _filled(change)
    return f"wakes, {_size(now)}, {'with' if comes_back else 'without'} its bytes"


def _mapped_elsewhere(now: Resource, change: Change) -> str:
    """How memory fell asleep on the host, or woke there."""
    if now.kind == "mapping":
        return ""
    if change.new.is_away(now.name):
        return f"falls asleep, {_size(now)}, its bytes are {WHERE[MAPPED]}"
    return f"wakes, {_size(now)}, with its bytes"


def _chunks_recreated(now: Resource, change: Change) -> tuple[int, int]:
    """How many of the chunks that a region has in both programs are recreated, and how many these are."""
    both = _chunks_of_both(now, change)
    return len(_numbers_recreated(now, change)), len(both)


def _numbers_recreated(now: Resource, change: Change) -> list[int]:
    if change.new.comes_from(change.old) or change.new.given_since(change.old) is not None:
        return []
    kept, both = change.kept, _chunks_of_both(now, change)
    alike = change.part.chunks.get(now.name) if change.part is not None else None
    stay = alike.numbers if alike is not None else range(0)  # thousands, of which nothing need be asked
    compared = chain(range(stay.start), range(stay.stop, both.stop))
    return [n for n in compared if ("allocation", memory_of(now.name, n)) not in kept]


def _chunks_of_both(now: Resource, change: Change) -> range:
    if now.kind != "region":
        return range(0)
    return range(min(len(program.regions[now.name].chunks) for program in (change.old, change.new)))


def _recreated_chunks(was: Resource, now: Resource, change: Change) -> str:
    """Which memory of a region is recreated at its addresses; empty if none is."""
    count, of = _chunks_recreated(now, change)
    devices = _devices(was, now) if count == of else _devices_of_chunks(now, change) or _devices(was, now)
    parts = (
        f"{count} of {of} chunks {'is' if count == 1 else 'are'} recreated",
        devices,
        "with their bytes" * bool(change.carries),
    )
    return ", ".join(filter(None, parts)) if count else ""


def _devices(was: Resource, now: Resource) -> str:
    return f"{was.device} -> {now.device}" if was.device != now.device and now.kind != "mapping" else ""


def _devices_of_chunks(now: Resource, change: Change) -> str:
    """Where recreated chunks of a region were and are, if a remap has moved some: the plan says the same of them."""
    numbers = _numbers_recreated(now, change)
    was, there = (program.regions[now.name] for program in (change.old, change.new))
    before, after = ([region.chunks[number][0] for number in numbers] for region in (was, there))
    if before == after or was.region.spec != there.region.spec:
        return ""
    return " -> ".join(", ".join(dict.fromkeys(devices)) for devices in (before, after))


def _kept(resource: Resource, change: Change, new: _ByKey) -> bool:
    return new.made[resource.name] in change.kept


def _details(was: Resource, now: Resource, change: Change) -> Iterator[str]:
    """The differences of an object that stays."""
    if was.name != now.name and now.kind == "mapping":
        yield f"was called {was.name}"
    if now.kind == "region" and was.size != now.size:
        yield f"{'grows' if now.size > was.size else 'shrinks'}, {_sizes(was, now)}"
    if now.kind == "reservation":
        before, after = (_bytes_mapped(program).get(now.name, 0) for program in (change.old, change.new))
        if before != after:
            part = change.part
            equal = part.bytes_mapped(now.name) if part is not None and change.old is part.old else 0
            mapped = f"{full_size(before + equal)} -> {full_size(after + equal)}"
            yield f"{'grows' if after > before else 'shrinks'}, mapped {mapped}"
    if now.kind in ("mapping", "region") and _rights(was, change.old) != _rights(now, change.new):
        access, wanted = _access(was), _access(now)
        if access == wanted:  # the same names mean other devices now
            access, wanted = (
                _access(resource, program) for resource, program in ((was, change.old), (now, change.new))
            )
        yield f"access {access} -> {wanted}"
    if lies(now.kind) and now.name in change.changed:
        yield from _altered(change).get(now.name, ())


def _moved(was: Resource, now: Resource) -> str:
    """How a tensor moved. No memory moves with it: a tensor is only a name for an offset."""
    changes = []
    if was.offset != now.offset:
        changes.append(f"lies at +{format_size(now.offset)}, was at +{format_size(was.offset)}")
    if (was.dtype, was.shape) != (now.dtype, now.shape):
        changes.append(f"{_array(was)} -> {_array(now)}")
    return ", ".join(changes)


def _array(tensor: Resource) -> str:
    return f"{tensor.dtype} {'x'.join(map(str, tensor.shape))}"


_mapped: Memo[Program, Mapping[str, int]] = Memo()


def _bytes_mapped(program: Program) -> Mapping[str, int]:
    """Range -> how many bytes its mappings take, found once: otherwise each range would cost a look at all objects."""
    return _mapped.value(program, lambda: _sizes_mapped(program))


def _sizes_mapped(program: Program) -> Mapping[str, int]:
    sizes: Counter[str] = Counter()
    for resource in program.resources:
        if resource.kind == "mapping":
            sizes[resource.inside] += resource.size
    return sizes


def _rights(resource: Resource, program: Program) -> tuple[object, ...]:
    """The access with ordinals in place of device names, for comparing."""

    def numbered(access: Access) -> dict[int | str, str]:
        return {program.devices.get(who, who): right for who, right in access}

    by_holder = {program.devices.get(holder, holder): numbered(access) for holder, access in resource.access_by_holder}
    return numbered(resource.access), by_holder, resource.sealed


def _access(resource: Resource, program: Program | None = None) -> str:
    """program: if given, the text has ordinals of devices too."""
    numbers = {name: f" (device {ordinal})" for name, ordinal in program.devices.items()} if program else {}
    return f"({resource.access_text(lambda who: who + numbers.get(who, ''))})"


def _size(resource: Resource) -> str:
    if resource.kind == "tensor":
        return _array(resource)
    if resource.kind == "mapping":
        return f"{short_size(resource.size)} of {resource.memory} at +{format_size(resource.offset)}"
    return short_size(resource.size) if resource.size else ""


def _sizes(was: Resource, now: Resource) -> str:
    before, after = _size(was), _size(now)
    if was.size != now.size and now.kind not in ("tensor", "mapping"):
        before, after = full_size(was.size), full_size(now.size)
    return before if before == after else f"{before} -> {after}"
