"""Every test runs on the simulator unless told otherwise, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import re
import signal
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan

for _name in ("NO_COLOR", "FORCE_COLOR"):  # some CI services set one: what is printed would differ
    os.environ.pop(_name, None)
# Else each of the hundreds of interpreters that the tests start would compile hipplan again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = ["tests.faults.counting", "tests.parts"]

with contextlib.suppress(ImportError):  # a machine with a GPU may not have it
    from hypothesis import HealthCheck, settings

    # A busy machine draws and runs examples slowly. Fixtures of these tests are the same for all examples.
    may_be_slow = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    settings.register_profile("hipplan", deadline=None, suppress_health_check=may_be_slow)
    settings.load_profile("hipplan")

ROOT = Path(__file__).parents[1]
PACKAGE = Path(hipplan.__file__).parent
"""The hipplan that is tested: that of this repository, or an installed one (tools/quick.py --installed)."""
PLANS = sorted((ROOT / "plans").glob("*.yaml"))
WHOLE = "HIPPLAN_WHOLE" in os.environ
"""Whether sweeps have their whole length, as in `make reliability`; else a part (CONTRIBUTING.md)."""

not_under_tsan = pytest.mark.skipif(
    "thread" in os.environ.get("HIPPLAN_SANITIZER", ""), reason="ThreadSanitizer keeps these addresses for itself"
)

Key = tuple[str, str]
"""What makes an object of the ledger recognisable: its noun, and its address, handle or devices."""


class Simulator:
    """The simulator in this process, for tests that look behind hipplan's back."""

    def __init__(self) -> None:
        from hipplan.machines.runtimes import choose

        self.runtime = choose("sim").runtime
        self._hip = ctypes.CDLL(self.runtime.path)

    def _use_owner_of(self, address: int) -> None:
        """A copy of pageable memory is the current GPU's: that of the memory may touch it."""
        result = (ctypes.c_int * 8)()
        self._hip.hipPointerGetAttributes(result, ctypes.c_void_p(address))
        self._hip.hipSetDevice(result[1])

    def write(self, address: int, data: bytes) -> None:
        self._use_owner_of(address)
        self.runtime.write(address, data)

    def read(self, address: int, size: int) -> bytes:
        self._use_owner_of(address)
        data: bytes = self.runtime.read(address, size)
        return data

    def fill(self, address: int, value: int, size: int) -> None:
        self._use_owner_of(address)
        self.runtime.fill(address, value, size)

    def ledger(self) -> dict[str, Any]:
        """Everything alive, as the simulator itself counts it."""
        ledger: dict[str, Any] = json.loads(self.runtime.ledger())
        return ledger

    def alive(self) -> set[Key]:
        """The objects that were made and not freed, without memory that only a mapping holds."""
        ledger = self.ledger()
        collected = {("allocation", a["handle"]) for a in ledger["allocations"] if a["references"]}
        for noun in ("reservation", "mapping", "buffer"):
            collected |= {(noun, item["address"]) for item in ledger[f"{noun}s"]}
        collected |= {("stream", stream["stream"]) for stream in ledger["streams"]}
        return collected | {("peer", f"{peer['device']}->{peer['peer']}") for peer in ledger["peers"]}

    def free_everything(self, but: Collection[Key] = ()) -> None:
        """Free what a test leaked on purpose, through the C ABI alone."""
        self.runtime.arm_faults("")
        hip, ledger = self._hip, self.ledger()
        for noun, where in (("mapping", "address"), ("reservation", "address"), ("allocation", "handle"),
                            ("buffer", "address"), ("stream", "stream")):  # fmt: skip
            ledger[f"{noun}s"] = [item for item in ledger[f"{noun}s"] if (noun, item[where]) not in but]

        def done(code: int) -> None:
            assert code == 0

        for mapping in ledger["mappings"]:
            done(hip.hipMemUnmap(_pointer(mapping["address"]), ctypes.c_size_t(mapping["size"])))
        for reservation in ledger["reservations"]:
            done(hip.hipMemAddressFree(_pointer(reservation["address"]), ctypes.c_size_t(reservation["size"])))
        for allocation in ledger["allocations"]:
            for _ in range(allocation["references"]):
                done(hip.hipMemRelease(_pointer(allocation["handle"])))
        for buffer in ledger["buffers"]:
            free = {"pinned": hip.hipHostFree, "registered": hip.hipHostUnregister}.get(buffer["kind"], hip.hipFree)
            done(free(_pointer(buffer["address"])))
        for stream in ledger["streams"]:
            done(hip.hipStreamDestroy(_pointer(stream["stream"])))
        for peer in ledger["peers"]:
            done(hip.hipSetDevice(peer["device"]) or hip.hipDeviceDisablePeerAccess(peer["peer"]))
        done(hip.hipSetDevice(0))


