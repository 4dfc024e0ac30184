"""hipplan schema: the JSON Schema of plans and of machine profiles, for editors and other tools."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated

import typer


class Document(str, Enum):
    """What a schema is for."""

    plan = "plan"
    machine = "machine"


def schema(
    document: Annotated[Document, typer.Argument(help="A plan, or a machine profile.")] = Document.plan,
) -> None:
    """Print the JSON Schema of plans or of machine profiles."""
    from hipplan.schema import machine_schema, plan_schema

    print(json.dumps(plan_schema() if document is Document.plan else machine_schema(), indent=2))
