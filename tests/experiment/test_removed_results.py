"""A file of results that is removed or replaced while a run writes to it: its lines are kept, and the run fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hipplan.errors import PlanError
from hipplan.experiment import results
from tests.experiment.conftest import Write, experiment, lines, synthetic


@pytest.mark.parametrize(
    ("taken", "kept"),
    [([], "r.jsonl"), (["r.jsonl"], "r.jsonl.kept"), (["r.jsonl", "r.jsonl.kept"], "r.jsonl.kept.2")],
    ids=["removed", "replaced", "replaced again"],
)
def test_results_that_are_removed_are_kept_and_the_run_fails(tmp_path: Path, taken: list[str], kept: str) -> None:
    path = tmp_path / "r.jsonl"
    with results.opened(str(path), resume=False) as file:
        file.append(synthetic(0))
        path.unlink()
        for name in taken:
            (tmp_path / name).write_text("of another program")
        with pytest.raises(PlanError, match="HP413") as raised:
            file.append(synthetic(1))

    hint = raised.value.diagnostics[0].hint
    assert f"-o {tmp_path / kept} goes on" in hint
    assert all((tmp_path / name).read_text() == "of another program" for name in taken)
    with results.opened(str(tmp_path / kept), resume=True) as file:
        assert [line["cell"]["vary"]["a"] for line in file.lines] == [0, 1]


def test_lines_whose_folder_is_renamed_are_not_lost(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with results.opened(str(folder / "r.jsonl"), resume=False) as file:
        folder.rename(tmp_path / "other")
        with pytest.raises(PlanError, match=f"its lines are in {tmp_path}/other/r.jsonl: .* goes on"):
            file.append(synthetic(0))


def test_an_interrupted_run_whose_results_were_removed_writes_them_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with results.opened(str(path), resume=False) as file:
        file.append(synthetic(0))
        assert file.kept_elsewhere() is None
        path.unlink()
        assert f"its lines are in {path} now" in (file.kept_elsewhere() or "")
    assert len(results.read(str(path))) == 1


def test_lost_lines_are_reported_where_the_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with results.opened(str(folder / "r.jsonl"), resume=False) as file:
        shutil.rmtree(folder)
        with pytest.raises(PlanError, match=r"its lines are lost: .* No such file"):
            file.append(synthetic(0))


def test_a_run_without_its_results_is_an_error(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import pathlib\ndef work(layout): pathlib.Path('e.results.jsonl').unlink()\n"
    path = write("repeat: 1\ninside: measured:work\n", code)

    assert experiment("run", path) == 2
    assert "was removed, renamed or replaced" in capsys.readouterr().err
    assert len(lines(path)) == 1
