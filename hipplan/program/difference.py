"""The change from one program to another: which objects stay, and the steps for the others. Pure: no driver.

Two objects are the same if they have the same name and kind. Mappings must also have the same place in the same
reservation, peer links the same devices. Objects that stay keep their handle, address and bytes: only new memory is
filled with contents.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import Any

from hipplan.kinds.mapping.live import ChangeAccess, Map, TakeOut
from hipplan.kinds.reservation.live import Reserve
from hipplan.notebooks import InNotebooks
from hipplan.program import sealing, steps
from hipplan.program.access_runs import changed_rights, now_and_before
from hipplan.program.by_object import StepsByObject, alike, all_alike
from hipplan.program.change import AndEqual, Change, KeysOf
from hipplan.program.contents import of_new
from hipplan.program.gone_and_come import gone_and_come
from hipplan.program.listing import Line, lines, note, summary
from hipplan.program.lone import Lone, besides, lone, upward_with
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.program import Program
from hipplan.program.runs import Run, plain
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Key
from hipplan.program.taken_out import downward
from hipplan.program.touched import touched
from hipplan.program.upward import upward

_SHOWN_MAX = 60


class Difference(Change, InNotebooks):
    """What a change did to a layout: the steps from `old` to `new`, in order.

    print() shows its first 60 lines and counts the others; lines() has all. It is false if nothing differs.
    """

    __slots__ = ("__weakref__",)

    def __str__(self) -> str:
        changed_lines = self.lines()
        shown = [*map(str, changed_lines[:_SHOWN_MAX])] or ["no changes"]
        more = len(changed_lines) - _SHOWN_MAX
        counted = [f"and {more} more; in all {summary(changed_lines)}"] if more > 0 else []
        return "\n".join(filter(None, [*shown, *counted, note(self)]))

    def lines(self) -> list[Line]:
        """Each object that is made (`+`), altered (`~`), recreated (`-/+`) or freed (`-`), as `sign`, `kind`, `name`,
        `what`, and `loss`, None if it loses nothing; str() of a line is the text that print() shows."""
        return lines(self)

    def __repr__(self) -> str:
        return f"<hipplan.Difference: {self.in_a_line()}>"

    def in_a_line(self) -> str:
        """The change in one line: the change itself if it is one, else how many there are."""
        changed_lines = lines(self)
        if not changed_lines and not self.empty:  # only lanes, which are not in the plan, changed
            return "streams and pinned memory that move bytes"
        return str(changed_lines[0]) if len(changed_lines) == 1 else summary(changed_lines)

    def __bool__(self) -> bool:
        return not self.empty or bool(lines(self))  # a tensor may lie elsewhere without a driver call


def difference(
    old: Program, new: Program, renewed: Set[str] = frozenset(), *, fills: bool = False, unmaps: bool = False
) -> Difference:
    """Compare two programs.

    renewed: names of objects to recreate although they do not differ. fills: the contents of new memory are steps of
    the change. unmaps: removed mappings are unmapped during the change, while that can be undone, not after it.
    """
    if not (renewed or fills or unmaps):
        for short in (_resized, _regiven):
            if (change := short(old, new)) is not None:
                return change
    if not (renewed or fills) and (change := _gone_and_come(old, new, unmaps)) is not None:
        return change
    new = _on_old_ranges(old, new, renewed)
    part = touched(old, new, renewed)
    differs = _Comparison(part.old, part.new, renewed, lone(part.old, part.new)).result(fills, unmaps)
    if part.new is new:
        return differs
    return replace(differs, old=old, new=new, kept=AndEqual(differs.kept, part), part=part)


def from_nothing(new: Program, opened: Program | None = None) -> Difference:
    """The change from an empty layout, as apply() makes it. opened: the program during the contents; default: with
    what they write unsealed."""
    opened = sealing.opened(new, new.contents) if opened is None else opened
    change = Difference(
        old=new.nothing,
        new=opened,
        additions=opened.making,
        changes=(),
        gone=(),
        released=(),
        renamed={},
        kept=frozenset(),
        changed=frozenset(),
        contents=new.contents,
    )
    return change if opened is new else sealed_after(change, new)


def sealed_after(change: Difference, sealed: Program) -> Difference:
    """The same change, with steps at its end that seal what contents wrote. sealed: the program after them."""
    return replace(change, new=sealed, opened=change.new, seals=sealing.seals(change.new, sealed))


def _resized(old: Program, new: Program) -> Difference | None:
    """The difference if `new` is `old` with steps added to its end, or without some; else None.

    This is the case of growing and shrinking: memory that stays is not compared, so the cost does not depend on it.
    """
    if not new.comes_from(old):
        return None
    gone = tuple(step for step in new.gone if step.makes)
    return Difference(
        old=old,
        new=new,
        additions=() if gone else new.added,
        changes=(),
        gone=gone,
        released=gone,
        renamed={},
        kept=KeysOf(new if gone else old),
        changed=frozenset(),
        finds_part=True,
    )


def _regiven(old: Program, new: Program) -> Difference | None:
    """The difference if only rights on mappings differ; else None. Its cost depends on these mappings only."""
    given = new.given_since(old)
    if given is None:
        return None
    regiven: Parts[steps.Step] = Parts()
    names: list[str] = []
    for _, now in given:
        if isinstance(now, MappedRun):
            regiven.extend(now)
            names += map(now.name_of, now.numbers)
        else:
            regiven.extend((new.makers[now.name], now))
            names.append(now.name)
    return Difference(
        old=old,
        new=new,
        additions=(),
        changes=changed_rights(given),
        gone=(),
        released=(),
        renamed={},
        kept=KeysOf(new),
        changed=frozenset(names),
        regiven=regiven.series(),
        finds_part=True,
    )


def _gone_and_come(old: Program, new: Program, unmaps: bool) -> Difference | None:
    """The difference if `new` has the steps of `old` but for some that go, and others behind them; else None."""
    differs = gone_and_come(old, new)
    if differs is None:
        return None
    rights, gone = differs.rights, differs.makers_gone()
    return Difference(
        old=old,
        new=new,
        additions=upward_with(differs.come, new.reservations.keys(), differs.runs_come),
        changes=downward(differs.mappings, lambda step: step.taken_out(rights.get(step.name))) if unmaps else (),
        gone=gone,
        released=differs.makers_gone(mapped=False) if unmaps else gone,
        renamed={},
        kept=KeysOf(old, gone),
        changed=frozenset(),
        finds_part=True,
        unmaps=unmaps,
    )


def _on_old_ranges(old: Program, new: Program, renewed: Set[str]) -> Program:
    """The new program, in which old reservations stay where possible: one that is large enough keeps its size, and one
    that a lock has placed keeps its address unless the plan demands another."""
    there = {name: step for name, step in old.reservations.items() if name not in renewed}
    stay: dict[int, Reserve] = {}
    for place, step in new.single:
        was = there.get(step.name)
        if was is None or not isinstance(step, Reserve) or step.size > was.size:
            continue
        asked = step.asked if step.size == was.size else was.size
        stay[place] = replace(step, size=was.size, asked=asked)
        if was.exact and not step.exact and step.alignment == was.alignment:
            stay[place] = replace(was, asked=asked, origin=step.origin)
    if all(stay[place] == new.steps[place] for place in stay):
        return new
    return new.with_steps(stay)


class _Comparison:
    def __init__(self, old: Program, new: Program, renewed: Set[str], apart: Lone = Lone()) -> None:  # noqa: B008
        """apart: runs that are not compared, because only one of the programs has anything like them."""
        self.old, self.new, self.apart = old, new, apart
        self.before = StepsByObject(besides(old.steps, apart.old))
        self.after = StepsByObject(besides(new.steps, apart.new))
        self.kept: set[Key] = set()
        late = []
        for key, step in self.after.made.items():
            if step.needs or step.name in self.after.fixed or step.name in self.before.fixed:
                late.append((key, step))  # whether these stay depends on the other objects
            elif step.name not in renewed and self._same(key, step):
                self.kept.add(key)
        self.kept |= {key for key, step in late if step.name not in renewed and self._stays(key, step)}

    def result(self, fills: bool, unmaps: bool) -> Difference:
        takes_out, waiting = self._places(unmaps)
        changed: list[steps.Step] = []
        for key in self.after.made:
            if key in self.kept:
                changed += self._changes(key)
        additions, more = self._additions(waiting)
        prefetches = self._prefetches()
        taken = {step.name for step in plain(takes_out)}
        gone, released = self._gone(taken, self._unmapped_runs() if unmaps else [])
        return Difference(
            old=self.old,
            new=self.new,
            additions=additions,
            changes=Series.joined((changed, takes_out, more, prefetches)),
            gone=gone,
            released=released,
            renamed={
                self.after.made[key].name: self.before.made[key].name
                for key in self.kept
                if self.after.made[key].name != self.before.made[key].name
            },
            kept=frozenset(self.kept),
            changed=frozenset(step.name for step in (*changed, *prefetches)),
            unmaps=unmaps,
            contents=tuple(of_new(self.old, self.new, self._memory_stays)) if fills else (),
        )

    def _memory_stays(self, name: str) -> bool:
        key = self.after.of.get(name)  # absent for sleeping memory, whose bytes are in its backup
        return key in self.kept if key is not None else name not in self.new.makers

    def _gone(self, taken: Set[str], unmapped: Sequence[Run]) -> tuple[Series[steps.Step], Series[steps.Step]]:
        """The steps of the old program whose objects do not stay, and those of them that are freed at the end. taken,
        unmapped: mappings and runs of them that are taken out before."""
        single = {key: step for key, step in self.before.made.items() if key not in self.kept}
        if not self.apart.old:
            return Series([*single.values()]), Series([s for s in single.values() if s.name not in taken])
        gone: Parts[steps.Step] = Parts()
        released: Parts[steps.Step] = Parts()
        apart, left_out = {id(run) for run in self.apart.old}, {id(run) for run in unmapped}
        for part in segments(self.old.steps):
            if id(part) in apart:
                here: Sequence[steps.Step] = part.without_rights() if isinstance(part, MappedRun) else part
                released.extend([] if id(part) in left_out else here)
            else:
                here = [step for step in part if step.key in single]
                released.extend([step for step in here if step.name not in taken])
            gone.extend(here)
        return gone.series(), released.series()

    def _unmapped_runs(self) -> list[MappedRun]:
        """The runs of mappings that go from ranges that stay."""
        mapped = (run for run in self.apart.old if isinstance(run, MappedRun))
        return [run for run in mapped if ("reservation", run.of) in self.kept]

    def _same(self, key: Key, step: steps.Step) -> bool:
        there = self.before.made.get(key)
        return there is step or (there is not None and alike(there, step))

    def _stays(self, key: Key, step: steps.Step) -> bool:
        fixed, was = self.after.fixed.get(step.name, ()), self.before.fixed.get(step.name, ())
        needs = chain(step.needs, *(about.needs for about in fixed))
        return all(key in self.kept for key in needs) and self._same(key, step) and all_alike(fixed, was)

    def _places(self, unmaps: bool) -> tuple[Series[steps.Step], set[str]]:
        """Mappings to take out because others come in their place, and the names of those others. unmaps: all that
        go."""
        going: dict[str, list[Map]] = {}
        for key, step in self.before.made.items():
            if isinstance(step, Map) and key not in self.kept and ("reservation", step.reservation) in self.kept:
                going.setdefault(step.reservation, []).append(step)
        for mappings in going.values():
            mappings.sort(key=lambda mapping: mapping.offset)
        starts = {name: [step.offset for step in mappings] for name, mappings in going.items()}
        out = {mapping.name: mapping for mappings in going.values() for mapping in mappings} if unmaps else {}
        waiting = set()
        for key, step in self.after.made.items():
            if not isinstance(step, Map) or key in self.kept or step.reservation not in going:
                continue
            mappings = going[step.reservation]
            at = max(0, bisect_left(starts[step.reservation], step.offset + 1) - 1)
            for mapping in mappings[at:]:
                if mapping.offset >= step.offset + step.size:
                    break
                if mapping.offset + mapping.size > step.offset:
                    waiting.add(step.name)
                    out[mapping.name] = replace(mapping, origin=step.origin)
        # From the end, so that the mapped part of a range mostly has no hole, also during a roll back (lowering).
        return downward(self._in_order(out, self._unmapped_runs() if unmaps else []), self._taken_out), waiting

    def _in_order(self, out: Mapping[str, Map], unmapped: Sequence[MappedRun]) -> list[Map | MappedRun]:
        """Mappings and runs of them, range by range in the order of the old program's steps."""
        if not unmapped:
            return [*out.values()]
        apart, by_range = {id(run): run for run in unmapped}, dict[str, list[Map | MappedRun]]()
        for part in segments(self.old.steps):
            if (run := apart.get(id(part))) is not None:
                by_range.setdefault(run.of, []).append(run)
                continue
            may_map = out and (not isinstance(part, Run) or part.makes == "mapping")
            for step in part if may_map else ():
                if isinstance(step, Map) and step.name in out:
                    by_range.setdefault(step.reservation, []).append(out[step.name])
        return [*chain.from_iterable(by_range.values())]

    def _taken_out(self, step: Map) -> TakeOut:
        return step.taken_out(self.before.rights.get(step.name))

    def _additions(self, waiting: set[str]) -> tuple[Series[steps.Step], list[steps.Step]]:
        """The steps for new objects: those that can run first, and mappings for a place that is still taken."""
        at_once: list[steps.Step | Run] = []
        later: list[steps.Step] = []
        streams: set[tuple[str, int]] = set()
        apart = {id(run) for run in self.apart.new}
        parts: Iterator[Sequence[Any]] = ([part] if id(part) in apart else part for part in segments(self.new.steps))
        for step in chain.from_iterable(parts):
            if apart and id(step) in apart:
                at_once.append(step)
                continue
            if step.is_content:
                continue
            if step.awaits_stream:
                if step.stream_used in streams:
                    at_once.append(step)
                continue
            key = step.key or self.after.of[step.name]
            if key in self.kept:
                continue
            (later if step.name in waiting else at_once).append(step)
            if (stream := step.stream_used) is not None:
                streams.add(stream)
        stay = {key[1] for key in self.kept if key[0] == "reservation"}
        return upward_with(at_once, stay, self.apart.new), upward(later, stay)

    def _changes(self, key: Key) -> Iterator[steps.Step]:
        """The steps that change access and advice of an object that stays."""
        step, was = self.after.made[key], self.before.made[key]
        now, before = self.after.rights.get(step.name), self.before.rights.get(was.name)
        rights, had = now.rights if now else (), before.rights if before else ()
        if dict(rights) != dict(had):
            together = now is not None and now.together
            yield ChangeAccess(step.name, step.origin, *now_and_before(rights, had), together)
        yield from step.altered(self.before.more.get(was.name, ()), self.after.more.get(step.name, ()))

    def _prefetches(self) -> list[steps.Step]:
        """New prefetches of buffers that stay. They are no `changes`: a prefetch cannot be undone."""
        added: list[steps.Step] = []
        for key, step in self.after.made.items():
            if step.name in self.after.more and key in self.kept:
                wanted = self.after.repeated(step.name)
                if not all_alike(wanted, self.before.repeated(step.name)):
                    added += wanted
        streams = {step.stream_used for step in added}
        waits = (step for step in plain(self.new.steps) if step.awaits_stream and step.stream_used in streams)
        return [*added, *(waits if added else ())]
