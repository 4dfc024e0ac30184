"""Programs, layouts and records as text for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hipplan.errors import printable
from hipplan.kinds.lives import lies
from hipplan.plain import counted
from hipplan.program import listing
from hipplan.program.contents import lanes_of
from hipplan.program.difference import from_nothing
from hipplan.program.on_host import bytes_on_host
from hipplan.program.program import Program
from hipplan.program.resources import Resource
from hipplan.program.runs import alike
from hipplan.program.steps import RANK_SIGN, Step
from hipplan.show.render_json import visibility
from hipplan.show.summary import resources_by_kind
from hipplan.show.tables import console, fitted_table, is_plain
from hipplan.units import about_size, short_size

if TYPE_CHECKING:
    from rich.text import Text

    from hipplan.layout.layout import Layout
    from hipplan.layout.recorded import Record


def print_line(text: str, style: str = "") -> None:
    """Print a line on standard output."""
    if is_plain(text):
        print(text, flush=True)
    else:
        console().print(_line(text, style))


def verified_text(answer: Mapping[str, Any]) -> str:
    """What verify_process() of hipplan.processes returns, for people: each difference with - desired and + current."""
    lines: list[str] = []
    for layout in answer["layouts"]:
        asleep = ", ".join(f"{name} sleeps" for name in layout["asleep"])
        who = f"{layout['plan']} (process {answer['process']}{asleep and f'; {asleep}'})"
        differ, checks = layout["differ"], layout["checks"]
        if not differ:
            matching = {0: "there is no memory to check", 1: "1 check matches the plan"}
            lines.append(f"{who}: {matching.get(checks, f'all {checks} checks match the plan')}")
            continue
        lines.append(f"{who}: {differ} of {checks} checks differ{'s' if differ == 1 else ''} from the plan")
        for difference in layout["differences"]:
            lines.append(f"  {difference['name']}: {difference['what']}")
            lines += [f"    - desired: {difference['desired']}", f"    + current: {difference['current']}"]
        if differ > len(layout["differences"]):
            lines.append(f"  and {differ - len(layout['differences'])} more")
    return "\n".join(map(printable, lines))


def processes_text(answers: Sequence[Mapping[str, Any]]) -> str:
    """What processes_with_layouts() of hipplan.processes returns, for people: a line for each layout."""
    rows = []
    for answer in answers:
        process = str(answer["process"])
        if "error" in answer:
            rows.append((process, "?", "?", "?", answer["error"]))
        for layout in answer["layouts"]:
            rows.append((process, layout["plan"], about_size(layout["bytes"]), layout["since"], answer["command"]))
    if not rows:
        return "no process of this user holds a layout"
    return fitted_table((">process", "plan", ">memory", "since", "command"), rows)


def record_parts(record: Record) -> Iterator[Text]:
    """A record for people: a heading, a table of the steps, and the events after them."""
    head = record.head
    runtime = head["runtime"]
    machine = head.get("machine")
    where = machine.get("name", "?") if isinstance(machine, dict) else "?"
    yield _line(f"{head['plan']} ({head['source']}), {head['started']}", style="bold")
    yield _line(f"digest {head['digest']}")
    if head["vars"]:
        yield _line("variables: " + ", ".join(f"{name} = {value}" for name, value in head["vars"].items()))
    if runtime:  # absent if the apply was refused before a runtime was chosen
        driver = runtime.get("driver_version")
        yield _line(f"on {where}, {runtime.get('path')}, HIP {runtime.get('version')}, driver {driver}")
    begins = [n for n, event in enumerate(record.events) if n == 0 or event["event"] == "change"]
    number = 1
    for begin, end in pairwise([*begins, len(record.events)]):
        if begin:
            failed = any(event["event"] == "failed" for event in record.events[begin:end])
            yield _line(f"{'not ' * failed}changed: {record.events[begin]['what']}", style="bold")
        steps = [event for event in record.events[begin:end] if event["event"] == "step"]
        yield from _record_part(record.events[begin:end], steps, number)
        number += len(steps)


def _record_part(events: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]], first: int) -> Iterator[Text]:
    """The apply or one change: its steps, numbered from `first`, and the events after them."""
    from rich.text import Text

    rows = [
        [str(cell) for cell in (n, event["call"], event["name"], event["what"], f"{event['us']:,.1f}", _result(event))]
        for n, event in enumerate(steps, first)
    ]
    if rows:
        yield Text(fitted_table((">", "call", "name", "", ">us", "result"), rows))
    for event in events:
        match event["event"]:
            case "verify":
                wrong = len(event["differences"])
                differ = f"{counted(event['checks'], 'check')}, {wrong} differ{'s' if wrong == 1 else ''}"
                yield _line(f"read back: {differ}, {event['us']:,.1f} us")
            case "failed":
                why = str(event.get("driver_call") or event.get("why") or "").partition("\n")[0]
                yield _line(f"failed: {event['error']} {why}")
            case "undo" if event["result"] != "released":
                yield _line(f"{event['result']}: {event['object']} {event.get('why', '')}")
            case "undone":
                yield _line(f"{event['summary']}, {event['us']:,.1f} us")


def _result(event: Mapping[str, Any]) -> str:
    again = f", {event['retries']} retried" if event["retries"] else ""
    return f"{event.get('error') or event['result']}{again}"


def _line(text: str, style: str = "") -> Text:
    """A line of text from a record, which may contain control characters."""
    from rich.text import Text

    return Text(printable(str(text)), style=style)


def steps_table(numbered: Iterable[tuple[int, Step]]) -> str:
    columns = (">step", "call", "name", "")
    return fitted_table(columns, [(str(n), step.call, step.name, step.describe()) for n, step in numbered])


def difference_table(lines: Iterable[listing.Line]) -> Text:
    rows = [(line.sign, line.kind, line.name, line.text) for line in lines]
    return coloured_signs(fitted_table(("", "kind", "name", ""), rows))


def coloured_signs(table: str) -> Text:
    """A table whose first column has the signs of a listing."""
    from rich.text import Text

    text = Text(table)
    for sign, colour in {"+": "green", "~": "yellow", "-/+": "red", "-": "red"}.items():
        text.highlight_regex(rf"(?m)^{re.escape(sign)} ", colour)
    return text


def resources_table(resources: Sequence[Resource], layout: Layout | None = None) -> str:
    """A table of resources; for a live layout with addresses and the results of reading back."""
    columns = ["name", "kind", "device", ">asked", ">padded"]
    columns += [">address", "access", "verified"] if layout else ["access"]
    verified = _verified(layout) if layout else {}
    rows = []
    for resource in resources:
        sized = resource.size > 0
        row = [
            resource.name,
            resource.kind,
            ", ".join(resource.devices),
            short_size(resource.asked) if sized else "",
            short_size(resource.size) if sized else "",
        ]
        if layout:
            row.append("" if resource.asleep else _address(layout, resource.name))
        row.append(_access(resource))
        if layout:
            row.append(verified.get(resource.name, ""))
        rows.append(row)
    return fitted_table(columns, rows)


def _address(layout: Layout, name: str) -> str:
    try:
        piece = layout[name]
    except (KeyError, BufferError):  # another thread has just freed it
        return ""
    if not hasattr(piece, "address"):
        return ""
    other = f", to devices {piece.device_pointer:#x}" if piece.device_pointer != piece.address else ""
    return f"{piece.address:#x}{other}"


def _access(resource: Resource) -> str:
    if resource.kind in ("mapping", "region", "tensor"):
        return resource.access_text()
    if lies(resource.kind) == "device":
        return f"{resource.device}, and its peers"
    return "host and devices" if lies(resource.kind) else ""


def _verified(layout: Layout) -> dict[str, str]:
    counts = Counter(check.name for check in layout.checks)
    return {name: counted(count, "check") for name, count in counts.items()}


def devices_text(program: Program, *, here: bool) -> str:
    """The device that each name means, and what chose it; with `here`, also the variables that hide devices."""
    chosen = [f"{name} is device {ordinal} ({program.selectors[name]})" for name, ordinal in program.devices.items()]
    hidden = [f"{name}={value}" for name, value in visibility().items()] if here else []
    return printable("; ".join([", ".join(chosen), *hidden]))


def totals(program: Program) -> str:
    """Memory by device and on the host, bytes of padding, and memory pinned for contents."""
    parts = [f"{name} {about_size(size)}" for name, size in program.bytes_by_device().items() if size]
    copies = [f"{name} {about_size(size)}" for name, size in bytes_on_host(alike(program.steps)).items()]
    on_host = f"; host memory: {', '.join(copies)}" if copies else ""
    resources = resources_by_kind(program)
    waste = sum(many * r.waste for r, many in resources if r.kind in ("allocation", "device", "region"))
    padding = f", {about_size(waste)} of it padding" if waste else ""
    pinned = sum(lanes_of(program).values())
    moving = f"; pinned to move bytes: {about_size(pinned)}" if pinned else ""
    return f"device memory: {', '.join(parts) or 'none'}{padding}{on_host}{moving}"


def ranks_table(programs: Sequence[Program]) -> str:
    """A line for each rank of a plan."""
    columns = ["rank", "node", "devices", ">device memory", ">steps", "maps of other ranks"]
    rows = []
    for program in programs:
        own = {name: ordinal for name, ordinal in program.devices.items() if RANK_SIGN not in name}
        devices = ", ".join(f"{name} is device {ordinal}" for name, ordinal in own.items())
        taken = short_size(sum(program.bytes_by_device().values()))
        maps = ", ".join(f"{name} ({short_size(program.regions[name].mapped)})" for name in program.parts)
        steps = str(from_nothing(program).step_count)
        rows.append([str(program.rank.rank), str(program.rank.node), devices, taken, steps, maps])
    return fitted_table(columns, rows)
