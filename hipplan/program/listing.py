"""A difference as text: what is added, changed and removed, by the plan's names."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import PurePath

from hipplan.errors import Span
from hipplan.program import steps
from hipplan.program.alterations import ChangeAdvice, CopyBytes
from hipplan.program.backups import DROP, WHERE
from hipplan.program.change import Change, key_of
from hipplan.program.content_steps import ContentStep, Copy, Fill, LoadFiles
from hipplan.program.program import Program
from hipplan.program.regions import memory_of
from hipplan.program.resources import Access, Resource
from hipplan.units import format_size

_WORDS = {"+": "add", "~": "change", "-": "remove"}
_HOLDS_BYTES = ("allocation", "device", "pinned", "managed")
"""Kinds of memory whose bytes are lost when it is freed. Registered memory belongs to the caller or to a file."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the listing: an object that is added, changed or removed."""

    sign: str
    """`+` added, `~` changed, `-` removed."""
    kind: str
    name: str
    what: str
    origin: Span | None = None

    def __str__(self) -> str:
        return f"{self.sign} {self.kind} {self.name}" + (f": {self.what}" if self.what else "")


def lines(change: Change) -> list[Line]:
    """The lines in the order of the new program, then the removed objects. A region and its chunks are one line."""
    old, new, filled = _Side(change.old), _Side(change.new), _filled(change)
    changed_lines = [line for resource in new.shown() if (line := _line(resource, change, old, new, filled))]
    for resource in old.shown():
        if new.twin(resource, old) is None and (resource.kind != "tensor" or resource.inside in change.new.regions):
            changed_lines.append(Line("-", resource.kind, resource.name, _size(resource)))
    return changed_lines


def summary(changed_lines: list[Line]) -> str:
    """How many of each."""
    counted = {word: sum(line.sign == sign for line in changed_lines) for sign, word in _WORDS.items()}
    return ", ".join(f"{count} to {word}" for word, count in counted.items() if count) or "no changes"


def note(change: Change) -> str:
    """A note about new contents for memory that keeps its bytes: it is not filled again."""
    before, after, filled = _contents(change.old), _contents(change.new), _filled(change)
    stay = [name for name, what in after.items() if before.get(name) != what and name not in filled]
    if not stay:
        return ""
    more = f" and {len(stay) - 3} more" if len(stay) > 3 else ""
    return f"note: other contents of {', '.join(stay[:3])}{more} are not loaded: their bytes stay unchanged"


def _contents(program: Program) -> dict[str, object]:
    """Name -> its contents in the plan, with paths of files as the plan writes them."""
    folder = PurePath(program.source).parent
    kinds: dict[str, object] = {}
    for step in program.contents:
        if isinstance(step, LoadFiles):
            for wanted in (load.wanted for load in step.loads):
                path = PurePath(wanted.file)
                file = path.relative_to(folder) if path.is_relative_to(folder) else path
                kinds[wanted.name] = file, wanted.at, wanted.tensor, wanted.part, wanted.parts
        elif isinstance(step, (Fill, Copy)):
            kinds[step.name] = step.pattern if isinstance(step, Fill) else step.source
    return kinds


def _filled(change: Change) -> set[str]:
    """Names of the objects that the change fills with contents."""
    return {name for step in change.contents for name in _places(step)}


def _places(step: ContentStep) -> list[str]:
    return [load.wanted.name for load in step.loads] if isinstance(step, LoadFiles) else [step.name]


class _Side:
    """The resources of the old or new program, by the key that finds the same object in the other."""

    def __init__(self, program: Program) -> None:
        self.program = program
        everything = (*program.steps, *program.sleeping)
        self.made = {step.name: key for step in everything if (key := key_of(step)) is not None}
        self.spans = {step.name: step.origin for step in everything}
        self.by_key = {self.key(resource): resource for resource in program.resources}

    def key(self, resource: Resource) -> tuple[object, ...]:
        if resource.kind in ("mapping", "peer"):
            return self.made[resource.name]
        return resource.kind, resource.name

    def twin(self, resource: Resource, of: _Side) -> Resource | None:
        return self.by_key.get(of.key(resource))

    def shown(self) -> Iterator[Resource]:
        """All but chunks of regions and lanes. Names with a # are made by hipplan, not by the plan."""
        for resource in self.program.resources:
            chunk = resource.kind == "mapping" and resource.inside in self.program.regions
            if not chunk and "#" not in resource.name:
                yield resource


def _line(resource: Resource, change: Change, old: _Side, new: _Side, filled: Set[str]) -> Line | None:
    was = old.twin(resource, new)
    span = new.spans.get(resource.name)
    if was is None:
        if resource.kind == "tensor" and resource.inside not in change.old.regions:
            return None  # listed with its region
        return Line("+", resource.kind, resource.name, _size(resource) + ", sealed" * resource.sealed, span)
    if resource.kind == "tensor":
        what = _moved(was, resource, resource.name in filled)
    elif was.asleep or resource.asleep:
        what = _slept(was, resource, change)
    elif _kept(resource, change, new):
        what = ", ".join((*_recreated(was, resource, change), *_details(was, resource, change)))
    elif resource.kind in ("region", "reservation"):
        what = ", ".join(("moves to other addresses", *_elsewhere(was, resource, change)))
    else:
        sizes = _sizes(was, resource)
        what = f"is recreated{sizes and f', {sizes}'}{_moves(was, resource)}{_bytes(resource, change)}"
    return Line("~", resource.kind, resource.name, what, span) if what else None


