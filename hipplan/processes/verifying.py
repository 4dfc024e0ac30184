"""`hipplan verify`: asks processes of this user to read their layouts back.

Holders answer, the command `apply`, and programs that allow it (answering.py).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from hipplan.errors import Diagnostic, HeldError
from hipplan.files import strict_json
from hipplan.processes.command import as_typed
from hipplan.processes.connections import Late, connect, exchange_with_all, peer
from hipplan.processes.folders import HOLDER, remove_stale, sockets, within
from hipplan.processes.packets import Exchange, Gone, Message

ANSWER_S = 30.0
"""How long an answer may take; reading back waits for the driver."""
LIST_S = 2.0
"""How long all processes together may take to list their layouts."""
ANSWER_BYTES = 4 << 20
"""The longest answer of a process."""
DIFFERENCES = 1000
"""How many differences an answer describes, over all layouts of a process."""
_COMMAND = 2000
_AT_ONCE = 100
"""How many processes are asked together: each costs a descriptor."""


def answer_with(layouts: list[Message]) -> Message:
    """The answer of this process, with the descriptions of its layouts."""
    return {
        "format_version": strict_json.FORMAT_VERSION,
        "process": os.getpid(),
        "command": as_typed(sys.orig_argv)[:_COMMAND],
        "layouts": layouts,
    }


def processes_with_layouts() -> list[Message]:
    """The answers of all processes of this user that have a layout, by process id; `error` if one does not answer."""
    answers: dict[int, Message] = {}
    until = time.monotonic() + LIST_S
    exchanges = _exchanges("layouts", until)
    while some := dict(islice(exchanges, _AT_ONCE)):
        for process, answer in _answers(some, until, LIST_S).items():  # all are preparing their answers at once
            if "error" in answer or answer["layouts"]:
                answers[process] = answer | {"process": process}
    return [answers[process] for process in sorted(answers)]


def verify_process(process: int | None = None) -> Message:
    """Has another process read back its layouts. process: its id; None: the only process that has a layout.

    `layouts` has an entry for each; checks, differ and differences are totals, the other keys are those of the first
    layout. Raises HeldError (HP412): no process has one, several do, or it does not answer.
    """
    if process is None:
        numbers = [answer["process"] for answer in processes_with_layouts()]
        if len(numbers) != 1:
            raise HeldError(_none_or_many(numbers))
        (process,) = numbers
    until = time.monotonic() + ANSWER_S
    for number, exchange in _exchanges("verify", until, process):
        answer = _answers({number: exchange}, until, ANSWER_S)[number]
        if "error" in answer:
            summary = f"process {process} does not answer"
            raise HeldError(Diagnostic("HP412", summary, why=str(answer["error"])))
        if answer["layouts"]:
            return _summed(answer, process)
    others = ", ".join(str(answer["process"]) for answer in processes_with_layouts()) or "none"
    hint = f"processes that hold a layout: {others}"
    raise HeldError(Diagnostic("HP412", f"process {process} holds no layout of this user", hint=hint))


def _exchanges(want: str, until: float, process: int | None = None) -> Iterator[tuple[int, Exchange | Late | Gone]]:
    """(number, exchange) of each process that has a socket: the request is sent. Late: it accepts no connection. Gone:
    it has ended or broken the protocol already.

    process: only it.
    """
    request = {"want": want, "number": 1, "timeout_s": ANSWER_S}
    for folder, name in sockets():
        number, is_holder = _process_of(name), name.startswith(HOLDER) and "." not in name
        if not is_holder and (number == 0 or process not in (None, number)):
            continue
        try:
            link = connect(within(folder, name), until)
        except ConnectionRefusedError:
            if not is_holder:
                remove_stale(folder, name)
            continue
        except Late as late:
            if not is_holder:
                yield number, late
            continue
        except OSError:  # the process has ended, or belongs to another user
            continue
        number = number or peer(link)[0]
        if process not in (None, number):
            link.close()
            continue
        exchange = Exchange(link, request, text_max=ANSWER_BYTES, descriptors_max=0)
        try:
            exchange.go_on()  # now: a process that has many callers drops those which send nothing
        except Gone as gone:
            link.close()
            yield number, gone
            continue
        yield number, exchange


def _process_of(name: str) -> int:
    """The number of the process with which the name of a socket begins; 0 for the socket of a holder."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def _answers(exchanges: Mapping[int, Exchange | Late | Gone], until: float, limit_s: float) -> dict[int, Message]:
    """Waits for the answers of several processes, and closes the connections. limit_s: for how long, for errors."""
    answers = {
        process: _no_answer(str(exchange) if isinstance(exchange, Gone) else "it accepts no connection")
        for process, exchange in exchanges.items()
    }
    missing = {process: exchange for process, exchange in exchanges.items() if isinstance(exchange, Exchange)}
    links = [exchange.link for exchange in missing.values()]
    while missing:
        try:
            exchange_with_all(missing, until)
            break
        except Gone as gone:
            answers[gone.peer] = _no_answer(str(gone))
            del missing[gone.peer]
        except Late as late:
            for process in late.missing:
                answers[process] = _no_answer(f"it did not answer within {limit_s:g} s")
                del missing[process]
    for process, exchange in missing.items():
        answers[process] = _checked(exchange.received.message)
    for link in links:
        link.close()
    return answers


