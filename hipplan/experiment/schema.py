"""JSON Schema of experiments."""

from __future__ import annotations

from typing import Any

from hipplan.experiment.model import Experiment, Metric
from hipplan.show.schema import schema_of


def experiment_schema() -> dict[str, Any]:
    """The schema of an experiment file."""
    schema = schema_of(Experiment, {"Metric": Metric}, "experiment", "hipplan experiment, version 1")
    metrics = schema["properties"]["metrics"]
    for pattern, metric in metrics["patternProperties"].items():
        metrics["patternProperties"][pattern] = {"anyOf": [{"type": "string"}, metric]}
    return schema
