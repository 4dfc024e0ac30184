"""A change that was reviewed: `preview NEW --from OLD -o change.json`, then layout.update("change.json")."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.errors import ApplyError, PlanError
from hipplan.layout.layout import Layout
from tests.conftest import Simulator

MIB = 2**20
OLD = """
hipplan: 1
name: server
vars: {size: 4MiB}
devices: {gpu: {count: 2}}
regions:
  weights: {device: gpu.0, size: 2MiB, seal: true, tensors: {w: {dtype: f32, shape: [16]}}}
  cache: {device: gpu.1, size: $(size), chunk: 2MiB, reserve: 64MiB}
  scratch: {device: gpu.1, size: 2MiB}
contents: {weights.w: {value: 3}}
"""
NEW = OLD.replace("scratch: {device: gpu.1, size: 2MiB}", "scratch: {device: gpu.0, size: 2MiB}")
Preview = Callable[..., Path]


@pytest.fixture
def preview(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Preview:
    """preview(*arguments): the file of the change to NEW with a cache of 8MiB."""
    (tmp_path / "old.yaml").write_text(OLD)
    (tmp_path / "new.yaml").write_text(NEW)

    def write(*arguments: str, name: str = "change.json") -> Path:
        files = [str(tmp_path / "new.yaml"), "--from", str(tmp_path / "old.yaml"), "-o", str(tmp_path / name)]
        assert run(["preview", *files, "--var", "size=8MiB", "--machine", "sim-2", *arguments]) == 0
        assert "cache" in capfd.readouterr().out  # it is shown as without -o
        return tmp_path / name

    return write


@pytest.fixture
def layout(preview: Preview, sim: Simulator, tmp_path: Path) -> Iterator[Layout]:
    with hipplan.apply(tmp_path / "old.yaml", runtime="sim") as made:
        yield made


def test_what_was_reviewed_is_what_happens(preview: Preview, layout: Layout) -> None:
    path = preview("--lose", "scratch*")
    done = layout.update(path)
    assert layout["cache"].size == 8 * MIB
    assert layout["scratch"].devices == ("gpu.0",)
    assert [str(line) for line in str(done).splitlines()] == json.loads(path.read_text())["changes"]


def test_a_loss_without_consent_stays_refused(preview: Preview, layout: Layout) -> None:
    with pytest.raises(ApplyError, match=r"HP423.*the update would lose") as raised:
        layout.update(preview("--lose", "cache"))
    assert "preview the change again with --lose cache --lose scratch" in str(raised.value)
    assert layout["cache"].size == 4 * MIB


def test_a_layout_that_has_moved_since_is_left_alone(preview: Preview, layout: Layout) -> None:
    path = preview("--lose", "*")
    layout.grow("cache", by="2MiB")
    with pytest.raises(ApplyError, match=r"HP425") as refused:
        layout.update(str(path))
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.why == "the layout is no longer what it starts from"
    assert diagnostic.notes == ("~ region cache: grows, 4MiB -> 6MiB",)
    assert layout["cache"].size == 6 * MIB
    layout.shrink("cache", by="2MiB")
    assert layout.update(path)
    with pytest.raises(ApplyError, match="no longer what it starts from"):
        layout.update(path)


def test_memory_that_sleeps_since_is_named(preview: Preview, layout: Layout) -> None:
    path = preview("--lose", "*")
    layout.sleep("scratch")
    with pytest.raises(ApplyError, match=r"HP425(.|\n)*scratch"):
        layout.update(path)
    layout.wake()
    assert layout.update(path)


def test_a_plan_that_was_edited_since_is_refused(preview: Preview, layout: Layout, tmp_path: Path) -> None:
    path = preview("--lose", "*")
    (tmp_path / "new.yaml").write_text(NEW.replace("2MiB, seal", "6MiB, seal"))
    with pytest.raises(ApplyError, match=r"HP425(.|\n)*new\.yaml has changed since"):
        layout.update(path)
    assert layout["cache"].size == 4 * MIB


def test_a_change_that_is_another_one_on_this_machine_is_refused(preview: Preview, layout: Layout) -> None:
    path = preview("--lose", "*")
    data = json.loads(path.read_text())
    removed = data["changes"].pop()
    data["changes"].append("~ region other: grows")
    path.write_text(json.dumps(data))
    with pytest.raises(ApplyError, match="HP425") as refused:
        layout.update(path)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.notes == ("reviewed, not here: ~ region other: grows", f"here, not reviewed: {removed}")


def test_the_same_change_is_the_same_file(preview: Preview, tmp_path: Path) -> None:
    first, second = preview("--lose", "*"), preview("--lose", "*", name="again.json")

    assert first.read_bytes() == second.read_bytes()
    assert json.loads(first.read_text())["plan"] == "new.yaml"


def rights_in(data: dict[str, Any]) -> Any:
    return next(step["rights"] for step in data["from"]["steps"] if step.get("step") == "SetAccess")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data.pop("digest"), "it lacks 'digest'"),
        (lambda data: data.update(hipplan_change=2), "only version 1 can be read"),
        (lambda data: data.update(lose=[3]), "a text is missing"),
        (lambda data: data.update({"from": {}}), ""),
        (lambda data: data.update(more=1), "there is no key more"),
        (lambda data: data["from"]["devices"].clear(), "it lacks"),
        (lambda data: data["from"]["regions"]["cache"].update(chunks=[[1, 2097152]]), ""),
        (lambda data: rights_in(data)[0].__setitem__(1, "x"), "'x' is no right"),
    ],
    ids=["missing", "version", "type", "program", "more", "devices", "chunks", "rights"],
)
def test_a_file_that_is_no_change_is_refused(
    change: Callable[[dict[str, Any]], Any], why: str, preview: Preview, layout: Layout
) -> None:
    path = preview()
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match=f"HP028(.|\\n)*{why}"):
        layout.update(path)


def test_a_plan_in_json_is_still_a_plan(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"hipplan": 1}')
    layout.update(tmp_path / "plan.json", lose="*")
    assert "cache" not in layout
    with pytest.raises(PlanError, match="HP001"):
        layout.update(tmp_path / "none.json")


def test_variables_and_consent_are_those_of_the_file(preview: Preview, layout: Layout) -> None:
    path = preview()
    for more in ({"lose": "cache"}, {"vars": {"size": "2MiB"}}):
        with pytest.raises(TypeError, match="has its variables and lose"):
            layout.update(path, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["new.yaml", "-o", "c.json"], "--output needs --from"),
        (["new.yaml", "--from", "old.yaml", "--lose", "a"], "--lose needs --output"),
        (["-", "--from", "old.yaml", "-o", "c.json"], "--output needs files"),
        (["new.yaml", "--from", "old.yaml", "-o", "new.yaml"], "new.yaml"),
    ],
)
def test_options_that_make_no_file_are_refused(
    arguments: list[str], reason: str, preview: Preview, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["preview", *arguments, "--machine", "sim-2"]) == 2
    assert reason in capfd.readouterr().err
    assert (tmp_path / "new.yaml").read_text() == NEW
