"""A held layout is torn down by ^C and SIGTERM, with nothing left."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import command
from tests.conftest import ROOT
from tests.pauses import Pause

QUICKSTART = ROOT / "plans" / "quickstart.yaml"


def start(*arguments: object, **env: str) -> subprocess.Popen[str]:
    """A held apply; the tests read its stdout until it has reported."""
    return subprocess.Popen(
        command("apply", QUICKSTART, "--runtime", "sim", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | env,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_tears_a_held_layout_down(number: int, code: int, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    process = start("--format", "json", HIPSIM_LEDGER_AT_EXIT=str(ledger))
    assert process.stdout is not None
    applied = json.loads(process.stdout.readline())
    process.send_signal(number)
    out, err = process.communicate(timeout=600)

    assert applied["event"] == "applied"
    assert process.returncode == code
    assert json.loads(out)["event"] == "torn down"
    assert "holding" in err
    left = json.loads(ledger.read_text())
    assert [left[noun] for noun in ("allocations", "reservations", "mappings", "buffers", "peers")] == [[]] * 5


def test_a_signal_between_steps_rolls_back(tmp_path: Path) -> None:
    ledger, trace, pause = tmp_path / "ledger.json", tmp_path / "trace", Pause(tmp_path, "hipMemMap@1")
    process = start(HIPSIM_LEDGER_AT_EXIT=str(ledger), HIPSIM_TRACE=str(trace), HIPSIM_FAIL=pause.rule)
    with pause.under_way():
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    called = [json.loads(line)["call"] for line in trace.read_text().splitlines()]

    assert process.returncode == 130
    assert "SIGINT: rolled back" in err
    assert called.count("hipMemMap") == called.count("hipMemUnmap") == 1
    assert json.loads(ledger.read_text())["allocations"] == []


def test_a_layout_with_more_descriptors_than_select_knows_is_held(tmp_path: Path) -> None:
    """On AMD each allocation costs one, here each that is shareable; hipplan raises the soft limit for them."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000:
        pytest.skip("the hard limit of open files is too low")
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "hipplan: 1\ndevices: {gpu: {}}\n"
        "allocations: {a: {device: gpu, size: 4KiB, count: 1100, shareable: posix_fd}}\n"
    )
    arguments = ("apply", plan, "--runtime", "sim", "--format", "json")
    with (tmp_path / "out").open("w+") as out:
        process = subprocess.Popen(command(*arguments), stdout=out, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert "holding" in process.stderr.readline()
        asked = subprocess.run(command("verify", process.pid), capture_output=True, text=True, timeout=600)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=600)
        out.seek(0)

        assert asked.returncode == 0, asked.stderr
        assert process.returncode == 143, err
        assert json.loads(out.readlines()[1])["event"] == "torn down"
