"""hipplan import model, as it is run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

import hipplan as library
from hipplan.language.serving import plan_text, read_model
from hipplan.machines.profiles import load_machine
from hipplan.program.fitting import KeptFree, fitted
from tests.cli.conftest import Run
from tests.conftest import ROOT, Simulator
from tests.unit.test_models import LLAMA, TINY, with_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path


def test_a_plan_for_a_machine(folder: Path, hipplan: Run) -> None:
    plan = folder / "plan.yaml"
    done = hipplan("import", "model", folder, "--machine", "mi300x-8", "--tp", 8, "-o", plan)

    assert done.returncode == 0, done
    assert done.stdout.splitlines() == [
        f"wrote {plan}",
        "  weights: 723 tensors, about 131.4GiB, about 16.4GiB on each of 8 devices",
        "  key/value cache: 256172 pages, 4098752 tokens, about 156.4GiB on each of 8 devices",
        "  reserved for others: about 19.2GiB on each of 8 devices of mi300x-8",
        "  staging: 64MiB of pinned memory for each device",
    ]
    assert done.stderr == (
        "notice: there are no .safetensors files beside it: shapes are those of config.json, and nothing is loaded\n"
    )
    assert plan.read_text().startswith("# 723 tensors, 141107412992 bytes. Written by hipplan import model (")
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


def test_staging_that_the_host_cannot_hold_is_an_error_of_its_option(folder: Path, hipplan: Run) -> None:
    (folder / "config.json").write_text(json.dumps(TINY))
    done = hipplan("import", "model", folder, "--machine", "sim-2", "--kv", "1MiB", "--staging", "1PiB")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error[HP303]: ") and done.stderr.endswith("hint: use a smaller --staging\n")


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
        ["--kv", "0"],
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


def test_an_edited_plan_is_overwritten_with_force_only(folder: Path, hipplan: Run) -> None:
    plan = folder / "plan.yaml"
    line = ("import", "model", folder, "--machine", "mi300x-8", "--tp", 8, "-o", plan)
    assert hipplan(*line).returncode == 0
    assert hipplan(*line, "--kv", "1GiB").returncode == 0
    written = plan.read_text()
    plan.write_text(written.replace("size: 1GiB", "size: 2GiB"))
    edited = plan.read_text()
    refused = hipplan(*line)

    assert edited != written
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"error[HP413]: the plan '{plan}' would be overwritten\n  why:  it was edited, or hipplan did not write it\n"
        "  hint: name another file, or replace this one: --force\n"
    )
    assert plan.read_text() == edited
    assert hipplan(*line, "--kv", "1GiB", "--force").returncode == 0
    assert plan.read_text() == written


@pytest.mark.parametrize("content", ["", "hipplan: 1\n", "\0", b"\xff", "# (digest 0123456789ab)\n"])
def test_a_file_that_import_did_not_write_is_kept(content: str | bytes, tmp_path: Path, hipplan: Run) -> None:
    file, data = tmp_path / "notes", content.encode() if isinstance(content, str) else content
    file.write_bytes(data)
    tensors = ROOT / "plans" / "data" / "layer.safetensors"
    done = hipplan("import", "safetensors", tensors, "-o", file)

    assert done.returncode == 2
    assert "HP413" in done.stderr
    assert file.read_bytes() == data
    done = hipplan("import", "safetensors", tensors, "-o", file, "--force")
    assert (done.returncode, done.stdout) == (0, f"wrote {file}\n  weights: 3 tensors, 124B\n")


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_weights_beside_it_are_loaded(ranks: int, index: bool, folder: Path, sim: Simulator) -> None:
    (folder / "config.json").write_text(json.dumps(TINY))
    tensors = with_files(folder, index=index)
    model = read_model(str(folder), ranks)
    machine = load_machine("sim-2")
    text = plan_text(model, fitted(model, machine, 2**20, KeptFree()), 4096, str(folder))
    (folder / "plan.yaml").write_text(text)
    with library.apply(folder / "plan.yaml", runtime="sim") as layout:
        for name, array in tensors.items():
            parts = [layout.read(f"rank.{rank}.{name}") for rank in range(ranks)]
            if parts[0].shape == array.shape:
                assert all((part == array).all() for part in parts)
            else:
                axis = next(n for n in range(array.ndim) if parts[0].shape[n] != array.shape[n])
                assert (numpy.concatenate(parts, axis) == array).all()
        assert layout["kv.0.pages"].shape[1:] == (2, 2, 16, 2 // ranks, 16)
        assert layout["staging.0"].size == 4096
