"""hipplan's tests on AMD's own library, release by release: what `make amd-library` runs.

python -m tests.amd.library [--release 7.2] [--quick] [--if-possible] [--write] [PART...]

Parts: conformance, hardware, and each file of tests/amd. A test that ends the process counts as died, and the rest goes
on behind it. The exit code is 0 if nothing failed and nothing died, 3 if AMD's library cannot be had here.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.amd import journal
from tests.amd.libraries import FOLDER, RELEASES, ROOT, NotPossible, Ready, command, environment, make_ready

RECORD = ROOT / "docs" / "amd-library.json"
"""What the last full run said; docs/generate.py makes the table of docs/amd.md from it."""
SILENT_SECONDS = 300
"""A test that says nothing for so long hangs."""
FEW = {"HIPPLAN_QUICK": "1", "HIPPLAN_CYCLES": "20", "HIPPLAN_FAILED": "10"}
MANY = {"HIPPLAN_CYCLES": "200", "HIPPLAN_FAILED": "100"}


def parts() -> dict[str, str]:
    """Name -> what pytest runs."""
    found = {"conformance": "tests/conformance", "hardware": "tests/hardware"}
    for path in sorted((ROOT / "tests" / "amd").glob("test_*.py")):
        found[path.stem.removeprefix("test_").replace("_", " ")] = f"tests/amd/{path.name}"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", choices=RELEASES, action="append", help="default: all of them")
    parser.add_argument("--quick", action="store_true", help="few rounds of what is repeated")
    parser.add_argument("--if-possible", action="store_true", help="exit with 0 where AMD's library cannot be had")
    parser.add_argument("--write", action="store_true", help=f"record the outcome in {RECORD.relative_to(ROOT)}")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts()))
    given = parser.parse_args()
    if unknown := set(given.parts) - set(parts()):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(parts())}")
    try:
        ready = make_ready()
    except NotPossible as why:
        print(f"\n{'!' * 100}\nAMD's library was NOT tested: {why}\n{'!' * 100}\n", file=sys.stderr)
        return 0 if given.if_possible else 3
    for sentence in ready.moved:
        print(f"!! not the pinned version: {sentence}", file=sys.stderr)
    results = {}
    for release in given.release or RELEASES:
        results[release] = {name: _run(ready, release, name, given.quick) for name in given.parts or parts()}
    record = {"date": f"{datetime.date.today()}", "packages": ready.versions(), "releases": results}
    (FOLDER / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    if given.write:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    bad = sum(
        part[result] for release in results.values() for part in release.values() for result in ("failed", "died")
    )
    print(f"{bad} tests failed or died" if bad else "everything passed", f"({FOLDER / 'results.json'})")
    return 1 if bad else 0


def _run(ready: Ready, release: str, part: str, quick: bool) -> dict[str, Any]:
    """Runs a part to its end, in as many processes as it takes. The outcome in numbers."""
    began = time.monotonic()
    path = FOLDER / f"{part.replace(' ', '-')}-{release}.jsonl"
    path.unlink(missing_ok=True)
    log = path.with_suffix(".log").open("w")
    driver = path.with_suffix(".driver")  # pytest would keep it, and lose it with the process
    driver.unlink(missing_ok=True)
    settings = environment(release) | (FEW if quick else MANY)
    settings |= {"HIPPLAN_JOURNAL": str(path), "STANDIN_LOG": str(driver)}
    arguments = ["-m", "pytest", "-p", "tests.amd.journal", "-p", "no:cacheprovider", "-q", parts()[part]]
    whole = command(ready, [sys.executable, *arguments])
    while True:
        known = len(journal.read(path))
        process = subprocess.Popen(whole, cwd=ROOT, env=os.environ | settings, stdout=log, stderr=log)
        code = _wait(process, path)
        if 0 <= code <= 5 or len(journal.read(path)) == known:  # pytest ended by itself, or does not get anywhere
            break
    tests = journal.read(path)
    if code not in (0, 1, 5):
        tests[f"{part}: pytest ended with {code}"] = journal.Outcome("failed", f"see {log.name}")
    outcome = _summary(tests) | {"seconds": round(time.monotonic() - began)}
    _print(release, part, outcome, tests)
    return outcome


def _wait(process: subprocess.Popen[bytes], path: Path) -> int:
    """The exit code. Ends a process that has not written into its journal for too long."""
    while True:
        written = path.stat().st_mtime if path.exists() else 0
        try:
            return process.wait(SILENT_SECONDS)
        except subprocess.TimeoutExpired:
            if path.exists() and path.stat().st_mtime != written:
                continue
            process.kill()
            return process.wait()


def _summary(tests: dict[str, journal.Outcome]) -> dict[str, Any]:
    counts = Counter(outcome.result for outcome in tests.values())
    numbers: Counter[str] = Counter()
    for outcome in tests.values():
        numbers.update(outcome.numbers)
    return {result: counts[result] for result in journal.RANKS} | {"numbers": dict(sorted(numbers.items()))}


def _print(release: str, part: str, outcome: dict[str, Any], tests: dict[str, journal.Outcome]) -> None:
    counts = ", ".join(f"{outcome[result]} {result}" for result in journal.RANKS if outcome[result])
    numbers = "".join(f"; {count:,} {name}" for name, count in outcome["numbers"].items())
    print(f"{release}  {part:<12} {counts or 'nothing ran'}{numbers} ({outcome['seconds']} s)", flush=True)
    for name, one in tests.items():
        if one.result in ("failed", "died"):
            last = one.why.strip().splitlines()[-1:] or [""]
            print(f"     {one.result}: {name}  {last[0]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
