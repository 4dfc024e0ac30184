"""Where a region's memory is, as a plan writes it: a device, or the host."""

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from hipplan.language.base import refuse
from hipplan.language.host import HOST, NEAR, is_host, node_of, on_node

_NODE_MAX = 1023
_ON_HOST = "on the host, write host, {host: {numa: near}}, or {host: {numa: 0}}"


def _memory_of(value: object) -> object:
    """A device's name; for the host on a node, host.near or host.N."""
    if isinstance(value, dict):
        place = value.get(HOST) if len(value) == 1 else None
        node = place.get("numa") if isinstance(place, dict) and len(place) == 1 else None
        if not (node == NEAR or (type(node) is int and 0 <= node <= _NODE_MAX)):
            raise refuse("HP105", "this is no place for memory", hint=_ON_HOST)
        return on_node(node)
    if isinstance(value, str) and is_host(value) and value not in (HOST, on_node(NEAR)) and node_of(value) is None:
        raise refuse("HP105", f"'{value[:60]}' is no place for memory", hint=_ON_HOST)
    return value


def _only(key: str, value: dict[str, object]) -> dict[str, object]:
    """The schema of a mapping with this key alone."""
    only_key = {"minProperties": 1, "maxProperties": 1, "propertyNames": {"const": key}}
    return {"type": "object", **only_key, "additionalProperties": value}


_NODE: dict[str, object] = {"type": "integer", "minimum": 0, "maximum": _NODE_MAX}
_ON_NODE = _only(HOST, _only("numa", {"anyOf": [{"const": NEAR, "type": "string"}, _NODE]}))

MemoryOf = Annotated[
    str,
    BeforeValidator(_memory_of),
    WithJsonSchema({"anyOf": [{"type": "string"}, _ON_NODE]}),
]
"""A device, or the host: `host`, or {host: {numa: near}} for memory near the region's GPU, or {host: {numa: 0}}."""
