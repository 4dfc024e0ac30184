"""Reports of results, and comparing two of them: numbers that can be checked by hand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from hipplan.cli.main import run
from hipplan.experiment import results
from hipplan.experiment.summary import interval_of, samples_of
from tests.experiment.conftest import experiment


def line(vary: dict[str, Any], repetition: int, metrics: dict[str, float], **more: Any) -> results.Line:
    gpus = [{"sensors": {"temperature_c": repetition}}]
    provenance = {"hipplan": "1", "host": "a", "runtime": {"kind": "simulator"}, "gpus": gpus}
    return {
        "experiment": {"name": "e", "digest": "d", "seed": 1}, "cell": {"vary": vary, "env": {}},
        "repetition": repetition, "result": "ok", "metrics": metrics, "units": {"bandwidth": "GB/s"},
        "plan": {"digest": "p"}, "provenance": provenance, **more,
    }  # fmt: skip


def saved(path: Path, lines: list[results.Line]) -> Path:
    with results.opened(str(path), resume=False) as file:
        for one in lines:
            file.append(one)
    return path


def grid(factor: float = 1.0) -> list[results.Line]:
    """Sizes from small to large, two holders, seven repetitions: bandwidth 10 ... 16 times the holder's number."""
    return [
        line({"size": size, "holder": f"gpu.{holder}"}, number, {"bandwidth": (10 + number) * (holder + 1) * factor})
        for size in ("1GiB", "4MiB", "64KiB")
        for holder in (0, 1)
        for number in range(7)
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 4, 5], None),  # both ends together leave 2 / 32 outside
        ([6, 5, 4, 3, 2, 1], (1, 6)),  # 2 / 64
        (list(range(1, 10)), (2, 8)),  # 2 * (1 + 9) / 512; one more rank would be 2 * 46 / 512
        ([3.0] * 20, (3.0, 3.0)),
        ([], None),
    ],
)
def test_an_interval_is_two_order_statistics(values: list[float], expected: tuple[float, float] | None) -> None:
    assert interval_of(values) == expected


def test_samples_are_in_the_order_of_sizes_and_failures_count_apart() -> None:
    lines = [*grid(), line({"size": "4MiB", "holder": "gpu.0"}, 9, {"bandwidth": 999.0}, result="failed")]
    samples = samples_of(lines)

    assert [(s.cell.vary["size"], s.cell.vary["holder"]) for s in samples] == [
        (size, holder) for size in ("64KiB", "4MiB", "1GiB") for holder in ("gpu.0", "gpu.1")
    ]
    assert [(s.median, s.interval, len(s.values), s.failed) for s in samples][2:4] == [
        (13, (10, 16), 7, 1), (26, (20, 32), 7, 0)
    ]  # fmt: skip


