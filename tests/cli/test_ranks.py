"""Plans for ranks at the command: all of them are checked and shown without a group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

PLAN = """hipplan: 1
ranks: {per_node: 2}
devices: {gpu: {ordinal: $(local_rank)}}
regions:
  heap: {device: gpu, size: $((rank + 1) * 4MiB), chunk: 4MiB, map: {ranks: node, access: rw}}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


def test_all_ranks_are_good(hipplan: Run, plan: Path) -> None:
    for arguments in ((), ("--ranks", 8), ("--machine", "sim-2"), ("--machine", "sim-2", "--ranks", 64)):
        done = hipplan("validate", plan, *arguments)
        assert done.returncode == 0, done.stderr
        assert "good" in done.stdout


def test_ranks_that_are_not_checked_are_counted(hipplan: Run, tmp_path: Path) -> None:
    plan = tmp_path / "many.yaml"
    plan.write_text("hipplan: 1\nranks: {}\n")
    done = hipplan("validate", plan, "--ranks", 1030)
    assert done.returncode == 0
    assert "only the first 1024 of 1030 ranks are checked" in done.stderr
    assert "only the first" not in hipplan("validate", plan, "--ranks", 1024).stderr


def test_a_plan_checked_for_one_rank_is_marked_as_such(hipplan: Run, plan: Path) -> None:
    plan.write_text(PLAN.replace("{per_node: 2}", "{}"))
    assert "only one rank is checked; --ranks checks more" in hipplan("validate", plan).stderr
    for arguments in (("--ranks", 1), ("-q",)):
        assert not hipplan("validate", plan, *arguments).stderr


def test_too_many_ranks_for_a_machine_are_spread_over_nodes(hipplan: Run, plan: Path) -> None:
    plan.write_text(PLAN.replace("{per_node: 2}", "{}"))
    done = hipplan("preview", plan, "--ranks", 8, "--machine", "h200-4")
    assert done.returncode == 3
    assert "in rank 7 of 8" in done.stderr
    assert "ranks: {per_node: 4} spreads the ranks over several nodes" in done.stderr
    plan.write_text(PLAN.replace("{per_node: 2}", "{per_node: 4}"))
    assert "8 ranks on 2 nodes" in hipplan("preview", plan, "--ranks", 8, "--machine", "h200-4").stdout


def test_a_rank_that_is_not_there_is_refused(hipplan: Run, plan: Path) -> None:
    done = hipplan("preview", plan, "--rank", 2, "--machine", "sim-2")
    assert done.returncode == 2
    assert "there is no rank 2 of 2; ranks count from 0; --ranks says how many there are" in done.stderr


def test_standard_input_is_read_once_for_all_ranks(hipplan: Run) -> None:
    done = hipplan("validate", "-", "--ranks", 4, "--machine", "sim-2", stdin=PLAN)
    assert done.returncode == 0, done.stderr
    done = hipplan("preview", "-", "--ranks", 4, "--rank", 3, "--machine", "sim-2", stdin=PLAN)
    assert "heap@2" in done.stdout


def test_what_is_wrong_in_some_ranks_names_them(hipplan: Run, plan: Path) -> None:
    plan.write_text(PLAN.replace("$((rank + 1) * 4MiB)", "$((2 - rank) * 4MiB)"))
    done = hipplan("validate", plan, "--ranks", 4)
    assert done.returncode == 2
    assert "in rank 2 of 4" in done.stderr
    assert "in rank 3 of 4" in done.stderr
    (file,) = json.loads(hipplan("validate", plan, "--ranks", 4, "--format", "json").stdout)["files"]
    assert [diagnostic["notes"] for diagnostic in file["diagnostics"]] == [["in rank 2 of 4"], ["in rank 3 of 4"]]


def test_a_machine_that_cannot_hold_a_rank_is_named_with_the_rank(hipplan: Run, plan: Path) -> None:
    plan.write_text(PLAN.replace("per_node: 2", "per_node: 4"))
    done = hipplan("validate", plan, "--machine", "sim-2")
    assert done.returncode == 3
    assert "in rank 2 of 4" in done.stderr
    assert "in rank 3 of 4" in done.stderr
    assert "in rank 0" not in done.stderr
    preview = hipplan("preview", plan, "--machine", "sim-2")
    assert (preview.returncode, preview.stderr) == (3, done.stderr)


