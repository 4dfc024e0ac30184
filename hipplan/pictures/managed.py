"""Advice and prefetches of managed buffers as tracks: which bytes of a buffer each is for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from hipplan.kinds.managed.live import Advise, Prefetch
from hipplan.language.host import HOST
from hipplan.pictures.looks import OF_NOBODY, Owners
from hipplan.pictures.scene import Box, Track
from hipplan.program import steps
from hipplan.program.program import Program

About = Advise | Prefetch


def advised(program: Program) -> Mapping[str, Sequence[About]]:
    """Managed buffer -> its advice and prefetches."""
    about: dict[str, list[About]] = defaultdict(list)
    for _, step in program.single:
        if isinstance(step, (Advise, Prefetch)):
            about[step.name].append(step)
    return about


def tracks(program: Program, owners: Owners, about: Sequence[About], size: int, *, is_change: bool) -> Iterator[Track]:
    """Returns as few tracks as possible: ranges that overlap are below each other. Prefetches come after advice."""
    names = {ordinal: name for name, ordinal in reversed(program.devices.items())}
    for kind, word in ((Advise, "advice"), (Prefetch, "prefetch")):
        rows: list[list[Box]] = []
        for step in sorted((step for step in about if isinstance(step, kind)), key=lambda step: step.offset):
            who = HOST if step.device == steps.CPU_ORDINAL else names.get(step.device, f"device {step.device}")
            label = f"to {who}" if isinstance(step, Prefetch) else f"{step.advice} · {who}"
            look = OF_NOBODY if is_change else owners.look(program, who)
            end = min(step.offset + step.size, size)
            box = Box(step.offset, end, f"{look} advice", label, f"{step.name}\n{step.call}: {step.describe()}")
            row = next((row for row in rows if row[-1].end <= box.start), None)
            if row is None:
                rows.append(row := [])
            row.append(box)
        for row in rows:
            yield Track("advice", tuple(row), word)
