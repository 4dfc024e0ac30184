"""Runs what shows that nothing is lost, prints the counts, and with --write puts them into docs/reliability.md.

python tools/reliability.py                    faults, properties, interrupts, limits and the soak on this build
python tools/reliability.py --sanitizer thread the suite on a build with a sanitizer (`make sanitize` builds it);
                                               with --quick the tests of `make quick` that run compiled code
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import quick

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
SANITIZERS = {"address,undefined": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
PLANTED = {
    "address": "int planted(int n) { char* p = new char[4]; delete[] p; return p[n]; }",
    "undefined": "int planted(int n) { return (2147483647 - 3 + n) + 1; }",
    "thread": "int x; int planted(int n) { std::thread a([&] { x += n; }); x += n; a.join(); return x; }",
}
"""A defect of each kind: a sanitizer that does not tell of it would tell of nothing. Called with 3."""
NOT_SURVIVED = "-fno-sanitize-recover=undefined"
"""As in the build (cpp/compiler.cmake): beside AddressSanitizer this one can only write to stderr, so it ends what it
finds a defect in."""
DIED = 66
SWEEPS = re.compile(r"WHOLE|in_parts|in_turns|faults\.counting import")
NOT_SANITIZED = ("tests/hardware", "tests/cuda")
TIMED = ("expansion_is_bounded", "placed_in_seconds", "refused_quickly")
"""Tests that bound a time, which a sanitizer multiplies."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sanitizer", choices=SANITIZERS)
    parser.add_argument("--cycles", type=int, default=10_000)
    parser.add_argument("--failed", type=int, default=1_000)
    parser.add_argument("--examples", type=int, default=1_000, help="of each property")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="of properties and soak")
    parser.add_argument("--write", action="store_true", help="record the outcome in docs/reliability.md")
    parser.add_argument("--quick", action="store_true", help="those of `make quick` alone, with --sanitizer")
    parser.add_argument("tests", nargs="*", help="instead of the whole suite, with --sanitizer")
    given = parser.parse_args()
    began = time.monotonic()
    row = _sanitized(given) if given.sanitizer else _plain(given)
    row |= {
        "date": f"{datetime.date.today()}",
        "compiler": _compiler(),
        "minutes": f"{(time.monotonic() - began) / 60:.1f}",
    }
    width = max(map(len, row))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in row.items()))
    if given.write:
        _write(row)
    return 0 if row["outcome"] == "clean" else 1


