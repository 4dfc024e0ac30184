"""hipplan validate: files and folders, formats for people and machines, one exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

GOOD = "hipplan: 1\nbuffers: {b: {kind: device, size: 1MiB}}\n"
INVALID = "hipplan: 1\nallocations:\n  a: {devise: gpu.0, size: 1MiB}\n"
UNUSED = "hipplan: 1\nallocations:\n  a: {size: 1MiB}\n"
LARGE = "hipplan: 1\nbuffers:\n  big: {kind: device, size: 999GiB}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two plans, a part of one of them, a broken plan below, and many other files."""
    files = {
        "good.yaml": GOOD,
        "root.yml": "hipplan: 1\ninclude: parts/part.yaml\n",
        "parts/part.yaml": "# a part\nhipplan: 1\nbuffers: {c: {kind: device, device: gpu.9, size: 1MiB}}\n",
        "deep/er/invalid.yaml": INVALID,
        "workflow.yaml": "jobs:\n  hipplan: {runs-on: x}\n",
        "notes.txt": "hipplan: 1\n",
        ".hidden/plan.yaml": INVALID,
        ".hidden.yaml": INVALID,
    }
    for name, text in files.items():
        path = tmp_path / "all" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "all" / "loop").symlink_to(tmp_path / "all")
    return tmp_path / "all"


def test_a_folder_stands_for_its_plans(folder: Path, hipplan: Run) -> None:
    done = hipplan("validate", folder, "--format", "json")
    files = {
        Path(file["file"]).relative_to(folder).as_posix(): file["valid"] for file in json.loads(done.stdout)["files"]
    }

    assert files == {"good.yaml": True, "root.yml": True, "deep/er/invalid.yaml": False}
    assert done.returncode == 2


def test_a_plan_that_the_machine_cannot_hold_is_valid(tmp_path: Path, hipplan: Run) -> None:
    for name, text in {"a": GOOD, "b": LARGE, "c": INVALID}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    report = json.loads(hipplan("validate", tmp_path, "--machine", "sim-2", "--format", "json").stdout)["files"]

    assert [(item["valid"], item["exit_code"]) for item in report] == [(True, 0), (True, 3), (False, 2)]


def test_files_and_folders_go_together_and_a_part_may_be_named(folder: Path, hipplan: Run) -> None:
    done = hipplan("validate", folder / "parts" / "part.yaml", folder / "parts", "-", stdin=GOOD)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3


def test_a_folder_without_plans_is_a_mistake(tmp_path: Path, hipplan: Run) -> None:
    done = hipplan("validate", tmp_path)

    assert done.returncode == 2
    assert f"error[HP001]: there is no plan in the folder {tmp_path}" in done.stderr


def test_one_exit_code_for_all(tmp_path: Path, hipplan: Run) -> None:
    for name, text in {"good": GOOD, "large": LARGE, "invalid": INVALID}.items():
        (tmp_path / name).write_text(text)
    good, large, invalid = (tmp_path / name for name in ("good", "large", "invalid"))

    assert hipplan("validate", good, "--machine", "sim-2").returncode == 0
    assert hipplan("validate", large, good, "--machine", "sim-2").returncode == 3
    for format in ("text", "json", "github", "sarif", "junit", "gitlab"):  # noqa: A001
        done = hipplan("validate", large, invalid, good, "--machine", "sim-2", "--format", format)
        assert done.returncode == 2


def test_github_gets_a_line_for_each_diagnostic(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "a,b.yaml").write_text(INVALID)
    (tmp_path / "unused.yaml").write_text(UNUSED)
    error, warning = hipplan("validate", tmp_path, "--format", "github").stdout.splitlines()

    assert error == (
        f"::error file={tmp_path}/a%2Cb.yaml,line=3,col=7,endLine=3,endColumn=13,title=HP101"
        "::there is no key 'devise' here%0Ahint: did you mean 'device'?"
    )
    assert warning.startswith(f"::warning file={tmp_path}/unused.yaml,line=3,col=3,")


def test_github_hears_nothing_of_good_plans(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)

    assert hipplan("validate", tmp_path, "--format", "github").stdout.strip() == ""


def sarif_of(hipplan: Run, *files: object, cwd: Path | None = None) -> dict[str, Any]:
    (run,) = json.loads(hipplan("validate", *files, "--format", "sarif", cwd=cwd).stdout)["runs"]
    result: dict[str, Any] = run
    return result


