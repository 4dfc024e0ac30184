"""A GPU's driver that is loaded and cannot be used: an error instead of the simulator, unless that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

import hipplan as library
from hipplan.errors import RuntimeUnavailable
from tests.cli.conftest import Run
from tests.conftest import ROOT

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
NEUTRAL = {"HIPPLAN_RUNTIME": "", "CUDA_VISIBLE_DEVICES": ""}
"""Hides an NVIDIA GPU of the machine that runs the tests."""
AMD = ["dev/kfd", "dev/dri/renderD128", "sys/module/amdgpu/version"]
NVIDIA = ["proc/driver/nvidia/version", "dev/nvidiactl", "dev/nvidia-uvm"]


def machine_with(root: Path, files: list[str]) -> dict[str, str]:
    """The environment of a machine with these files of the kernel."""
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("6.12\n")
    return NEUTRAL | {"HIPPLAN_ROOT": str(root)}


UNUSABLE: dict[str, tuple[list[str], str]] = {
    "amd": (AMD, "AMD's driver is loaded, but cannot be used: "),
    "amd without a render node": (AMD[:1], "/dev/dri has no render node, which memory is mapped through"),
    "nvidia": (NVIDIA, "NVIDIA's driver is loaded, but cannot be used: "),
    "nvidia without uvm": (NVIDIA[:2], "/dev/nvidia-uvm is not there, though the driver is"),
}


@pytest.mark.parametrize(("files", "reason"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_driver_that_cannot_be_used_is_an_error_with_the_doctor_s_reason(
    files: list[str], reason: str, tmp_path: Path, hipplan: Run
) -> None:
    env = machine_with(tmp_path, files)
    for line in (["apply", QUICKSTART, "--once"], ["lock", QUICKSTART], ["machine"]):
        done = hipplan(*line, env=env)

        assert (done.returncode, done.stdout) == (3, "")
        assert "error[HP407]" in done.stderr
        assert reason in done.stderr
        assert "--runtime sim applies the plan on the simulator" in done.stderr
    examined = hipplan("doctor", env=env)
    assert examined.returncode == 3
    assert reason in examined.stdout or "loaded, but cannot be used" in reason
    assert "without --runtime are refused" in examined.stdout


@pytest.mark.parametrize("files", [AMD, NVIDIA], ids=["amd", "nvidia"])
def test_the_simulator_is_used_where_it_is_asked_for(files: list[str], tmp_path: Path, hipplan: Run) -> None:
    env = machine_with(tmp_path, files)
    for more, variables in ((["--runtime", "sim"], {}), ([], {"HIPPLAN_RUNTIME": "sim"})):
        done = hipplan("apply", QUICKSTART, "--once", "--quiet", *more, env=env | variables)

        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "files",
    [[], AMD[2:], NVIDIA[:1], NVIDIA[1:]],
    ids=["none", "amdgpu of the host", "version of the host", "no driver"],
)
def test_a_machine_without_a_driver_of_its_own_simulates(files: list[str], tmp_path: Path, hipplan: Run) -> None:
    """A container sees the modules of its host, and has no device of them."""
    done = hipplan("apply", QUICKSTART, "--once", "--quiet", env=machine_with(tmp_path, files))

    assert done.returncode == 0
    assert "notice: no GPU found, so this is the simulator" in done.stderr


def test_a_program_gets_the_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in machine_with(tmp_path, AMD[:1]).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeUnavailable, match="/dev/dri has no render node") as caught:
        library.apply(QUICKSTART)
    assert caught.value.exit_code == 3
    library.apply(QUICKSTART, runtime="sim").close()
