"""hipplan import model, as it is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hipplan as library
from tests.cli.conftest import Run
from tests.unit.test_models import LLAMA, TINY, with_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path


def test_a_plan_for_a_machine(folder: Path, hipplan: Run) -> None:
    plan = folder / "plan.yaml"
    done = hipplan("import", "model", folder, "--machine", "mi300x-8", "--tp", 8, "-o", plan)

    assert done.returncode == 0, done
    assert done.stdout == ""
    assert done.stderr == (
        "notice: there are no .safetensors files beside it: shapes are those of config.json, and nothing is loaded\n"
    )
    assert plan.read_text().startswith("# 723 tensors, 141107412992 bytes. Written by hipplan import model;")
    assert hipplan("fmt", "--check", plan).returncode == 0
    assert hipplan("validate", plan, "--machine", "mi300x-8", "--strict").returncode == 0


def test_the_plan_loads_what_lies_beside_it(folder: Path, hipplan: Run) -> None:
    (folder / "config.json").write_text(json.dumps(TINY))
    with_files(folder)
    plan = folder / "plan.yaml"
    arguments = ("--kv", "1MiB", "--staging", "4KiB", "--reserve", "1MiB", "--kv-dtype", "f16")
    done = hipplan("import", "model", folder / "config.json", "--machine", "sim-2", *arguments, "-o", plan)

    assert done.returncode == 0, done
    assert done.stderr == ""
    assert hipplan("apply", plan, "--once", "--runtime", "sim").returncode == 0
    assert "dtype: f16" in plan.read_text()


def test_what_does_not_fit_is_exit_code_3_with_the_bytes(folder: Path, hipplan: Run) -> None:
    done = hipplan("import", "model", folder, "--machine", "h200-1")

    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("error[HP301]: device 0 of h200-1 lacks 6016368640 bytes (about 5.6GiB)\n")


def test_a_measured_machine(folder: Path, hipplan: Run) -> None:
    (folder / "config.json").write_text(json.dumps(TINY))
    done = hipplan("import", "model", folder, "--runtime", "sim", "--kv", "1MiB")

    assert done.returncode == 0, done
    assert library.load(done.stdout).plan.regions.keys() == {"rank.0", "kv.0"}


@pytest.mark.parametrize(
    "line",
    [
        ["--kv", "much"],
        ["--kv", "-1"],
        ["--reserve", "110%"],
        ["--reserve", "nan%"],
        ["--reserve", "x%"],
        ["--staging", "1.5B"],
        ["--tp", "0"],
        ["--machine", "sim-2", "--runtime", "sim"],
    ],
)
def test_wrong_usage(line: list[str], folder: Path, hipplan: Run) -> None:
    done = hipplan("import", "model", folder, *line)

    assert done.returncode == 2
    assert "hipplan import: error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--kv", "--reserve", "--staging", "--kv-dtype", "--machine", "--runtime"])
def test_options_of_models_are_not_for_safetensors(option: str, folder: Path, hipplan: Run) -> None:
    done = hipplan("import", "safetensors", folder / "model.safetensors", option, "1GiB")

    assert done.returncode == 2
    assert f"{option} is for `import model`" in done.stderr


def test_the_config_is_not_written_over(folder: Path, hipplan: Run) -> None:
    config = folder / "config.json"
    done = hipplan("import", "model", folder, "--machine", "mi300x-8", "--tp", 8, "-o", config)

    assert done.returncode == 2
    assert json.loads(config.read_text()) == LLAMA