def test_sarif_has_a_rule_for_each_code_and_a_place_for_each_result(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "ein plan.yaml").write_text(INVALID + "  c: {size: -1}\n  d: {size: 0}\n")
    run = sarif_of(hipplan, "ein plan.yaml", "no-such.yaml", cwd=tmp_path)
    rules = run["tool"]["driver"]["rules"]

    assert [rule["id"] for rule in rules] == sorted({result["ruleId"] for result in run["results"]})
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert all(rule["help"]["text"].startswith(f"# {rule['id']}") for rule in rules)
    first, *_, last = run["results"]
    assert first["level"] == "error"
    assert first["message"]["text"] == "there is no key 'devise' here\nhint: did you mean 'device'?"
    (location,) = first["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "ein%20plan.yaml"},
        "region": {"startLine": 3, "startColumn": 7, "endLine": 3, "endColumn": 13},
    }
    assert last["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "no-such.yaml"}}}]


def test_sarif_of_good_plans_is_a_run_without_results(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)

    assert sarif_of(hipplan, tmp_path)["results"] == []


def test_an_absolute_path_is_a_file_address(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "plan.yaml").write_text(INVALID)
    ((location,),) = (result["locations"] for result in sarif_of(hipplan, tmp_path)["results"])

    assert location["physicalLocation"]["artifactLocation"]["uri"] == (tmp_path / "plan.yaml").as_uri()


@pytest.mark.parametrize(
    "verb", [["validate"], ["preview", "--machine", "sim-2"], ["apply", "--once", "--runtime", "sim"]]
)
def test_an_include_leaves_the_folder_only_when_allowed(verb: list[str], tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "part.yaml").write_text(GOOD)
    (tmp_path / "plans" / "root.yaml").write_text("hipplan: 1\ninclude: ../part.yaml\n")
    refused = hipplan(*verb, tmp_path / "plans" / "root.yaml")

    assert refused.returncode == 2
    assert "error[HP025]: ../part.yaml lies outside the folder of the plan" in refused.stderr
    assert "--include-anywhere" in refused.stderr
    assert hipplan(*verb, tmp_path / "plans" / "root.yaml", "--include-anywhere").returncode == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_reported_and_the_others_are_checked(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "a.yaml").chmod(0)
    (tmp_path / "b.yaml").write_text(GOOD)
    done = hipplan("validate", tmp_path / "a.yaml", tmp_path / "b.yaml")

    assert done.returncode == 2
    assert "b.yaml: good" in done.stdout


def test_a_file_of_another_program_is_one_error(tmp_path: Path, hipplan: Run) -> None:
    other, misspelt, profile = (tmp_path / f"{name}.yaml" for name in ("other", "misspelt", "profile"))
    other.write_text("apiVersion: v1\nkind: Pod\nspec: {}\n")
    misspelt.write_text("hiplan: 1\n")
    profile.write_text("- a list\n")
    done = hipplan("validate", other)
    assert done.returncode == 2
    assert done.stderr.count("error[") == 1
    assert "HP102" in done.stderr
    assert "did you mean 'hipplan'?" in hipplan("validate", misspelt).stderr
    assert "`hipplan machine > FILE` writes one" in hipplan("validate", misspelt, "--machine", profile).stderr


def test_with_only_plans_what_is_no_plan_is_skipped(tmp_path: Path, hipplan: Run) -> None:
    """As a hook calls it, with every YAML file of a repository; one that is named by hand is an error."""
    files = {
        "workflow.yaml": "on: push\n",
        "broken.yaml": "{{ template }}: [\n",
        "part.yaml": "hipplan: 1\nbuffers: {b: {kind: device, device: gpu.0, size: $(size)}}\n",
        "plan.yaml": "hipplan: 1\nvars: {size: 4KiB}\ninclude: part.yaml\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    others = [tmp_path / "workflow.yaml", tmp_path / "broken.yaml"]
    done = hipplan("validate", "--only-plans", *(tmp_path / name for name in files))
    by_hand = hipplan("validate", others[0])

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path / 'plan.yaml'}: good\n", "")
    assert by_hand.returncode == 2
    assert "the document needs the key 'hipplan'" in by_hand.stderr
    for form in ("text", "json", "github", "sarif", "junit", "gitlab"):
        assert hipplan("validate", "--only-plans", "--format", form, *others).returncode == 0
    assert hipplan("validate", "--only-plans", tmp_path / "missing.yaml", tmp_path / "plan.yaml").returncode == 2
