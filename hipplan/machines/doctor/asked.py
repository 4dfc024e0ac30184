"""The process that queries a driver: python -m hipplan.machines.doctor.asked amd|cuda. It may hang or crash."""

from __future__ import annotations

import os
import sys
from typing import Any

from hipplan.errors import HipplanError
from hipplan.files import strict_json

SIGN = "hipplan doctor: "
"""Prefix of the line with the answer: libraries may print other lines."""


def answer(kind: str) -> dict[str, Any]:
    """The runtime's answers, or the reason why it cannot be used."""
    try:
        from hipplan.machines.discover import discover
        from hipplan.machines.runtimes import choose, described

        chosen = choose(kind)
        machine = discover(chosen, lambda _: ())  # without figures of memory, which would make contexts
        return {"runtime": described(chosen.runtime), "machine": machine.model_dump(exclude_none=True)}
    except HipplanError as error:
        first = error.diagnostics[0]
        return {"refused": {"summary": first.summary, "why": first.why, "hint": first.hint}}


def main() -> None:
    line = SIGN + strict_json.dumps(answer(sys.argv[1])) + "\n"
    os.write(1, line.encode())
    os._exit(0)  # skips the driver's exit handlers, which may hang


if __name__ == "__main__":
    main()
