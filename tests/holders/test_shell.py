"""Holders for people in a shell: their names, table, logs and completion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipplan.cli.main import run
from hipplan.holders import names

Held = Callable[..., dict[str, Any]]


def test_ps_is_a_table_with_the_plan_of_each_holder(held: Held, capsys: Any) -> None:
    process = held()["pid"]
    assert run(["ps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = next(line for line in lines if line.startswith("name"))

    assert re.split(r"  +", titles) == ["name", "plan", "state", "memory", "process", "up for", "attached"]
    assert any(
        re.match(rf"w +\S+ +ready +4MiB on gpu.0, 2MiB on gpu.1 +{process} +\d+ \w+ +0$", line) for line in lines
    )


def test_ps_quiet_prints_names_alone(held: Held, capsys: Any) -> None:
    held()
    assert run(["ps", "--quiet"]) == 0

    assert capsys.readouterr().out == "w\n"


def test_a_holder_has_its_plan_s_name_unless_it_gets_another(folder: Path, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "some.yaml"
    path.write_text("hipplan: 1\nname: shared-$(v)\nvars: {v: a}\nregions: {r: {size: 2MiB}}\n")
    assert run(["up", str(path), "--var", "v=b", "--quiet"]) == 0
    assert [name for name, _, runs in names.known() if runs] == ["shared-b"]
    assert run(["down", "shared-b", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "the plan has no name: give its holder one with --name"),
     ("name: all my weights\n", "a holder cannot be called 'all my weights' as the plan is")],
)  # fmt: skip
def test_a_plan_without_a_name_for_a_holder_is_refused(
    name: str, reason: str, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some.yaml").write_text(f"hipplan: 1\n{name}regions: {{r: {{size: 2MiB}}}}\n")

    assert run(["up", str(tmp_path / "some.yaml")]) == 2
    assert reason in capfd.readouterr().err
    assert run(["up", "-"]) == 2
    assert "a plan from standard input needs --name" in capfd.readouterr().err


def test_logs_shows_the_end_of_a_holder_s_log(held: Held, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = held()["log"]
    with open(log, "a") as file:  # noqa: PTH123
        file.write("first\nsecond \x1b[31m\nthird\n")
    capsys.readouterr()
    assert run(["logs", "w", "--lines", "2"]) == 0
    assert capsys.readouterr().out == "second \N{REPLACEMENT CHARACTER}[31m\nthird\n"
    monkeypatch.setattr("hipplan.cli.logs._BYTES_MAX", 10)
    assert run(["logs", "w"]) == 0
    assert capsys.readouterr().out == "third\n"


def test_logs_of_what_has_none(held: Held, capfd: pytest.CaptureFixture[str]) -> None:
    log = Path(held()["log"])
    assert run(["logs", "nobody"]) == 4
    assert "HP452]: there is no holder 'nobody'" in (shown := capfd.readouterr().err)
    assert "there are: w" in shown
    assert run(["logs", "w", "--lines", "0"]) == 2
    assert "--lines is at least 1" in capfd.readouterr().err
    log.unlink()
    assert run(["logs", "w"]) == 4
    assert re.search(r"HP452\]: (cannot read|the holder 'w' has no log)", capfd.readouterr().err)
    log.symlink_to("/etc/passwd")
    assert run(["logs", "w"]) == 4
    assert "HP452]: cannot read" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("hipplan attach ", "w"), ("hipplan logs ", "w"), ("hipplan explain HP45", "HP452"), ("hipplan le", "")],
)
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_shells_complete_holders_and_codes(shell: str, line: str, wanted: str, held: Held, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    held()
    script = tmp_path / "script"
    done = subprocess.run([sys.executable, "-m", "hipplan", "completion", shell], capture_output=True, check=True)
    if shell == "fish":
        script.write_bytes(done.stdout + f"\ncomplete -C '{line}'\n".encode())
    else:
        count = len(line.split(" "))
        last = " ''" * line.endswith(" ")
        words = f"COMP_WORDS=({line}{last}); COMP_CWORD={count - 1}; COMPREPLY=()"
        script.write_bytes(done.stdout + f'\n{words}\n_shtab_hipplan\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'.encode())
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = os.environ | {"PATH": path, "HOME": str(tmp_path)}
    shown = subprocess.run([program, script], capture_output=True, text=True, timeout=600, env=env)

    offered = [entry.split("\t")[0] for entry in shown.stdout.splitlines()]
    assert wanted in offered if wanted else not [entry for entry in offered if entry.startswith("HP")]
