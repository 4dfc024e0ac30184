"""`hipplan doctor --report` and `--compare`, as they are run."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hipplan.checkup.asking import judged
from hipplan.checkup.examination import anonymous
from hipplan.checkup.page import differences, page
from hipplan.checkup.parts import PARTS
from hipplan.checkup.question import Release
from hipplan.checkup.reading import read
from tests.cli.conftest import Run, command, hipplan, started  # noqa: F401
from tests.conftest import ROOT

REPORTS = sorted((ROOT / "docs" / "reports").glob("*.json"))
SOMEBODY = {"USER": "annabel-lee", "LOGNAME": "annabel-lee", "HOME": "/home/annabel-lee", "HIPPLAN_RUNTIME": ""}


@pytest.fixture
def doctor(hipplan: Run) -> Run:  # noqa: F811
    """`hipplan doctor`."""
    return lambda *arguments, **more: hipplan("doctor", *arguments, **more)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    file = tmp_path_factory.mktemp("annabel-lee") / "here.json"
    line = command("doctor", "--report", file, "--runtime", "sim", "--memory", "64MiB")
    return file, subprocess.run(line, capture_output=True, text=True, timeout=600, env=os.environ | SOMEBODY)


def test_the_simulator_does_what_is_declared(written: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    file, done = written
    document = json.loads(file.read_text())

    assert done.returncode == 0, done.stdout + done.stderr
    assert {answer["outcome"] for answer in document["answers"]} == {"as declared", "seen"}
    assert [answer["question"] for answer in document["answers"]] == [q.name for part in PARTS.values() for q in part]
    assert document["left"] == [0, 0]
    assert document["format_version"] == 1


def test_the_page_stands_beside_it_and_is_printed(written: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    file, done = written
    text = file.with_suffix(".txt").read_text()

    assert done.stdout.startswith(text)
    assert "  rights read back\n    fresh: none\n    rw for gpu.0: rw\n" in text
    assert text == page(read(str(file)))
    assert {path.name for path in file.parent.iterdir()} == {"here.json", "here.txt"}


def test_neither_names_the_user_their_folders_or_a_device(
    written: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    file, _ = written
    for text in (file.read_text(), file.with_suffix(".txt").read_text()):
        assert "annabel" not in text
        assert "uuid" not in text
        assert '"pci"' not in text
        assert str(ROOT) not in text


def test_what_a_driver_or_the_doctor_says_is_made_anonymous() -> None:
    said = {"a": ["/opt/rocm/lib/libamdhip64.so.7: not found", 1], "b": "GPU-0123456789abcdef at 0000:1A:00.0"}

    assert anonymous(said) == {"a": ["libamdhip64.so.7: not found", 1], "b": "(anonymous) at (anonymous)"}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--report", "x.json", "--memory", "2GiB"], "more than 1GiB needs --yes"),
        (["--report", "x.json", "--memory", "1MiB"], "needs 64MiB or more"),
        (["--report", "x.json", "--memory", "much"], "--memory: "),
        (["--report", "x.txt"], "name it .json"),
        (["--runtime", "sim"], "go with --report FILE"),
        (["--yes"], "go with --report FILE"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(arguments: list[str], why: str, doctor: Run) -> None:
    done = doctor(*arguments)

    assert done.returncode == 2
    assert why in done.stderr
    assert done.stdout == ""


def test_without_a_runtime_there_is_no_report(tmp_path: Path, doctor: Run) -> None:
    file = tmp_path / "here.json"
    done = doctor("--report", file, env={"HIPPLAN_RUNTIME": "/nothing.so"})

    assert done.returncode == 3
    assert "error[HP407]: there is no runtime to report on" in done.stderr
    assert not file.exists()


def test_a_file_that_cannot_be_written_is_refused_first(tmp_path: Path, doctor: Run) -> None:
    done = doctor("--report", tmp_path / "no" / "here.json", "--runtime", "sim")

    assert done.returncode == 2
    assert "error[HP413]" in done.stderr


def test_a_driver_that_does_something_else_is_exit_code_6(tmp_path: Path, doctor: Run) -> None:
    file = tmp_path / "here.json"
    rules = {"HIPSIM_FAIL": "hipMemRelease@1+=hipErrorUnknown"}
    done = doctor("--report", file, "--runtime", "sim", "--memory", "64MiB", env=rules)
    document = json.loads(file.read_text())

    assert done.returncode == 6, done.stdout + done.stderr
    codes = {answer["question"]: answer["outcome"] for answer in document["answers"]}
    assert codes["hipMemRelease of null"] == "differs"
    assert "hipMemRelease of null: Unknown  DIFFERS: declared is InvalidValue" in done.stdout


def changed(document: dict[str, Any], question: str, **seen: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    for answer in copy["answers"]:
        if answer["question"] == question:
            answer["seen"] |= seen
    return copy


def test_compare_names_what_differs(
    written: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, doctor: Run
) -> None:
    file, _ = written
    document = read(str(file))
    other = changed(document, "rights read back", fresh="rw")
    other["answers"][-3]["seen"] = {}
    (tmp_path / "other.json").write_text(json.dumps(other))

    assert differences(document, document) == []
    assert doctor("--compare", file, file).stdout == "the reports say the same\n"
    done = doctor("--compare", file, tmp_path / "other.json", "--format", "json")
    rows = json.loads(done.stdout)["differences"]
    assert done.returncode == 6
    assert {"what": "virtual memory: rights read back: fresh", "a": "none", "b": "rw"} in rows
    assert [row["b"] for row in rows if row["what"] == "speeds: copies"] == ["seen: "]


@pytest.mark.parametrize(("value", "is_shown"), [(1.2, False), (1.3, True), (0.7, True), ("none", True)])
def test_speeds_differ_from_a_quarter_on(
    written: tuple[Path, subprocess.CompletedProcess[str]], value: float | str, is_shown: bool
) -> None:
    document = read(str(written[0]))
    one = changed(document, "growth by a chunk", **{"by hand, us": 1.0})
    other = changed(document, "growth by a chunk", **{"by hand, us": value} if value != "none" else {"new, us": 1.0})

    assert bool(differences(one, other)) == is_shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("part", ["x"]),
        ("question", 3),
        ("why", None),
        ("seen", []),
        ("seen", {"map, us": "fast"}),
        ("seen", {"a, ms": []}),
    ],
)
def test_a_report_with_a_wrong_value_is_refused(
    written: tuple[Path, subprocess.CompletedProcess[str]], name: str, value: object, tmp_path: Path, doctor: Run
) -> None:
    for number in (0, 3):
        document = read(str(written[0]))
        document["answers"][number][name] = value
        file = tmp_path / "a.json"
        file.write_text(json.dumps(document))
        done = doctor("--compare", file, written[0])

        assert done.returncode == 2
        assert "error[HP466]: this is no report of a checkup" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hipplan 0.1.0", "Expecting value"),
        ("[1]", "it is other JSON"),
        ('{"event": "checkup"}', "it is other JSON"),
        ("[" * 100_000, ""),
        (" " * (4 << 20) + "{}", "it has more than"),
    ],
)
def test_what_is_no_report_is_refused(text: str, why: str, tmp_path: Path, doctor: Run) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    done = doctor("--compare", file, file)

    assert done.returncode == 2
    assert "error[HP466]: this is no report of a checkup" in done.stderr
    assert why in done.stderr


@pytest.mark.parametrize("part", ["answers", "answer", "seen"])
def test_answers_of_another_shape_are_refused(
    part: str, written: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, doctor: Run
) -> None:
    document = read(str(written[0]))
    answers: dict[str, Any] = {"answers": [], "answer": [1], "seen": [document["answers"][1]]}
    (tmp_path / "a.json").write_text(json.dumps(document | {"answers": answers[part]}))
    done = doctor("--compare", tmp_path / "a.json", written[0])

    assert done.returncode == 2
    assert "its answers are not those of a checkup" in done.stderr


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, doctor: Run) -> None:
    done = doctor("--compare", tmp_path / "a.json", tmp_path / "a.json")

    assert done.returncode == 2
    assert "error[HP001]" in done.stderr


@pytest.mark.parametrize("file", REPORTS, ids=lambda path: path.stem)
def test_a_report_in_the_documentation_is_judged_as_today(file: Path) -> None:
    document = read(str(file))
    profile = document["answers"][0]["seen"]
    major, minor, *_ = map(int, profile["HIP"].split("."))
    declared = {q.name: q.declared(Release(profile["kind"], (major, minor))) for part in PARTS.values() for q in part}

    assert file.with_suffix(".txt").read_text() == page(document)
    assert [answer["question"] for answer in document["answers"]] == [*declared]
    for answer in document["answers"]:
        if answer["seen"]:
            assert judged(answer["seen"], dict(declared[answer["question"]])) == answer["outcome"], answer


def test_the_documentation_has_three_reports() -> None:
    assert {"amd-6.4", "amd-7.2", "nvidia-h100", "simulator"} <= {path.stem for path in REPORTS}
