"""A file of another kind than a command wants: one sentence says what it is, and what takes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hipplan.errors import PlanError
from hipplan.language.loader import load
from tests.cli.conftest import Run
from tests.conftest import ROOT
from tests.started import Started

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
USES = {
    "plan": "`hipplan apply FILE` takes it",
    "lock": "`hipplan apply PLAN --locked FILE`",
    "profile": "`--machine FILE` takes it",
    "record": "`hipplan replay FILE` shows it",
    "report": "it is for other programs",
    "reports": "it is for other programs",
    "tensors": "`hipplan import safetensors FILE`",
    "index": "`hipplan import safetensors FILE`",
}


@pytest.fixture(scope="module")
def files(started: Started, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind, as the commands write them."""
    folder = tmp_path_factory.mktemp("kinds")
    out = {"plan": QUICKSTART, "tensors": ROOT / "plans" / "data" / "layer.safetensors"}
    writes = {
        "lock": ("lock", QUICKSTART, "--machine", "sim-2"),
        "profile": ("machine", "--runtime", "sim"),
        "report": ("preview", QUICKSTART, "--machine", "sim-2", "--format", "json"),
        "reports": (
            "apply",
            QUICKSTART,
            "--once",
            "--runtime",
            "sim",
            "--format",
            "json",
            "--record",
            folder / "record",
        ),
    }
    for name, line in writes.items():
        done = started.run([str(item) for item in line], "", dict(os.environ), None)
        assert done.returncode == 0, done.stderr
        out[name] = folder / name
        out[name].write_text(done.stdout)
    out["record"] = folder / "record"
    out["index"] = folder / "index"
    out["index"].write_text('{"metadata": {}, "weight_map": {"a": "a.safetensors"}}')
    return out


WANTS = {
    "plan": [("validate",), ("fmt",)],
    "lock": [("lock", QUICKSTART, "--machine", "sim-2", "--check")],
    "profile": [("machine", "show")],
    "record": [("replay",)],
}
EACH = [(wanted, line, given) for wanted, lines in WANTS.items() for line in lines for given in USES if given != wanted]


@pytest.mark.parametrize(("wanted", "line", "given"), EACH, ids=str)
def test_another_kind_is_reported_in_one_sentence(
    wanted: str, line: tuple[object, ...], given: str, files: dict[str, Path], hipplan: Run
) -> None:
    done = hipplan(*line, files[given])

    assert done.returncode == 2, done.stderr
    first, *more = done.stderr.splitlines()
    assert first.startswith(f"error[HP014]: {files[given]} is a")
    assert more[0].startswith(f"  why:  this needs {'a machine profile' if wanted == 'profile' else f'a {wanted}'}")
    assert more[1].startswith(f"  hint: {USES[given]}")
    assert len(more) == 2


@pytest.mark.parametrize(
    ("line", "made"),
    [
        (("validate", QUICKSTART, "--machine"), "`hipplan machine > FILE` writes one"),
        (("lock", QUICKSTART, "--machine", "sim-2", "--check"), "`hipplan lock PLAN -o FILE` writes one"),
        (("validate",), "a plan begins with `hipplan: 1`"),
    ],
    ids=str,
)
def test_an_empty_file_gets_a_hint_how_to_begin(line: tuple[object, ...], made: str, hipplan: Run) -> None:
    done = hipplan(*line, "/dev/null")

    assert done.returncode == 2
    assert f"error[HP010]: /dev/null is empty\n  hint: {made}\n" in done.stderr


def test_what_is_of_no_kind_is_looked_at_as_before(tmp_path: Path) -> None:
    for text, code in (("a: 1\n", "HP102"), ("[1, 2]\n", "HP103"), ("hipplan: 1\nhipplan_lock: 1\n", "HP101")):
        with pytest.raises(PlanError) as caught:
            load(text)
        assert code in [diagnostic.code for diagnostic in caught.value.diagnostics], text


def test_a_part_of_a_plan_is_reported_too(files: dict[str, Path]) -> None:
    with pytest.raises(PlanError, match="HP014"):
        load(f"hipplan: 1\ninclude: {files['lock']}\n", include_anywhere=True)


def test_a_record_that_ends_after_its_first_line_is_one(files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "record").write_text(files["record"].read_text().splitlines()[0] + "\n")
    with pytest.raises(PlanError, match=r"HP014.*is a record of an apply"):
        load(tmp_path / "record")
