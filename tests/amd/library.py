"""hipplan's tests on AMD's own library, release by release: what `make amd-library` runs.

python -m tests.amd.library [--release 7.2] [--quick] [--if-possible] [--write] [PART...]

Parts: conformance, hardware, and each file of tests/amd. A test that ends the process counts as died, and the rest goes
on behind it; but only if it dies a second time: 6.4 spoils its own heap now and then, and 7.2 was seen once to wait for
ever for a host function. Deaths by chance are counted and named. The exit code is 0 if nothing failed and nothing died,
3 if AMD's library cannot be had here.
"""

from __future__ import annotations

import argparse
import contextlib
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
"""What the last runs said; docs/generate.py makes the table of docs/amd.md from it."""
SILENT_SECONDS, SILENT_QUICK_SECONDS = 300, 90
"""A test that says nothing for so long hangs. It is run once more."""
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
    names = given.parts or list(parts())
    results = {one: {name: _run(ready, one, name, given.quick) for name in names} for one in given.release or RELEASES}
    record = {"packages": ready.versions(), "releases": results}
    (FOLDER / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    if given.write:
        _write(record)
    bad = sum(
        part[result] for release in results.values() for part in release.values() for result in ("failed", "died")
    )
    print(f"{bad} tests failed or died" if bad else "everything passed", f"({FOLDER / 'results.json'})")
    return 1 if bad else 0


def _write(record: dict[str, Any]) -> None:
    """Puts what ran into RECORD, beside what ran at other times."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {"releases": {}}
    for release, ran in record["releases"].items():
        ran = known["releases"].get(release, {}) | ran
        known["releases"][release] = {part: ran[part] for part in sorted(ran) if part in parts()}
    known["packages"] = record["packages"]
    RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def table() -> str:
    """RECORD for docs/amd.md."""
    record = json.loads(RECORD.read_text())
    shown = {"6.4": "libamdhip64-6 (6.4)", "7.2": "libamdhip64-7 (7.2)"}
    head = [f"{release}: {record['packages'][shown[release]]}" for release in RELEASES]
    lines = [f"| | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for part in parts():
        outcomes = [record["releases"].get(release, {}).get(part) for release in RELEASES]
        dates = sorted({outcome["date"] for outcome in outcomes if outcome})
        cells = [", ".join([part, *dates]), *map(_cell, outcomes)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "not run"
    words = {"xfailed": "as declared"}
    counts = [f"{outcome[result]} {words.get(result, result)}" for result in journal.RANKS if outcome[result]]
    return "; ".join([", ".join(counts), *(f"{count:,} {name}" for name, count in outcome["numbers"].items())])


def _run(ready: Ready, release: str, part: str, quick: bool) -> dict[str, Any]:
    """Runs a part to its end, in as many processes as it takes. The outcome in numbers."""
    began = time.monotonic()
    path = FOLDER / f"{part.replace(' ', '-')}-{release}.jsonl"
    path.unlink(missing_ok=True)
    driver = path.with_suffix(".driver")  # pytest would keep it, and lose it with the process
    driver.unlink(missing_ok=True)
    settings = environment(release) | (FEW if quick else MANY)
    settings |= {"HIPPLAN_JOURNAL": str(path), "KFDSIM_LOG": str(driver)}
    arguments = ["-m", "pytest", "-p", "tests.amd.journal", "-p", "no:cacheprovider", "-q", parts()[part]]
    whole = command(ready, [sys.executable, *arguments])
    died: set[str] = set()
    with path.with_suffix(".log").open("w") as log:
        while True:
            known = len(journal.read(path))
            process = subprocess.Popen(whole, cwd=ROOT, env=os.environ | settings, stdout=log, stderr=log)
            code = _wait(process, path, SILENT_QUICK_SECONDS if quick else SILENT_SECONDS)
            tests = journal.read(path)
            if 0 <= code <= 5 or len(tests) == known:  # pytest ended by itself, or does not get anywhere
                break
            if once := {test for test in tests if tests[test].result == "died"} - died:
                died |= once
                journal.forget(path, once)
    tests = journal.read(path)
    if code not in (0, 1, 5):
        tests[f"{part}: pytest ended with {code}"] = journal.Outcome("failed", f"see {path.with_suffix('.log')}")
    outcome = _summary(tests)
    if by_chance := sorted(test for test in died if tests[test].result != "died"):
        outcome["numbers"]["deaths by chance"] = len(by_chance)
        print(f"     died once: {', '.join(by_chance)}", flush=True)
    outcome |= {"date": f"{datetime.date.today()}", "seconds": round(time.monotonic() - began)}
    _print(release, part, outcome, tests)
    return outcome


def _wait(process: subprocess.Popen[bytes], path: Path, silent_seconds: float) -> int:
    """The exit code. Ends a process that has not written into its journal for too long."""
    written, since = 0.0, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(1)
        if path.exists() and path.stat().st_mtime != written:
            written, since = path.stat().st_mtime, time.monotonic()
        if time.monotonic() - since > silent_seconds:
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
