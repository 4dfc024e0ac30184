"""YAML text -> plain data + positions.

`load_yaml` reads one YAML 1.2 document of bounded size into dicts, lists, str, int, float, bool and None.
`Source.span(path)` says where a piece of that data stands, for example ("devices", "gpu", "count"). The tree
of positions is the tree of nodes that PyYAML's composer makes anyway: it is walked only when something is
wrong, so a good plan pays nothing for it.

All errors of a document that can be found together are raised together, as PlanError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import yaml

from hipplan.errors import Diagnostic, PlanError, Span, reason_of
from hipplan.language.budget import Budget, no_garbage_collection
from hipplan.language.findings import Findings
from hipplan.language.kinds import beginning, instead
from hipplan.language.malformed import malformed
from hipplan.language.yaml12 import (
    COLLECTION,
    DEPTH_MAX,
    LINE_BREAK,
    SCALARS,
    STR,
    Composer,
    TooDeep,
    refused_number,
    scalar,
)
from hipplan.plain import keys_to

BYTES_MAX = 64 * 2**20

# The complement of YAML's printable characters: compiling the set itself takes ten times as long.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


class Source:
    """One document: its data and where each piece of it was written."""

    def __init__(self, name: str, text: str, data: Any, root: yaml.Node | None, budget: Budget | None = None) -> None:
        self.name = name
        self.text = text
        self.data = data
        self.budget = budget or Budget()
        """What is left of the limits; the documents of one plan share it."""
        self.findings = Findings()
        """Errors that leave the data readable (a key that appears twice): reported together with later ones."""
        self.root = root
        self._lines: list[str] | None = None
        self._children: dict[int, dict[Any, tuple[yaml.Node, yaml.Node]]] = {}

    def span(self, path: Sequence[Hashable] = (), *, key: bool = False) -> Span | None:
        """The place of the value (or key) at `path`, or of its nearest ancestor if it does not exist."""
        if self.root is None:
            keys = keys_to(self.data, path)
            return Span(self.name, 0, 0, 0, 0, "", path=keys) if keys else None
        key_node, node = None, self.root
        for step in path:
            child = self._children_of(node).get(step)
            if child is None:
                # A missing key is best shown at the key of the object that lacks it, not at its whole body.
                return self._node_span(key_node if key_node is not None else node)
            key_node, node = child
        return self._node_span(key_node if key and key_node is not None else node)

    def text_span(self, line: int, column: int, length: int = 1) -> Span:
        """A place that is not a node. Line and column count from 1."""
        return Span(self.name, line, column, line, column + length, self.line(line))

    def _node_span(self, node: yaml.Node) -> Span:
        start, end = node.start_mark, node.end_mark
        return Span(
            self.name,
            start.line + 1,
            start.column + 1,
            end.line + 1,
            end.column + 1,
            self.line(start.line + 1),
        )

    def line(self, line: int) -> str:
        """A line of the text by its number, from 1 on; empty if there is none."""
        if self._lines is None:
            self._lines = LINE_BREAK.split(self.text)
        return self._lines[line - 1] if 0 < line <= len(self._lines) else ""

    def _children_of(self, node: yaml.Node) -> dict[Any, tuple[yaml.Node, yaml.Node]]:
        children = self._children.get(id(node))
        if children is None:
            if isinstance(node, yaml.MappingNode):
                # If a key appears twice, the data has the first value.
                children = {key.value: (key, value) for key, value in reversed(node.value)}
            elif isinstance(node, yaml.SequenceNode):
                children = {index: (item, item) for index, item in enumerate(node.value)}
            else:
                children = {}
            self._children[id(node)] = children
        return children


def within(span: Span, text: str, start: int, length: int) -> Span:
    """The span of a part of a one-line value. start counts from the opening quote, if there is one."""
    begin = span.column - 1
    for offset in (0, 1):
        if span.text.startswith(text, begin + offset):
            column = span.column + offset + start
            return replace(span, column=column, end_line=span.line, end_column=column + length)
    return span


def load_yaml(
    source: str | os.PathLike[str] | IO[Any],
    name: str | None = None,
    wanted: str = "plan",
    budget: Budget | None = None,
) -> Source:
    """Read one YAML document: from a path, an open stream, or a text (a str with a line break in it).

    Raises PlanError; if the document is another of hipplan's own than is wanted, that alone is what it says (HP014).
    """
    raw: str | bytes
    if isinstance(source, str) and LINE_BREAK.search(source):
        name, raw = name or "<text>", source
    else:
        name = name or _name(source)
        raw = read_all(source, name)
    text = ""
    try:
        text = _decode(raw, name, wanted) if isinstance(raw, bytes) else raw
        if len(text) > BYTES_MAX:
            raise _too_large(name, wanted)
        with no_garbage_collection():
            document = _Reader(name, text.removeprefix("\ufeff"), wanted, budget).read()
    except PlanError as error:
        past_limit = any(diagnostic.code == "HP023" for diagnostic in error.diagnostics)
        if not past_limit and (other := instead(name, text, None, wanted)) is not None:
            raise PlanError(other) from None
        raise
    if (other := instead(name, text, document.data, wanted)) is not None:
        raise PlanError(other)
    return document


def _name(source: Any) -> str:
    if hasattr(source, "read"):
        return str(getattr(source, "name", "<stream>"))
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source).__name__
        raise TypeError(f"expected a path, a text, an open stream or a mapping, not {kind}")
    if not os.fspath(source):
        raise PlanError(Diagnostic("HP001", "the path is empty", hint="name a file"))
    return os.fsdecode(source)


def read_all(source: str | os.PathLike[str] | IO[Any], name: str) -> Any:
    """The contents of a file or stream: bytes, or text from a text stream. Reads at most a little over the limit.

    Raises PlanError.
    """
    try:
        if isinstance(source, (str, os.PathLike)):
            with Path(source).open("rb") as file:
                return _pieces(file)
        return _pieces(source)
    except (OSError, ValueError) as error:
        one_line = isinstance(source, str) and re.search(r"[{:] ", source)
        hint = "text of one line is read as a path: end it with a line break" if one_line else ""
        raise PlanError(Diagnostic("HP001", f"cannot read {name}: {reason_of(error)}", hint=hint)) from None


def _pieces(file: IO[Any]) -> Any:
    """Read in pieces: one read would allocate BYTES_MAX."""
    problems = []
    size = 0
    while size <= BYTES_MAX and (piece := file.read(1 << 20)):
        problems.append(piece)
        size += len(piece)
    return problems[0][:0].join(problems) if problems else b""


def _too_large(name: str, wanted: str) -> PlanError:
    hint = "use each: or count: to repeat" if wanted == "plan" else beginning(wanted)
    return PlanError(Diagnostic("HP009", f"{name} is larger than {BYTES_MAX // 2**20} MiB", hint=hint))


def _decode(raw: bytes, name: str, wanted: str) -> str:
    if len(raw) > BYTES_MAX:
        raise _too_large(name, wanted)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode("utf-8")
        lines = LINE_BREAK.split(good)
        wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        raise PlanError(
            Diagnostic(
                "HP002",
                f"byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8",
                Span(name, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 2, ""),
                hint="this looks like UTF-16; save it as UTF-8" if wide else "save the file as UTF-8",
            )
        ) from None


class _Reader:
    """Turns one text into a Source and collects every error."""

    def __init__(self, name: str, text: str, wanted: str, budget: Budget | None) -> None:
        self.source = Source(name, text, None, None, budget)
        self.wanted = wanted
        self.findings = self.source.findings
        self.seen: set[int] = set()
        self.open: set[int] = set()
        self.places: dict[int, dict[Any, int]] = {}
        """Mapping in which a key appears twice -> the first index of each key."""
        self.joined: set[int] = set()
        """Mappings into which both values of such a key were merged."""

    def read(self) -> Source:
        root = self._compose()
        source = self.source
        source.root = root
        source.data = self._construct(root)
        if any(diagnostic.code != "HP005" for diagnostic in self.findings):
            raise PlanError(self.findings)
        return source

    def _compose(self) -> yaml.Node:
        text = self.source.text
        bad = _FORBIDDEN.search(text)
        if bad:
            raise PlanError(self._forbidden(bad.start()))
        composer = Composer(text)
        composer.budget = self.source.budget.copy()  # counts nodes: an alias makes none
        try:
            root: yaml.Node | None = composer.get_single_node()
        except TooDeep:
            raise PlanError(
                Diagnostic("HP009", f"nested deeper than {DEPTH_MAX} levels", self.source.text_span(1, 1))
            ) from None
        except yaml.MarkedYAMLError as error:
            raise PlanError(malformed(error, self.source)) from None
        except yaml.YAMLError as error:
            raise PlanError(Diagnostic("HP004", str(error).splitlines()[0])) from None
        if root is None:
            raise PlanError(Diagnostic("HP010", f"{self.source.name} is empty", hint=beginning(self.wanted)))
        return root

    def _forbidden(self, index: int) -> Diagnostic:
        text = self.source.text
        lines = LINE_BREAK.split(text[:index])
        where = self.source.text_span(len(lines), len(lines[-1]) + 1)
        what = "NUL" if text[index] == "\0" else f"U+{ord(text[index]):04X}"
        why = "a byte order mark belongs at the very start" if text[index] == "\ufeff" else ""
        return Diagnostic("HP003", f"the character {what} is not allowed in YAML", where, why=why, hint="remove it")

    def _construct(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.ScalarNode):
            tag = node.tag
            return node.value if tag == STR else self._scalar(node)
        if node.tag != COLLECTION:
            self._tagged(node)
        identity = id(node)
        if identity in self.open:
            self._report("HP008", "this anchor contains an alias of itself", node, hint="write the value out")
            return None
        again = identity in self.seen
        who = "the alias" if again else "this document"
        for kind in ("values", "repeated values") if again else ("values",):
            self.source.budget.take(kind, 1 + len(node.value), who, lambda: self.source._node_span(node))
        self.seen.add(identity)
        self.open.add(identity)
        value = (
            self._mapping(node)
            if isinstance(node, yaml.MappingNode)
            else [self._construct(item) for item in node.value]
        )
        self.open.discard(identity)
        return value

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        result: dict[str, Any] = {}
        last = node
        for key_node, value_node in node.value:
            if key_node.tag != STR or not isinstance(key_node, yaml.ScalarNode):
                if not self._digits(last, key_node):
                    self._bad_key(key_node)
                continue
            last = value_node
            key = key_node.value
            if key in result:
                self._duplicate(node, key_node, value_node, result)
                continue
            if key == "<<" and not key_node.style:
                hint = "repeat the keys, or use vars"
                self._report("HP007", "`<<` is a merge key of YAML 1.1", key_node, hint=hint)
            result[key] = self._construct(value_node)
        return result

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if node.tag not in SCALARS:
            self._tagged(node)
            return None
        if refused := refused_number(node.tag, node.value):
            self._report(node=node, **refused)
            return 0
        return scalar(node.tag, node.value)

    def _tagged(self, node: yaml.Node) -> None:
        why = "a plan holds only plain data; a tag could construct a Python object"
        hint = "remove the tag; if the value is text, quote it"
        self._report("HP006", f"the tag {_short_tag(node.tag)} is not allowed", node, why=why, hint=hint)

    def _bad_key(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode) and node.tag in SCALARS:
            shown = node.value or "an empty key"
            self._report("HP011", f"the key {shown} is read as {node.tag}", node, hint=f'quote it: "{node.value}"')
        elif isinstance(node, yaml.ScalarNode):
            self._tagged(node)
        else:
            name = node.value[0][0].value if isinstance(node, yaml.MappingNode) and len(node.value) == 1 else None
            hint = f"a variable is $({name.strip()})" if isinstance(name, str) else ""
            self._report("HP011", "a list or mapping cannot be a key", node, hint=hint)

    def _digits(self, last: yaml.Node, node: yaml.Node) -> bool:
        """Whether a key is a part of a number such as 1,048,576, which ends at its comma inside braces."""
        begin = last.start_mark.index
        text = self.source.text[begin : min(node.end_mark.index, begin + 40)]
        if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", text) is None:
            return False
        after = re.match(r"(,[0-9]{3})*", self.source.text[node.end_mark.index :][:40])
        if after is not None and not after[0]:  # the last part
            where = self.source.text_span(last.start_mark.line + 1, last.start_mark.column + 1, len(text))
            if not self.findings.enough():
                hint = f"write {text.replace(',', '')}"
                self.findings.add(
                    Diagnostic("HP011", f"inside braces the comma in {text} ends the value", where, hint=hint)
                )
        return True

    def _duplicate(
        self, node: yaml.MappingNode, key_node: yaml.ScalarNode, value_node: yaml.Node, result: dict[str, Any]
    ) -> None:
        """Report a key that appears twice. If both values are mappings, they are merged, so that both are checked."""
        key = key_node.value
        if id(node) not in self.places:
            keys = [(index, key) for index, (key, _) in enumerate(node.value) if isinstance(key, yaml.ScalarNode)]
            self.places[id(node)] = {key.value: index for index, key in reversed(keys)}
        index = self.places[id(node)][key]
        first_key, first_value = node.value[index]
        first = self.source._node_span(first_key)
        summary = f"the key '{key}' appears twice, first at {first.line}:{first.column}"
        hint = "keep one of the two, or merge their contents under one"
        notes = (f"first: {first}: {first.text[:400].strip()[:80]}",)
        self._report("HP005", summary, key_node, hint=hint, notes=notes)
        second = self._construct(value_node)
        if isinstance(second, dict) and isinstance(result[key], dict):
            for name, value in second.items():
                result[key].setdefault(name, value)
            if id(first_value) not in self.joined:  # the node itself may have aliases
                start, end = first_value.start_mark, first_value.end_mark
                first_value = yaml.MappingNode(first_value.tag, [*first_value.value], start, end)
                node.value[index] = (first_key, first_value)
                self.joined.add(id(first_value))
            first_value.value += value_node.value

    def _report(self, code: str, summary: str, node: yaml.Node, **more: Any) -> None:
        if not self.findings.enough():
            self.findings.add(Diagnostic(code, summary, self.source._node_span(node), **more))


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!", 1)[:60]
