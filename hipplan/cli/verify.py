"""hipplan verify: read back what another process holds, `hipplan apply` or a program; show what differs from its plan.

Exit code: 0 all is as the plan says, 6 something differs, 4 no layout of this user can be asked.

Examples:
  hipplan verify
  hipplan verify --list
  hipplan verify 4711 --format json
"""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import Parser, WrongUsage, format_option, integer
from hipplan.errors import ExitCode
from hipplan.files import strict_json


def declare(parser: Parser) -> None:
    about = "the process that holds it; needed only if several do"
    parser.add_argument("process", metavar="PID", nargs="?", type=integer, help=about)
    parser.add_argument(
        "--list", action="store_true", help="list the processes that hold a layout: plan, memory, start time, command"
    )
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.processes import verifying
    from hipplan.show import render

    if given.process is not None and given.process < 1:
        raise WrongUsage("a process ID is 1 or more")
    if given.list:
        answers = verifying.processes_with_layouts()
        if given.format == "json":
            print(strict_json.document(None, processes=[answer["process"] for answer in answers], holders=answers))
        else:
            print(render.processes_text(answers))
        return ExitCode.OK
    answer = verifying.verify_process(given.process)
    if given.format == "json":
        print(strict_json.dumps(answer, indent=2))
    else:
        print(render.verified_text(answer))
    return ExitCode.CHANGES if answer.get("differ") else ExitCode.OK
