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

    layouts: list[dict[str, Any]] = []
    for name, log, runs in names.known():
        try:
            layouts.append(asking.status(name) if runs else {"name": name, "state": "failed", "log": log})
        except HeldError as error:
            why = error.diagnostics[0]
            layouts.append({"name": name, "state": "silent", "log": log, "failed": why.why or why.summary})
    if given.format == "json":
        print(strict_json.document(holders=layouts))
        return 0
    for number, layout in enumerate(layouts):
        if number:
            print()
        _print_layout(layout)
    if not layouts:
        print("no holder of this user")
    return 0


def _print_layout(layout: dict[str, Any]) -> None:
    if "generations" not in layout:
        print(
            printable(f"{layout['name']}: {layout['state']}{(layout.get('failed') and '; ' + layout['failed']) or ''}")
        )
        print(printable(f"  log: {layout['log']}"))
        return
    access = {"r": ", read-only", "rw": ", writable"}.get(layout["access"], "")
    print(
        printable(
            f"{layout['name']}: {state_of(layout)}, process {layout['pid']}, up for {ago(layout['since'])}{access}"
        )
    )
    writable = {generation["generation"]: _few(generation["writable"]) for generation in layout["generations"]}
    for old, generation in enumerate(reversed(layout["generations"])):
        what = "  still attached: " if old else "  holds: "
        digest = generation["digest"][:12]
        print(printable(f"{what}{generation['plan']} ({digest}), {sizes(generation['bytes'])}"))
    if layout["failed"]:
        print(printable(f"  last replacement failed: {layout['failed']}"))
    for guest in layout["attached"]:
        access = {"rw": " (rw)", "plan": f" (rw: {writable.get(guest['generation'], '')})"}.get(guest["access"], "")
        print(printable(f"  attached: {guest['pid']} {guest['command']}{access}, for {ago(guest['since'])}"))
    if layout["context_bytes"]:
        print(f"  its own context takes {layout['context_bytes']} bytes of each device")
    if layout["log"]:
        print(printable(f"  log: {layout['log']}"))


def _few(names: Sequence[str]) -> str:
    """The first ones, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
