"""The same calls on AMD's library and on the simulator in that release's personality, and where they answer otherwise.

    python -m tests.amd.differential 7.2 --calls 200000
    python -m tests.amd.differential 7.2 --second --sequences 1000 --seed 5000

Every difference that tests/amd/declared.py does not hold is shrunk to the fewest calls that still show it, and printed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.amd import libraries
from tests.conformance.sim import library_path

from .declared import DECLARED
from .player import SKIPPED_BYTES, Call
from .second import second_sequence
from .sequences import random_sequence
from .short import STARTS, short_sequences

ROOT = Path(__file__).parents[2]
HIP = {"6.4": "6.4.43484", "7.2": "7.2.53211"}
"""Release -> the HIP version that its library reports, which is the simulator's personality."""

GIB = 1 << 30
MACHINE = f"""
host_memory={64 * GIB}
device.0.name=A
device.0.arch=gfx942
device.0.memory={192 * GIB}
device.0.pci=0000:0c:00.0
device.0.host_visible=1
device.1.name=B
device.1.arch=gfx942
device.1.memory={192 * GIB}
device.1.pci=0000:22:00.0
device.1.host_visible=1
device.2.name=C
device.2.arch=gfx90a
device.2.memory={64 * GIB}
device.2.multiprocessors=104
device.2.pci=0001:c1:00.1
device.2.host_visible=1
link.0.1=xgmi,1
link.1.0=xgmi,1
"""
"""What the stand-in driver's topology says, as a profile of the simulator's."""
QUIRKS = {
    "6.4": ["map_failure_hidden", "free_interior_pointer", "unmap_size_unchecked"],
    "7.2": [
        "map_failure_hidden",
        "free_interior_pointer",
        "create_on_current_device",
        "import_by_value",
        "peer_access_opens_mappings",
    ],
}

TELL_ERRORS = ("hipGetLastError", "hipPeekAtLastError", "hipExtGetLastError")
WATCHED = 3
"""How long an answer is that the last error stands in: behind the code and the outputs."""
CLEANING_UP: Call = ["what is left goes", []]
AS_MANY_AS_ONE_READS = 20
PATIENCE_S = 60
"""How long a sequence may take. A library that never returns is ended, and counts as dead."""

Answers = list[list[Any]]


@dataclass
class Side:
    """One of the two libraries, played in processes of its own."""

    command: list[str]
    environment: dict[str, str]
    process: subprocess.Popen[str] | None = None
    deaths: list[tuple[str, int, int]] = field(default_factory=list)

    def play(
        self, name: str, calls: list[Call], watched: bool = True, guarded: bool = True
    ) -> tuple[Answers | None, int]:
        """The answers; or None and the number of the call that ended the process."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, env=self.environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        assert self.process.stdin and self.process.stdout
        at = -1
        try:
            self.process.stdin.write(json.dumps([name, calls, watched, guarded]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        watchdog.start()
        for line in self.process.stdout:
            if line.startswith("["):
                watchdog.cancel()
                _, answers, intact = json.loads(line)
                if not intact:
                    self.close()
                return answers, -1
            at = int(line.split()[1])
        watchdog.cancel()
        status = self.process.wait()
        if status == 1:
            raise RuntimeError(f"the player failed at {name}, call {at}: {[*calls, CLEANING_UP][at]}")
        self.deaths.append((name, at, status))
        self.close()
        return None, at

    def close(self) -> None:
        if self.process and self.process.stdin and self.process.stdout:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
        self.process = None


def player(library: str) -> list[str]:
    return [sys.executable, "-m", "tests.amd.player", library]


def amd(release: str) -> Side:
    """AMD's library of a release over the stand-in driver, which counts the page faults of GPUs."""
    variables = libraries.environment(release) | {"KFDSIM_ON_FAULT": "count"}
    return Side(libraries.command(libraries.make_ready(), player(variables["HIPPLAN_RUNTIME"])), os.environ | variables)


def simulator(release: str) -> Side:
    quirks = "".join(f"quirk.{quirk}=1\n" for quirk in QUIRKS[release])
    profile = f"hip_version={HIP[release]}\n{MACHINE}{quirks}"
    clean = {name: value for name, value in os.environ.items() if name not in libraries.environment(release)}
    return Side(player(library_path()), clean | {"HIPSIM_PROFILE": profile, "HIPSIM_LOG": "none"})


