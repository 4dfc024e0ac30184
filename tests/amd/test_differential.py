"""The same calls on AMD's library and on the simulator in that release's personality: equal, or declared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import libraries
from .declared import DEATHS, DECLARED, Death, Declared
from .differential import Pair, Run, compare_sequences, compare_short_sequences, is_declared, report
from .player import Call
from .second import second_sequence
from .short import STARTS

QUICK = bool(os.environ.get("HIPPLAN_QUICK"))
CALLS = 20_000 if QUICK else 200_000
LETTERS = 2 if QUICK else 3
PARTS = 4  # so that none takes long enough to look as if it hung


@pytest.fixture(scope="module")
def pair(release: str) -> Iterator[Pair]:
    both = Pair(release)
    yield both
    both.close()


def holds(pair: Pair, run: Run, record_property: Callable[[str, object], None]) -> None:
    record_property("calls compared", run.compared)
    record_property("declared differences", run.declared)
    assert not run.undeclared, report(pair, run)


@pytest.mark.in_parts
@pytest.mark.parametrize("first_seed", range(0, PARTS * 10_000, 10_000))
def test_random_sequences_are_answered_alike(
    first_seed: int, pair: Pair, record_property: Callable[[str, object], None]
) -> None:
    run = compare_sequences(pair, CALLS // PARTS, first_seed)
    holds(pair, run, record_property)
    assert run.compared >= CALLS // PARTS


@pytest.mark.in_parts
@pytest.mark.parametrize("first_seed", range(0, PARTS * 10_000, 10_000))
def test_random_sequences_of_another_author_are_answered_alike(
    first_seed: int, pair: Pair, record_property: Callable[[str, object], None]
) -> None:
    run = compare_sequences(pair, CALLS // PARTS, first_seed, second_sequence)
    holds(pair, run, record_property)
    assert run.compared >= CALLS // PARTS


@pytest.mark.in_parts
@pytest.mark.parametrize("start", STARTS)
def test_all_short_sequences_are_answered_alike(
    start: str, pair: Pair, record_property: Callable[[str, object], None]
) -> None:
    """Codes, outputs, last errors, and the bytes that copies leave."""
    slow = start == "filled memory"  # each of them moves megabytes; and 6.4 often needs a new process
    run = compare_short_sequences(pair, [start], 2 if slow else LETTERS)
    record_property("short sequences", run.sequences)
    holds(pair, run, record_property)


@pytest.mark.parametrize("row", DECLARED, ids=lambda row: f"{row.function}, {row.what}")
def test_every_declared_difference_is_still_there(row: Declared, pair: Pair) -> None:
    if pair.release not in row.releases:
        pytest.skip(f"not on {pair.release}")
    _, found = pair.compare("declared", row.shown_by, guarded=False)
    assert [number for number, _ in found] == [len(row.shown_by) - 1]
    assert is_declared(pair.release, found[0][1], row.shown_by)


@pytest.mark.parametrize("watched", [False, True])
def test_the_errors_that_a_declared_difference_leaves_are_none_of_their_own(watched: bool, pair: Pair) -> None:
    row = next(row for row in DECLARED if row.function == "hipMemRangeGetAttributes")
    _, found = pair.compare("left", [*row.shown_by, ["hipGetLastError", []], ["hipExtGetLastError", []]], watched)
    assert [number for number, _ in found] == [len(row.shown_by) - 1]


EVENTS: dict[str, list[Call]] = {
    "an event that is destroyed twice": [
        ["hipEventCreateWithFlags", [["out", "P"], 0], "e0"],
        ["hipEventDestroy", [["at", "e0", 0]]],
        ["hipEventDestroy", [["at", "e0", 0]]],
        ["hipGetLastError", []],
    ],
    "an event with two scopes of release": [
        ["hipEventCreateWithFlags", [["out", "P"], 0x80000000], "e0"],
        ["hipEventCreateWithFlags", [["out", "P"], 0xC0000000], "e1"],
    ],
    "the time between events of two devices": [
        ["hipEventCreateWithFlags", [["out", "P"], 0], "e0"],
        ["hipEventRecord", [["at", "e0", 0], None]],
        ["hipSetDevice", [1]],
        ["hipEventCreateWithFlags", [["out", "P"], 0], "e1"],
        ["hipEventRecord", [["at", "e1", 0], None]],
        ["hipDeviceSynchronize", []],
        ["hipEventElapsedTime", [["room", 4], ["at", "e0", 0], ["at", "e1", 0]]],
    ],
}
"""Found by AMD's own hip-tests."""


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("calls", EVENTS.values(), ids=EVENTS)
def test_events_are_answered_alike(calls: list[Call], watched: bool, pair: Pair) -> None:
    compared, found = pair.compare("events", calls, watched, guarded=False)
    assert not found
    assert compared == len(calls)


