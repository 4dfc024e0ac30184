"""What the benchmarks share: ratios measured side by side in one run, a table, and a JSON file.

Each variant is one round's work; a round runs all of them, starting with another one each time, so that what
drifts (clocks, other processes) meets all alike. Times are medians over the rounds; so are ratios, which are taken
round by round.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import math
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hipplan import __version__
from hipplan.errors import RuntimeUnavailable
from hipplan.machines.runtimes import Chosen, choose

ROOT = Path(__file__).parents[1]
MIB = 2**20
_folder = tempfile.TemporaryDirectory(prefix="hipplan-benchmark-")
Variant = Callable[[], Mapping[str, float]]
"""Does the work once and says what it took: part -> microseconds."""


def arguments(description: str, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", default=None, help="auto, amd, cuda, sim or a path")
    parser.add_argument("--rounds", type=positive, default=rounds)
    parser.add_argument("--json", type=file_to_write, default=None, help="write the results here too")
    return parser


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def file_to_write(text: str) -> Path:
    """Looked at before anything is measured, not after."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


class Times(dict[str, float]):
    """Medians by part, in microseconds, and `all`, the whole; and the rounds that they are of."""

    def __init__(self, rounds: Sequence[Mapping[str, float]]) -> None:
        self.rounds = rounds
        super().__init__({part: statistics.median(times[part] for times in rounds) for part in rounds[0]})


_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p


def tidy_heap() -> None:
    """Merge small free pieces of the heap that the previous variant left.

    glibc does that at the next large malloc or free, and it takes milliseconds, which the next variant would pay.
    """
    _libc.free(ctypes.c_void_p(_libc.malloc(ctypes.c_size_t(2**16))))


def side_by_side(variants: Mapping[str, Variant], rounds: int, warm: int = 2) -> dict[str, Times]:
    """What every variant took."""
    names = list(variants)
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(warm + rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            tidy_heap()
            parts = dict(variants[name]())
            parts["all"] = sum(parts.values())
            if number >= warm:
                taken[name].append(parts)
    return {name: Times(seen) for name, seen in taken.items()}


class Ratio(NamedTuple):
    """Of two variants, round by round: the median, and where it lies with 95 % certainty."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, times: Times, base: Times, part: str = "all") -> Ratio:
        seen = sorted(own[part] / other[part] for own, other in zip(times.rounds, base.rounds, strict=True))
        out = max(0, int(len(seen) / 2 - 0.98 * math.sqrt(len(seen))))  # ranks of a median's sign test
        return cls(statistics.median(seen), seen[out], seen[-1 - out])

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f}-{self.high:.3f})"


def both(make: Callable[[], Any], drop: Callable[[Any], None]) -> Variant:
    """A round that makes something and drops it."""

    def once() -> Mapping[str, float]:
        started = time.perf_counter()
        made = make()
        applied = time.perf_counter()
        drop(made)
        del made
        return {"apply": (applied - started) * 1e6, "teardown": (time.perf_counter() - applied) * 1e6}

    return once


def compiler() -> list[str]:
    """CXX, else the host's own, else ROCm's."""
    if given := os.environ.get("CXX"):
        return shlex.split(given)
    rocm = os.pathsep.join(f"{root}/bin" for root in (os.environ.get("ROCM_PATH"), "/opt/rocm") if root)
    for name in ("g++", "c++", "clang++", "hipcc", "amdclang++"):
        if path := shutil.which(name) or shutil.which(name, path=rocm):
            return [path]
    sys.exit("no C++ compiler was found (set CXX)")


def built(name: str) -> Path:
    """A library from one of the C++ files here, compiled now."""
    library = Path(_folder.name, name).with_suffix(".so")
    source = Path(__file__).with_name(name)
    command = [*compiler(), "-std=c++20", "-O2", "-fPIC", "-shared", f"-I{ROOT / 'cpp'}", "-x", "c++", str(source)]
    # hipcc links ROCm's library by itself (dropped again: nothing asks for it), and looks for a GPU unless told.
    variables = os.environ | {"HIP_PLATFORM": "amd", "HCC_AMDGPU_TARGET": "gfx90a"}
    try:
        subprocess.run([*command, "-o", str(library), "-Wl,--as-needed", "-ldl"], check=True, env=variables)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{name} cannot be compiled (CXX chooses the compiler): {error}")
    return library


def plain(chosen: Chosen) -> ctypes.CDLL:
    """plain.cpp, bound to the runtime's own library."""
    library = ctypes.CDLL(str(built("plain.cpp")))
    if library.plain_open(chosen.runtime.path.encode()) != 0:
        sys.exit(f"{chosen.runtime.path} could not be opened")
    return library


def there_and_back(there: Callable[[], Any], back: Callable[[], Any]) -> Mapping[str, float]:
    """A change and what undoes it."""
    started = time.perf_counter()
    there()
    changed = time.perf_counter()
    back()
    return {"apply": (changed - started) * 1e6, "teardown": (time.perf_counter() - changed) * 1e6}


def timed(function: Callable[..., int], *given: Any) -> dict[str, float]:
    """Calls one of plain.cpp's functions that time themselves: apply and teardown in microseconds."""
    up, down = ctypes.c_int64(), ctypes.c_int64()
    code = function(*given, ctypes.byref(up), ctypes.byref(down))
    if code != 0:
        raise RuntimeError(f"HIP error {code}")
    return {"apply": up.value / 1000, "teardown": down.value / 1000}


def about(chosen: Chosen) -> dict[str, Any]:
    """Where and when: everything that a figure needs beside it."""
    runtime = chosen.runtime
    count = runtime.device_count()
    return {
        "date": datetime.date.today().isoformat(),
        "hipplan": __version__,
        "commit": os.environ.get("HIPPLAN_COMMIT", ""),
        "runtime": chosen.kind,
        "hip": runtime.version,
        "driver": _driver(chosen),
        "devices": [runtime.device_name(device) for device in range(count)],
        "python": platform.python_version(),
        "processors": os.cpu_count(),
    }


def linked(chosen: Chosen) -> int:
    """How many devices, from the first on, all reach one another."""
    reach, count = chosen.runtime.can_access_peer, chosen.runtime.device_count()
    return next((n for n in range(1, count) if not all(reach(n, m) and reach(m, n) for m in range(n))), count)


def _driver(chosen: Chosen) -> str:
    """The kernel driver, where its own file tells it."""
    for path in ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version"):
        if chosen.kind != "sim" and Path(path).exists():
            return Path(path).read_text().splitlines()[0].strip()
    return ""


def opened(arguments: argparse.Namespace) -> Chosen:
    try:
        chosen = choose(arguments.runtime)
    except RuntimeUnavailable as error:
        sys.exit(str(error))
    facts = about(chosen)
    where = f"{len(facts['devices'])} x {facts['devices'][0]}" if facts["devices"] else "no device"
    print(f"{facts['date']}  {chosen.kind}: {where}  {facts['driver']}")
    return chosen


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    texts = [[_cell(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    for row in texts:
        cells = (
            cell.ljust(w) if n == 0 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
    print(flush=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def keep(path: Path | None, name: str, chosen: Chosen, results: Any) -> None:
    if path is not None:
        path.write_text(json.dumps({"benchmark": name, "about": about(chosen), "results": results}, indent=1) + "\n")