def _no_answer(why: str) -> Message:
    return {"command": "", "layouts": [], "error": why}


def _summed(answer: Message, process: int) -> Message:
    layouts = answer["layouts"]
    for layout in layouts:
        if "error" in layout:
            summary = f"process {process} cannot read its layout '{layout['plan']}' back"
            raise HeldError(Diagnostic("HP412", summary, why=str(layout["error"])))
    first = {key: layouts[0][key] for key in ("plan", "digest", "machine", "runtime")}
    totals = {key: sum(layout[key] for layout in layouts) for key in ("checks", "differ")}
    return (
        answer
        | first
        | totals
        | {"differences": [difference for layout in layouts for difference in layout["differences"]]}
    )


def _none_or_many(processes: list[int]) -> Diagnostic:
    if not processes:
        hint = "`hipplan apply plan.yaml` holds one until ^C, and so does a program: hipplan.apply(..., answer=True)"
        return Diagnostic("HP412", "no process of this user holds a layout", hint=hint)
    which = ", ".join(map(str, processes))
    return Diagnostic(
        "HP412", f"{len(processes)} processes hold a layout", why=which, hint=f"name one: hipplan verify {processes[0]}"
    )


_ANSWER: dict[str, type] = {"format_version": int, "process": int, "command": str, "layouts": list}
_LAYOUT: dict[str, type] = {
    "plan": str,
    "digest": str,
    "machine": str,
    "runtime": str,
    "since": str,
    "bytes": int,
    "asleep": dict,
}
_READ_BACK: dict[str, type] = {"checks": int, "differ": int, "differences": list}


def _checked(answer: Message) -> Message:
    """The known keys of an answer; the other process may run another version of hipplan."""
    if (
        _has(answer, _ANSWER)
        and answer["format_version"] == strict_json.FORMAT_VERSION
        and all(_has(layout, _LAYOUT) and _is_read_back(layout) for layout in answer["layouts"])
    ):
        return {key: answer[key] for key in _ANSWER}
    return _no_answer("the answer is from another version of hipplan")


def _is_read_back(layout: Message) -> bool:
    if "error" in layout or not any(key in layout for key in _READ_BACK):
        return isinstance(layout.get("error", ""), str)
    return _has(layout, _READ_BACK) and all(
        _has(difference, dict.fromkeys(("name", "what", "desired", "current"), str))
        for difference in layout["differences"]
    )


def _has(given: Any, wanted: dict[str, type]) -> bool:
    return isinstance(given, dict) and all(isinstance(given.get(key), kind) for key, kind in wanted.items())
