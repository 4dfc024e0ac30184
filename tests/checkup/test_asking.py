"""A part's process: what becomes of a question that dies, hangs or fails, and of those behind it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hipplan.checkup import asking
from hipplan.checkup.asking import Asking, NoRuntime, answers
from hipplan.checkup.question import Release
from tests.checkup.strange import STRANGE
from tests.conftest import ROOT


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file with the number of the process that the question which hangs has left."""
    monkeypatch.setattr(asking, "ANSWERING", "tests.checkup.strange")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("STRANGE_PIDS", str(tmp_path / "pid"))
    return tmp_path / "pid"


def asked(runtime: str = "sim", seconds: float = 300) -> Asking:
    return Asking(runtime, 2**26, time.monotonic() + seconds, Release("sim", (7, 2)))


def test_each_question_has_an_answer_whatever_the_one_before_it_did(strange: Path) -> None:
    received = list(answers(asked(), "strange", STRANGE))

    assert [(answer.question, answer.outcome) for answer in received] == [
        ("right", "as declared"),
        ("dies", "died"),
        ("dies as declared", "as declared"),
        ("hangs", "late"),
        ("fails", "failed"),
        ("makes no sense", "skipped"),
        ("differs", "differs"),
        ("seen", "seen"),
    ]
    assert received[1].why == "the process ended by SIGABRT"
    assert received[4].why == "the first line"
    assert received[5].why == "there is one device"


def test_what_a_question_started_is_killed_with_it(strange: Path) -> None:
    list(answers(asked(), "strange", STRANGE[:4]))
    left = int(strange.read_text())

    deadline = time.monotonic() + 60  # init, not we, waits for it
    while _runs(left) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(left)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_nothing_is_asked_when_the_time_is_up(strange: Path) -> None:
    received = list(answers(asked(seconds=0), "strange", STRANGE))

    assert {answer.outcome for answer in received} == {"not asked"}
    assert len(received) == len(STRANGE)
    assert not strange.exists()


def test_descriptors_are_closed(strange: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    list(answers(asked(), "strange", STRANGE[:2]))

    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_runtime_that_is_not_there_is_refused(strange: Path) -> None:
    with pytest.raises(NoRuntime, match=r"nothing\.so"):
        list(answers(asked(runtime="/nothing.so"), "strange", STRANGE))
