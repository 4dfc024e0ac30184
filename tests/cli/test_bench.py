"""hipplan bench: the matrix, on the simulator; its figures are the CPU's own and only looked at for their form."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from hipplan.cli.bench import _rounded
from tests.cli.conftest import Run, command

SMALL = ("bench", "--runtime", "sim", "--size", "1MiB", "--repeats", "2")


def profile(devices: int) -> dict[str, str]:
    """A simulated machine with so many devices of 1 GiB, none of them linked."""
    return {"HIPSIM_PROFILE": "".join(f"device.{n}.memory={2**30}\ndevice.{n}.vmm=1\n" for n in range(devices))}


def test_every_pair_of_devices_is_measured(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--format", "json")
    report = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert (report["event"], report["runtime"], report["size"], report["repeats"]) == ("bench", "sim", 2**20, 2)
    assert [(cell["source"], cell["to"]) for cell in report["cells"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(cell["bandwidth"] > 0 < cell["latency"] for cell in report["cells"])
    assert all(cell["plain_bandwidth"] is None for cell in report["cells"])


def test_ordinary_buffers_beside_it(hipplan: Run) -> None:
    cells = json.loads(hipplan(*SMALL, "--compare", "--format", "json").stdout)["cells"]

    assert len(cells) == 4
    assert all(cell["plain_bandwidth"] > 0 < cell["plain_latency"] for cell in cells)


def test_the_tables(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--compare")

    assert done.returncode == 0
    for title in ("GB/s", "latency, us", "bandwidth relative to ordinary buffers"):
        assert title in done.stdout
    assert "copies of 1MiB" in done.stdout


def test_small_figures_are_no_zeros() -> None:
    assert [_rounded(figure) for figure in (5324.26, 0.1, 0.0032, 0.0)] == ["5324.3", "0.1", "0.0032", "0"]


def test_one_device_is_enough(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--format", "json", env=profile(1))

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["cells"]) == 1


def test_devices_without_a_link_are_measured_too(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--compare", "--format", "json", env=profile(3))

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["cells"]) == 9


def test_a_machine_that_is_too_small_says_by_how_much(hipplan: Run) -> None:
    done = hipplan("bench", "--runtime", "sim", "--size", "1GiB", env=profile(1))

    assert done.returncode == 3
    assert "error[HP301]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "0"), "--size: must be more than 0"),
        (("--size", "lots"), "--size: "),
        (("--repeats", "0"), "--repeats: from 1 to"),
        (("--repeats", "two"), "--repeats"),
    ],
)
def test_wrong_usage(arguments: tuple[str, str], said: str, hipplan: Run) -> None:
    done = hipplan("bench", "--runtime", "sim", *arguments)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_copy_that_fails_gives_everything_back(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--format", "json", env={"HIPSIM_FAIL": "hipMemcpyPeer@1=hipErrorUnknown"})

    assert done.returncode == 4
    assert "hipMemcpyPeer" in done.stderr
    assert json.loads(done.stdout)["event"] == "failed"
    assert "not released" not in done.stderr


def test_a_terminal_gets_a_progress_bar() -> None:
    master, slave = pty.openpty()
    done = subprocess.run(command(*SMALL), stdout=subprocess.PIPE, stderr=slave, timeout=600)
    os.close(slave)
    output = os.read(master, 65536).decode()
    os.close(master)

    assert done.returncode == 0
    assert "copying" in output