def test_cells_of_two_grids_are_in_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path / "r.jsonl", [line({"a": 1}, 0, {"x": 1}), line({"b": 2}, 0, {"x": 2})])

    assert experiment("report", file, "--format", "csv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [row.split(",")[:3] for row in lines] == [["a", "b", "metric"], ["1", "", "x"], ["", "2", "x"]]
    assert experiment("report", file) == 0


def test_an_axis_that_is_called_as_a_column_keeps_its_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = line({"median": "1MiB"}, 1, {}, result="failed", error={"code": "HP462", "summary": "late"})
    cell = {"vary": {"median": "1MiB"}, "env": {"failed": 7}}
    file = saved(tmp_path / "r.jsonl", [line({}, 0, {"x": 3}, cell=cell), {**bad, "cell": cell}])

    assert experiment("report", file, "--format", "csv") == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header == "axis.median,axis.failed,metric,unit,median,low,high,repetitions,failed"
    assert row == "1MiB,7,x,,3,,,1,1"
    assert experiment("report", file, "--format", "json") == 0
    (of_cell,) = json.loads(capsys.readouterr().out)["rows"]
    values = [of_cell[key] for key in ("axis.median", "median", "axis.failed", "failed")]
    assert values == ["1MiB", 3, 7, 1]
    assert experiment("report", file, "--format", "markdown") == 0
    assert capsys.readouterr().out.startswith("| axis.median | axis.failed | metric | median |")


def test_a_report_in_each_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path / "r.jsonl", grid())

    assert experiment("report", file, "--format", "csv") == 0
    first, *_ = table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(table) == 6
    assert first == {
        "size": "64KiB", "holder": "gpu.0", "metric": "bandwidth", "unit": "GB/s", "median": "13.0", "low": "10.0",
        "high": "16.0", "repetitions": "7", "failed": "0",
    }  # fmt: skip
    assert experiment("report", file, "--format", "markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| size | holder | metric |") and len(lines) == 8
    assert lines[2] == "| 64KiB | gpu.0 | bandwidth | 13 GB/s | 10 to 16 | 7 | 0 |"
    assert experiment("report", file, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["rows"][5]["median"] == 26
    assert experiment("report", file) == 0
    said = capsys.readouterr().out
    assert "repetitions: 42, failed: 0, runtime: simulator" in said and "10 to 16" in said


def test_a_report_says_what_failed_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": "HP462", "summary": "the repetition failed", "why": "it was late"}
    bad = [line({"size": "8GiB"}, number, {}, result="failed", error=error) for number in range(2)]
    file = saved(tmp_path / "r.jsonl", [line({"size": "8GiB"}, 2, {"x": 1}), *bad])

    for options, expected in (
        ([], "failed: size=8GiB: 2 of 3: HP462: the repetition failed: it was late\n"),
        (["--format", "markdown"], "\nFailed:\n\n- size=8GiB: 2 of 3: HP462: the repetition failed: it was late\n"),
    ):
        assert experiment("report", file, *options) == 0
        assert expected in capsys.readouterr().out
    assert experiment("report", file, "--format", "json") == 0
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["cell"], failure["failed"]) == ({"vary": {"size": "8GiB"}, "env": {}}, 2)


