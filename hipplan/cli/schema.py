"""hipplan schema: the JSON Schema of plans or of machine profiles, for editors and other tools.

Examples:
  hipplan schema > plan-schema.json
  hipplan schema machine
"""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import Parser
from hipplan.files import strict_json


def declare(parser: Parser) -> None:
    about = "a plan (default), or a machine profile"
    parser.add_argument("document", nargs="?", choices=("plan", "machine"), default="plan", help=about)


def run(given: Namespace) -> int:
    from hipplan.show.schema import machine_schema, plan_schema

    print(strict_json.dumps(plan_schema() if given.document == "plan" else machine_schema(), indent=2))
    return 0
