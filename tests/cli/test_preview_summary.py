"""preview of a large plan: a summary that fits a screen, and what shows the rest."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conftest import ROOT

LLAMA = ROOT / "plans" / "mi300x-8" / "llama-3-70b.yaml"
QUICKSTART = ROOT / "plans" / "quickstart.yaml"


def plan_of(folder: Path, text: str) -> Path:
    (folder / "plan.yaml").write_text(f"hipplan: 1\n{text}")
    return folder / "plan.yaml"


def test_a_large_plan_is_summed_up_and_nothing_is_left_out_of_the_sums(hipplan: Run) -> None:
    shown = hipplan("preview", LLAMA, "--machine", "mi300x-8").stdout
    report = json.loads(hipplan("preview", LLAMA, "--machine", "mi300x-8", "--format", "json").stdout)

    assert len(shown.splitlines()) < 60
    calls = {call: int(count) for count, call in re.findall(r"^ +([0-9]+)  (hip\w+)", shown, re.M)}
    assert sum(calls.values()) == len(report["steps"])
    assert "rank.3  region  gpu.3       1  723 tensors, 1 mapping" in shown
    rows = len(report["steps"]) + len(report["resources"])
    assert f"{rows} rows are grouped. Show all: --all; some: --grep NAME" in shown


def test_sixty_rows_are_shown_and_one_more_is_not(hipplan: Run, tmp_path: Path) -> None:
    for count, summed in ((30, False), (31, True)):  # a step and an object each
        plan = plan_of(tmp_path, f"allocations: {{a: {{device: gpu.0, size: 4KiB, count: {count}}}}}\n")
        shown = hipplan("preview", plan, "--machine", "sim-2").stdout

        assert ("are grouped" in shown, "a.29 " in shown) == (summed, not summed)


def test_all_shows_every_row(hipplan: Run) -> None:
    shown = hipplan("preview", LLAMA, "--machine", "mi300x-8", "--all").stdout

    assert "are grouped" not in shown
    assert len(re.findall(r"^rank\.\d\.\S+ +tensor ", shown, re.M)) == 8 * 723
    assert len(re.findall(r"^ +\d+  hipMemMap ", shown, re.M)) == 136


def test_grep_shows_the_rows_of_a_name_with_their_numbers(hipplan: Run) -> None:
    shown = hipplan("preview", LLAMA, "--machine", "mi300x-8", "--grep", "KV.7[1").stdout
    everything = hipplan("preview", LLAMA, "--machine", "mi300x-8", "--all").stdout
    steps = re.findall(r"^ +\d+  hip\w+ +\S+ .*$", shown, re.M)

    assert len(steps) == 2 * 7  # chunk 1, and 10 to 15: a mapping and its access
    assert {step.split()[0] for step in steps} <= {
        line.split()[0] for line in everything.splitlines() if "kv.7[1" in line
    }
    assert {name.partition("[")[0] for name in re.findall(r"hip\w+ +(\S+)", "\n".join(steps))} == {"kv.7"}


def test_a_name_that_nothing_has_is_no_failure(hipplan: Run) -> None:
    done = hipplan("preview", QUICKSTART, "--machine", "sim-2", "--grep", "nothing-like-it")

    assert (done.returncode, done.stderr) == (0, "")
    assert "hipMemCreate" not in done.stdout
    assert "no name contains 'nothing-like-it'; --all shows every row\n" in done.stdout
    assert "step  call" not in done.stdout


def test_tensors_are_shown_with_offset_dtype_and_shape(hipplan: Run) -> None:
    line = ("preview", LLAMA, "--machine", "mi300x-8", "--tensors")
    some = hipplan(*line, "--grep", "rank.3.model.layers.7.mlp").stdout
    report = json.loads(hipplan("preview", LLAMA, "--machine", "mi300x-8", "--format", "json").stdout)
    offsets = {resource["name"]: resource["offset"] for resource in report["resources"] if resource["kind"] == "tensor"}

    rows = re.findall(r"^(rank\S+) +(\S+)  bf16 +(\S+) +(\S+) +gpu\.3$", some, re.M)
    assert [(name.rpartition(".mlp.")[2], shape, size) for name, _, shape, size in rows] == [
        ("gate_proj.weight", "3584x8192", "56MiB"),
        ("up_proj.weight", "3584x8192", "56MiB"),
        ("down_proj.weight", "8192x3584", "56MiB"),
    ]
    assert [offset for _, offset, _, _ in rows] == [f"{offsets[name] >> 20}MiB" for name, *_ in rows]
    assert "\n3 tensors\n" in some
    assert f"\n{len(offsets)} tensors\n" in hipplan(*line).stdout


def test_bars_show_how_full_each_device_gets(hipplan: Run, tmp_path: Path) -> None:
    memory = "{a: {device: gpu.0, size: 96GiB}, b: {device: gpu.1, size: 4KiB}}"
    plan = plan_of(tmp_path, f"devices: {{gpu: {{count: 2}}}}\nallocations: {memory}\n")
    shown = hipplan("preview", plan, "--machine", "sim-2").stdout

    (full,) = re.findall(r"^gpu\.0  (━*) +50%  96GiB of 192GiB *$", shown, re.M)
    assert len(full) == 15
    assert re.search(r"^gpu\.1  ╸ +<1%  4KiB of 192GiB *$", shown, re.M)


def test_memory_in_use_and_devices_of_unknown_size(hipplan: Run, tmp_path: Path) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text(
        "name: m\ndevices:\n  - {name: a, memory: 8GiB, in_use: 2GiB, vmm: true}\n  - {name: b, vmm: true}\n"
    )
    regions = "{r: {device: gpu.0, size: 2GiB}, s: {device: gpu.1, size: 2GiB}}"
    plan = plan_of(tmp_path, f"devices: {{gpu: {{count: 2}}}}\nregions: {regions}\n")
    shown = hipplan("preview", plan, "--machine", machine).stdout

    assert re.search(r"^gpu\.0  ━+ +50%  4GiB of 8GiB, 2GiB of it in use already$", shown, re.M)
    assert not re.search(r"^gpu\.1 .*of", shown, re.M)


def test_a_large_difference_is_summed_up_too(hipplan: Run) -> None:
    line = ("preview", LLAMA, "--from", QUICKSTART, "--machine", "mi300x-8")
    summed, everything = hipplan(*line).stdout, hipplan(*line, "--all").stdout
    some = hipplan(*line, "--grep", "rank.3").stdout

    assert re.search(r"^\+ +16  region +rank\.\*, kv\.\*$", summed, re.M)
    assert "are grouped" in summed
    assert len(re.findall(r"^\+  region", everything, re.M)) == 16
    assert re.findall(r"^[+~-]  \w+ +(\S+)", some, re.M) == ["rank.3"]
    assert hipplan(*line, "--detailed-exitcode", "--grep", "nothing-like-it").returncode == 6


def test_a_summed_up_difference_names_what_is_lost_and_mixes_nothing_recreated_with_what_grows(hipplan: Run) -> None:
    line = ("preview", LLAMA, "--from", LLAMA, "--machine", "mi300x-8", "--from-var", "cache=1GiB")
    wider = hipplan(*line, "--var", "hidden=8448").stdout
    longer = hipplan(*line).stdout

    words = "loses its bytes, moves to another address"
    assert re.search(rf"^-/\+ +8  region  {words} +about 131\.4GiB  rank\.\*$", wider, re.M)
    assert re.search(r"^~ +8  region  +kv\.\*$", wider, re.M)
    assert wider.endswith("\n5800 to alter, 8 to replace; about 131.4GiB of bytes and 8 addresses lost\n")
    assert re.search(r"^~ +8  region  kv\.\*$", longer, re.M)
    assert longer.endswith("\n16 to alter\n")


def test_many_ranks_are_cut_and_all_of_them_shown_on_request(hipplan: Run) -> None:
    line = ("preview", ROOT / "plans" / "ranks" / "shared-weights.yaml", "--machine", "mi300x-8", "--ranks", "64")
    cut, everything = hipplan(*line).stdout, hipplan(*line, "--all").stdout

    assert "and 5 more ranks; --all shows each" in cut
    assert len(re.findall(r"^\d+ +\d+ ", cut, re.M)) == 59
    assert len(re.findall(r"^\d+ +\d+ ", everything, re.M)) == 64


@pytest.mark.parametrize("more", [["--grep", "x"], ["--tensors"]], ids=str)
def test_json_takes_no_choice_of_rows(more: list[str], hipplan: Run) -> None:
    done = hipplan("preview", QUICKSTART, "--machine", "sim-2", "--format", "json", *more)

    assert (done.returncode, "not of JSON" in done.stderr) == (2, True)


CHUNKS = """devices: {gpu: {count: 2}}
regions:
  w$(i): {each: {i: 100}, device: gpu.0, chunk: 2MiB, size: 80MiB, access: {gpu.*: rw}}