@pytest.mark.parametrize("form", ["text", "csv", "markdown", "json", "plots"])
def test_a_report_prints_what_cannot_be_printed_as_a_sign(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of older releases have such names."""
    odd = "\ud800\x1b[31m"
    bad = line({odd: odd}, 9, {}, result="failed", error={"code": "HP462", "summary": odd})
    lines = [line({odd: value}, 0, {odd: 1, f"copy {odd} > b": 2}, units={odd: odd}) for value in (odd, "x")]
    file = saved(tmp_path / "r.jsonl", [*lines, bad])
    if form == "plots":
        pytest.importorskip("matplotlib")

    assert experiment("report", file, *(["--plots", tmp_path] if form == "plots" else ["--format", form])) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and ("\\u001b" if form == "json" else "\N{REPLACEMENT CHARACTER}" * 2) in said


@pytest.mark.in_parts
@pytest.mark.parametrize(
    ("lines", "stems"),
    [
        (grid(), ["e-bandwidth"]),
        ([line({"holder": f"gpu.{a}", "user": f"gpu.{b}"}, 0, {"x": a + b}) for a in (0, 1) for b in (0, 1)], ["e-x"]),
        ([line({"kind": kind, "on": True}, 0, {"x": 3}) for kind in ("device", "managed")], ["e-x"]),
        ([line({}, 0, {f"copy {a} > {b}": 1.5 for a in "pq" for b in "pq" if a != b})], ["e-copy-the-only-cell"]),
        (
            [line({"size": size}, 0, {"copy p > q": 1.5, "copy q > p": 2.5}) for size in ("1MiB", "2MiB")],
            ["e-copy"],
        ),
        (
            [line({"on": on}, 0, {f"copy {a} > {b}": 1.5 for a in "pqr" for b in "pqr"}) for on in (0, 1)],
            ["e-copy", "e-copy-on-0", "e-copy-on-1"],
        ),
        ([line({"size": size}, 0, {"x": 1}) for size in ("1MiB", "1024KiB", "2MiB")], ["e-x"]),
        ([line({"size": 0}, 0, {"x": 1}), line({"size": 8}, 0, {"x": 2})], ["e-x"]),
    ],
    ids=["lines over sizes", "a heat map over devices", "bars", "a heat map over pairs", "lines for two pairs",
         "heat maps of more pairs", "equal sizes", "lines from 0"],
)  # fmt: skip
def test_plots_are_svg_and_png(
    tmp_path: Path, lines: list[results.Line], stems: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    file = saved(tmp_path / "r.jsonl", lines)
    for folder in ("one", "two"):
        assert experiment("report", file, "--plots", tmp_path / folder) == 0

    written = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert written == sorted(f"{stem}.{kind}" for stem in stems for kind in ("svg", "png"))
    for stem in stems:
        svg = (tmp_path / "one" / f"{stem}.svg").read_text()
        assert "<svg" in svg and svg == (tmp_path / "two" / f"{stem}.svg").read_text()
        assert (tmp_path / "one" / f"{stem}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([line({"size": "1MiB"}, 0, {"x": 1})], "each metric is of one cell, and a plot compares cells"),
        ([line({}, 0, {}, result="failed")], "no repetition gave a metric"),
    ],
)
def test_plots_of_nothing_are_reported(
    tmp_path: Path, lines: list[results.ResultLine], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    file = saved(tmp_path / "r.jsonl", lines)

    assert experiment("report", file, "--plots", tmp_path / "plots", "--format", "json") == 0
    said = capsys.readouterr()
    assert said.err == f"notice: --plots: there is nothing to plot: {why}\n"
    assert json.loads(said.out)["plots"] == []


def test_lines_have_their_sizes_and_unit(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert experiment("report", saved(tmp_path / "r.jsonl", grid()), "--plots", tmp_path) == 0
    svg = (tmp_path / "e-bandwidth.svg").read_text()

    for text in ("64KiB", "4MiB", "1GiB", "bandwidth, GB/s", "holder=gpu.0", "holder=gpu.1"):
        assert text in svg


def test_equal_results_differ_in_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = saved(tmp_path / "a", grid()), saved(tmp_path / "b", grid())

    assert experiment("compare", a, b) == 0
    said = capsys.readouterr().out
    assert said.startswith("provenance: nothing differs\n") and "metrics: 6, moved by more than 0.05: 0" in said


def test_what_has_moved_and_what_differs_in_the_provenance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = grid(0.5)
    for one in slower:
        one["provenance"] = {**one["provenance"], "host": "b"}
    a, b = saved(tmp_path / "a", grid()), saved(tmp_path / "b", slower)

    assert experiment("compare", a, b, "--format", "json") == 6
    report = json.loads(capsys.readouterr().out)
    assert report["provenance"] == [{"key": "provenance.host", "a": "a", "b": "b"}]
    assert {(row["ratio"], row["moved"]) for row in report["metrics"]} == {(0.5, True)}
    assert all(row["interval"][0] <= 0.5 <= row["interval"][1] < 1 for row in report["metrics"])
    assert experiment("compare", a, b, "--tolerance", "0.6") == 0
    assert experiment("compare", a, b) == 6
    assert "provenance.host: a -> b" in capsys.readouterr().out


def test_plans_are_compared_of_the_cells_that_both_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def of_cells(digest: str, *modes: str) -> list[results.ResultLine]:
        plan = {"digest": digest, "lock": None, "verified": True}
        cells = [{"vary": {"size": "16MiB"}, "env": {"MODE": mode}} for mode in modes]
        return [line({}, 0, {"x": 1}, plan=plan, cell=cell) for cell in cells]

    a = saved(tmp_path / "a", of_cells("p", "fast", "slow"))
    b = saved(tmp_path / "b", of_cells("q", "fast", "safe"))

    assert experiment("compare", a, b) == 6
    said = capsys.readouterr().out
    assert said.startswith("provenance: what differs\n  plan.digest of size=16MiB MODE=fast: p -> q\n")
    assert said.count("plan.") == 1
    assert "only in A: size=16MiB MODE=slow: x\nonly in B: size=16MiB MODE=safe: x\n" in said


def test_noise_is_no_move(tmp_path: Path) -> None:
    """The medians differ by 8 %, and the repetitions by 60 %."""
    a, b = saved(tmp_path / "a", grid()), saved(tmp_path / "b", grid(1.08))

    assert experiment("compare", a, b) == 0


def test_a_metric_that_is_missing_is_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = [{**one, "result": "failed"} if one["cell"]["vary"]["size"] == "1GiB" else one for one in grid()]
    a, b = saved(tmp_path / "a", grid()), saved(tmp_path / "b", failed)

    assert experiment("compare", a, b) == 6
    assert capsys.readouterr().out.count("only in A: size=1GiB") == 2


def test_without_the_extra_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import sys

    file = saved(tmp_path / "r.jsonl", grid())
    for name in ("matplotlib", "numpy"):
        monkeypatch.setitem(sys.modules, name, None)

    assert run(["experiment", "report", str(file), "--plots", str(tmp_path)]) == 2
    assert run(["experiment", "compare", str(file), str(file)]) == 2
    assert capsys.readouterr().err.count("pip install matplotlib numpy") == 2
    assert run(["experiment", "report", str(file)]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "a"], "compare takes 2 files, not 1"),
        (["report", "a", "--dry-run"], "--dry-run is for run, resume, not for report"),
        (["run", "a", "--plots", "p"], "--plots is for report, not for run"),
        (["compare", "a", "b", "--format", "csv"], "--format csv is for report"),
        (["compare", "a", "b", "--tolerance", "nan"], "not a share"),
        (["report", "a"], "cannot read a"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], said: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)

    assert experiment(*arguments) == 2
    assert said in capsys.readouterr().err


def test_cells_without_a_metric_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells whose copies have no figure vanished from the report without a word."""
    failed = {"result": "failed", "error": {"code": "HP401", "summary": "no"}}
    lines = [
        line({"to": "gpu.0"}, 0, {"bandwidth": 3.0}),
        line({"to": "gpu.1"}, 0, {}),
        line({"to": "gpu.2"}, 0, {}, **failed),
        line({"to": "gpu.2"}, 1, {}),
    ]
    file = saved(tmp_path / "silent.jsonl", lines)

    assert run(["experiment", "report", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["failed: to=gpu.2: 1 of 2: HP401: no", "no metric: to=gpu.1"]
    assert run(["experiment", "report", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["without_metrics"] == [{"env": {}, "vary": {"to": "gpu.1"}}]
    assert run(["experiment", "report", str(file), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.endswith("\nNo metric:\n\n- to=gpu.1\n")


def test_axes_in_another_order_are_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path / "one.jsonl", [line({"size": "1GiB", "to": "gpu.0"}, 0, {"bandwidth": 1.0})])
    two = saved(tmp_path / "two.jsonl", [line({"to": "gpu.0", "size": "1GiB"}, 0, {"bandwidth": 1.0})])

    assert run(["experiment", "compare", str(one), str(two)]) == 0
    assert capsys.readouterr().out.startswith("provenance: nothing differs\n")


def test_each_plot_has_its_own_files_with_names_that_a_file_may_have(tmp_path: Path) -> None:
    metrics = {"time": 1.0, "time %": 2.0, "ẞ" * 150: 3.0}
    file = saved(tmp_path / "m.jsonl", [line({"size": size}, 0, metrics) for size in ("1MiB", "2MiB")])

    assert run(["experiment", "report", str(file), "--plots", str(tmp_path / "plots")]) == 0
    assert {"e-time.svg", "e-time-2.svg"} <= {path.name for path in (tmp_path / "plots").iterdir()}
    assert len([*(tmp_path / "plots").iterdir()]) == 2 * len(metrics)
