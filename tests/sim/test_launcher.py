"""The launcher passes on exit codes and signals, and leaves no folder behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hipplan.machines import simulator

from ..conformance.sim import library_path
from .conftest import ROOT

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def _built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPSIM_LIBRARY", library_path())


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_program_s(code: int) -> None:
    assert simulator.run([PYTHON, "-c", f"raise SystemExit({code})"]) == code


def test_a_program_ended_by_a_signal_is_128_and_its_number() -> None:
    assert simulator.run([PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137


def test_a_missing_program_is_reported_to_be_missing() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        simulator.run(["no-such-program"])


def test_a_missing_simulator_is_reported_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPSIM_LIBRARY", "/no/such/libhipsim.so")
    with pytest.raises(FileNotFoundError, match="HIPSIM_LIBRARY names no file"):
        simulator.run([PYTHON])


def test_the_profile_and_more_variables_reach_the_program() -> None:
    source = (
        "import ctypes, os; n = ctypes.c_int(); hip = ctypes.CDLL('libamdhip64.so'); "
        "hip.hipGetDeviceCount(ctypes.byref(n)); raise SystemExit(n.value + int(os.environ['MORE']))"
    )
    profile = "".join(f"device.{i}.name=x\n" for i in range(5))

    assert simulator.run([PYTHON, "-c", source], profile, {"MORE": "10"}) == 15


def test_the_folder_of_links_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = "import os; print(os.environ['LD_LIBRARY_PATH'])"
    assert simulator.run([PYTHON, "-c", source]) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_environment_keeps_the_user_s_library_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    variables = simulator.environment(None, tmp_path)

    assert variables == {"LD_LIBRARY_PATH": f"{tmp_path}:/somewhere"}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(simulator.LINKS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_launcher_reaches_the_program_once(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "got"
    source = f"""
import signal, time, sys
def got(n, _):
    open({str(log)!r}, "a").write(f"{{n}} ")
    signal.setitimer(signal.ITIMER_REAL, 0.3)
signal.signal(signal.SIGALRM, lambda *_: sys.exit(42))
signal.signal({int(number)}, got)
print("ready", flush=True)
while True: time.sleep(0.01)
"""
    launch = (
        f"import sys; from hipplan.machines.simulator import run; sys.exit(run([sys.executable, '-c', {source!r}]))"
    )
    launcher = subprocess.Popen(
        [PYTHON, "-c", launch], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout
    with launcher.stdout:
        assert launcher.stdout.readline() == "ready\n"
        time.sleep(0.05)
        launcher.send_signal(number)

        assert launcher.wait(timeout=600) == 42
    assert log.read_text().split() == [str(int(number))]
