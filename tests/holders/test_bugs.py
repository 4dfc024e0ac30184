"""A bug in a holder ends the request that met it, with its name; the holder keeps its memory and serves others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.errors import ExitCode, HipplanError
from hipplan.holders import names, requests
from tests.holders.test_holders import Held, attached, code, until

Start = Callable[[str], dict[str, Any]]


@pytest.fixture
def broken(held: Held, monkeypatch: pytest.MonkeyPatch) -> Start:
    """broken(method): starts the holder "w", in which this method raises KeyError."""

    def start(method: str) -> dict[str, Any]:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "broken"))
        monkeypatch.setenv("HOLDERS_BUG", method)
        return held()

    return start


def logged(status: dict[str, Any]) -> str:
    return Path(status["log"]).read_text()


@pytest.mark.parametrize("method", ["_attach", "_handle_attach"])
def test_a_client_whose_request_met_a_bug_is_not_attached(broken: Start, method: str) -> None:
    status = broken(method)
    with pytest.raises(HipplanError, match=r"(?s)bug in hipplan.*KeyError: 'a bug for this test'") as caught:
        hipplan.attach("w")
    assert (code(caught), caught.value.exit_code) == ("HP457", ExitCode.BUG)
    assert attached() == []
    assert "Traceback" in logged(status)
    assert run(["down", "w", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("method", "verb"),
    [
        ("_handle_sleep", ["sleep", "w"]),
        ("_start_sleep", ["sleep", "w"]),
        ("_handle_wake", ["wake", "w"]),
        ("_handle_down", ["down", "w"]),
    ],
)
def test_a_bug_in_any_request_is_reported_and_ends_only_that(
    broken: Start, method: str, verb: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    status = broken(method)
    assert run([*verb, "--quiet"]) == ExitCode.BUG
    assert "HP457" in capfd.readouterr().err
    assert requests.status("w")["state"] == "ready"
    assert "Traceback" in logged(status)
    os.kill(status["pid"], signal.SIGTERM)
    until(lambda: not any(name == "w" and runs for name, _, runs in names.known()))
    assert run(["down", "w", "--quiet"]) == 0  # removes its log


def test_ps_lists_a_holder_whose_status_meets_a_bug(broken: Start, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HipplanError):
        broken("_send_status")
    assert "HP457" in capfd.readouterr().err  # of `up`, which has succeeded
    assert run(["ps"]) == 0
    assert "w: silent; KeyError: 'a bug for this test'" in capfd.readouterr().out
    assert run(["down", "w", "--quiet"]) == 0
