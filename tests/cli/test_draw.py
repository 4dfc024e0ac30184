"""hipplan draw: a picture of a plan, with no driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conftest import ROOT

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
RANKS = ROOT / "plans" / "ranks" / "symmetric-heap.yaml"


def test_a_picture_goes_to_standard_output_or_into_a_file(hipplan: Run, tmp_path: Path) -> None:
    shown = hipplan("draw", QUICKSTART, "--machine", "sim-2")
    for name in ("plan.svg", "plan.html"):
        assert hipplan("draw", QUICKSTART, "--machine", "sim-2", "-o", tmp_path / name).stdout == ""

    assert shown.stdout == (tmp_path / "plan.svg").read_text()
    assert shown.stdout in (tmp_path / "plan.html").read_text()


@pytest.mark.parametrize("name", ["plan.png", "plan", "svg"])
def test_a_file_of_another_kind_is_refused_before_the_plan_is_read(name: str, hipplan: Run, tmp_path: Path) -> None:
    done = hipplan("draw", "missing.yaml", "-o", tmp_path / name)

    assert done.returncode == 2
    assert "is not FILE.svg or FILE.html" in done.stderr
    assert not (tmp_path / name).exists()


def test_the_plan_is_not_drawn_over(hipplan: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.svg"
    plan.write_bytes(QUICKSTART.read_bytes())
    for line in ((plan, "-o", plan), (QUICKSTART, "--from", plan, "-o", plan)):
        done = hipplan("draw", *line, "--machine", "sim-2")

        assert done.returncode == 2
        assert "is an input of this command" in done.stderr
    assert plan.read_bytes() == QUICKSTART.read_bytes()


def test_a_plan_with_mistakes_draws_nothing(hipplan: Run, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.yaml", tmp_path / "plan.svg"
    plan.write_text("hipplan: 1\nallocations: {a: {devise: gpu.0, size: 1MiB}}\n")
    wrong = hipplan("draw", plan, "--machine", "sim-2", "-o", out)
    plan.write_text("hipplan: 1\nallocations: {a: {device: gpu.0, size: 900GiB}}\n")
    large = hipplan("draw", plan, "--machine", "sim-2", "-o", out)

    assert (wrong.returncode, "HP101" in wrong.stderr) == (2, True)
    assert (large.returncode, "HP301" in large.stderr) == (3, True)
    assert not out.exists()


def test_a_file_that_cannot_be_written_is_reported(hipplan: Run, tmp_path: Path) -> None:
    done = hipplan("draw", QUICKSTART, "--machine", "sim-2", "-o", tmp_path / "no" / "such.svg")

    assert (done.returncode, "error[HP413]" in done.stderr) == (2, True)


def test_all_ranks_or_one(hipplan: Run) -> None:
    all_ranks = hipplan("draw", RANKS, "--machine", "h200-4", "--ranks", "64").stdout
    one = hipplan("draw", RANKS, "--machine", "h200-4", "--rank", "2").stdout

    assert (">rank 15<" in all_ranks, ">rank 16<" in all_ranks) == (True, False)
    assert "48 more ranks not drawn" in all_ranks
    assert (">rank 0<" in one, ">heap@0<" in one) == (False, True)


def test_the_errors_of_all_ranks_are_shown(hipplan: Run, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.yaml", tmp_path / "plan.svg"
    for size, code in (("$(1024GiB * (rank + 1))", 3), ("$(1MiB // rank - 1MiB)", 2)):
        plan.write_text(f"hipplan: 1\nranks: {{}}\nallocations: {{a: {{size: {size}}}}}\n")
        drawn = hipplan("draw", plan, "--machine", "h200-4", "--ranks", "20", "-o", out)
        checked = hipplan("validate", plan, "--machine", "h200-4", "--ranks", "20")

        assert drawn.returncode == checked.returncode == code
        assert "in rank 19 of 20" in drawn.stderr or "in ranks 2-19 of 20" in drawn.stderr
        assert drawn.stderr == checked.stderr
        assert not out.exists()


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--ranks", "2"], "--ranks: the plan has no ranks"),
        (["--from-var", "a=1"], "need --from"),
        (["--from", "-"], ""),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(more: list[str], what: str, hipplan: Run) -> None:
    file = "-" if more == ["--from", "-"] else QUICKSTART
    done = hipplan("draw", file, "--machine", "sim-2", *more)

    assert done.returncode == 2
    assert (what or "only one of the two plans can be standard input") in done.stderr


def test_a_warning_is_shown_and_an_error_under_strict(hipplan: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("hipplan: 1\nregions: {r: {device: gpu.0, size: 2MiB, seal: true}}\n")
    shown = hipplan("draw", plan, "--machine", "sim-2")
    strict = hipplan("draw", plan, "--machine", "sim-2", "--strict")

    assert (shown.returncode, "warning[HP257]" in shown.stderr, "<svg" in shown.stdout) == (0, True, True)
    assert (strict.returncode, strict.stdout) == (2, "")
