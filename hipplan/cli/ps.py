"""hipplan ps: list the holders of this user: plan, state, memory, age, attached processes.

A holder that ended otherwise than by `hipplan down` is shown as failed, with the log that has the reason; `hipplan down
NAME` removes it from the list. One that does not answer is shown as silent.
Exit code: 0, 4 there may be holders that cannot be found: a folder for their sockets cannot be used.

Examples:
  hipplan ps
  hipplan ps --format json
  hipplan ps --quiet
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hipplan.cli.arguments import Parser, WrongUsage, format_option, seconds
from hipplan.cli.held import ago, place_of, state_of
from hipplan.errors import ExitCode, HipplanError, printable
from hipplan.files import strict_json
from hipplan.show.colours import show

_SHOWN = 5


def declare(parser: Parser) -> None:
    about = "call a holder silent after so many seconds without an answer (default: 10)"
    parser.add_argument("--timeout", metavar="S", type=seconds, default=10.0, help=about)
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the names, as text, and ask no holder")
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.holders import names, requests

    if given.quiet and given.format == "json":
        raise WrongUsage("-q prints names, and --format json all that is known: leave one out")
    if given.quiet:
        print("".join(f"{name}\n" for name, _, _ in names.known()), end="")
        return ExitCode.OK
    holders: list[dict[str, Any]] = []
    for name, log, runs in names.known():
        try:
            failed = {"name": name, "state": "failed", "log": log}
            holders.append(requests.status(name, given.timeout) if runs else failed)
        except HipplanError as error:
            why = error.diagnostics[0]
            holders.append({"name": name, "state": "silent", "log": log, "failed": why.why or why.summary})
    uncertain = names.uncertainty()
    code = ExitCode.OK if uncertain is None else uncertain.exit_code
    if given.format == "json":
        doubts = [] if uncertain is None else [diagnostic.to_json() for diagnostic in uncertain.diagnostics]
        print(strict_json.document(holders=holders, diagnostics=doubts))
    if uncertain is not None:
        show(uncertain.diagnostics)
    if given.format == "json":
        return code
    if holders:
        print(_table(holders))
    for number, holder in enumerate(holders):
        if number:
            print()
        _print_holder(holder)
    if not holders and uncertain is None:
        print("no holder of this user")
    return code


def _table(holders: Sequence[dict[str, Any]]) -> str:
    """A line for each holder; what they hold and who is attached is below."""
    from hipplan.show.tables import fitted_table

    rows = []
    for holder in holders:
        row = [holder["name"], "", holder["state"], "", "", "", ""]
        if "generations" in holder:
            generation = holder["generations"][-1] if holder["generations"] else None
            plan, memory = ("", "") if generation is None else (generation["plan"], place_of(generation, holder))
            attached = str(len(holder["attached"]))
            row = [holder["name"], plan, state_of(holder), memory, str(holder["pid"]), ago(holder["since"]), attached]
        rows.append(row)
    return fitted_table(("name", "plan", "state", "memory", ">process", ">up for", ">attached"), rows)


def _print_holder(holder: dict[str, Any]) -> None:
    name, state = holder["name"], holder["state"]
    if "generations" not in holder:
        print(printable(f"{name}: {state}{(holder.get('failed') and '; ' + holder['failed']) or ''}"))
        if holder["log"]:
            print(printable(f"  log: {holder['log']}"))
        return
    access = {"r": ", read-only", "rw": ", writable"}.get(holder["access"], "")
    print(printable(f"{name}: {state_of(holder)}, process {holder['pid']}, up for {ago(holder['since'])}{access}"))
    writable = {generation["generation"]: _few(generation["writable"]) for generation in holder["generations"]}
    for old, generation in enumerate(reversed(holder["generations"])):
        what = "  still attached: " if old else "  holds: "
        digest = generation["digest"][:12]
        print(printable(f"{what}{generation['plan']} ({digest}), {place_of(generation, holder)}"))
    if holder["failed"]:
        print(printable(f"  last change: {holder['failed']}"))
    for client in holder["attached"]:
        access = {"rw": " (rw)", "plan": f" (rw: {writable.get(client['generation'], '')})"}.get(client["access"], "")
        print(printable(f"  attached: {client['pid']} {client['command']}{access}, for {ago(client['since'])}"))
    if holder["context_bytes"]:
        print(f"  its own context takes {holder['context_bytes']} bytes of each device")
    if holder["log"]:
        print(printable(f"  log: {holder['log']}"))


def _few(names: Sequence[str]) -> str:
    """The first ones, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
