"""A difference as ribbons: the old state above the new one, at the same addresses, each box with its sign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hipplan.pictures.looks import OF_SIGNS, Owners
from hipplan.pictures.managed import advised
from hipplan.pictures.memory import BUFFERS, MemoryRibbons
from hipplan.pictures.scene import CAME, CHANGED, RECREATED, STAYED, WENT, Box, Chip, Ribbon, Track
from hipplan.program import listing
from hipplan.program.difference import Difference
from hipplan.program.losses import Loss, total_text
from hipplan.program.resources import Resource

_CHIP_MAX = 60


class ChangeRibbons:
    """The ribbons of both programs of a difference."""

    def __init__(self, change: Difference, owners: Owners, tensors_in_all: int) -> None:
        self.change = change
        self.lines = {(line.kind, line.name): line for line in listing.lines(change)}
        self._keys = {step.name: step.key for step in (*change.old.steps, *change.new.steps) if step.makes == "mapping"}
        self._were = {resource.name: resource for resource in change.old.resources}
        self._are = {resource.name: resource for resource in change.new.resources}
        alone = {*advised(change.old), *advised(change.new)}
        self.old = MemoryRibbons(change.old, owners, None, tensors_in_all, self._sign_before, self._text, alone)
        self.new = MemoryRibbons(change.new, owners, None, tensors_in_all, self._sign_after, self._text, alone)
        self._range_of = {mapping.memory: mapping.inside for mapping in change.old.resources if mapping.memory}
        """Allocation -> a region or reservation that maps it."""

    def ribbons(self) -> Iterator[Ribbon]:
        """The ribbons in the order of the new program, then freed ones."""
        before = {ribbon.key: ribbon for ribbon in self.old.ribbons()}
        for ribbon in self.new.ribbons():
            was = before.pop(ribbon.key, None)
            made = self._of_both(was, ribbon) if ribbon.has_addresses else _side_by_side(was, ribbon)
            yield replace(made, chips=(*made.chips, *self._losses(ribbon)))
        for was in before.values():
            chips = (Chip("- freed", OF_SIGNS[WENT]),) if was.has_addresses else ()
            yield replace(was, chips=(*was.chips, *chips, *self._losses(was)), flat=True)

    def _losses(self, ribbon: Ribbon) -> Iterator[Chip]:
        """What the objects of a ribbon lose."""
        own = self.lines.get(ribbon.key)
        if own is not None and own.loss is not None:
            yield Chip(own.loss.words(), OF_SIGNS[RECREATED])
        others = [line.loss for line in self.lines.values()
                  if line is not own and line.loss is not None and self._is_in(line.loss, ribbon)]  # fmt: skip
        if others:
            yield Chip(f"{total_text(others)} lost", OF_SIGNS[RECREATED])

    def _is_in(self, loss: Loss, ribbon: Ribbon) -> bool:
        range_ = loss.inside or self._range_of.get(loss.name, "")
        return range_ == ribbon.key[1] if ribbon.has_addresses else not range_ and loss.kind in BUFFERS

    def _text(self, buffer: Resource) -> str:
        line = self.lines.get((buffer.kind, buffer.name))
        return "" if line is None else f"{line.sign} {line.text}"

    def _of_both(self, was: Ribbon | None, ribbon: Ribbon) -> Ribbon:
        line = self.lines.get(ribbon.key)
        if was is None:
            return replace(ribbon, chips=(Chip("+ made", OF_SIGNS[CAME]), *ribbon.chips))
        chips = ribbon.chips
        if line is not None:
            label = f"{line.sign} {line.what}".rstrip()
            shown = label if len(label) <= _CHIP_MAX else f"{label[:_CHIP_MAX]}…"
            chips = (Chip(shown, OF_SIGNS[line.sign], label),)
        elif _stays(was) and _stays(ribbon):
            return replace(ribbon, chips=(Chip("unchanged", OF_SIGNS[STAYED]), *chips), flat=True)
        tracks = []
        for kind in ("memory", "tensors"):
            above, below = _track(was, kind), _track(ribbon, kind)
            if above and (not below or not _alike(above, below)):
                tracks.append(replace(above, name="before"))
            if below:
                tracks.append(replace(below, name="after") if above and tracks else below)
        rights = [track for track in ribbon.tracks if track.kind in ("access", "advice")]
        return replace(ribbon, tracks=(*tracks, *rights), size=max(was.size, ribbon.size), chips=chips)

    def _sign_after(self, resource: Resource) -> str:
        if resource.kind == "tensor":
            return self._sign_of_tensor(resource, self._were.get(resource.name), CAME)
        if resource.kind != "mapping":
            line = self.lines.get((resource.kind, resource.name))
            return line.sign if line else STAYED
        if self._keys[resource.name] not in self.change.kept:
            return CAME
        was = self._were.get(self.change.renamed.get(resource.name, resource.name))
        same = was is not None and (dict(was.access), was.asleep) == (dict(resource.access), resource.asleep)
        return STAYED if same and resource.name not in self.change.changed else CHANGED

    def _sign_before(self, resource: Resource) -> str:
        if resource.kind == "tensor":
            return self._sign_of_tensor(resource, self._are.get(resource.name), WENT)
        if resource.kind != "mapping":
            gone = self.lines.get((resource.kind, resource.name))
            return WENT if gone and gone.sign == WENT else STAYED
        return STAYED if self._keys[resource.name] in self.change.kept else WENT

    def _sign_of_tensor(self, tensor: Resource, counterpart: Resource | None, alone: str) -> str:
        if counterpart is None or ("reservation", tensor.inside) not in self.change.kept:
            return alone
        same = (tensor.offset, tensor.dtype, tensor.shape) == (counterpart.offset, counterpart.dtype, counterpart.shape)
        return STAYED if same else CHANGED


def _stays(ribbon: Ribbon) -> bool:
    return all(box.look.split()[0] in (OF_SIGNS[STAYED], "padding") for box in _boxes(ribbon))


def _boxes(ribbon: Ribbon) -> Iterator[Box]:
    for track in ribbon.tracks:
        if track.kind in ("memory", "tensors"):
            yield from track.boxes


def _track(ribbon: Ribbon, kind: str) -> Track | None:
    return next((track for track in ribbon.tracks if track.kind == kind), None)


def _alike(first: Track, second: Track) -> bool:
    return [box[:2] for box in first.boxes] == [box[:2] for box in second.boxes] and all(
        box.look.split()[0] in (OF_SIGNS[STAYED], "padding") for box in (*first.boxes, *second.boxes)
    )


def _side_by_side(was: Ribbon | None, ribbon: Ribbon) -> Ribbon:
    """Objects that are added or stay, then freed ones."""
    went = [box for box in was.tracks[0].boxes if box.look == OF_SIGNS[WENT]] if was else []
    at, boxes = ribbon.size, [*ribbon.tracks[0].boxes]
    for box in went:
        boxes.append(box._replace(start=at, end=at + box.end - box.start))
        at += box.end - box.start
    return replace(ribbon, tracks=(Track("memory", tuple(boxes)),), size=at)
