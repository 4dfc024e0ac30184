"""Records as a timeline: the JSON of Chrome's trace viewer, which ui.perfetto.dev opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from hipplan.layout.recorded import Record
from hipplan.plain import counted

_TRACK = {"pid": 1, "tid": 1}
_TIMED = ("step", "verify", "undone")


def trace(record: Record) -> dict[str, Any]:
    """The trace, for strict_json.document. Times are in microseconds since the record began."""
    return {"displayTimeUnit": "ns", "traceEvents": [*_names(record), *_phases(record), *_slices(record)]}


def _names(record: Record) -> Iterator[dict[str, Any]]:
    named = {"process_name": f"hipplan: {record.head['plan']}", "thread_name": "driver calls"}
    for what, name in named.items():
        yield {"ph": "M", "name": what, **_TRACK, "args": {"name": name}}


def _phases(record: Record) -> Iterator[dict[str, Any]]:
    """The apply and each change, as slices around their steps."""
    begins = [n for n, event in enumerate(record.events) if n == 0 or event["event"] == "change"]
    for begin, end in pairwise([*begins, len(record.events)]):
        first = record.events[begin]
        name = f"apply {first['plan']}" if begin == 0 else f"change: {first['what']}"
        timed = [event for event in record.events[begin:end] if event["event"] in _TIMED]
        closed = end == len(record.events) and not _rolled_back(record, begin, end)
        if closed and len(timed) > 1 and timed[-1]["event"] == "undone":
            timed.pop()  # the closing, which may be hours later
        if timed:
            start, stop = timed[0]["at_us"], max(event["at_us"] + event["us"] for event in timed)
            yield _slice(name, "phase", start, stop - start, {"source": record.head["source"]} if begin == 0 else {})


def _rolled_back(record: Record, begin: int, end: int) -> bool:
    return any(event["event"] == "failed" for event in record.events[begin:end])


def _slices(record: Record) -> Iterator[dict[str, Any]]:
    given_back: list[str] = []
    ended = 0.0
    for event in record.events:
        kind = event["event"]
        if kind in _TIMED:
            ended = event["at_us"] + event["us"]
        if kind == "step":
            yield _slice(
                f"{event['call']} {event['name']}", _outcome(event), event["at_us"], event["us"], _about(event)
            )
        elif kind == "verify":
            name = f"read back: {counted(event['checks'], 'check')}"
            yield _slice(name, "verify", event["at_us"], event["us"], {"differences": len(event["differences"])})
        elif kind == "undo":
            given_back.append(f"{event['name']}: {event['result']}")
        elif kind == "undone":
            about = {"objects": given_back, "leaks": event["leaks"]}
            yield _slice(event["summary"], "undo", event["at_us"], event["us"], about)
            given_back = []
        elif kind == "failed":
            yield {"ph": "i", "s": "t", "name": f"failed: {event['error']}", "cat": "failed", "ts": ended, **_TRACK}


def _slice(name: str, category: str, start: float, length: float, about: Mapping[str, Any]) -> dict[str, Any]:
    times = {"ts": start, "dur": round(length, 1)}
    return {"ph": "X", "name": name, "cat": category, **times, **_TRACK, "args": dict(about)}


def _outcome(event: Mapping[str, Any]) -> str:
    return "step" if event["result"] == "ok" else "failed"


def _about(event: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("what", "result", "retries", "error", "driver_call")
    return {key: event[key] for key in keys if key in event}
