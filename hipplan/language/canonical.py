"""Formats a plan for `hipplan fmt`: one layout for the same data, with every comment kept.

    canonical(load_yaml("plan.yaml"))    # the text, or PlanError: HP026, it cannot be written without a loss

Keys stand in the order of the manual, names in the order written. What is written as {...} or [...] stays on one line
while it fits; what has a comment, or is longer, goes on lines of its own. Quotes go where nothing needs them.
The result is read again before it is given out: the same data, the same comments, and formatting it changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from hipplan.errors import PlanError
from hipplan.language.budget import no_garbage_collection
from hipplan.language.comments import Item, cannot_be_formatted, commented, opened
from hipplan.language.model.places import KindOfPlace, place_of
from hipplan.language.model.plan import Plan
from hipplan.language.source import Source, load_yaml
from hipplan.language.yaml12 import number_like

WIDTH = 120
_ROOT_ORDER = {
    key: number
    for number, key in enumerate(("hipplan", "name", "description", "include", *list(Plan.model_fields)[3:]))
}
_PLAIN = re.compile(r"(?:[A-Za-z0-9_/$]|\.(?=[/\w]))[A-Za-z0-9_./$()*+%<>=@~-]*(?: [A-Za-z0-9_./$()*+%<>=@~-]+)*")
_HEADER = re.compile(r"[|>]-?[ \t]*\r?\n?")
Entry = TypeVar("Entry")


@no_garbage_collection()
def canonical(source: Source, model: type[BaseModel] = Plan, wanted: str = "plan") -> str:
    """The plan as `hipplan fmt` writes it; or a document of another model, of the kind `wanted`.

    Raises PlanError for errors in the document, or HP026 if formatting would lose something.
    """
    if source.findings:
        raise PlanError(source.findings)
    text, comments = _written(source, model)
    if text == source.text:
        return text
    try:
        again = load_yaml(text, source.name, wanted)
        twice, kept = _written(again, model)
        if _same(source.data, again.data) and Counter(comments) == Counter(kept) and twice == text:
            return text
    except PlanError:  # the text is not YAML
        pass
    raise cannot_be_formatted(source, 0, "formatting would change its data or drop a comment")


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal, with equal types: 1 is neither true nor 1.0."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and (a == b or a != a)


def _written(source: Source, model: type[BaseModel]) -> tuple[str, list[str]]:
    """The canonical text and the comments of the source."""
    root, head, comments = commented(source)
    lines = [*head, *_Writer(source, place_of(model)).body(root)]
    return "\n".join(lines).strip("\n") + "\n", comments


class _Writer:
    def __init__(self, source: Source, root: KindOfPlace) -> None:
        self.source = source
        self.root = root
        self._pieces: dict[tuple[KindOfPlace, str], str] = {}

    def body(self, root: Item) -> list[str]:
        if not root.items:
            return [self.flow(root.value, self.root), *root.below]
        return self.block(root, 0, self.root)

    def block(self, parent: Item, indent: int, place: KindOfPlace) -> list[str]:
        """The items of a mapping or a list, on lines of their own."""
        lines: list[str] = []
        pad = " " * indent
        for number, item in enumerate(self.ordered(parent.value, parent.items, place, _key_of)):
            if item.blank and number:
                lines.append("")
            lines += [pad + comment if comment else "" for comment in item.above]
            if item.key is not None:
                lines += self.entry(pad + self.scalar(item.key) + ":", item, indent, place)
            else:
                lines += self.listed(item, indent, place)
        return lines + self.lines_below_of(parent, indent)

    def lines_below_of(self, item: Item, indent: int) -> list[str]:
        return [" " * indent + comment if comment else "" for comment in item.below]

    def ordered(
        self, node: yaml.Node, entries: Sequence[Entry], place: KindOfPlace, key_of: Callable[[Entry], str]
    ) -> Sequence[Entry]:
        """Keys of the language in its own order; names, and keys that do not exist, as written."""
        if not isinstance(node, yaml.MappingNode):
            return entries
        if place is place_of(Plan):
            numbers = _ROOT_ORDER
        elif not place.models:  # the keys here are names
            return entries
        else:
            kind = next((value.value for key, value in node.value if key.value == "kind"), "") if place.chosen else ""
            numbers = _numbered(place, kind if isinstance(kind, str) else "")
        return sorted(entries, key=lambda entry: numbers.get(key_of(entry), len(numbers)))

    def entry(self, prefix: str, item: Item, indent: int, place: KindOfPlace) -> list[str]:
        """`key: value`, on one line if it can be. place: of what it is in."""
        value = item.value
        if isinstance(value, yaml.ScalarNode):
            if value.style in ("|", ">"):
                return self.lines_of(prefix, value, item, indent)
            written = self.scalar(value)
            lines_below = self.lines_below_of(item, indent + 2)
            return [_beside(f"{prefix} {written}" if written else prefix, item), *lines_below]
        place = place.below(item.key.value if item.key else 0)
        if not item.has_parts or (item.flows and not item.commented):
            line = f"{prefix} {self.piece(item, place) if item.one_piece else self.flow(value, place)}"
            if not item.has_parts or len(line) <= WIDTH:
                return [_beside(line, item)]
        if item.one_piece:
            opened(self.source.text, item)
        return [_beside(prefix, item), *self.block(item, indent + 2, place)]

    def listed(self, item: Item, indent: int, place: KindOfPlace) -> list[str]:
        """`- value`; a block begins behind the dash, and comments on its first line go above."""
        pad = " " * indent
        lines = self.entry(pad + "-", item, indent, place)
        if len(lines) == 1 or not item.has_parts:
            return lines
        first = next(number for number, line in enumerate(lines) if number and line.strip(" ")[:1] not in ("", "#"))
        comments = [item.behind] * bool(item.behind) + [line.strip(" \t") for line in lines[1:first]]
        above = [pad + comment if comment else "" for comment in comments]
        return [*above, f"{pad}- {lines[first].lstrip(' ')}", *lines[first + 1 :]]

    def piece(self, item: Item, place: KindOfPlace) -> str:
        """Returns what flow() does, from a cache: thousands of tensors have the same shape."""
        start, end = item.value.start_mark.index, item.value.end_mark.index
        key = (place, self.source.text[start:end])
        if (written := self._pieces.get(key)) is None:
            written = self._pieces[key] = self.flow(item.value, place)
        return written

    def flow(self, node: yaml.Node, place: KindOfPlace) -> str:
        """A value on one line."""
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node) or "null"
        if isinstance(node, yaml.SequenceNode):
            inside = place.below(0)
            return "[" + ", ".join([self.flow(value, inside) for value in node.value]) + "]"
        pairs = self.ordered(node, node.value, place, _key_of_pair)
        parts = [f"{self.scalar(key)}: {self.flow(value, place.below(key.value))}" for key, value in pairs]
        return "{" + ", ".join(parts) + "}"

    def scalar(self, node: Any) -> str:
        written = self.source.text[node.start_mark.index : node.end_mark.index]
        if not node.style and "\n" not in written and "\r" not in written:
            return written.strip(" \t")
        value = str(node.value)
        if _PLAIN.fullmatch(value) and not number_like(value):
            return value
        return '"' + "".join(map(_escaped, value)) + '"'

    def lines_of(self, prefix: str, node: yaml.ScalarNode, item: Item, indent: int) -> list[str]:
        """A text of several lines, only moved to another indentation."""
        start = node.start_mark.index
        header, *lines = self.source.text[start : node.end_mark.index].splitlines()
        if not _HEADER.fullmatch(header) or item.behind:
            why = "the first line of a multi-line text has more than | or > or -"
            raise cannot_be_formatted(self.source, start, why)
        while lines and not lines[-1].strip(" \t"):
            lines.pop()
        if not lines:
            return [f'{prefix} ""']
        margin = min(len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" \t"))
        pad = " " * (indent + 2)
        return [f"{prefix} {header.strip()}", *(pad + line[margin:] if line.strip(" \t") else "" for line in lines)]


@cache
def _numbered(place: KindOfPlace, kind: str) -> dict[str, int]:
    """The keys that an object may have -> their position in the manual's order."""
    keys = dict.fromkeys(("each", "kind", *place.fields(kind)))
    return {key: number for number, key in enumerate(keys)}


def _key_of(item: Item) -> str:
    return str(item.key.value) if item.key else ""


def _key_of_pair(pair: tuple[yaml.ScalarNode, yaml.Node]) -> str:
    return str(pair[0].value)


def _beside(line: str, item: Item) -> str:
    return f"{line.ljust(item.behind_column - 2)}  {item.behind}" if item.behind else line


def _escaped(sign: str) -> str:
    if sign in '"\\':
        return "\\" + sign
    if sign.isprintable():
        return sign
    return {"\n": "\\n", "\t": "\\t"}.get(sign) or (
        f"\\u{ord(sign):04x}" if ord(sign) < 65536 else f"\\U{ord(sign):08x}"
    )
