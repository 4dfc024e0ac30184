"""Which runtime the conformance suite runs on, what that runtime can do, and the table at the end.

HIPPLAN_CONFORMANCE_RUNTIME: sim (default), amd, cuda, or a path. On a runtime that can change its machine (the
simulator), every test runs once in each personality and must leave nothing alive.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from ctypes import c_int
from pathlib import Path
from typing import Any

import pytest

from hipplan.errors import HipplanError
from hipplan.machines.runtimes import choose

from .amd_differences import AMD
from .differences import CUDA, DIED, Difference, as_declared, declared
from .hip import Hip
from .sim import PERSONALITIES, Simulator, library_path, machine

_TABLE: dict[str, Counter[str]] = defaultdict(Counter)


_RUNTIME = pytest.StashKey[Hip]()
_ALONE = "HIPPLAN_CONFORMANCE_ALONE"
"""Set in the process of a test that may end it."""


def _is_simulated() -> bool:
    return os.environ.get("HIPPLAN_CONFORMANCE_RUNTIME", "sim") == "sim"


def _declared(item: pytest.Item) -> Difference | None:
    """The row that holds for a test on this runtime."""
    runtime = item.config.stash.get(_RUNTIME, None)
    library = Path(runtime.path).name if runtime else ""
    if runtime is None or _ALONE in os.environ:
        return None
    release = "{}.{}".format(*runtime.version)
    tables = {"libhipcuda.so": CUDA, "libamdhip64.so": AMD}
    rows = next((rows for name, rows in tables.items() if library.startswith(name)), ())
    return declared([row for row in rows if release in (row.releases or (release,))], f"{item.path.name}::{item.name}")


def _is_certain(row: Difference) -> bool:
    """AMD's rows were seen on Debian's builds: another build may answer better."""
    return row.always and (row in CUDA or "HIPPLAN_AMD_RELEASE" in os.environ)


def _runtime_path() -> str:
    wanted = os.environ.get("HIPPLAN_CONFORMANCE_RUNTIME", "sim")
    if wanted == "sim":
        os.environ.setdefault("HIPSIM_LOG", "none")  # half of this suite is refused on purpose
        return library_path()
    return choose(wanted).runtime.path


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "function(name): the HIP function a test is about")
    config.addinivalue_line("markers", "needs(*what): capabilities without which a test is skipped")


@pytest.fixture(scope="session")
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Hip:
    try:
        path = _runtime_path()
    except HipplanError as error:  # who asks for a runtime by name wants no suite that skips everything
        pytest.exit(str(error), returncode=3)
    if _is_simulated():
        # A copy is a simulator of its own: these tests change its machine under the feet of hipplan's others.
        path = shutil.copy(path, str(tmp_path_factory.mktemp("conformance")))
    request.config.stash[_RUNTIME] = Hip(path)
    return request.config.stash[_RUNTIME]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "hip" in metafunc.fixturenames:
        metafunc.parametrize("hip", list(PERSONALITIES) if _is_simulated() else ["native"], indirect=True)


@pytest.fixture
def hip(request: pytest.FixtureRequest, runtime: Hip) -> Iterator[Hip]:
    """A runtime with nothing alive; device 0 is current and no error is pending."""
    simulator = Simulator(runtime) if hasattr(runtime.library, "hipsim_configure") else None
    if simulator and request.param in PERSONALITIES:
        simulator.configure(machine(request.param))
    _skip_without(request, runtime)
    runtime.hipSetDevice(0)
    runtime.hipGetLastError()
    yield runtime
    if simulator:
        simulator.fail()
        left = simulator.alive()
        simulator.undo_everything(runtime)
        assert left == {}


@pytest.fixture
def simulator(hip: Hip) -> Simulator:
    """The simulator's own interface; tests of it are skipped on runtimes without one."""
    if not hasattr(hip.library, "hipsim_configure"):
        pytest.skip("this runtime has no simulator interface")
    return Simulator(hip)


