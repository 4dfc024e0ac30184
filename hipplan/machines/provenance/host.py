"""What of the host changes how fast memory is: the kernel, NUMA nodes, huge pages, the clocks of the processor."""

from __future__ import annotations

import os
import re
from typing import Any

from hipplan.machines.place import System
from hipplan.machines.provenance.reading import FactReading

_NODES = "/sys/devices/system/node"
_CPUS = "/sys/devices/system/cpu"
_HUGE = "/sys/kernel/mm/hugepages"
_NO_FILE = "the kernel has no such file"


def facts(place: System, reading: FactReading) -> dict[str, Any]:
    return {
        "kernel": " ".join(os.uname()[index] for index in (0, 2, 4)),
        "system": reading.fact("system", lambda: _system(place), "no /etc/os-release"),
        "processor": reading.fact("processor", lambda: _processor(place), _NO_FILE),
        "governors": reading.fact("governors", lambda: _governors(place), "the kernel does not set the clocks"),
        "numa": reading.fact("numa", lambda: _nodes(place), _NO_FILE),
        "numa_balancing": reading.fact(
            "numa_balancing", lambda: place.text("/proc/sys/kernel/numa_balancing"), _NO_FILE
        ),
        "huge_pages": reading.fact("huge_pages", lambda: _huge_pages(place), _NO_FILE),
    }


def _system(place: System) -> str:
    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', place.text("/etc/os-release"), re.M)
    return named[1] if named else ""


def _processor(place: System) -> str:
    named = re.search(r"^model name\s*:\s*(.*)$", place.text("/proc/cpuinfo"), re.M)
    return f"{named[1] if named else os.uname().machine}, {os.cpu_count()} threads"


def _governors(place: System) -> list[str]:
    """The governors that any processor has."""
    files = place.matches(_CPUS, "cpu[0-9]*/cpufreq/scaling_governor")
    return sorted({place.text(f"/{file.relative_to(place.root)}") for file in files})


def _nodes(place: System) -> list[dict[str, Any]]:
    nodes = []
    for folder in place.matches(_NODES, "node[0-9]*"):
        path = f"{_NODES}/{folder.name}"
        distances = [int(number) for number in place.text(f"{path}/distance").split()]
        nodes.append(
            {"node": int(folder.name[4:]), "processors": place.text(f"{path}/cpulist"), "distances": distances}
        )
    return sorted(nodes, key=lambda node: int(node["node"]))


def _huge_pages(place: System) -> dict[str, Any]:
    """Whether transparent ones are used, and how many of each size are kept and free."""
    pages: dict[str, Any] = {}
    if chosen := re.search(r"\[(\w+)\]", place.text("/sys/kernel/mm/transparent_hugepage/enabled")):
        pages["transparent"] = chosen[1]
    for folder in place.matches(_HUGE, "hugepages-*"):
        path = f"{_HUGE}/{folder.name}"
        counts = [place.number(f"{path}/{name}_hugepages") for name in ("nr", "free")]
        pages[folder.name.removeprefix("hugepages-")] = {"kept": counts[0], "free": counts[1]}
    return pages