def _pointer(text: str) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(text, 16))


def keys_of(failures: Iterable[Any]) -> set[Key]:
    """What the failures of an undo say is left, in the words of the ledger."""
    collected = set()
    for failure in failures:
        noun = {"hipMemRelease": "allocation", "hipMemAddressFree": "reservation", "hipMemUnmap": "mapping"}
        if not failure.lost or failure.is_change:
            continue
        if "peer access" in failure.identity:
            collected.add(("peer", "->".join(re.findall(r"device (\d+)", failure.identity))))
        elif "stream" in failure.identity:
            collected.add(("stream", re.findall(r"stream=(0x[0-9a-f]+)", failure.arguments)[0]))
        else:
            where = re.findall(r"0x[0-9a-f]+", f"{failure.identity} {failure.arguments}")
            collected.add((noun.get(failure.call, "buffer"), where[-1]))
    return collected


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`: twice as many processes as cores, if there are few, because a third of the time tests wait
    for processes that they have started."""
    cores = len(os.sched_getaffinity(0))
    return max(cores, min(2 * cores, 16))


def pytest_sessionstart() -> None:
    gc.disable()  # what is collected now is no garbage


def pytest_collection_finish() -> None:
    """Thousands of tests stay for the whole run: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def own_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps other programs of this user out of the tests' sight, and the tests out of theirs; and, on the simulator,
    the GPUs, the drivers and the limits of this host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIPPLAN_SOCKETS", str(tmp_path_factory.mktemp("sockets")))
        patch.delenv("HIPPLAN_HOLDER", raising=False)
        if os.environ.get("HIPPLAN_RUNTIME", "sim") == "sim":
            patch.setenv("HIPPLAN_ROOT", str(tmp_path_factory.mktemp("root")))
            patch.setenv("CUDA_VISIBLE_DEVICES", "")  # hides NVIDIA's GPUs, and none of the simulator's
        yield


@pytest.fixture(autouse=True)
def _runs_of_few_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every second test one chunk is a run: regions of the tests have few, and most would be written out."""
    if (on_demand := sys.modules.get("hipplan.program.on_demand")) and zlib.crc32(request.node.nodeid.encode()) % 2:
        monkeypatch.setattr(on_demand, "LEAST", 1)


@pytest.fixture(autouse=True)
def signals_are_heard() -> Iterator[None]:
    """Also where the tests run in the background of a shell, which ignores ^C there, or under nohup."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """The simulator as two linked GPUs, whatever machine a test makes of it; fails the test that leaves anything
    alive."""
    from hipplan import _core
    from hipplan.machines import runtimes

    simulator = Simulator()
    assert simulator.alive() == set()
    yield simulator
    simulator.runtime.arm_faults("")
    left = simulator.alive()
    simulator.free_everything()
    runtimes._simulated.clear()  # it does not know what a test made of the simulator with configure()
    runtimes.choose("sim")

    assert left == set()
    assert _core.take_leaks() == []