def _capabilities(hip: Hip) -> set[str]:
    if hip.devices == 0:
        return set()
    has = {"device"}
    has |= {"two devices"} if hip.devices >= 2 else set()
    has |= {"vmm"} if hip.attribute(89) else set()
    has |= {"managed"} if hip.attribute(24) and hip.attribute(9) else set()
    if hip.devices >= 2:
        value = hip.get("hipDeviceCanAccessPeer", c_int, 0, 1)
        has |= {"peers"} if value else set()
    if hip.devices >= 3:
        value = hip.get("hipDeviceCanAccessPeer", c_int, 0, 2)
        has |= {"a device out of reach"} if not value else set()
    has |= {"export"} if hip.version >= (6, 2) else set()
    has |= {"host location"} if hip.version >= (7, 2) else set()
    if hip.version >= (7, 0) and "libhipcuda" not in hip.path:  # CUDA exports memory that was made for RDMA
        has |= {"dma-buf of any memory"}
    has |= {"memory handles"} if hasattr(hip.library, "hipIpcGetMemHandle") else set()
    has |= {"stream values"} if hasattr(hip.library, "hipStreamWaitValue32") else set()
    has |= {"location calls"} if hip.version >= (7, 1) else set()
    has |= {"stream checks"} if hip.version < (7, 0) else set()
    if hasattr(hip.library, "hipsim_configure"):
        has |= {"handle checks", "pageable refused"}
    elif not hip.attribute(65):
        has |= {"pageable refused"}
    return has


def _skip_without(request: pytest.FixtureRequest, hip: Hip) -> None:
    marker_needs = {what for mark in request.node.iter_markers("needs") for what in mark.args}
    missing = ({"device"} | marker_needs) - _capabilities(hip)
    if missing:
        pytest.skip("this runtime lacks: " + ", ".join(sorted(missing)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is declared to end the process runs in one of its own."""
    row = _declared(pyfuncitem)
    if row is None or not row.ends_the_process:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    environment = os.environ | {_ALONE: "1"}
    done = subprocess.run(command, cwd=pyfuncitem.config.rootpath, env=environment, capture_output=True, text=True)
    if done.returncode < 0:
        raise AssertionError(DIED + signal.Signals(-done.returncode).name)
    assert done.returncode == 0, done.stdout
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test of a declared difference must fail, and as declared; then it counts as xfailed."""
    report = yield
    row = _declared(item) if call.when == "call" else None
    if row is None or report.outcome == "skipped":
        return report
    if call.excinfo is None and not _is_certain(row):
        return report
    if call.excinfo is None:
        report.outcome, report.longrepr = "failed", f"passes, and it is declared that it cannot: {row.call}"
    elif as_declared(row, str(call.excinfo.value)):
        report.outcome, report.wasxfail = "skipped", f"declared: {row.call}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    function = dict(report.user_properties).get("function")
    if function and (report.when == "call" or (report.when == "setup" and report.outcome != "passed")):
        _TABLE[str(function)][report.outcome] += 1
    elif function and report.when == "teardown" and report.outcome == "failed":
        _TABLE[str(function)]["failed"] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("function")
    if mark:
        item.user_properties.append(("function", mark.args[0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _TABLE:
        return
    terminalreporter.section("conformance: function x (passed, failed, skipped)")
    for function, counts in sorted(_TABLE.items()):
        numbers = "  ".join(f"{counts[outcome]:4d}" for outcome in ("passed", "failed", "skipped"))
        terminalreporter.write_line(f"{function:<44}{numbers}")
    total = sum((counts for counts in _TABLE.values()), Counter[str]())
    numbers = "  ".join(f"{total[outcome]:4d}" for outcome in ("passed", "failed", "skipped"))
    terminalreporter.write_line(f"{f'{len(_TABLE)} functions':<44}{numbers}")
