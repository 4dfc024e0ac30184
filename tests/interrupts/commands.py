"""The command in processes of its own, forked from one that has imported everything: quick, and with real signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.pauses import LONG_S, wait_until
from tests.processes import CONTEXT

QUICKSTART = str(ROOT / "plans" / "quickstart.yaml")


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
        self.process: Any = CONTEXT.Process(target=_main, args=given, daemon=True)
        self.process.start()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # on a busy machine it may have ended
            os.kill(self.process.pid, number)

    def wait(self, timeout_s: float = LONG_S) -> int:
        """The exit code; negative: the signal that killed it."""
        self.process.join(timeout_s)
        assert self.process.exitcode is not None, f"still running: {self.err}"
        code: int = self.process.exitcode
        return code

    def wait_for_err(self, text: str) -> None:
        def said() -> bool:
            assert self.process.is_alive() or text in self.err, f"ended before {text!r}: {self.err}"
            return text in self.err

        wait_until(said, text)

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


def _main(
    folder: Path,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    at_step: tuple[int, int] | None,
    ignored: Collection[int],
) -> None:
    """In the child. at_step: (number of the step, signal) that the process gets before that step. ignored: signals
    that the process which started it ignores."""
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

    def run(program: Any, runtime: Any, options: Any, **named: Any) -> Any:
        def between(at: int, what: Any) -> None:
            if at == step:
                os.kill(os.getpid(), number)
                options.on_progress(at, 0)

        return real_run(program, runtime, replace(options, on_step=between), **named)

    hipplan.layout.run.run = run