allocations:
  alone.$(i): {each: {i: 100}, device: gpu.1, size: 2MiB}
"""
"""A few bytes that become thousands of rows."""


def test_json_of_a_small_plan_that_becomes_thousands_of_rows_is_summed_up(hipplan: Run, tmp_path: Path) -> None:
    line = ("preview", plan_of(tmp_path, CHUNKS), "--machine", "sim-2", "--format", "json")
    short, everything = (hipplan(*line, *more).stdout for more in ([], ["--all"]))
    report, whole = json.loads(short), json.loads(everything)

    assert len(everything) > 3 << 20
    assert len(short) < 100_000
    for key in ("steps", "resources"):  # a program that reads them fails, rather than miss some
        assert key not in report
        assert report["summed_up"][key] == len(whole[key])
    assert {calls["call"]: calls["steps"] for calls in report["steps_summary"]} == Counter(
        step["call"] for step in whole["steps"]
    )
    assert len(report["resources_summary"]) == 2
    allocations, regions = report["resources_summary"]
    assert (regions["kind"], regions["count"], regions["holds"]) == ("region", 100, {"mapping": 4000})
    assert (allocations["kind"], allocations["count"], allocations["size"]) == ("allocation", 100, 100 * (2 << 20))
    assert report["bytes_by_device"] == whole["bytes_by_device"]


def test_json_of_a_long_difference_is_summed_up(hipplan: Run, tmp_path: Path) -> None:
    line = ("preview", plan_of(tmp_path, CHUNKS), "--from", QUICKSTART, "--machine", "sim-2", "--format", "json")
    short, everything = (hipplan(*line, *more).stdout for more in ([], ["--all"]))
    report, whole = json.loads(short), json.loads(everything)

    assert len(short) < 100_000 < len(everything)
    assert not {"changes", "steps", "given_back"} & {*report}
    assert report["summed_up"] == {key: len(whole[key]) for key in ("changes", "steps", "given_back")}
    assert sum(changes["count"] for changes in report["changes_summary"]) == len(whole["changes"])
    assert report["counts"] == whole["counts"]


def test_json_of_many_ranks_is_summed_up(hipplan: Run) -> None:
    line = ("preview", ROOT / "plans" / "ranks" / "shared-weights.yaml", "--machine", "mi300x-8", "--ranks", "512")
    short, everything = (hipplan(*line, "--format", "json", *more).stdout for more in ([], ["--all"]))
    report, whole = json.loads(short), json.loads(everything)

    assert len(short) < 100_000 < len(everything)
    assert "ranks" not in report
    assert report["summed_up"] == {"ranks": 512}
    assert len(report["ranks_summary"]) + report["ranks_summary_left_out"] == len(whole["ranks"]) == 512
    first, listed = report["ranks_summary"][0], whole["ranks"][0]
    assert (first["steps"], first["resources"]) == (len(listed["steps"]), len(listed["resources"]))


def test_the_report_of_an_apply_fits_a_screen_too(hipplan: Run) -> None:
    line = ("apply", LLAMA, "--machine", "mi300x-8", "--runtime", "sim", "--once", "--no-verify", "--var", "cache=1GiB")
    shown = hipplan(*line).stdout
    report = json.loads(hipplan(*line, "--format", "json").stdout.splitlines()[0])

    assert len(shown.splitlines()) < 60
    for name in (f"{kind}.{number}" for kind in ("rank", "kv") for number in range(8)):
        assert re.search(rf"^{re.escape(name)} +region .* 0x[0-9a-f]+ ", shown, re.M), name
    assert f"\n{len(report['resources']) - 16} more objects: --format json has all of them\n" in shown