@dataclass(frozen=True)
class Difference:
    call: Call
    ours: list[Any]
    theirs: list[Any]

    @property
    def key(self) -> str:
        return f"{self.call[0]}: AMD {self.theirs}, simulator {self.ours}"


def passed_over(answer: list[Any]) -> bool:
    return isinstance(answer[0], str) and answer[0] != "fault"


def changes_nothing(function: str) -> bool:
    """Whether a library that refuses the call is afterwards as one that carried it out, but for bytes."""
    return function.startswith(("hipMemcpy", "hipMemset")) or any(
        word in function for word in ("Get", "Can", "Query", "Synchronize")
    )


def same_last_error(call: Call, theirs: list[Any], ours: list[Any], before: bool) -> bool:
    """Whether the two threads' last errors agree behind a call: if it was looked at, by that; else only if nothing set
    them apart since they were last cleared. hipExtGetLastError tells what hipGetLastError has returned and cleared."""
    if call[0] == "hipGetLastError":
        return theirs == ours
    if len(theirs) == len(ours) == WATCHED:
        return bool(theirs[-1] == ours[-1])
    return before and theirs == ours


def differences(calls: list[Call], theirs: Answers, ours: Answers) -> tuple[int, list[tuple[int, Difference]]]:
    """Calls compared, and those that differ, up to the first behind which the two are no longer in the same state."""
    compared, differing, same_error = 0, [], True
    for number, (call, amd, simulated) in enumerate(zip(calls, theirs, ours, strict=True)):
        agreed, same_error = same_error, same_last_error(call, amd, simulated, same_error)
        if "reused address" in (amd[0], simulated[0]) or amd == SKIPPED_BYTES:
            continue
        compared += not passed_over(amd)
        if amd == simulated:
            continue
        if not agreed and (call[0] in TELL_ERRORS or amd[:2] == simulated[:2]):
            continue  # left by an earlier difference
        differing.append((number, Difference(call, simulated, amd)))
        if amd[0] != simulated[0] and not changes_nothing(call[0]):
            break
    return compared, differing


