"""draw(): makes a picture of programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import PurePath

from hipplan.files.output import write_document
from hipplan.pictures.changes import ChangeRibbons
from hipplan.pictures.hardware import Hardware
from hipplan.pictures.looks import FILLS, MIXED, OF_SIGNS, Owners
from hipplan.pictures.memory import MemoryRibbons
from hipplan.pictures.paint import paint
from hipplan.pictures.scene import CAME, CHANGED, RECREATED, STAYED, WENT, Column, Ribbon, Scene
from hipplan.plain import counted
from hipplan.program import listing, steps
from hipplan.program.difference import Difference, from_nothing
from hipplan.program.program import Program
from hipplan.units import about_size

RANKS_MAX = 16
"""At most so many ranks have a column."""
_RIGHTS = (("rw", "thick: read and write"), ("r", "thin: read"))


class Picture:
    """What draw() returns. In a notebook it shows itself, with zoom and search."""

    def __init__(self, scene: Scene, owners: Owners) -> None:
        self._scene = scene
        self._owners = owners

    @cached_property
    def svg(self) -> str:
        """The picture as one SVG document, in the light and in the dark."""
        return paint(self._scene, self._owners.mixtures)

    @cached_property
    def html(self) -> str:
        """The SVG in a page with zoom, search and a panel for what is under the pointer; it loads nothing."""
        files = resources.files("hipplan") / "pictures"
        page = (files / "page.html").read_text("utf-8")
        script = (files / "page.js").read_text("utf-8")
        return page.replace("<!--SCRIPT-->", f"<script>\n{script}</script>").replace("<!--PICTURE-->", self.svg)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page or the SVG, as the file's name ends. Raises ValueError for another end, PlanError (HP413,
        HP416)."""
        name = os.fspath(path)
        ending = PurePath(name).suffix.lower()
        if ending not in (".svg", ".html", ".htm"):
            raise ValueError(f"{name} is not FILE.svg or FILE.html")
        write_document(name, self.svg if ending == ".svg" else self.html, "the picture")

    def _repr_html_(self) -> str:
        """Notebooks show it in a frame, so that neither's styles reach the other."""
        document = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{document}" style="width:100%;height:640px;border:0" title="hipplan"></iframe>'

    def __repr__(self) -> str:
        return f"<hipplan.Picture '{self._scene.title}'>"


def draw(
    what: Program | Sequence[Program] | Difference, *, addresses: Mapping[str, int] | None = None, more_ranks: int = 0
) -> Picture:
    """A picture of a program, of the programs of all ranks (a column for each), or of a difference.

    addresses: of reservations and regions by name, of a live layout. more_ranks: how many there are beside those given.
    """
    if isinstance(what, Difference):
        return _of_change(what)
    programs = [what] if isinstance(what, Program) else [*what] if isinstance(what, Sequence) else []
    if not programs or not all(isinstance(program, Program) for program in programs):
        raise TypeError("draw() takes a program of hipplan.compile(), a list of them, or a Difference")
    more_ranks += len(programs[RANKS_MAX:])
    programs = programs[:RANKS_MAX]
    owners = Owners(programs)
    tensors = sum(len(region.tensors) for program in programs for region in program.regions.values())
    several = len(programs) > 1
    columns = []
    for program in programs:
        memory = MemoryRibbons(program, owners, addresses, tensors)
        ribbons = {_key(program, ribbon.key): ribbon for ribbon in memory.ribbons()}
        columns.append(_column(program, Hardware(program, owners), ribbons, several))
    notes = [f"{counted(more_ranks, 'more rank')} not drawn"] if more_ranks else []
    first = programs[0]
    scene = Scene(
        title=first.name,
        facts=(f"on {first.machine}", *_facts(programs)),
        columns=tuple(columns),
        legend=tuple(_legend(columns, ())),
        notes=(*notes, *_streams(programs)),
    )
    return Picture(scene, owners)


