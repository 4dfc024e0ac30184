"""The driver calls of an act as lines of text that are the same on every machine.

Addresses and handles differ from run to run: each object gets a name in the order in which the calls speak of it, and
an address is written as its place in that object (r1+0x200000).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.frozen.watching import GIVEN

_CALLS = Path(__file__).parents[2] / "cpp" / "hip" / "hip_calls.def"
_RANGES = {"reservation": "r", "buffer": "b"}
_HANDLES = {"allocation": ("h", "handle"), "stream": ("s", "stream"), "event": ("e", "event")}
_FREES = {
    "hipMemAddressFree": "ptr",
    "hipFree": "ptr",
    "hipHostFree": "ptr",
    "hipHostUnregister": "hostPtr",
}
_RESULTS = {("hipMemRangeGetAttribute", "data"), ("hipMemExportToShareableHandle", "shareableHandle"),
            ("hipMemGetHandleForAddressRange", "handle")}  # fmt: skip
"""Parameters of type void* that point to where the call writes."""
_DESCRIPTOR = ("hipMemImportFromShareableHandle", "osHandle")
_ASKS = re.compile(r"hip\w*(Get|Query|Synchronize|CanAccess)")
"""Calls that change nothing; hipSetDevice, which is set back, is with them."""


def _temporaries() -> frozenset[tuple[str, str]]:
    """(call, parameter) of every pointer to a variable of the caller's, whose address says nothing."""
    found = set(_RESULTS)
    for call, parameters in re.findall(r"^HIP_CALL\w*\((\w+), \((.*?)\), \(", _CALLS.read_text(), re.M):
        for parameter in parameters.split(", "):
            if re.search(r"\*\s*\w+$", parameter) and not re.match(r"(const )?void\* ", parameter):
                found.add((call, parameter.split()[-1].lstrip("*")))
    return frozenset(found)


TEMPORARIES = _temporaries()


def changes_nothing(call: str) -> bool:
    return call == "hipSetDevice" or bool(_ASKS.match(call))


class Names:
    """Names of what is alive, from one act to the next."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, str]] = {}
        """Start -> (size, name)."""
        self._handles: dict[int, str] = {}
        self._count: dict[str, int] = {}

    def calls(self, trace: Iterable[str], given: Iterator[str], alive: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """(call, line) of each line of a trace. given: what watching.py wrote beside it. alive: the simulator's ledger
        after it."""
        after = _Ranges(alive)
        self._name_handles(alive)
        for text in trace:
            line = json.loads(text)
            call, values = line["call"], line["args"]
            shown = {name: self._argument(call, name, value, after) for name, value in values.items()}
            if call in GIVEN and not line["injected"]:
                shown[GIVEN[call]] = f"({next(given)})"
            words = [f"{name}={value}" for name, value in shown.items()]
            result = "" if line["code"] == 0 else f" -> {line['result']}"
            yield call, f"{call}({', '.join(words)}){result}"
            if call in _FREES and line["code"] == 0:
                self._forget(int(values[_FREES[call]], 16))

    def alive(self, ledger: dict[str, Any]) -> Iterator[str]:
        """What is alive, a line each; from here on only that has names."""
        after = _Ranges(ledger)
        for start in [start for start in self._starts if start not in after.sizes]:
            self._forget(start)
        for start in sorted(after.sizes, key=after.order):
            self._of_range(start, after)
        self._name_handles(ledger)
        lines = []
        for kind, items in ledger.items():
            for item in items if isinstance(items, list) else [{"bytes": items}]:
                fields = {name: self._field(name, value) for name, value in item.items() if name != "free"}
                lines.append(f"{kind}: " + " ".join(f"{name}={value}" for name, value in fields.items()))
        return iter(sorted(lines, key=_natural))

    def text(self, text: str) -> str:
        """A text with names in place of addresses; of what is no longer alive, a dash."""
        named = re.sub(r"0x[0-9a-f]{9,}", lambda match: self._known(int(match[0], 16)) or "0x-", text)
        # The only one that a play passes. The digests have its number in a process with nothing else open.
        return re.sub(r"descriptor=\d+", "descriptor=8", named)

    def _name_handles(self, ledger: dict[str, Any]) -> None:
        """In the order in which they were made, which their numbers tell: threads may be the first to use them."""
        for noun, (sign, key) in _HANDLES.items():
            for handle in sorted(int(item[key], 16) for item in ledger[f"{noun}s"]):
                if handle not in self._handles:
                    self._handles[handle] = self._next(sign)

    def _argument(self, call: str, name: str, value: Any, after: _Ranges) -> str:
        if not isinstance(value, str):
            return str(value)
        if (call, name) in TEMPORARIES:
            return "&"
        number = int(value, 16)
        if number == 0:
            return "0"
        if (call, name) == _DESCRIPTOR:
            return "descriptor"
        known = self._known(number)
        if known:
            return known
        start = after.start_of(number)
        if start is None:
            return "elsewhere"  # memory of the host, or what this act made and freed
        self._of_range(start, after)
        return self._known(number) or "elsewhere"

    def _field(self, name: str, value: Any) -> str:
        if name in ("address", "handle", "stream", "event"):
            return self._known(int(value, 16)) or "?"
        return str(value)

    def _known(self, number: int) -> str:
        if number in self._handles:
            return self._handles[number]
        place = bisect_right(self._starts, number) - 1
        if place < 0:
            return ""
        start = self._starts[place]
        size, name = self._ranges[start]
        return f"{name}+{number - start:#x}" if number < start + size else ""

    def _of_range(self, start: int, after: _Ranges) -> None:
        if start not in self._ranges:
            size, sign = after.sizes[start]
            insort(self._starts, start)
            self._ranges[start] = size, self._next(sign)

    def _forget(self, start: int) -> None:
        if self._ranges.pop(start, None) is not None:
            self._starts.remove(start)

    def _next(self, sign: str) -> str:
        self._count[sign] = self._count.get(sign, 0) + 1
        return f"{sign}{self._count[sign]}"


class _Ranges:
    """The ranges of addresses of a ledger."""

    def __init__(self, ledger: dict[str, Any]) -> None:
        items = {int(item["address"], 16): (noun, item) for noun in _RANGES for item in ledger[f"{noun}s"]}
        self.sizes = {start: (item["size"], _RANGES[noun]) for start, (noun, item) in items.items()}
        self._items = items
        self._sorted = sorted(items)

    def start_of(self, number: int) -> int | None:
        place = bisect_right(self._sorted, number) - 1
        if place < 0:
            return None
        start = self._sorted[place]
        return start if number < start + self.sizes[start][0] else None

    def order(self, start: int) -> list[str]:
        """So that what no call spoke of has the same order in each run, wherever it lies."""
        return [f"{name}={value}" for name, value in self._items[start][1].items() if name != "address"]


def _natural(line: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", line)]
