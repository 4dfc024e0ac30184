"""hipplan fmt: prints, checks, writes in place; standard input; exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

UGLY = "name:   x   # the name\nhipplan: 1\n"
NEAT = "hipplan: 1\nname: x   # the name\n"
ANCHORED = "hipplan: 1\na: &x [1]\n"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.yaml").write_text(UGLY)
    return tmp_path / "plan.yaml"


def test_it_prints_one_plan_and_changes_nothing(plan: Path, hipplan: Run) -> None:
    done = hipplan("fmt", plan)

    assert (done.returncode, done.stdout) == (0, NEAT.replace("   #", "     #"))
    assert plan.read_text() == UGLY
    assert hipplan("fmt", "-", stdin=NEAT).stdout == NEAT


def test_check_names_what_would_change(plan: Path, hipplan: Run) -> None:
    (plan.parent / "neat.yaml").write_text(NEAT)
    done = hipplan("fmt", "--check", plan.parent)

    assert (done.returncode, done.stdout) == (6, f"{plan}: would change\n")
    assert plan.read_text() == UGLY
    assert hipplan("fmt", "--check", plan.parent / "neat.yaml").returncode == 0
    assert hipplan("fmt", "--check", "-", stdin=UGLY).returncode == 6


def test_write_changes_files_in_place_and_keeps_rights_and_links(plan: Path, hipplan: Run) -> None:
    plan.chmod(0o640)
    (plan.parent / "link.yaml").symlink_to(plan)
    through_link = hipplan("fmt", "--write", plan.parent / "link.yaml")
    first = hipplan("fmt", "--write", plan)
    again = hipplan("fmt", "--write", plan)

    assert (through_link.returncode, "HP416" in through_link.stderr) == (2, True)
    assert (first.returncode, again.returncode, again.stdout) == (0, 0, "")
    assert plan.read_text().startswith("hipplan: 1\n")
    assert plan.stat().st_mode & 0o777 == 0o640
    assert (plan.parent / "link.yaml").is_symlink()
    assert sorted(path.name for path in plan.parent.iterdir()) == ["link.yaml", "plan.yaml"]


def test_what_cannot_be_formatted_is_reported_and_the_rest_is_done(plan: Path, hipplan: Run) -> None:
    (plan.parent / "a.yaml").write_text(ANCHORED)
    done = hipplan("fmt", "--write", plan.parent)

    assert done.returncode == 2
    assert f"{plan.parent}/a.yaml:2:4: error[HP026]: this plan cannot be formatted" in done.stderr
    assert (plan.parent / "a.yaml").read_text() == ANCHORED
    assert plan.read_text() != UGLY


def test_parts_of_a_plan_are_formatted_too(plan: Path, hipplan: Run) -> None:
    (plan.parent / "root.yaml").write_text("hipplan: 1\ninclude: plan.yaml\n")

    assert hipplan("fmt", "--check", plan.parent).stdout == f"{plan}: would change\n"


@pytest.mark.parametrize(
    "arguments", [["fmt"], ["fmt", "a", "b"], ["fmt", "--write", "-"], ["fmt", "--write", "--check", "a"]]
)
def test_wrong_usage(arguments: list[str], hipplan: Run) -> None:
    done = hipplan(*arguments)

    assert done.returncode == 2
    assert done.stderr.endswith("\n  hint: see hipplan fmt --help\n")


WORKFLOW = "on:   push\njobs: {a: {runs-on: ubuntu-24.04}}\n"


@pytest.mark.parametrize("text", [WORKFLOW, "# nothing but words\na: 1\n", "- name:   x\n- name: y\n"])
@pytest.mark.parametrize("option", [[], ["--check"], ["--write"]], ids=str)
def test_what_is_no_plan_is_refused_and_stays(text: str, option: list[str], plan: Path, hipplan: Run) -> None:
    other = plan.parent / "other.yaml"
    other.write_text(text)
    done = hipplan("fmt", *option, other)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{other}:" in done.stderr
    assert "Traceback" not in done.stderr
    assert other.read_text() == text


def test_with_only_plans_what_is_no_plan_is_skipped(plan: Path, hipplan: Run) -> None:
    """As a hook calls it, with every YAML file of a repository."""
    other, broken, part = (plan.parent / f"{name}.yaml" for name in ("other", "broken", "part"))
    other.write_text(WORKFLOW)
    broken.write_text("{{ template }}: [\n")
    part.write_text(UGLY)
    plan.write_text("include:   part.yaml\nhipplan: 1\n")
    done = hipplan("fmt", "--write", "--only-plans", other, plan, broken, part)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{plan}: formatted", f"{part}: formatted"]
    assert other.read_text() == WORKFLOW
    assert hipplan("fmt", "--check", "--only-plans", other).returncode == 0
    assert hipplan("fmt", "--only-plans", other).stdout == ""
