"""Programs, layouts and results as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hipplan.files.strict_json import FORMAT_VERSION
from hipplan.kinds.lives import lies
from hipplan.language.host import HOST
from hipplan.program import listing, open_sizes
from hipplan.program.difference import from_nothing
from hipplan.program.program import Program
from hipplan.program.resources import Resource
from hipplan.program.series import Series
from hipplan.program.steps import Step
from hipplan.show import summary

if TYPE_CHECKING:
    from hipplan.layout.layout import Layout
    from hipplan.layout.undo import Undone
    from hipplan.program.difference import Difference

_VISIBILITY = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


def step_json(step: Step) -> dict[str, Any]:
    """One step: the call, the name, its fields, and its place in the plan."""
    own = {name: _as_json(getattr(step, name)) for name in _own_fields(type(step))}  # type: ignore[arg-type]  # a class has a hash
    origin = None if step.origin is None else str(step.origin)
    return {"call": step.call, "name": step.name, "describe": step.describe(), "origin": origin, **own}


@cache
def _own_fields(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.name not in ("name", "origin"))


def _as_json(value: Any) -> Any:
    """A field's value for JSON: bytes in hexadecimal, without places in the plan."""
    if isinstance(value, (int, str)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (tuple, Series)):
        return [_as_json(item) for item in value]
    if is_dataclass(value):
        return {f.name: _as_json(getattr(value, f.name)) for f in fields(value) if f.name != "origin"}
    return value


def resource_json(resource: Resource) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": resource.name,
        "kind": resource.kind,
        "device": resource.device,
        "asked": resource.asked,
        "size": resource.size,
        "waste": resource.waste,
    }
    if resource.overflow:
        out |= {"overflow": HOST}
    if resource.bytes_by_device:
        out |= {"bytes_by_device": dict(resource.bytes_by_device)}
    if resource.kind == "tensor":
        out |= {
            "access": dict(resource.access),
            "region": resource.inside,
            "offset": resource.offset,
            "dtype": resource.dtype,
            "shape": list(resource.shape),
        }
    if resource.kind == "region":
        out |= {"access": dict(resource.access)}
        if resource.access_by_holder:
            out |= {"access_by_holder": {holder: dict(access) for holder, access in resource.access_by_holder}}
    if resource.attached != "r":
        out |= {"attached": resource.attached}
    if resource.sealed:
        out |= {"sealed": True}
    if resource.asleep:
        out |= {"asleep": resource.asleep}
    if resource.kind == "mapping":
        out |= {
            "access": dict(resource.access),
            "reservation": resource.inside,
            "offset": resource.offset,
            "allocation": resource.memory,
        }
    return out


def program_json(program: Program) -> dict[str, Any]:
    """A program for strict_json.pieces: lists are iterators, which are consumed while they are written."""
    return {
        "format_version": FORMAT_VERSION,
        **_identity(program),
        "bytes_by_device": program.bytes_by_device(),
        **_open_sizes(program),
        "steps": map(step_json, from_nothing(program).all_steps),
        "resources": map(resource_json, _resources(program)),
        "warnings": [warning.to_json() for warning in program.warnings],
    }


def _resources(program: Program) -> Iterator[Resource]:
    """The objects of a program, made when the first is asked for: a long text may end before."""
    yield from program.resources


def program_summary(program: Program) -> dict[str, Any]:
    """Returns program_json() with families in place of `steps` and `resources`. It does not grow with their number."""
    steps, resources = from_nothing(program).all_steps, summary.resources_by_kind(program)
    objects = summary.objects_of(resources)
    return {
        "format_version": FORMAT_VERSION,
        **_identity(program),
        "bytes_by_device": program.bytes_by_device(),
        **(_cut(opened, "open_sizes") if (opened := _open_sizes(program)) else {}),
        "summed_up": {"steps": len(steps), "resources": summary.how_many(resources)},
        "steps_summary": _with_names_cut(summary.calls_of(steps)),
        "resources_summary": [_cut(asdict(rows), "devices") for rows in objects[: summary.ROWS_MAX]],
        "resources_summary_left_out": max(0, len(objects) - summary.ROWS_MAX),
        **_cut({"warnings": [warning.to_json() for warning in program.warnings]}, "warnings", summary.ROWS_MAX),
    }


def _with_names_cut(families: Sequence[summary.Calls] | Sequence[summary.ChangesLine]) -> list[dict[str, Any]]:
    return [_cut(asdict(family), "names") for family in families]


def _cut(data: dict[str, Any], key: str, most: int = summary.FAMILIES_MAX) -> dict[str, Any]:
    """The same with the first members of one list, and how many of them are left out."""
    return data | {key: data[key][:most], f"{key}_left_out": max(0, len(data[key]) - most)}


