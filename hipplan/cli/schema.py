"""hipplan schema: the JSON Schema of plans, machine profiles or experiments, for editors and other tools.

Examples:
  hipplan schema > plan-schema.json
  hipplan schema machine
  hipplan schema experiment
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from hipplan.cli.arguments import Parser
from hipplan.files import strict_json


def declare(parser: Parser) -> None:
    about = "a plan (default), a machine profile, or an experiment"
    choices = ("plan", "machine", "experiment")
    parser.add_argument("document", nargs="?", choices=choices, default="plan", help=about)


def run(given: Namespace) -> int:
    print(strict_json.dumps(_schema(given.document), indent=2))
    return 0


def _schema(document: str) -> dict[str, Any]:
    if document == "experiment":
        from hipplan.experiment.schema import experiment_schema

        return experiment_schema()
    from hipplan.show.schema import machine_schema, plan_schema

    return plan_schema() if document == "plan" else machine_schema()