def _slept(was: Resource, now: Resource, change: Change) -> str:
    """How memory fell asleep or woke. Its mappings have no line of their own."""
    if now.kind == "mapping" or bool(was.asleep) == bool(now.asleep):
        return ""
    if now.asleep:
        return f"falls asleep, {_size(now)}, its bytes are {WHERE[now.asleep]}"
    comes_back = was.asleep != DROP or now.name in _filled(change)
    return f"wakes, {_size(now)}, {'with' if comes_back else 'without'} its bytes"


def _recreated(was: Resource, now: Resource, change: Change) -> Iterator[str]:
    """Which memory of a region was recreated."""
    if now.kind == "region":
        both = range(min(len(program.regions[now.name].chunks) for program in (change.old, change.new)))
        count = sum(("allocation", memory_of(now.name, number)) not in change.kept for number in both)
        if count:
            how = "with their bytes" if change.carries else "without their bytes"
            yield f"{count} of {len(both)} chunks are recreated{_moves(was, now)}, {how}"


def _elsewhere(was: Resource, now: Resource, change: Change) -> Iterator[str]:
    """Details about an object whose addresses change."""
    if sizes := _sizes(was, now):
        yield sizes
    if now.kind == "region":
        yield from [*_recreated(was, now, change)] or ["with its bytes"]


def _bytes(now: Resource, change: Change) -> str:
    """Whether recreated memory keeps its bytes."""
    if now.kind not in _HOLDS_BYTES:
        return ""
    carried = any(isinstance(step, CopyBytes) and step.name == now.name for step in change.carries)
    return ", with its bytes" if carried else ", without its bytes"


def _moves(was: Resource, now: Resource) -> str:
    return f", {was.device} -> {now.device}" if was.device != now.device and now.kind != "mapping" else ""


def _kept(resource: Resource, change: Change, new: _Side) -> bool:
    return new.made[resource.name] in change.kept


def _details(was: Resource, now: Resource, change: Change) -> Iterator[str]:
    """The differences of an object that stays."""
    if was.name != now.name and now.kind == "mapping":
        yield f"was called {was.name}"
    if now.kind == "region" and was.size != now.size:
        yield f"{'grows' if now.size > was.size else 'shrinks'}, {_sizes(was, now)}"
    if now.kind == "reservation":
        before, after = (_mapped(program, now.name) for program in (change.old, change.new))
        if before != after:
            mapped = f"{format_size(before)} -> {format_size(after)}"
            yield f"{'grows' if after > before else 'shrinks'}, mapped {mapped}"
    if now.kind in ("mapping", "region") and _rights(was, change.old) != _rights(now, change.new):
        access, wanted = _access(was), _access(now)
        if access == wanted:  # the same names mean other devices now
            access, wanted = (
                _access(resource, program) for resource, program in ((was, change.old), (now, change.new))
            )
        yield f"access {access} -> {wanted}"
    if now.kind == "managed" and now.name in change.changed:
        changed = [s for s in change.changes if s.name == now.name]
        yield from (step.describe() for step in changed if isinstance(step, ChangeAdvice))
        yield from (f"prefetch {step.describe()}" for step in changed if isinstance(step, steps.Prefetch))


def _moved(was: Resource, now: Resource, filled: bool) -> str:
    """How a tensor moved. No memory moves with it: a tensor is only a name for an offset."""
    changes = []
    if was.offset != now.offset:
        without = "" if filled else ", without its bytes"
        changes.append(f"lies at +{format_size(now.offset)}, was at +{format_size(was.offset)}{without}")
    if (was.dtype, was.shape) != (now.dtype, now.shape):
        changes.append(f"{_array(was)} -> {_array(now)}")
    return ", ".join(changes)


def _array(tensor: Resource) -> str:
    return f"{tensor.dtype} {'x'.join(map(str, tensor.shape))}"


def _mapped(program: Program, reservation: str) -> int:
    return sum(
        resource.size for resource in program.resources if resource.kind == "mapping" and resource.inside == reservation
    )


def _rights(resource: Resource, program: Program) -> tuple[object, ...]:
    """The access with ordinals in place of device names, for comparing."""

    def numbered(access: Access) -> dict[int | str, str]:
        return {program.devices.get(who, who): right for who, right in access}

    by_holder = {program.devices[holder]: numbered(access) for holder, access in resource.access_by_holder}
    return numbered(resource.access), by_holder, resource.sealed


def _access(resource: Resource, program: Program | None = None) -> str:
    """program: if given, the text has ordinals of devices too."""
    numbers = {name: f" (device {ordinal})" for name, ordinal in program.devices.items()} if program else {}
    return f"({resource.access_text(lambda who: who + numbers.get(who, ''))})"


def _size(resource: Resource) -> str:
    if resource.kind == "tensor":
        return _array(resource)
    if resource.kind == "mapping":
        return f"{format_size(resource.size)} of {resource.memory} at +{format_size(resource.offset)}"
    return format_size(resource.size) if resource.size else ""


def _sizes(was: Resource, now: Resource) -> str:
    before, after = _size(was), _size(now)
    return before if before == after else f"{before} -> {after}"