def _of_change(change: Difference) -> Picture:
    owners = Owners([change.new])
    tensors = sum(len(region.tensors) for program in (change.old, change.new) for region in program.regions.values())
    changes = ChangeRibbons(change, owners, tensors)
    ribbons = {ribbon.key: ribbon for ribbon in changes.ribbons()}
    column = _column(change.new, Hardware(change.new, owners, change.old), ribbons, False)
    changed_lines = [*changes.lines.values()]
    words = {CAME: "+ made", CHANGED: "~ altered", RECREATED: "-/+ recreated", WENT: "- freed", STAYED: "unchanged"}
    signs = [(OF_SIGNS[sign], word) for sign, word in words.items()]
    scene = Scene(
        title=_both_names(change),
        facts=(f"on {change.new.machine}", listing.summary(changed_lines), counted(len(change.all_steps), "step")),
        columns=(column,),
        legend=tuple(_legend([column], signs)),
        notes=tuple(filter(None, [listing.note(change)])),
    )
    return Picture(scene, owners)


def _both_names(change: Difference) -> str:
    """The names of both files, with paths if the names are equal; the plan's name if it is one file."""
    sources = [program.source for program in (change.old, change.new)]
    if sources[0] == sources[1]:
        return change.new.name
    names = [PurePath(source).name for source in sources]
    return " → ".join(sources if names[0] == names[1] else names)


def _column(program: Program, hardware: Hardware, ribbons: Mapping[tuple[str, str], Ribbon], several: bool) -> Column:
    ordinals = hardware.ordinals(all_of_them=not several)
    there = len(program.measured.devices) if program.measured else len(ordinals)
    hidden = 0 if several else there - len(ordinals)
    return Column(
        title=f"rank {program.rank.rank}" if several else "",
        node=f"node {program.rank.node}" if several else "",
        devices=tuple(hardware.device(ordinal) for ordinal in ordinals),
        host=hardware.host(),
        wires=() if several else tuple(hardware.wires(ordinals)),
        ribbons=ribbons,
        more=f"and {hidden} other devices" if hidden else "",
    )


def _key(program: Program, key: tuple[str, str]) -> tuple[str, str]:
    """A ribbon's key, equal for memory that one rank makes and others map."""
    kind, name = key
    own = name in program.shared and name not in program.parts and program.shared[name].region.spec.rank is None
    return kind, f"{name}{steps.RANK_SIGN}{program.rank.rank}" if own else name


def _facts(programs: Sequence[Program]) -> list[str]:
    sizes = [size for program in programs for size in program.bytes_by_device().values()]
    waste = sum(resource.waste for program in programs for resource in program.resources
                if resource.kind in ("allocation", "device", "region"))  # fmt: skip
    facts = [counted(len(programs), "rank")] if len(programs) > 1 else []
    facts += [f"device memory {about_size(sum(sizes))}"]
    facts += [f"{about_size(waste)} of it padding"] if waste else []
    count = sum(from_nothing(program).step_count for program in programs)
    return [*facts, counted(count, "step")]


def _streams(programs: Sequence[Program]) -> list[str]:
    owners = [f"{resource.name} on {resource.device}" for program in programs for resource in program.resources
             if resource.kind == "stream" and "#" not in resource.name]  # fmt: skip
    return [f"streams: {', '.join(owners[:8])}" + " …" * (len(owners) > 8)] if owners else []


def _legend(columns: Sequence[Column], signs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The legend, only with entries that occur in the picture."""
    looks = {look for column in columns for ribbon in column.ribbons.values() for track in ribbon.tracks
             for box in track.boxes for look in box.look.split()}  # fmt: skip
    owners = [(device.look, device.name) for column in columns for device in column.devices
              if device.name and len(columns) == 1 and not signs]  # fmt: skip
    if len({look for look, _ in owners}) < len(owners) or len(owners) > len(FILLS):
        owners = []
    words = [("padding", "padding, or no tensor"), ("hole", "addresses only"), ("sealed", "sealed: read-only")]
    mixed = sorted(look for look in looks if look.startswith(MIXED))[:1]
    words += [(look, "in turns") for look in mixed] + [("asleep", "asleep: addresses without memory")]
    words += [("advice", "advice, prefetches")]
    there = looks | (
        {"hole"} if any(map(_has_holes, (r for column in columns for r in column.ribbons.values()))) else set()
    )
    return [*owners, *signs, *(entry for entry in (*_RIGHTS, *words) if entry[0] in there)]


def _has_holes(ribbon: Ribbon) -> bool:
    mapped = sum(box.end - box.start for box in ribbon.tracks[0].boxes if box.look != "padding")
    return mapped < ribbon.size