def test_links_that_are_missing_between_ranks_are_found(hipplan: Run, plan: Path) -> None:
    done = hipplan("validate", plan, "--machine", "sim-2-unlinked")
    assert done.returncode == 3
    assert "HP307" in done.stderr


def test_a_line_for_each_rank(hipplan: Run, plan: Path) -> None:
    done = hipplan("preview", plan, "--ranks", 4, "--machine", "sim-2")
    assert done.returncode == 0, done.stderr
    assert "4 ranks on 2 nodes" in done.stdout
    assert "heap@3 (16MiB)" in done.stdout
    document = json.loads(hipplan("preview", plan, "--ranks", 4, "--machine", "sim-2", "--format", "json").stdout)
    assert [(rank["rank"], rank["node"]) for rank in document["ranks"]] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert {step["call"] for step in document["ranks"][0]["steps"]} >= {"hipMemImportFromShareableHandle"}


def test_all_of_one_rank(hipplan: Run, plan: Path) -> None:
    done = hipplan("preview", plan, "--rank", 1, "--machine", "sim-2")
    assert done.returncode == 0, done.stderr
    assert "heap@0" in done.stdout
    assert "4MiB of rank 0 on gpu@0" in done.stdout
    assert "on sim-2, rank 1 of 2: " in done.stdout


def test_the_changes_of_one_rank(hipplan: Run, plan: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(PLAN.replace("(rank + 1)", "(rank + 2)").replace("chunk: 4MiB", "chunk: 4MiB, reserve: 64MiB"))
    plan.write_text(PLAN.replace("chunk: 4MiB", "chunk: 4MiB, reserve: 64MiB"))
    options = ("--from", plan, "--machine", "sim-2")
    done = hipplan("preview", new, *options, "--rank", 1, "--detailed-exitcode")
    assert done.returncode == 6, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if "hipMem" in line]
    calls = [row[1:3] for row in rows if row[0].isdigit()]
    assert calls == [
        [call, name.format(part)]
        for create, part, number in (("hipMemCreate", "heap", 2), ("hipMemImportFromShareableHandle", "heap@0", 1))
        for call, name in (
            (create, f"{{}}#{number}"), ("hipMemMap", f"{{}}[{number}]"), ("hipMemSetAccess", f"{{}}[{number}]")
        )
    ]  # fmt: skip
    done = hipplan("preview", new, *options)
    assert done.returncode == 2
    assert "--rank" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rank", 2), "no rank 2 of 2"),
        (("--rank", 2, "--ranks", 2), "no rank 2 of 2"),
        (("--rank", 1500, "--ranks", 2000), "the last one is 1023"),
        (("--rank", 2000, "--ranks", 2000), "no rank 2000 of 2000"),
        (("--rank", -1), "not a number"),
        (("--rank", "x"), "not a number"),
        (("--ranks", 0), "not a number from 1"),
        (("--ranks", "1e9"), "not a number"),
        (("--ranks", 99999999999), "not a number"),
    ],
)
def test_numbers_that_are_invalid_are_refused(
    hipplan: Run, plan: Path, arguments: tuple[object, ...], said: str
) -> None:
    done = hipplan("preview", plan, *arguments, "--machine", "sim-2")
    assert done.returncode == 2
    assert said in done.stderr


def test_options_for_ranks_need_a_plan_for_ranks(hipplan: Run, plan: Path) -> None:
    plan.write_text("hipplan: 1\nbuffers: {b: {kind: pinned, size: 1MiB}}\n")
    for option in ("--rank", "--ranks"):
        done = hipplan("preview", plan, option, 1, "--machine", "sim-2")
        assert done.returncode == 2
        assert "the plan has no ranks" in done.stderr


def test_without_a_group_a_plan_for_more_ranks_is_refused(hipplan: Run, plan: Path) -> None:
    plan.write_text(PLAN.replace("per_node: 2", "count: 4"))
    done = hipplan("apply", plan, "--once", "--runtime", "sim")
    assert done.returncode == 2
    assert "HP215" in done.stderr
    assert hipplan("validate", plan).returncode == 0


def test_ranks_apply_together_over_a_folder(hipplan: Run, plan: Path, tmp_path: Path) -> None:
    """Here one rank: others are processes of their own, in tests/ranks."""
    environment = {"RANK": "0", "WORLD_SIZE": "1"}
    done = hipplan("apply", plan, "--once", "--runtime", "sim", "--group", tmp_path / "group", env=environment)
    assert done.returncode == 0, done.stderr
