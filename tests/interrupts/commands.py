"""The command in processes of its own, forked from one that has imported everything: quick, and with real signals."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

QUICKSTART = str(ROOT / "plans" / "quickstart.yaml")
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["hipplan.cli.main", "hipplan.api", "hipplan.show.render", "tests.interrupts.commands"])


class Command:
    """One run of `hipplan`. Its simulator reads `faults` (HIPSIM_FAIL); output and trace go to files in `folder`."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        faults: str = "",
        at_step: tuple[int, int] | None = None,
        variables: Mapping[str, str] | None = None,
        ignored: Collection[int] = (),
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        environment = {"HIPSIM_FAIL": faults, "HIPSIM_TRACE": str(folder / "trace"), **(variables or {})}
        given = (folder, arguments, environment, at_step, ignored)
        # daemon: one that a failed test leaves behind must not keep the suite from ending.
        self.process: Any = _context.Process(target=_main, args=given, daemon=True)
        self.process.start()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # on a busy machine it may have ended
            os.kill(self.process.pid, number)

    def wait(self, timeout_s: float = 300) -> int:
        """The exit code; negative: the signal that killed it."""
        self.process.join(timeout_s)
        assert self.process.exitcode is not None, f"still running: {self.err}"
        code: int = self.process.exitcode
        return code

    def wait_for_calls(self, count: int) -> None:
        """Until the trace has so many lines: the next call is under way, or will be soon."""
        self._until(lambda: len(self._text("trace").splitlines()) >= count, f"{count} calls")

    def wait_for_call(self, function: str) -> None:
        """Until the first call of a function is done."""
        self._until(lambda: f'"{function}"' in self._text("trace"), function)

    def wait_for_err(self, text: str) -> None:
        self._until(lambda: text in self.err, text)

    def calls(self) -> list[str]:
        return [json.loads(line)["call"] for line in self._text("trace").splitlines()]

    def alive(self) -> dict[str, list[Any]]:
        """What the simulator's ledger held when the command had returned, by noun."""
        ledger = json.loads(self._text("ledger"))
        nouns = ("allocations", "reservations", "mappings", "buffers", "streams", "peers")
        return {noun: ledger[noun] for noun in nouns if ledger[noun]}

    @property
    def out(self) -> str:
        return self._text("out")

    @property
    def err(self) -> str:
        return self._text("err")

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def _until(self, reached: Any, what: str, timeout_s: float = 300) -> None:
        end = time.monotonic() + timeout_s
        while not reached():
            assert time.monotonic() < end, f"waited for {what}: {self.err}"
            assert self.process.is_alive() or reached(), f"ended before {what}: {self.err}"
            time.sleep(0.005)


def _main(
    folder: Path,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    at_step: tuple[int, int] | None,
    ignored: Collection[int],
) -> None:
    """In the child. at_step: (number of the step, signal) that the process gets before that step. ignored: signals
    that whoever started it ignores."""
    os.environ.update(environment)
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    if at_step is not None:
        _send_at(*at_step)
    from hipplan.cli.main import run
    from hipplan.machines.runtimes import choose

    code = run(list(arguments))
    (folder / "ledger").write_text(choose("sim").runtime.ledger())
    raise SystemExit(code)


def _send_at(step: int, number: int) -> None:
    import hipplan.layout.run

    real_run = hipplan.layout.run.run

    def run(*arguments: Any, on_progress: Any, **named: Any) -> Any:
        def between(at: int, what: Any) -> None:
            if at == step:
                os.kill(os.getpid(), number)
                on_progress(at, 0)

        return real_run(*arguments, on_step=between, on_progress=on_progress, **named)

    hipplan.layout.run.run = run
