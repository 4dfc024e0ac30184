"""Experiment files: what is wrong with one has a place, and its cells are what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from hipplan.cli.main import run
from hipplan.errors import PlanError, Problem
from hipplan.experiment.document import Document, read
from hipplan.experiment.grid import turns
from hipplan.experiment.schema import experiment_schema
from tests.conftest import ROOT
from tests.experiment.conftest import Write

jsonschema = pytest.importorskip("jsonschema")


def document(text: str) -> Document:
    return read(f"hipplan_experiment: 1\nplan: p.yaml\ninside: m:f\n{text}")


def errors(text: str) -> list[tuple[str, int, int]]:
    """(code, line, column) of each error."""
    with pytest.raises(PlanError) as raised:
        read(f"hipplan_experiment: 1\nplan: p.yaml\n{text}")
    return [(d.code, d.span.line, d.span.column) for d in raised.value.diagnostics if d.span is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inside: m:f\nvarry: {}\n", [("HP101", 4, 1)]),
        ("vary: {a: [1]}\n", [("HP102", 1, 1)]),
        ("inside: m:f\nrun: [a]\n", [("HP107", 4, 6)]),
        ("inside: m\n", [("HP105", 3, 9)]),
        ("inside: m:f\nvary: {a: 3}\n", [("HP103", 4, 11)]),
        ("inside: m:f\nvary: {a: [1.5]}\n", [("HP103", 4, 11)]),
        ("inside: m:f\nvary: {a: [1, 1]}\n", [("HP105", 4, 11)]),
        ("inside: m:f\nvary: {a: [1]}\nonly: [{b: 1}]\n", [("HP460", 5, 12)]),
        ("inside: m:f\nvary: {a: [1]}\nnot: [{a: 2}]\n", [("HP460", 5, 11)]),
        ("inside: m:f\nvary: {a: [1]}\nnot: [{a: 1}]\n", [("HP460", 4, 1)]),
        ("inside: m:f\nvary: {a: [1]}\nvars: {a: 2}\n", [("HP204", 5, 7)]),
        ("inside: m:f\nrepeat: 0\ntimeout: x\n", [("HP105", 4, 9), ("HP103", 5, 10)]),
        ("inside: m:f\nmetrics: {b: 'x (.*) (.*)'}\n", [("HP105", 4, 14)]),
        ("inside: m:f\nmetrics: {b: '('}\n", [("HP105", 4, 14)]),
        ("measure: [copi]\n", [("HP104", 3, 11)]),
        ("measure: [copy]\nmetrics: {a: {}}\n", [("HP107", 4, 10)]),
        ("inside: m:f\nobjects: [a]\n", [("HP107", 4, 10)]),
        ("inside: m:f\nrepeat: 100000\nvary: {a: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}\n", [("HP460", 5, 1)]),
    ],
)
def test_an_error_has_a_place(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert errors(text) == expected


@pytest.mark.parametrize("name", ["../../evil/x", "/tmp/x", "..", ".", "a/b", "\\e[31mred", "two\\nlines", "a\\tb"])
def test_a_name_leads_to_no_other_folder_and_can_be_printed(name: str) -> None:
    assert errors(f'inside: m:f\nname: "{name}"\n') == [("HP105", 4, 7)]


def test_a_character_that_a_name_cannot_have_is_named() -> None:
    """It was called a slash, control character or line break, which this is not."""
    with pytest.raises(PlanError, match=r"cannot have the character U\+200C"):
        document('name: "a\\u200Cb"\n')


@pytest.mark.parametrize("name", ["Kopie für ein Papier, 2. Fassung", "..a", "a-b.c"])
def test_other_names_are_free(name: str) -> None:
    assert document(f"name: '{name}'\n").name == name


@pytest.mark.parametrize(
    ("key", "hint"), [("run", "write run: [./stream, --times, 20]"), ("measure", "write measure: [copy, latency]")]
)
def test_an_empty_list_is_refused_in_words(key: str, hint: str) -> None:
    with pytest.raises(PlanError) as raised:
        read(f"hipplan_experiment: 1\nplan: p.yaml\n{key}: []\n")

    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.summary, diagnostic.hint) == ("HP105", f"'{key}' cannot be empty", hint)


@pytest.mark.parametrize(
    "text", ["hipplan: 1\n", "[]\n", "3\n", "hipplan_experiment: 2\nplan: p\ninside: m:f\n", "a: b\n"]
)
def test_what_is_no_experiment_is_an_error(text: str) -> None:
    with pytest.raises(PlanError):
        read(f"{text}\n")


def test_the_cells_are_all_combinations_that_are_kept() -> None:
    cells = document(
        "vary: {a: [1, 2], b: [x, y]}\nenv: {E: [0, 1], F: 7}\nonly: [{a: 1}, {b: [y], E: 1}]\nnot: [{b: x, E: 0}]\n"
    ).cells

    assert [str(cell) for cell in cells] == ["a=1 b=x E=1", "a=1 b=y E=0", "a=1 b=y E=1", "a=2 b=y E=1"]


def test_true_is_not_one() -> None:
    cells = document("vary: {a: [true, 1]}\nnot: [{a: 1}]\n").cells

    assert [cell.vary["a"] for cell in cells] == [True]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ([("a", "1")], ["a=1 b=true", "a=1 b=x,y"]),
        ([("a", "1,2"), ("b", "x,y")], ["a=1 b=x,y", "a=2 b=x,y"]),
        ([("b", "true"), ("a", "3"), ("a", "1")], ["a=1 b=true", "a=3 b=true"]),
    ],
)
def test_options_leave_some_cells(only: list[tuple[str, str]], expected: list[str]) -> None:
    whole = document("vary: {a: [1, 2, 3], b: [true, 'x,y']}\n")
    fewer = whole.narrowed(only, 2)

    assert list(map(str, fewer.cells)) == expected
    assert fewer.experiment.repeat == 2 and fewer.digest == whole.digest


@pytest.mark.parametrize("only", [("c", "1"), ("a", "4"), ("a", "1,4"), ("a", "")])
def test_options_name_axes_and_their_values(only: tuple[str, str]) -> None:
    with pytest.raises(Problem, match=only[0]):
        document("vary: {a: [1, 2]}\n").narrowed([only], None)


def test_a_seed_gives_one_order_of_all_repetitions() -> None:
    experiment = document("vary: {a: [1, 2, 3, 4, 5, 6]}\nrepeat: 3\n").experiment
    order = turns(experiment, 7)

    assert order == turns(experiment, 7) != turns(experiment, 8)
    assert sorted((turn.cell.key, turn.repetition) for turn in order) == sorted(
        (turn.cell.key, turn.repetition) for turn in turns(experiment, 8)
    )


def test_validate_checks_the_plan_of_each_cell(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("vary: {size: [4MiB, 0, 900GiB]}\nvars: {siez: 1}\ninside: measured:f\n")

    assert run(["validate", str(path), "--machine", "sim-2"]) == 2
    said = capsys.readouterr().err
    assert f"{path}:4:8: error[HP210]: the plan has no variable 'siez'" in said
    assert re.search(r"plan.yaml:4:\d+: error\[HP105\]: a size of 0 bytes", said)
    assert said.count("HP210") == 1


def test_validate_says_what_the_machine_cannot_hold(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("vary: {size: [4MiB, 900GiB]}\ninside: measured:f\n")

    assert run(["validate", str(path)]) == 0
    assert run(["validate", str(path), "--machine", "sim-2"]) == 3
    assert "cell: size=900GiB" in capsys.readouterr().err


def test_what_cannot_be_held_is_refused_for_a_command_alone(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    plan = (
        "hipplan: 1\nregions: {a: {size: 2MiB}}\n"
        "buffers: {b: {kind: pinned, size: 1MiB}}\nstreams: {s: {device: gpu.0}}\n"
    )

    assert run(["validate", str(write("inside: measured:f\n", plan=plan))]) == 0
    assert run(["validate", str(write("run: ['true']\n", plan=plan))]) == 2
    said = capsys.readouterr().err
    assert "plan.yaml:3:11: error[HP450]: a holder cannot hold 'b'" in said
    assert "plan.yaml:4:11: error[HP450]: a holder cannot hold 's'" in said


def test_fmt_writes_experiments_in_the_manuals_order(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("inside: measured:f   # why\nvary:\n    a: [1]\nnot: [{a: 1}]\nname: n\n")

    assert run(["fmt", str(path)]) == 0
    text = capsys.readouterr().out
    assert [line.partition(":")[0] for line in text.splitlines() if not line.startswith(" ")] == [
        "hipplan_experiment", "name", "plan", "vary", "not", "inside"
    ]  # fmt: skip
    assert "# why" in text


def test_a_folder_has_plans_and_experiments(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("vary: {size: [4MiB]}\ninside: measured:f\n")

    assert run(["validate", str(path.parent)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{path}: good", f"{path.parent / 'plan.yaml'}: good"]


def test_the_schema_agrees_with_the_models() -> None:
    schema = jsonschema.Draft202012Validator(experiment_schema())
    schema.check_schema(experiment_schema())
    good = (
        "hipplan_experiment: 1\nplan: p\nvary: {a: [1, x, true]}\nnot: [{a: [1]}]\nrun: [a]\n"
        "metrics: {b: 'x (.)', c: {unit: s}}\n"
    )

    assert read(good)
    assert schema.is_valid(yaml.safe_load(good))
    for wrong in ("nott: []\n", "repeat: 0\n", "vary: {a: 1}\n", "measure: [x]\n", "metrics: {a: {uni: s}}\n"):
        assert not schema.is_valid({**yaml.safe_load(good), **yaml.safe_load(wrong)}), wrong


def test_another_file_says_what_it_is(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("inside: measured:f\n")

    assert run(["apply", str(path), "--once"]) == 2
    assert "is an experiment, not a plan" in capsys.readouterr().err
    assert run(["experiment", "run", str(path.parent / "plan.yaml")]) == 2
    assert "is a plan, not an experiment" in capsys.readouterr().err


def test_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPLAN_RUNTIME", "sim")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "experiments.md").read_text(), re.S | re.M)
    for kind, text in blocks:
        if kind != "sh":
            (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
            continue
        for line in text.splitlines():
            assert run(shlex.split(line)[1:]) == 0, line

    assert len((tmp_path / "copies.results.jsonl").read_text().splitlines()) == 6
