"""JSON Schema 2020-12 of plans and machine profiles, for editors and for checks outside hipplan.

It describes a document as written: with vars, $(...), each and include. A schema cannot express references to names,
arithmetic (overlaps, ranges, sizes that are whole numbers of bytes) and combinations of keys: only hipplan checks
those. So the schema accepts everything that hipplan accepts, but not the other way round; a test checks that. One
exception: hipplan does not check objects that `each` repeats zero times.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from hipplan.kinds.plans import BUFFERS
from hipplan.language.model.describe import field_docs, models_below
from hipplan.language.model.plan import Plan
from hipplan.machines.machine import Limits, Link, Machine, MachineDevice, Mesh, NumaNode, SourceNote

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REPEATABLE = (
    "Advice", "Allocation", "Content", "DeviceSelector", "Mapping", "PeerLink", "Prefetch", "Region", "Reservation",
    "Stream", "Tensor", *(model.__name__ for model in BUFFERS),
)  # fmt: skip
_EXPRESSION = {"type": "string", "pattern": r"\$\(", "description": "$(...): names, integers, sizes, + - * // %"}
_DOMAIN = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string"},
        {"type": "array", "items": {"type": ["integer", "string", "boolean"]}},
        {
            "type": "object",
            "properties": {key: {"type": ["integer", "string"]} for key in ("from", "count", "step")},
            "required": ["count"],
            "additionalProperties": False,
        },
    ]
}
_EACH = {
    "description": "Repeat this over a number, a family of devices, a list, or names for those.",
    "anyOf": [
        {"$ref": "#/$defs/Domain"},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/Domain"}, "minProperties": 1},
    ],
}
_INCLUDE = {
    "description": "Further plans, by path relative to this one.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}


def plan_schema() -> dict[str, Any]:
    """The schema of a plan."""
    schema = _described(Plan, models_below(Plan))
    definitions = schema["$defs"]
    for definition in [schema, *definitions.values()]:
        properties = definition["properties"]
        for name, field in properties.items():
            properties[name] = _with_expressions(field)
        if definition["title"] in _REPEATABLE:
            properties["each"] = {"$ref": "#/$defs/Each"}
    schema["properties"]["include"] = _INCLUDE
    definitions |= {"Expression": _EXPRESSION, "Domain": _DOMAIN, "Each": _EACH}
    return {**_head("plan"), "title": "hipplan plan, version 1", **_without(schema, "title")}


def machine_schema() -> dict[str, Any]:
    """The schema of a machine profile."""
    models = {model.__name__: model for model in (MachineDevice, Link, Mesh, NumaNode, Limits, SourceNote)}
    return schema_of(Machine, models, "machine", "hipplan machine profile")


def schema_of(root: type[BaseModel], models: dict[str, Any], name: str, title: str) -> dict[str, Any]:
    """The schema of a document that is written without expressions. models: of the objects in it, by name."""
    return {**_head(name), "title": title, **_without(_described(root, models), "title")}


def _head(name: str) -> dict[str, Any]:
    """The dialect, and a name that is the same wherever the schema is stored: other schemas may refer to it."""
    return {"$schema": _DIALECT, "$id": f"urn:hipplan:{name}:1"}


def _described(root: type[BaseModel], models: dict[str, Any]) -> dict[str, Any]:
    """pydantic's schema with the docstrings of the fields as descriptions."""
    schema = root.model_json_schema()
    for name, definition in [(root.__name__, schema), *schema["$defs"].items()]:
        model = root if name == root.__name__ else models[name]
        docs = {model.model_fields[field].alias or field: text for field, text in field_docs(model).items()}
        for field, content in definition["properties"].items():
            content.pop("title", None)
            if content.get("default", 0) is None:
                del content["default"]
            content["description"] = docs[field]
    return schema


def _with_expressions(field: dict[str, Any]) -> dict[str, Any]:
    """A field as written: a value, or an expression for one. Names of objects may contain expressions too."""
    if "const" in field and field["type"] != "string":
        return field  # the version
    described: dict[str, Any] = {key: field[key] for key in ("description", "default") if key in field}
    return {**_as_written(_without(field, *described)), **described}


def _as_written(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return schema
    for union in ("anyOf", "oneOf"):
        if union in schema:
            branches = [_as_written(branch) for branch in schema[union]]
            branches = [flat for branch in branches for flat in branch.get("anyOf", [branch])]
            kept = [branch for i, branch in enumerate(branches) if branch not in branches[:i]]
            return {"anyOf": kept}  # not oneOf: a kind may be an expression, so several may match
    if schema.get("type") == "array":
        written = {**schema, "items": _as_written(schema["items"])}
        return {"anyOf": [written, {"$ref": "#/$defs/Expression"}]}
    if schema.get("type") == "object":
        return _names_as_written(schema)
    if schema.get("type") == "null" or schema == {"type": "string"}:
        return schema
    return {"anyOf": [schema, {"$ref": "#/$defs/Expression"}]}


def _names_as_written(schema: dict[str, Any]) -> dict[str, Any]:
    if "patternProperties" not in schema:
        return {**schema, "additionalProperties": _as_written(schema["additionalProperties"])}
    ((pattern, definition),) = schema["patternProperties"].items()
    definition = _as_written(_without(definition, "discriminator"))
    return {**schema, "patternProperties": {pattern: definition, r"\$\(": definition}, "additionalProperties": False}


def _without(schema: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}
