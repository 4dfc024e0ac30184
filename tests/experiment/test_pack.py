"""A pack runs again on another machine, from its README alone."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from hipplan.cli.main import run
from hipplan.experiment import results
from hipplan.experiment.pack import FILE_MAX
from tests.experiment.conftest import Write, experiment

PLAN = """hipplan: 1
include: parts/regions.yaml
contents: {a: {file: data/bytes.bin}}
"""
PART = """hipplan: 1
vars: {device: gpu.0}
regions: {a: {device: $(device), size: 2MiB}}
"""


def test_unpacked_elsewhere_it_runs_again_and_compares(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import json, helper\ndef work(layout): return {'size': layout['a'].size * helper.times()}\n"
    path = write(
        "description: Why it was done.\nvary: {device: [gpu.0, gpu.1]}\nrepeat: 1\ninside: measured:work\n", code, PLAN
    )
    for name, content in (
        ("parts/regions.yaml", PART.encode()),
        ("data/bytes.bin", bytes(2 << 20)),
        ("helper.py", b"def times():\n    from steps import deep\n    return deep.TIMES\n"),
        ("steps/__init__.py", b""),
        ("steps/deep.py", b"TIMES = 2\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert experiment("run", path) == 0
    assert experiment("pack", path, "-o", tmp_path / "packed") == 0
    there = tmp_path / "elsewhere"
    shutil.move(tmp_path / "packed", there)
    for name in (
        "plan.yaml",
        "measured.py",
        "parts",
        "data",
        "helper.py",
        "steps",
    ):  # nothing of the first place is used
        (tmp_path / name).rename(tmp_path / f"gone-{name}")
    monkeypatch.chdir(there)

    readme = Path("README.md").read_text()
    assert "Why it was done." in readme
    again, compare = (shlex.split(text)[1:] for text in re.findall(r"```sh\n(.*?)\n```", readme))
    assert run([*again, "--machine", "h200-4"]) == 0
    assert len(results.read("again.jsonl")) == 2
    capsys.readouterr()
    assert run([*compare, "--tolerance", "1e9"]) == 0
    said = capsys.readouterr().out
    assert "provenance.gpus.0.model" in said and said.count("size") >= 2
    assert run(["validate", "e.experiment.yaml", "--machine", "machine.yaml"]) == 0
    for number in range(2):
        check = ["lock", "plan.yaml", "--check", f"locks/{number}.lock", "--machine", "machine.yaml"]
        assert run([*check, "--var", f"device=gpu.{number}"]) == 0


def test_a_large_file_is_named_with_its_checksum(write: Write, tmp_path: Path) -> None:
    plan = f"hipplan: 1\nregions: {{a: {{size: {FILE_MAX + 4096}}}}}\ncontents: {{a: {{file: large.bin}}}}\n"
    path = write("repeat: 1\nmeasure: [map]\n", plan=plan)
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(FILE_MAX + 4096)
    path.with_name("e.results.jsonl").write_text("")
    assert experiment("pack", path) == 2  # there are no results
    with results.opened(str(path.with_name("e.results.jsonl")), resume=False) as opened:
        opened.append({
            "experiment": {}, "cell": {"vary": {}, "env": {}}, "repetition": 0, "result": "ok", "metrics": {},
            "units": {}, "plan": {}, "provenance": {},
        })  # fmt: skip
    assert experiment("pack", path, "--machine", "sim-2") == 0

    packed = tmp_path / "e-pack"
    assert not (packed / "large.bin").exists()
    assert re.search(r"large.bin: 67,112,960 bytes, sha256 [0-9a-f]{64}", (packed / "README.md").read_text())
    assert experiment("pack", path, "--machine", "sim-2") == 2  # it is there


@pytest.fixture
def measured(write: Write) -> Path:
    """An experiment with its results."""
    path = write("repeat: 1\ninside: measured:work\n", "def work(layout): pass\n")
    assert experiment("run", path) == 0
    return path


def copy_to_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on there is room for half of the results."""
    copy = shutil.copy

    def copied(source: Path, target: Path) -> None:
        if target.name == "results.jsonl":
            target.write_bytes(source.read_bytes()[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copy(source, target)

    monkeypatch.setattr(shutil, "copy", copied)


def test_a_pack_is_whole_or_not_there(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    with monkeypatch.context() as full:
        copy_to_full_disk(full)
        assert run(["experiment", "pack", str(measured), "-o", "packed"]) == 2
    said = capsys.readouterr().err
    assert "error[HP413]: the pack's file 'results.jsonl' cannot be written" in said and "No space left" in said
    assert sorted(tmp_path.iterdir()) == before

    assert run(["experiment", "pack", str(measured), "-o", "packed"]) == 0
    assert Path("packed/results.jsonl").read_bytes() == measured.with_name("e.results.jsonl").read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "packed"])


def test_an_empty_folder_is_filled_and_keeps_its_rights(measured: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.mkdir(mode=0o700)

    assert experiment("pack", measured, "-o", packed) == 0
    assert (packed / "README.md").is_file() and packed.stat().st_mode & 0o777 == 0o700


def test_an_empty_folder_may_be_a_link_or_where_the_process_is(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a file system of its own, as in a container: nothing can take the place of these."""
    for name in ("real", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("real")

    assert experiment("pack", measured, "-o", tmp_path / "link") == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real/README.md").is_file()
    monkeypatch.chdir(tmp_path / "here")
    assert experiment("pack", measured, "-o", ".") == 0
    assert Path("README.md").is_file() and not [*Path().glob(".hipplan*")]


def test_an_empty_folder_stays_empty_after_an_error(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "packed"
    packed.mkdir()
    copy_to_full_disk(monkeypatch)

    assert run(["experiment", "pack", str(measured), "-o", str(packed)]) == 2
    assert [*packed.iterdir()] == []


def test_a_file_of_the_experiment_is_not_written_over(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = "hipplan: 1\nregions: {a: {device: gpu.0, size: 2MiB}}\ncontents: {a: {file: results.jsonl}}\n"
    path = write("repeat: 1\ninside: measured:work\n", "def work(layout): pass\n", plan)
    (tmp_path / "results.jsonl").write_bytes(bytes(2 << 20))
    assert experiment("run", path) == 0

    assert experiment("pack", path, "-o", tmp_path / "packed") == 2
    assert "the experiment needs another file of this name" in capsys.readouterr().err
    assert not (tmp_path / "packed").exists()


def test_the_command_of_the_readme_is_quoted(measured: Path, tmp_path: Path) -> None:
    other = measured.with_name("a b.experiment.yaml")
    measured.rename(other)
    measured.with_name("e.results.jsonl").rename(other.with_name("a b.results.jsonl"))

    assert experiment("pack", other, "-o", tmp_path / "packed") == 0
    assert "run 'a b.experiment.yaml' -o again.jsonl" in (tmp_path / "packed/README.md").read_text()


@pytest.mark.parametrize("folder", [".", "plan.yaml", "plan.yaml/packed"])
def test_what_is_no_new_folder_is_refused(measured: Path, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(measured.parent.iterdir())

    assert experiment("pack", measured, "-o", folder) == 2
    assert f"error[HP413]: the pack '{folder}' cannot be written" in capsys.readouterr().err
    assert sorted(measured.parent.iterdir()) == before