def mapping(name: str, located: int, device: int, right_of: int) -> list[Call]:
    return [
        ["hipMemAddressReserve", [["out", "P"], 2 << 20, 0, None, 0], f"r{name}"],
        ["hipMemCreate", [["out", "P"], 2 << 20, ["prop", 1, 0, located, device], 0], f"h{name}"],
        ["hipMemMap", [["at", f"r{name}", 0], 2 << 20, 0, ["at", f"h{name}", 0], 0], f"m{name}"],
        ["hipMemSetAccess", [["at", f"m{name}", 0], 2 << 20, ["access", [[1, right_of, 3]]], 1]],
    ]


PARTNERS: dict[str, list[Call]] = {
    "managed memory": [["hipMallocManaged", [["out", "P"], 65536, 1], "m2"]],
    "hipMalloc on 0": [["hipSetDevice", [0]], ["hipMalloc", [["out", "P"], 65536], "m2"]],
    "hipMalloc on 1": [["hipSetDevice", [1]], ["hipMalloc", [["out", "P"], 65536], "m2"]],
    "a mapping on the host, 0": mapping("2", 2, 0, 0),
    "a mapping on the host, 1": mapping("2", 2, 1, 1),
}
"""What memory that was created on the host is copied from and to."""


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("right_of", [0, 1])
@pytest.mark.parametrize("partner", PARTNERS.values(), ids=PARTNERS)
def test_the_same_gpu_copies_and_fills_memory_of_the_host(
    partner: list[Call], right_of: int, current: int, release: str, pair: Pair
) -> None:
    """Where that GPU has no right to it there is a page fault on both."""
    if release != "7.2":
        pytest.skip("6.4 creates no memory on the host")
    there: list[Call] = [*mapping("1", 2, 0, right_of), *partner, ["hipSetDevice", [current]]]
    host, other = ["at", "m1", 0], ["at", "m2", 0]
    for last in (
        ["hipMemcpy", [host, other, 4096, 4]],
        ["hipMemcpy", [other, host, 4096, 4]],
        ["hipMemset", [host, 7, 4096]],
    ):
        _, found = pair.compare("host", [*there, last], guarded=False)
        assert not found


@pytest.mark.in_parts
@pytest.mark.parametrize("row", DEATHS, ids=lambda row: row.reason)
def test_what_amd_s_process_does_not_survive_the_simulator_answers(row: Death, pair: Pair) -> None:
    if pair.release not in row.releases:
        pytest.skip(f"not on {pair.release}")
    for _ in range(row.processes):
        answers, died = pair.amd.play("death", row.shown_by, guarded=False)
        if answers is None:
            break
        assert answers[-1][0] == row.here
        pair.amd.close()
    assert answers is None and died == len(row.shown_by) - 1
    ours, _ = pair.simulator.play("death", row.shown_by, guarded=False)
    assert ours is not None and ours[-1][0] == row.here


PREFETCHED_AND_FREED = """
import ctypes, os, sys, time
from tests.conformance.hip import Hip
hip, fifo = Hip(os.environ["HIPPLAN_RUNTIME"]), sys.argv[1]
memory = hip.get("hipMallocManaged", ctypes.c_void_p, 4096, 1)
assert ctypes.CDLL(None).kfdsim_fail(f"svm@3=pause:{fifo}".encode()) == 0  # the first two are the caller's own
assert hip.hipMemPrefetchAsync(memory, 4096, 1, None) == 0
assert hip.hipDeviceSynchronize() == 0
assert hip.hipFree(memory) == 0
print("freed", flush=True)
open(fifo, "w").close()
time.sleep(60)
"""


def test_a_prefetch_to_a_second_device_finds_its_memory_freed_after_a_synchronise(release: str, tmp_path: Path) -> None:
    """7.2 has a thread that prefetches, for which hipDeviceSynchronize does not wait: the thread ends the process."""
    if release != "7.2":
        pytest.skip(f"not on {release}")
    fifo = tmp_path / "driver"
    os.mkfifo(fifo)
    command = libraries.command(libraries.make_ready(), [sys.executable, "-c", PREFETCHED_AND_FREED, str(fifo)])
    environment = os.environ | libraries.environment(release)
    done = subprocess.run(command, env=environment, cwd=libraries.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "freed\n")
    assert "KFD Prefetch failed" in done.stderr
