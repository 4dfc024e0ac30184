"""preview NEW --from OLD: the change from one plan to another, without a driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conftest import PLANS

OLD = """
hipplan: 1
vars: {count: 2}
devices: {gpu: {count: 2}}
allocations:
  part: {device: gpu.0, size: 2MiB, count: $(count)}
reservations:
  model: {size: 64MiB, access: {gpu.0: rw}, mappings: [{allocation: part.*}]}
buffers:
  staging: {kind: pinned, size: 1MiB}
  table: {kind: managed, size: 2MiB}
regions:
  cache: {device: gpu.1, size: 4MiB, chunk: 2MiB, reserve: 64MiB, tensors: {pages: {dtype: u8, shape: [-1]}}}
"""
NEW = (
    OLD.replace("  staging: {kind: pinned, size: 1MiB}\n", "  landing: {kind: pinned, size: 1MiB}\n")
    .replace("access: {gpu.0: rw}", "access: {gpu.0: rw, gpu.1: r}")
    .replace("size: 4MiB, chunk", "size: 8MiB, chunk")
    .replace("size: 2MiB}\nregions", "size: 2MiB, advice: [{advise: read_mostly}]}\nregions")
)


@pytest.fixture
def plans(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "old.yaml").write_text(OLD)
    (tmp_path / "new.yaml").write_text(NEW)
    return tmp_path / "old.yaml", tmp_path / "new.yaml"


def test_changes_are_reported_by_name_with_signs(plans: tuple[Path, Path], hipplan: Run) -> None:
    old, new = plans
    done = hipplan("preview", new, "--from", old, "--machine", "sim-2")
    output = " ".join(done.stdout.split())

    assert (done.returncode, done.stderr) == (0, "")
    assert output.endswith("1 to make, 5 to alter, 1 to free; 1MiB of bytes lost")
    assert "+ pinned landing 1MiB" in output
    assert "- pinned staging 1MiB; loses its bytes" in output
    assert "~ region cache grows, 4MiB -> 8MiB" in output
    assert "~ tensor cache.pages u8 4194304 -> u8 8388608" in output
    assert "~ mapping model[0] access (gpu.0: rw) -> (gpu.0: rw, gpu.1: r)" in output
    assert "~ managed table read_mostly" in output
    assert "released at the end: staging" in output


def test_memory_on_another_device_is_reported_to_lose_its_bytes(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "old.yaml").write_text(OLD)
    moved = OLD.replace("part: {device: gpu.0", "part: {device: gpu.1").replace(
        "cache: {device: gpu.1", "cache: {device: gpu.0"
    )
    (tmp_path / "new.yaml").write_text(moved)
    done = hipplan("preview", tmp_path / "new.yaml", "--from", tmp_path / "old.yaml", "--machine", "sim-2")
    output = " ".join(done.stdout.split())

    assert done.returncode == 0, done.stderr
    assert "-/+ allocation part.0 is recreated, 2MiB, gpu.0 -> gpu.1; loses its bytes" in output
    lost = "access (gpu.1: rw) -> (gpu.0: rw); loses its bytes, gpu.1 loses access"
    assert f"-/+ region cache 2 of 2 chunks are recreated, gpu.1 -> gpu.0, {lost}" in output


def test_the_same_as_json(plans: tuple[Path, Path], hipplan: Run) -> None:
    old, new = plans
    done = hipplan("preview", new, "--from", old, "--machine", "sim-2", "--format", "json")
    shown = json.loads(done.stdout)

    assert {(change["sign"], change["kind"], change["name"]) for change in shown["changes"]} >= {
        ("+", "pinned", "landing"), ("-", "pinned", "staging"), ("~", "region", "cache"),
    }  # fmt: skip
    assert [step["call"] for step in shown["steps"] if step["name"].startswith("cache")] == [
        "hipMemCreate", "hipMemCreate", "hipMemMap", "hipMemSetAccess", "hipMemMap", "hipMemSetAccess",
    ]  # fmt: skip
    assert shown["given_back"] == ["staging"]
    assert shown["from"]["digest"] != shown["digest"]


def test_exit_code_6_is_for_changes_if_asked(plans: tuple[Path, Path], hipplan: Run) -> None:
    old, new = plans
    detailed = ("--machine", "sim-2", "--detailed-exitcode")

    assert hipplan("preview", new, "--from", old, *detailed).returncode == 6
    assert hipplan("preview", new, "--from", old, *detailed, "--format", "json").returncode == 6
    same = hipplan("preview", old, "--from", old, *detailed)
    assert (same.returncode, "no changes" in same.stdout) == (0, True)
    assert hipplan("preview", new, "--machine", "sim-2").returncode == 0


def test_exit_code_6_is_for_losses_alone_if_asked(plans: tuple[Path, Path], tmp_path: Path, hipplan: Run) -> None:
    old, new = plans
    grown = tmp_path / "grown.yaml"
    grown.write_text(OLD.replace("size: 4MiB, chunk", "size: 8MiB, chunk"))
    line = ("--from", old, "--machine", "sim-2", "--fail-on-loss")

    assert hipplan("preview", new, *line).returncode == 6
    assert hipplan("preview", new, *line, "--format", "json").returncode == 6
    assert hipplan("preview", new, *line, "--grep", "nothing-like-it").returncode == 6
    assert hipplan("preview", old, *line).returncode == 0
    assert hipplan("preview", grown, *line).returncode == 0
    assert hipplan("preview", grown, *line, "--detailed-exitcode").returncode == 6


def test_json_says_what_happens_to_each_object_and_what_it_loses(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "old.yaml").write_text(OLD)
    wider = OLD.replace("device: gpu.0, size: 2MiB", "device: gpu.0, size: 4MiB").replace(
        "size: 4MiB, chunk", "size: 2MiB, chunk"
    )
    (tmp_path / "new.yaml").write_text(wider)
    line = ("--from", tmp_path / "old.yaml", "--machine", "sim-2", "--format", "json")
    shown = json.loads(hipplan("preview", tmp_path / "new.yaml", *line).stdout)
    changes = {change["name"]: (change["action"], change["lost"]) for change in shown["changes"]}

    assert changes["part.0"] == ("replace", {"bytes": 2 << 20, "loses_bytes": True, "address": "", "rights": []})
    assert changes["cache"] == ("alter", {"bytes": 2 << 20, "loses_bytes": True, "address": "", "rights": []})
    assert changes["cache.pages"] == ("alter", None)
    assert {key: shown["counts"][key] for key in ("replace", "bytes_lost")} == {"replace": 3, "bytes_lost": 6 << 20}


def test_each_plan_has_its_own_variables(plans: tuple[Path, Path], hipplan: Run) -> None:
    old, _ = plans
    grown = hipplan("preview", old, "--from", old, "--machine", "sim-2", "--var", "count=3")
    shrunk = hipplan("preview", old, "--from", old, "--machine", "sim-2", "--from-var", "count=3")

    assert "+ allocation part.2" in " ".join(grown.stdout.split())
    assert "- allocation part.2" in " ".join(shrunk.stdout.split())
    wrong = hipplan("preview", old, "--from", old, "--machine", "sim-2", "--from-var", "count")
    assert (wrong.returncode, "--from-var: 'count' is not NAME=VALUE" in wrong.stderr) == (2, True)


def test_a_peak_that_does_not_fit_is_refused(tmp_path: Path, hipplan: Run) -> None:
    text = "hipplan: 1\nbuffers:\n  x: {kind: device, size: %s}\n"
    (tmp_path / "old.yaml").write_text(text % "100GiB")
    (tmp_path / "new.yaml").write_text(text % "101GiB")
    done = hipplan("preview", tmp_path / "new.yaml", "--from", tmp_path / "old.yaml", "--machine", "sim-2")

    assert done.returncode == 3
    assert (
        "new.yaml:3:6: error[HP301]: gpu.0 needs 9GiB more than is free while old and new memory exist" in done.stderr
    )


def test_a_plan_from_stdin_is_one_of_them(plans: tuple[Path, Path], hipplan: Run) -> None:
    old, _ = plans
    done = hipplan("preview", "-", "--from", old, "--machine", "sim-2", stdin=NEW)

    assert "1 to make" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-", "--from", "-"], "only one of the two plans"),
        (["x.yaml", "--detailed-exitcode"], "need --from"),
        (["x.yaml", "--fail-on-loss"], "need --from"),
        (["x.yaml", "--from-var", "a=1"], "need --from"),
        ([str(PLANS[0]), "--from", ""], "error[HP001]"),
    ],
)
def test_wrong_usage_is_reported(arguments: list[str], says: str, hipplan: Run) -> None:
    done = hipplan("preview", *arguments, "--machine", "sim-2")

    assert done.returncode == 2
    assert says in done.stderr
