"""hipplan doctor: what to know of this machine before the first apply, and what to do about it.

Looks at the kernel's drivers, every copy of their libraries, limits, NUMA nodes, links between devices, releases with
known defects and environment variables. Drivers are asked in processes of their own, for --timeout seconds at most.
Nothing is changed. Exit code: 0 nothing is wrong, 3 an error was found; with --strict also for warnings.

Examples:
  hipplan doctor
  hipplan doctor --runtime amd --strict
  hipplan doctor --format json > doctor.json
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from hipplan.cli.arguments import Parser, format_option, seconds
from hipplan.errors import ExitCode, printable
from hipplan.files import strict_json
from hipplan.plain import counted
from hipplan.units import about_size, short_size

if TYPE_CHECKING:
    from hipplan.machines.doctor.report import Report


def declare(parser: Parser) -> None:
    about = "check only this runtime, and require it (default: check those that are installed)"
    parser.add_argument("--runtime", choices=("amd", "cuda"), help=about)
    about = "how long to wait for a driver's answer (default: 30)"
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, default=30.0, help=about)
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    format_option(parser)


def run(given: Namespace) -> int:
    from dataclasses import asdict

    from hipplan.machines.doctor.asking import ask
    from hipplan.machines.doctor.examine import examine

    report = examine(asked=partial(ask, timeout_s=given.timeout), only=given.runtime)
    if given.format == "json":
        print(strict_json.document(facts=report.facts, findings=[asdict(finding) for finding in report.findings]))
    else:
        _print(report)
    is_wrong = report.of("error") or (given.strict and report.of("warning"))
    return ExitCode.MACHINE if is_wrong else ExitCode.OK


def _print(report: Report) -> None:
    for line in _facts(report):
        print(printable(line))
    for finding in report.findings:
        print()
        print(printable(f"{finding.level}: {finding.summary}"))
        if finding.why:
            print(printable(f"  why: {finding.why}"))
        print(printable(f"  do:  {finding.do}"))
    counts = ", ".join(counted(len(report.of(level)), level) for level in ("error", "warning", "note"))
    print(f"\n{counts}")


def _facts(report: Report) -> list[str]:
    system = report.facts["system"]
    lines = [
        f"Linux {system['kernel']}, {system['architecture']}, {counted(system['processors'], 'processor')}, "
        f"{system['memory'] / 2**30:.0f} GiB, {counted(max(system['numa_nodes'], 1), 'NUMA node')}",
        *_of_host(system),
        *(f"{name} driver: {version}" for name, version in system["drivers"].items()),
        *(f"{library['family']} library: {library['path']}" for library in report.facts["libraries"]),
    ]
    for family, runtime in report.facts["runtimes"].items():
        if "machine" in runtime:
            devices = [device["name"] for device in runtime["machine"]["devices"]]
            versions = f"HIP {runtime['version']}, driver {runtime['driver_version']}"
            lines.append(f"{family} runtime: {versions}, {runtime['path']}")
            lines += [f"  device {ordinal}: {name}" for ordinal, name in enumerate(devices)]
    return lines


def _of_host(system: dict[str, Any]) -> list[str]:
    """What plans may take of the host."""
    limits = {name: limit["hard"] for name, limit in system["limits"].items()}
    locked, files = limits.get("locked_memory"), limits.get("open_files")
    allowed = [size for size in (system["memory_allowed"], system["memory_pinned"]) if size is not None]
    nodes = system["numa_nodes_usable"]
    facts = [
        f"{about_size(min(allowed))} of memory" if allowed else "",
        *(f"{counted(count, 'huge page')} of {size}" for size, count in system["huge_pages"].items()),
        f"NUMA node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}" if nodes else "",
        "any number of open files" if files is None else f"{files} open files",
        f"{short_size(locked)} of locked memory" if locked is not None else "",
    ]
    return [f"for this process: {', '.join(filter(None, facts))}"]
