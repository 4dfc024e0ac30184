"""The process that answers the questions of a part, as lines of JSON: it may crash or hang."""

from __future__ import annotations

import os
import sys
from typing import Any

from hipplan.checkup.driver import Driver, NotHere
from hipplan.checkup.parts import PARTS
from hipplan.checkup.question import Bench, Question
from hipplan.errors import HipplanError
from hipplan.files import strict_json
from hipplan.machines.runtimes import choose


def main() -> None:
    descriptor, wanted, memory, part, first = sys.argv[1:]

    def say(**line: Any) -> None:
        os.write(int(descriptor), strict_json.dumps(line).encode() + b"\n")

    try:
        chosen = choose(wanted or None)
        bench = Bench(chosen, Driver(chosen.runtime.path), int(memory))
    except HipplanError as error:
        say(refused=_first_line(error))
    else:
        for question in PARTS[part][int(first) :]:
            say(begins=question.name)
            say(**_answer(question, bench))
    os._exit(0)  # skips the driver's exit handlers, which may hang


def _answer(question: Question, bench: Bench) -> dict[str, Any]:
    try:
        return {"seen": question.ask(bench)}
    except NotHere as why:
        return {"skipped": str(why)}
    except Exception as error:  # any failure is a line of the report
        return {"failed": _first_line(error)}


def _first_line(error: Exception) -> str:
    if isinstance(error, HipplanError):
        first = error.diagnostics[0]
        return f"{first.code}: {first.summary}" + (f" ({first.why})" if first.why else "")
    return next(iter(str(error).splitlines()), "") or type(error).__name__


if __name__ == "__main__":
    main()