def _plain(given: argparse.Namespace) -> dict[str, str]:
    environment = os.environ | {"HIPPLAN_EXAMPLES": str(given.examples), "HIPPLAN_WHOLE": "1"}
    ran = _pytest([*quick.PARALLEL, *_longer(), f"--hypothesis-seed={given.seed}"], environment)
    arguments = ["--cycles", str(given.cycles), "--failed", str(given.failed), "--seed", str(given.seed)]
    soaked = subprocess.run(
        [sys.executable, "-m", "tests.faults.soak", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    print(soaked.stderr, end="", file=sys.stderr)
    soak = json.loads(soaked.stdout) if soaked.stdout else {"cycles": 0, "failed": 0, "differs": ["it did not end"]}
    grown = (
        {name: soak["after"][name] - soak["before"][name] for name in ("resident_bytes", "mappings")}
        if "after" in soak
        else {}
    )
    return {
        "build": "release",
        "tests": ran["tests"],
        "faults injected": ran["faults"],
        "swept": ran["swept"],
        "cut": ran["cut"],
        "examples of each property": f"{given.examples:,}",
        "seed": str(given.seed),
        "cycles": f"{soak['cycles']:,}",
        "failed applies": f"{soak['failed']:,}",
        "differs at the end": ", ".join(soak["differs"])
        or f"nothing (resident memory by {grown['resident_bytes']:+,} bytes, mappings by {grown['mappings']:+})",
        "outcome": "clean" if ran["code"] == "0" and soaked.returncode == 0 else "failed",
    }


def _longer() -> list[str]:
    """Faults, interrupts, and every other test that injects faults or has only a part of its length in `make test`."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if SWEEPS.search(path.read_text())]
    folders = [ROOT / "tests" / name for name in ("faults", "interrupts")]
    return [*map(str, folders), *sorted(str(path) for path in files if path.parent not in folders)]


def _sanitized(given: argparse.Namespace) -> dict[str, str]:
    for kind in given.sanitizer.split(","):
        if not _tells_of_planted(kind, given.sanitizer):
            sys.exit(f"the {kind} sanitizer does not tell of a planted defect: its reports mean nothing here")
    with tempfile.TemporaryDirectory() as folder:
        environment = _environment(given.sanitizer, folder)
        quickly = [*quick.NATIVE, *quick.OPTIONS]
        suite = quickly if given.quick else ["tests", *(f"--ignore={path}" for path in NOT_SANITIZED)]
        ran = _pytest(given.tests or [*suite, "-k", f"not ({' or '.join(TIMED)})"], environment)
        reports = sorted(Path(folder).iterdir())
        for report in reports:
            print(report.read_text(errors="replace"), file=sys.stderr)
    return {
        "build": given.sanitizer,
        "suite": " ".join(given.tests)
        or ("make quick" if given.quick else "all but tests that need a GPU or bound a time"),
        "tests": ran["tests"],
        "faults injected": ran["faults"],
        "reports of the sanitizer": str(len(reports)),
        "outcome": "clean" if ran["code"] == "0" and not reports else "failed",
    }


def _environment(sanitizer: str, folder: str) -> dict[str, str]:
    """For a Python that loads what was built with a sanitizer; each report becomes a file in the folder."""
    file = "threads" if sanitizer == "thread" else "sanitizers"  # ASan knows no kind of suppression that TSan has
    common = f"log_path={folder}/report:suppressions={ROOT}/tools/{file}.supp:handle_segv=0:exitcode=0"
    return os.environ | {
        "LD_PRELOAD": " ".join(_library(name) for name in (*SANITIZERS[sanitizer], "libstdc++.so")),
        "ASAN_OPTIONS": f"{common}:detect_leaks=0:halt_on_error=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": f"print_stacktrace=1:exitcode={DIED}",
        "TSAN_OPTIONS": f"{common}:halt_on_error=0:die_after_fork=0:report_signal_unsafe=0",
        "PYTHONMALLOC": "malloc",
        "HIPPLAN_SANITIZER": sanitizer,
    }


def _tells_of_planted(kind: str, sanitizer: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/planted.so"
        command = ["g++", "-std=c++20", "-g", "-fPIC", "-shared", f"-fsanitize={sanitizer}", NOT_SURVIVED]
        source = f'#include <thread>\nextern "C" {{ {PLANTED[kind]} }}\n'
        subprocess.run([*command, "-x", "c++", "-", "-o", library], input=source, text=True, check=True)
        reports = Path(folder, "reports")
        reports.mkdir()
        code = f"import ctypes; ctypes.CDLL({library!r}).planted(3)"
        environment = _environment(sanitizer, str(reports))
        ran = subprocess.run([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL, check=False)
        return ran.returncode == DIED or any(reports.iterdir())


def _pytest(arguments: list[str], environment: dict[str, str]) -> dict[str, str]:
    """What it printed last, while it is shown."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        print(line, end="", file=sys.stderr)
    text = "".join(lines)
    tests = re.search(r"^((\d+ \w+(, )?)+) in [\d.]+s", text, re.M)
    faults = re.search(r"^faults injected: ([\d,]+) \((.*)\)", text, re.M)
    cut = re.findall(r"^faults cut: [\d,]+ \((.*)\)", text, re.M)
    skipped = re.findall(r"^SKIPPED (\[\d+\] .*)", text, re.M)
    return {
        "code": str(process.wait()),
        "tests": tests[1] if tests else "none",
        "faults": faults[1] if faults else "0",
        "swept": faults[2] if faults else "nothing",
        "cut": "; ".join([*cut, *(f"skipped {line}" for line in skipped)]) or "nothing",
    }


def _library(name: str) -> str:
    name = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return str(Path(name).resolve())


def _compiler() -> str:
    code = "from hipplan import _core; print(_core.compiler)"
    return (
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout.strip() or "g++"
    )


def _write(row: dict[str, str]) -> None:
    """Replaces the section of this build."""
    text = PAGE.read_text()
    items = (textwrap.wrap(f"- {name}: {value}", 126) for name, value in row.items() if name != "build")
    section = f"### {row['build']}\n\n" + "".join("\n  ".join(lines) + "\n" for lines in items)
    old = re.compile(rf"^### {re.escape(row['build'])}\n\n(?:(?:- |  ).*\n)+", re.M)
    text = old.sub(lambda _: section, text) if old.search(text) else text.rstrip("\n") + "\n\n" + section
    PAGE.write_text(text)


if __name__ == "__main__":
    raise SystemExit(main())