def ranks_json(programs: Sequence[Program]) -> dict[str, Any]:
    """All ranks of a plan, each as program_json(); for strict_json.pieces, too."""

    def listed(program: Program) -> dict[str, Any]:
        return {key: [*member] if isinstance(member, map) else member for key, member in program_json(program).items()}

    ranks = ({**asdict(program.rank), **listed(program)} for program in programs)
    return {"format_version": FORMAT_VERSION, "ranks": ranks}


def ranks_summary(programs: Sequence[Program]) -> dict[str, Any]:
    """Returns ranks_json() with numbers for the first ranks."""
    ranks = [
        asdict(program.rank)
        | {"bytes_by_device": program.bytes_by_device()}
        | {"steps": from_nothing(program).step_count, "resources": len(program.resources)}
        for program in programs[: summary.ROWS_MAX]
    ]
    return {
        "format_version": FORMAT_VERSION,
        **_identity(programs[0]),
        "summed_up": {"ranks": len(programs)},
        "ranks_summary": ranks,
        "ranks_summary_left_out": len(programs) - len(ranks),
    }


def _open_sizes(program: Program) -> dict[str, Any]:
    """What the plan leaves open (size: fill), with the bytes that it takes on the machine; empty if it is nothing."""
    decided = [decided._asdict() for decided in open_sizes.sizes_in(program)]
    return {"open_sizes": decided} if decided else {}


def _identity(program: Program) -> dict[str, Any]:
    """The plan and machine of a program."""
    keys = ("digest", "machine", "devices", "selectors")
    return {"plan": program.name} | {key: getattr(program, key) for key in keys}


def difference_json(change: Difference) -> dict[str, Any]:
    """Returns what program_json() does, of a change. Without `changes` the two programs are alike; `steps` are the
    driver calls, then `given_back` goes."""
    changed_lines = listing.lines(change)
    return {
        "format_version": FORMAT_VERSION,
        "plan": change.new.name,
        "digest": change.new.digest,
        "from": {"plan": change.old.name, "digest": change.old.digest},
        "machine": change.new.machine,
        "changes": [line_json(line) for line in changed_lines],
        "counts": listing.counts(changed_lines),
        "steps": map(step_json, change.all_steps),
        "note": listing.note(change),
        "given_back": [step.name for step in reversed(change.released)],
        "warnings": [warning.to_json() for warning in change.new.warnings],
    }


def difference_summary(change: Difference) -> dict[str, Any]:
    """Returns difference_json() with families in place of `changes` and `steps`, and the number of `given_back`."""
    whole, steps = difference_json(change), change.all_steps
    changed, given_back = whole.pop("changes"), whole.pop("given_back")
    del whole["steps"]
    return _cut(whole, "warnings", summary.ROWS_MAX) | {
        "summed_up": {"changes": len(changed), "steps": len(steps), "given_back": len(given_back)},
        "changes_summary": _with_names_cut(summary.changes_of(listing.lines(change))),
        "steps_summary": _with_names_cut(summary.calls_of(steps)),
    }


def line_json(line: listing.Line) -> dict[str, Any]:
    """One changed object. `lost` is null if it loses nothing; its `bytes` may be unknown, and are 0 then."""
    lost = None
    if line.loss is not None:
        lost = {key: getattr(line.loss, key) for key in ("bytes", "loses_bytes", "address", "rights")}
    return {
        "action": line.action,
        "sign": line.sign,
        "kind": line.kind,
        "name": line.name,
        "what": line.text,
        "lost": lost,
        "origin": None if line.origin is None else str(line.origin),
    }


def layout_json(layout: Layout) -> dict[str, Any]:
    program = layout.program
    resources = []
    for resource in program.resources:
        address = None if resource.asleep else getattr(layout[resource.name], "address", None)
        shown = None if address is None else f"{address:#x}"
        described = resource_json(resource) | {"address": shown}
        if lies(resource.kind) == "host":
            described["device_pointer"] = f"{layout[resource.name].device_pointer:#x}"
        resources.append(described)
    return {
        "format_version": FORMAT_VERSION,
        "event": "applied",
        **_identity(program),
        "visibility": visibility(),
        "runtime": layout.runtime.path,
        "notice": layout.notice,
        "steps": from_nothing(program).step_count,
        "retries": layout.retries,
        "bytes_by_device": program.bytes_by_device(),
        "resources": resources,
        "checks": [{"name": c.name, "what": c.what, "current": c.current} for c in layout.checks],
        "warnings": [warning.to_json() for warning in program.warnings],
    }


def undone_json(undone: Undone) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "event": "torn down",
        "given_back": undone.count,
        "retries": undone.retries,
        "leaks": list(undone.leaks),
        "diagnostics": [diagnostic.to_json() for diagnostic in undone.diagnostics()],
    }


def visibility() -> dict[str, str]:
    """The visibility variables that choose devices: HIP ignores an empty one."""
    return {name: value for name in _VISIBILITY if (value := os.environ.get(name))}
