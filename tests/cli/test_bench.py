"""hipplan bench: the matrix, on the simulator; its figures are the CPU's own and only looked at for their form."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hipplan.cli.bench import _rounded
from tests.cli.conftest import Run, command

SMALL = ("bench", "--runtime", "sim", "--size", "1MiB", "--repeats", "2")


def profile(devices: int) -> dict[str, str]:
    """A simulated machine with so many devices of 1 GiB, none of them linked."""
    return {"HIPSIM_PROFILE": "".join(f"device.{n}.memory={2**30}\ndevice.{n}.vmm=1\n" for n in range(devices))}


def test_every_pair_of_devices_is_measured(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--format", "json")
    report = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert (report["event"], report["runtime"], report["size"], report["repeats"]) == ("bench", "sim", 2**20, 2)
    assert [(cell["source"], cell["to"]) for cell in report["cells"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(cell["bandwidth"] > 0 < cell["latency"] for cell in report["cells"])
    assert all(cell["plain_bandwidth"] is None for cell in report["cells"])


def test_ordinary_buffers_beside_it(hipplan: Run) -> None:
    cells = json.loads(hipplan(*SMALL, "--compare", "--format", "json").stdout)["cells"]

    assert len(cells) == 4
    assert all(cell["plain_bandwidth"] > 0 < cell["plain_latency"] for cell in cells)


def test_the_tables(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--compare")

    assert done.returncode == 0
    for title in ("GB/s", "latency, us", "bandwidth relative to ordinary buffers"):
        assert title in done.stdout
    assert "copies of 1MiB" in done.stdout


def test_small_figures_are_no_zeros() -> None:
    assert [_rounded(figure) for figure in (5324.26, 0.1, 0.0032, 0.0)] == ["5324.3", "0.1", "0.0032", "0"]


def test_one_device_is_enough(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--format", "json", env=profile(1))

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["cells"]) == 1


def test_devices_without_a_link_are_measured_too(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--compare", "--format", "json", env=profile(3))

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["cells"]) == 9


@pytest.mark.parametrize(
    ("size", "code", "said"),
    [("1GiB", 3, "error[HP301]: gpu.0 needs 2GiB, 1GiB more"), ("1PiB", 2, "error[HP105]: 'range' takes")],
)
def test_a_machine_that_is_too_small_says_by_how_much(size: str, code: int, said: str, hipplan: Run) -> None:
    done = hipplan("bench", "--runtime", "sim", "--size", size, env=profile(1))

    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert done.stderr.endswith("  hint: use a smaller --size\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "0"), "--size: must be more than 0"),
        (("--size", "lots"), "--size: "),
        (("--repeats", "0"), "--repeats: from 1 to"),
        (("--repeats", "two"), "--repeats"),
    ],
)
def test_wrong_usage(arguments: tuple[str, str], said: str, hipplan: Run) -> None:
    done = hipplan("bench", "--runtime", "sim", *arguments)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_copy_that_fails_gives_everything_back(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--format", "json", env={"HIPSIM_FAIL": "hipMemcpyPeer@1=hipErrorUnknown"})

    assert done.returncode == 4
    assert "hipMemcpyPeer" in done.stderr
    assert json.loads(done.stdout)["event"] == "failed"
    assert "not released" not in done.stderr


def test_a_terminal_gets_a_progress_bar() -> None:
    master, slave = pty.openpty()
    done = subprocess.run(command(*SMALL), stdout=subprocess.PIPE, stderr=slave, timeout=600)
    os.close(slave)
    output = os.read(master, 65536).decode()
    os.close(master)

    assert done.returncode == 0
    assert "copying" in output


PLAN = """hipplan: 1
vars: {size: 1MiB}
regions:
  open: {device: gpu.0, size: $(size), access: {gpu.0: rw, gpu.1: rw}}
  other: {device: gpu.1, size: $(size), access: {gpu.0: rw, gpu.1: rw}}
  closed: {device: gpu.1, size: $(size), access: {gpu.1: r}}
buffers:
  moving: {kind: managed, size: 64KiB}
