"""hipplan ps: list the holders of this user: state, memory, since when, who is attached.

A holder that ended otherwise than by `hipplan down` is shown as failed, with the log that says why; `hipplan down NAME`
removes it from the list. One that does not answer is shown as silent.
Exit code: 0.

Examples:
  hipplan ps
  hipplan ps --format json
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hipplan.cli.arguments import Parser, format_option
from hipplan.cli.held import ago, sizes, state_of
from hipplan.errors import HeldError, printable
from hipplan.files import strict_json

_SHOWN = 5


def declare(parser: Parser) -> None:
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.holders import asking, names

    found: list[dict[str, Any]] = []
    for name, log, runs in names.known():
        try:
            found.append(asking.status(name) if runs else {"name": name, "state": "failed", "log": log})
        except HeldError as error:
            why = error.diagnostics[0]
            found.append({"name": name, "state": "silent", "log": log, "failed": why.why or why.summary})
    if given.format == "json":
        print(strict_json.document(holders=found))
        return 0
    for number, one in enumerate(found):
        if number:
            print()
        _tell(one)
    if not found:
        print("no holder of this user")
    return 0


def _tell(one: dict[str, Any]) -> None:
    if "generations" not in one:
        print(printable(f"{one['name']}: {one['state']}{(one.get('failed') and '; ' + one['failed']) or ''}"))
        print(printable(f"  log: {one['log']}"))
        return
    access = {"r": ", read-only", "rw": ", writable"}.get(one["access"], "")
    print(printable(f"{one['name']}: {state_of(one)}, process {one['pid']}, up for {ago(one['since'])}{access}"))
    writable = {generation["generation"]: _few(generation["writable"]) for generation in one["generations"]}
    for old, generation in enumerate(reversed(one["generations"])):
        what = "  still attached: " if old else "  holds: "
        digest = generation["digest"][:12]
        print(printable(f"{what}{generation['plan']} ({digest}), {sizes(generation['bytes'])}"))
    if one["failed"]:
        print(printable(f"  last replacement failed: {one['failed']}"))
    for guest in one["attached"]:
        access = {"rw": " (rw)", "plan": f" (rw: {writable.get(guest['generation'], '')})"}.get(guest["access"], "")
        print(printable(f"  attached: {guest['pid']} {guest['command']}{access}, for {ago(guest['since'])}"))
    if one["context_bytes"]:
        print(f"  its own context takes {one['context_bytes']} bytes of each device")
    if one["log"]:
        print(printable(f"  log: {one['log']}"))


def _few(names: Sequence[str]) -> str:
    """The first ones, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
