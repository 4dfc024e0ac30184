"""Environments and names that nobody expects: a sentence, the right exit code, and nothing is garbled."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run, command

PLAN = "hipplan: 1\nname: pl\u00e4n\nbuffers: {b: {kind: device, size: 1}}\n"
WRONG = "hipplan: 1\nbuffers: {\u00e4: {kind: device, size: 1}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.yaml").write_text(PLAN, encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(WRONG, encoding="utf-8")
    return tmp_path


TERMINALS: list[dict[str, str]] = [
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0"},
    {"COLUMNS": "x"},
    {"TERM": "?", "COLUMNS": "-5", "LINES": "0"},
    {"NO_COLOR": "1", "FORCE_COLOR": "1"},
]


@pytest.mark.parametrize("variables", TERMINALS, ids=str)
def test_a_terminal_that_cannot_show_a_name(variables: dict[str, str], folder: Path, hipplan: Run) -> None:
    shown = hipplan("preview", folder / "good.yaml", "--machine", "sim-2", env=variables)
    told = hipplan("validate", folder / "wrong.yaml", env=variables)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(("pl\u00e4n on sim-2", "pl\\xe4n on sim-2", "\x1b"))
    assert told.returncode == 2
    assert "error[HP106]" in told.stderr


def test_a_document_is_utf_8_whatever_the_terminal_speaks(folder: Path, hipplan: Run) -> None:
    done = hipplan("fmt", folder / "good.yaml", env={"PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stdout) == (0, PLAN)


def test_a_file_whose_name_is_not_utf_8(folder: Path) -> None:
    name = os.fsencode(folder) + b"/b\xffd.yaml"
    with open(name, "wb") as file:  # noqa: PTH123
        file.write(WRONG.encode())
    for format in ("text", "json", "github", "sarif"):  # noqa: A001
        line = [*map(os.fsencode, command("validate", "--format", format)), name]
        done = subprocess.run(line, capture_output=True, timeout=60)
        assert done.returncode == 2, done.stderr
        if format == "sarif":
            (result,) = json.loads(done.stdout)["runs"][0]["results"]
            assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/b%FFd.yaml")


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"HIPPLAN_RUNTIME": "nonsense"}, 3),
        ({"HIPPLAN_RUNTIME": "\x01/\x02"}, 3),
        ({"HIPPLAN_RUNTIME": "/etc/passwd"}, 3),
        ({"HIPPLAN_RUNTIME": "/"}, 3),
        ({"HIPPLAN_RUNTIME": ""}, 0),
        ({"HIPPLAN_RUNTIME": "sim", "HIPSIM_PROFILE": "nonsense"}, 3),
        ({"HIPPLAN_RUNTIME": "sim", "HIPSIM_FAIL": "nonsense"}, 3),
        ({"HIPPLAN_RUNTIME": "sim", "HIP_VISIBLE_DEVICES": "nonsense"}, 3),
        ({"HIPPLAN_RUNTIME": "sim", "HIP_VISIBLE_DEVICES": "-1"}, 3),
        ({"HIPPLAN_RUNTIME": "sim", "ROCR_VISIBLE_DEVICES": "7"}, 3),
        ({"HIPPLAN_RUNTIME": "amd", "ROCM_PATH": "/\udcff"}, 3),
    ],
    ids=str,
)
def test_hostile_variables_of_the_environment(variables: dict[str, str], code: int, folder: Path, hipplan: Run) -> None:
    done = hipplan("preview", folder / "good.yaml", env=variables)

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert code == 0 or "error[HP" in done.stderr
