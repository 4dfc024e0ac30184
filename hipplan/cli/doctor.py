"""hipplan doctor: what to know of this machine before the first apply, and what to do about it.

Looks at the kernel's drivers, every copy of their libraries, limits, NUMA nodes, links between devices, releases with
known defects and environment variables. Drivers are asked in processes of their own, for --timeout seconds at most.
Nothing is changed. Exit code: 0 nothing is wrong, 3 an error was found; with --strict also for warnings.

With --report it calls the driver, for 5 minutes and with 1 GiB at most, and writes what that did to FILE, as JSON, and
beside it as a page of text. Each part runs in a process of its own; nothing stays. Exit code: 0 all is as documented, 6
something differs, failed or ended its process. --compare shows what two such reports differ in (exit code 6).

Examples:
  hipplan doctor
  hipplan doctor --runtime amd --strict
  hipplan doctor --format json > doctor.json
  hipplan doctor --report mi300x.json
  hipplan doctor --compare mi300x.json docs/reports/amd-7.2.json
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from hipplan.cli.arguments import Parser, WrongUsage, format_option, not_empty, seconds
from hipplan.cli.checkup import compare, report
from hipplan.errors import ExitCode, printable
from hipplan.files import strict_json
from hipplan.plain import counted
from hipplan.units import about_size, short_size

if TYPE_CHECKING:
    from hipplan.machines.doctor.report import DoctorReport


def declare(parser: Parser) -> None:
    about = "check only this runtime, and require it (default: check those that are installed); sim with --report"
    parser.add_argument("--runtime", choices=("amd", "cuda", "sim"), help=about)
    about = "how long to wait for a driver's answer (default: 30)"
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, default=30.0, help=about)
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    about = "write what the driver does to FILE (JSON) and beside it (.txt)"
    parser.add_argument("--report", metavar="FILE", type=not_empty, help=about)
    about = "how much memory --report may take of devices and host together (default: 1GiB); more needs consent"
    parser.add_argument("--memory", metavar="SIZE", type=not_empty, help=about)
    parser.add_argument("--yes", action="store_true", help="consent to --memory of more than 1GiB")
    parser.add_argument("--compare", metavar=("A", "B"), nargs=2, type=not_empty, help="compare two reports")
    format_option(parser)


def run(given: Namespace) -> int:
    if given.compare is not None:
        return compare(given)
    if given.report is not None:
        return report(given)
    if given.runtime == "sim" or given.memory or given.yes:
        raise WrongUsage("--runtime sim, --memory and --yes go with --report FILE")
    return _examine(given)


def _examine(given: Namespace) -> int:
    from dataclasses import asdict

    from hipplan.machines.doctor.asking import ask
    from hipplan.machines.doctor.examine import examine

    examined = examine(asked=partial(ask, timeout_s=given.timeout), only=given.runtime)
    if given.format == "json":
        print(strict_json.document(facts=examined.facts, findings=[asdict(finding) for finding in examined.findings]))
    else:
        _print(examined)
    is_wrong = examined.of("error") or (given.strict and examined.of("warning"))
    return ExitCode.MACHINE if is_wrong else ExitCode.OK


def _print(report: DoctorReport) -> None:
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


def _facts(report: DoctorReport) -> list[str]:
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
