"""YAML 1.2 scalars over PyYAML's composer: `no`, `on` and `10:00` are words, `012` is twelve (and refused: HP015).

Follows the core schema of the YAML 1.2.2 specification, section 10.3.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from hipplan.language.budget import Budget
from hipplan.plain import DIGITS_MAX
from hipplan.units import without_zeros

DEPTH_MAX = 64

# libyaml counts these five as line breaks, so the lines shown in messages must be cut at the same places.
LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")

STR, INT, FLOAT, BOOL, NULL, COLLECTION = "str", "int", "float", "bool", "null", "collection"
CONSTANTS: dict[str, tuple[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), (NULL, None)),
    **dict.fromkeys(("true", "True", "TRUE"), (BOOL, True)),
    **dict.fromkeys(("false", "False", "FALSE"), (BOOL, False)),
}
_NUMBER_STARTS = frozenset("-+.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOATING = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


class TooDeep(Exception):
    pass


class _Resolver:
    """Core scalars and a depth limit. Mixed into PyYAML's composer, which calls these for every node."""

    depth = 0
    nodes = 0
    budget: Budget | None = None
    """Checked before each thousand nodes."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        self.nodes += 1
        if self.nodes % 1000 == 0 and self.budget is not None:
            self.budget.take("values", 1000, "this document")
        if kind is not yaml.ScalarNode:
            return COLLECTION
        if not implicit[0]:
            return STR
        if value in CONSTANTS:
            return CONSTANTS[value][0]
        if value[0] in _NUMBER_STARTS:
            if _INTEGER.fullmatch(value):
                return INT
            if _FLOATING.fullmatch(value):
                return FLOAT
        return STR

    def descend_resolver(self, _parent: Any, index: Any) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise TooDeep

    def ascend_resolver(self) -> None:
        self.depth -= 1


try:
    from yaml._yaml import CParser  # type: ignore[import-not-found,unused-ignore]

    class Composer(_Resolver, CParser):  # type: ignore[misc,unused-ignore]
        """PyYAML's composer over libyaml."""

except ImportError:  # PyYAML was built without libyaml: the same nodes, slower
    from yaml.composer import Composer as PureComposer
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class Composer(_Resolver, Reader, Scanner, Parser, PureComposer):  # type: ignore[no-redef]
        def __init__(self, text: str) -> None:
            Reader.__init__(self, text)
            Scanner.__init__(self)
            Parser.__init__(self)
            PureComposer.__init__(self)


def number_like(text: str) -> bool:
    """Whether a text would be read as something else if it stood without quotes."""
    plain = text in CONSTANTS or text[0] in _NUMBER_STARTS
    return plain and _Resolver().resolve(yaml.ScalarNode, text, (True, False)) != STR


SCALARS = frozenset((INT, FLOAT, BOOL, NULL))


def refused_number(tag: str, text: str) -> dict[str, str]:
    """The code, summary, hint and reason of a number that is refused; empty if it is none, or good.

    One with very many digits is refused before it costs time.
    """
    if tag not in (INT, FLOAT):
        return {}
    large = {"code": "HP012", "hint": "numbers in a plan have at most 64 bits"}
    if len(text) > DIGITS_MAX:
        return large | {"summary": f"a number with {len(text)} digits"}
    if tag == FLOAT and "inf" not in text.lower() and math.isinf(scalar(tag, text)):
        return large | {"summary": f"{text} is too large"}
    if short := without_zeros(text):
        octal = f", or 0o{short} for an octal number" if re.fullmatch("[0-7]+", short) else ""
        why = f"YAML 1.2 reads it as {short}, YAML 1.1 and C as octal" if tag == INT else ""
        hint = f"write {short}{octal}; quote it if it is text"
        return {"code": "HP015", "summary": f"the number {text} begins with a zero", "why": why, "hint": hint}
    return {}


def scalar(tag: str, text: str) -> Any:
    """The value of a plain scalar that was resolved to one of SCALARS."""
    if tag == INT:
        return int(text, 0 if text[:2] in ("0x", "0o") else 10)
    if tag == FLOAT:
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return CONSTANTS[text][1]