class Pair:
    def __init__(self, release: str) -> None:
        self.release, self.amd, self.simulator = release, amd(release), simulator(release)
        self.deaths_by_chance = 0
        self.faults_by_chance = 0

    def compare(
        self, name: str, calls: list[Call], watched: bool = True, guarded: bool = True
    ) -> tuple[int, list[tuple[int, Difference]]]:
        """Calls compared, and the differences with their numbers."""
        theirs, died = self.amd.play(name, calls, watched, guarded)
        if theirs is None and self.release in libraries.RACES:
            theirs, died = self.amd.play(name, calls, watched, guarded)
            self.deaths_by_chance += theirs is not None
        ours, fell = self.simulator.play(name, calls, watched, guarded)
        if theirs is None or ours is None:
            at = died if theirs is None else fell
            left = "died" if theirs is None else "lives"
            right = "died" if ours is None else "lives"
            return 0, [(at, Difference([*calls, CLEANING_UP][at], [right], [left]))]
        return differences(calls, theirs, ours)

    def shrink(self, calls: list[Call], wanted: Difference, watched: bool) -> list[Call]:
        """The fewest calls that still end in a difference of that function's."""

        def shows(fewer: list[Call]) -> bool:
            _, differing = self.compare("shrink", fewer, watched)
            return any((shown.call, shown.theirs) == (wanted.call, wanted.theirs) for _, shown in differing)

        step = max(1, len(calls) // 2)
        while step >= 1:
            at = 0
            while at < len(calls) - 1:
                fewer = calls[:at] + calls[at + step :]
                if fewer and fewer[-1] == calls[-1] and shows(fewer):
                    calls = fewer
                else:
                    at += step
            step //= 2
        return calls

    def close(self) -> None:
        self.amd.close()
        self.simulator.close()


def is_declared(release: str, found: Difference, before: list[Call]) -> bool:
    codes = found.theirs[0], found.ours[0]
    rows = (row for row in DECLARED if release in row.releases and (row.amd, row.here) == codes)
    return any(row.is_about(found.call, before) for row in rows)


@dataclass
class Undeclared:
    name: str
    calls: list[Call]
    watched: bool
    difference: Difference


@dataclass
class Run:
    """What came of comparing sequences."""

    sequences: int = 0
    compared: int = 0
    declared: int = 0
    undeclared: list[Undeclared] = field(default_factory=list)

    def add(self, pair: Pair, name: str, calls: list[Call], watched: bool) -> None:
        compared, differing = pair.compare(name.replace(" ", "-"), calls, watched)
        if pair.release in libraries.RACES and any(found.theirs[0] == "fault" for _, found in differing):
            once, (compared, differing) = differing, pair.compare(name.replace(" ", "-"), calls, watched)
            pair.faults_by_chance += len(once) > len(differing)
        self.sequences += 1
        self.compared += compared
        for at, difference in differing:
            if is_declared(pair.release, difference, calls[:at]):
                self.declared += 1
            else:
                self.undeclared.append(Undeclared(name, calls[: at + 1], watched, difference))


def is_watched(seed: int) -> bool:
    """Three of four; looking at the last error is a call as well."""
    return seed % 4 != 3


def compare_sequences(
    pair: Pair, calls_wanted: float, first_seed: int = 0, sequence: Callable[[int, str], list[Call]] = random_sequence,
    sequences_wanted: float = math.inf,
) -> Run:  # fmt: skip
    """As many random sequences as it takes for so many calls, or so many sequences."""
    run = Run()
    for seed in itertools.count(first_seed):
        enough = run.compared >= calls_wanted or run.sequences >= sequences_wanted
        if enough or len(run.undeclared) >= AS_MANY_AS_ONE_READS:
            return run
        run.add(pair, f"seed {seed}", sequence(seed, pair.release), is_watched(seed))
    raise AssertionError


def compare_short_sequences(pair: Pair, starts: Iterable[str], length: int) -> Run:
    """All of them. Every second one is watched; in the others only its own calls set the last error."""
    run = Run()
    sequences = (short_sequences(start, pair.release, length) for start in starts)
    for number, (name, calls) in enumerate(itertools.chain.from_iterable(sequences)):
        if len(run.undeclared) >= AS_MANY_AS_ONE_READS:
            return run
        run.add(pair, name, calls, watched=number % 2 == 0)
    return run


def report(pair: Pair, run: Run) -> str:
    lines = []
    for undeclared in run.undeclared:
        difference = undeclared.difference
        lines.append(f"{undeclared.name}: {difference.call[0]}: AMD {difference.theirs}, simulator {difference.ours}")
        calls = pair.shrink(undeclared.calls, difference, undeclared.watched)
        lines += [f"    {json.dumps(call)}" for call in calls]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", choices=HIP)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--sequences", type=int, metavar="COUNT", help="instead: so many sequences, of any length")
    parser.add_argument("--seed", type=int, default=0, help="of the first sequence")
    parser.add_argument("--second", action="store_true", help="the sequences of second.py")
    parser.add_argument("--short", type=int, metavar="LENGTH", help="instead: all sequences of so many letters")
    wanted = parser.parse_args()
    pair = Pair(wanted.release)
    if wanted.short is not None:
        run = compare_short_sequences(pair, STARTS, wanted.short)
    else:
        sequence = second_sequence if wanted.second else random_sequence
        calls, sequences = (wanted.calls, math.inf) if wanted.sequences is None else (math.inf, wanted.sequences)
        run = compare_sequences(pair, calls, wanted.seed, sequence, sequences)
    print(report(pair, run))
    print(
        f"{wanted.release}: {run.compared} calls of {run.sequences} sequences compared, "
        f"{run.declared} declared differences, {len(run.undeclared)} undeclared; "
        f"{len(pair.amd.deaths)} deaths of AMD's process, {pair.deaths_by_chance} of them by chance, "
        f"{pair.faults_by_chance} page faults by chance"
    )
    pair.close()
    return 1 if run.undeclared else 0


if __name__ == "__main__":
    sys.exit(main())
