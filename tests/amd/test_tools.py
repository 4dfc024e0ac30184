"""AMD's programs for people, of Debian's packages, on a machine without a GPU: rocm-smi and amd-smi."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hipplan.machines import topology
from hipplan.machines.profiles import load_machine
from tests.amd.libraries import FOLDER

MACHINES = ("mi300x-8", "mi300a-4", "mi250x-8")


def run(tool: str, release: str, machine: Path, *arguments: str) -> str:
    """What a tool prints; `machine` is a folder of topology.write()."""
    folder = FOLDER / "tools" / release / "usr"
    program = folder / "bin" / tool
    if not program.exists():
        pytest.skip(f"Debian no longer has the {tool} that packages.lock names")
    found = f"{folder / 'lib' / 'x86_64-linux-gnu'}:{os.environ['LD_LIBRARY_PATH']}"
    variables = {"KFDSIM_MACHINE": str(machine), "LD_LIBRARY_PATH": found}
    ran = subprocess.run(
        [sys.executable, program, *arguments], env=os.environ | variables, capture_output=True, text=True
    )
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    return ran.stdout


@pytest.fixture(params=MACHINES)
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    machine = load_machine(request.param)
    topology.write(tmp_path / "machine", machine)
    return machine, tmp_path / "machine"


def test_rocm_smi_shows_the_profile(release: str, profile: tuple[Any, Path]) -> None:
    machine, folder = profile
    shown = json.loads(run("rocm-smi", release, folder, "--json", "--showbus", "--showmeminfo", "vram", "--showid"))

    assert [shown[f"card{index}"] for index in range(len(shown))] == list(shown.values())
    assert [int(card["VRAM Total Memory (B)"]) for card in shown.values()] == [d.memory for d in machine.devices]
    assert [card["PCI Bus"].lower() for card in shown.values()] == [
        f"0000:{index + 1:02x}:00.0" for index in range(len(machine.devices))
    ]


def test_rocm_smi_shows_links(release: str, profile: tuple[Any, Path]) -> None:
    machine, folder = profile
    text = run("rocm-smi", release, folder, "--showtopotype")
    rows = [line.split()[1:] for line in text.splitlines() if line.startswith("GPU") and "[" not in line]

    for source, row in enumerate(rows):
        for target, kind in enumerate(row):
            link = machine.link(source, target)
            assert kind == ("0" if source == target else {"xgmi": "XGMI", "pcie": "PCIE"}[link.type]), (source, target)
    assert len(rows) == len(machine.devices)


def test_rocm_smi_without_arguments_and_with_all(release: str, profile: tuple[Any, Path]) -> None:
    _, folder = profile

    assert "Concise Info" in run("rocm-smi", release, folder)
    assert "End of ROCm SMI Log" in run("rocm-smi", release, folder, "-a")


def test_amd_smi_shows_the_profile(release: str, profile: tuple[Any, Path]) -> None:
    machine, folder = profile
    listed = json.loads(run("amd-smi", release, folder, "list", "--json"))
    listed = listed.get("gpu_data", listed) if isinstance(listed, dict) else listed

    assert [gpu["bdf"] for gpu in listed] == [f"0000:{index + 1:02x}:00.0" for index in range(len(machine.devices))]
    text = run("amd-smi", release, folder, "static", "--asic", "--vram")
    assert text.count(f"{machine.devices[0].memory // 2**20} MB") == len(machine.devices)