"""


def of_plan(hipplan: Run, *arguments: str, plan: str = PLAN) -> list[dict[str, Any]]:
    done = hipplan("bench", "-", "--runtime", "sim", "--repeats", "1", "--format", "json", *arguments, stdin=plan)
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["event"], report["runtime"]) == ("bench", "simulator")
    figures: list[dict[str, Any]] = report["figures"]
    return figures


def test_a_plans_copies_are_all_pairs_that_have_rights(hipplan: Run) -> None:
    figures = of_plan(hipplan, "--measure", "copy,latency")
    copies = {figure["name"] for figure in figures if figure["what"] == "copy"}

    assert copies >= {"open > other", "other > open", "open > moving", "moving > open"}
    assert not [name for name in copies if name.endswith("> closed")]
    assert copies == {figure["name"] for figure in figures if figure["what"] == "latency"}
    assert all(figure["lowest"] <= figure["value"] <= figure["highest"] and figure["plain"] > 0 for figure in figures)
    assert {figure["bytes"] for figure in figures if figure["name"] == "open > moving"} == {64 << 10, 4096}


MANY = """hipplan: 1
buffers: {a: {kind: device, count: 18, size: 2MiB}}
allocations: {m: {size: 2MiB}}
reservations: {range: {access: {gpu.0: rw}, mappings: [{allocation: m}]}}
"""


@pytest.mark.parametrize(
    ("objects", "count", "left_out"),
    [([], 16 * 15, 3), (["--objects", "*"], 19 * 18, 0), (["--objects", "a.1?,range[0]"], 9 * 8, 0)],
)
def test_all_pairs_of_many_objects_are_measured_where_they_are_named(
    hipplan: Run, objects: list[str], count: int, left_out: int
) -> None:
    done = hipplan(
        "bench",
        "-",
        "--runtime",
        "sim",
        "--repeats",
        "1",
        "--measure",
        "copy",
        "--format",
        "json",
        *objects,
        stdin=MANY,
    )
    report = json.loads(done.stdout)

    assert (len(report["figures"]), report["left_out"]) == (count, left_out)


def test_what_is_left_out_is_said(hipplan: Run) -> None:
    done = hipplan("bench", "-", "--runtime", "sim", "--repeats", "1", "--measure", "copy", stdin=MANY)

    assert "objects left out: 3, after the first 16; --objects names" in done.stdout


def test_managed_memory_is_prefetched_and_touched_by_every_device_and_the_host(hipplan: Run) -> None:
    figures = of_plan(hipplan, "--measure", "prefetch,first_touch")

    assert [figure["name"] for figure in figures] == [
        "moving by gpu.0", "moving by gpu.1", "moving by host", "moving > gpu.0", "moving > gpu.1", "moving > host"
    ]  # fmt: skip
    assert all(figure["plain"] > 0 for figure in figures)


def test_mapping_is_the_sum_of_its_calls(hipplan: Run) -> None:
    whole, *calls, unmap = of_plan(hipplan, "--measure", "map", "--var", "size=2MiB")

    assert (whole["what"], whole["name"], unmap["what"]) == ("map", "", "unmap")
    assert [call["name"] for call in calls] == ["hipMemCreate", "hipMemAddressReserve", "hipMemMap", "hipMemSetAccess"]
    assert whole["value"] == pytest.approx(sum(call["value"] for call in calls))
    assert whole["bytes"] == 6 << 20 and whole["plain"] > 0


def test_a_plan_without_memory_has_no_figures(hipplan: Run) -> None:
    assert of_plan(hipplan, plan="hipplan: 1\n") == []


def test_a_plan_that_leaves_no_room_beside_it_is_measured(hipplan: Run) -> None:
    plan = "hipplan: 1\nregions: {a: {size: 450MiB}, b: {size: 450MiB}}\n"
    options = ("--runtime", "sim", "--repeats", "1", "--measure", "copy,map", "--format", "json")
    done = hipplan("bench", "-", *options, stdin=plan, env=profile(1))

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert [figure["name"] for figure in figures if figure["what"] == "copy"] == ["a > b", "b > a"]
    assert all(figure["plain"] > 0 for figure in figures if figure["what"] in ("copy", "unmap"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--measure", "copi"], "did you mean 'copy'?"),
        (["--objects", "open,nothing"], "--objects: no object 'nothing' can be copied"),
        (["--size", "1MiB"], "--size and --compare are for copies between devices"),
        (["--var", "siez=3"], "HP210"),
    ],
)
def test_wrong_arguments_for_a_plan(hipplan: Run, arguments: list[str], said: str) -> None:
    done = hipplan("bench", "-", "--runtime", "sim", *arguments, stdin=PLAN)

    assert done.returncode == 2
    assert said in done.stderr


def test_options_for_a_plan_need_one(hipplan: Run) -> None:
    done = hipplan(*SMALL, "--measure", "copy")

    assert done.returncode == 2
    assert "are for PLAN" in done.stderr


def test_a_region_that_fills_is_mapped_as_large_as_beside_the_rest_of_its_plan(hipplan: Run) -> None:
    plan = "hipplan: 1\nbuffers: {w: {kind: device, size: 256MiB}}\nregions: {kv: {size: fill}}\n"
    options = ("--runtime", "sim", "--repeats", "1", "--measure", "map", "--format", "json")
    done = hipplan("bench", "-", *options, stdin=plan, env=profile(1))

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["figures"][0]["bytes"] == 768 << 20


def test_a_plan_for_ranks_is_measured_by_one(tmp_path: Path, hipplan: Run) -> None:
    plan = tmp_path / "plan.yaml"
    heap = "{device: gpu.0, size: 8MiB, map: {ranks: node, access: rw}}"
    plan.write_text(f"hipplan: 1\nranks: {{}}\nregions: {{heap: {heap}}}\n")
    done = hipplan("bench", plan, "--runtime", "sim", "--repeats", "1")

    assert (done.returncode, done.stderr) == (0, "")
    assert "hipMemMap" in done.stdout


def test_copies_without_a_figure_are_named_with_the_reason(hipplan: Run) -> None:
    """They were left out without a word, and counted as nothing."""
    both = "access: {gpu.0: rw, gpu.1: rw}"
    plan = f"hipplan: 1\nregions:\n  a: {{device: gpu.0, size: 2MiB}}\n  b: {{device: gpu.1, size: 2MiB, {both}}}\n"
    options = ("--runtime", "sim", "--repeats", "1", "--measure", "copy")

    text = hipplan("bench", "-", *options, stdin=plan)
    report = json.loads(hipplan("bench", "-", *options, "--format", "json", stdin=plan).stdout)

    why = "hipplan stages it through pinned memory, unless both devices have rw on both objects"
    assert text.stdout.splitlines() == [f"a > b has no figure: {why}", f"b > a has no figure: {why}"]
    assert report["figures"] == []
    assert report["unmeasured"] == [{"name": "a > b", "why": why}, {"name": "b > a", "why": why}]

    open_to_both = plan.replace("size: 2MiB}", f"size: 2MiB, {both}}}", 1)
    report = json.loads(hipplan("bench", "-", *options, "--format", "json", stdin=open_to_both).stdout)
    assert [figure["name"] for figure in report["figures"]] == ["a > b", "b > a"]
    assert report["unmeasured"] == []


def test_a_copy_of_memory_that_is_pinned_with_another_device_has_its_own_reason(hipplan: Run) -> None:
    """No plan gives devices rights to pinned memory: 'unless both have rw' could not be followed."""
    plan = "hipplan: 1\nregions: {b: {device: gpu.1, size: 2MiB}}\nbuffers: {p: {kind: pinned, size: 2MiB}}\n"
    options = ("--runtime", "sim", "--repeats", "1", "--measure", "copy")

    text = hipplan("bench", "-", *options, stdin=plan).stdout

    why = "hipplan stages it through pinned memory: one of the objects is pinned with another device than that of the"
    assert text.splitlines() == [f"{copy} has no figure: {why} other one" for copy in ("b > p", "p > b")]
