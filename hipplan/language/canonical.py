"""A plan as `hipplan fmt` writes it: one way to lay out the same data, with every comment kept.

    canonical(load_yaml("plan.yaml"))    # the text, or PlanError: HP026, it cannot be written without a loss

Keys stand in the order of the manual, names in the order written. What is written as {...} or [...] stays on one line
while it fits; what holds a comment, or is longer, goes on lines of its own. Quotes go where nothing needs them.
The result is read again before it is given out: the same data, the same comments, and formatting it changes nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from hipplan.errors import Diagnostic, PlanError
from hipplan.language.model import Plan
from hipplan.language.model.translate import fields_at
from hipplan.language.source import LINE_BREAK, Source, load_yaml
from hipplan.language.yaml12 import number_like

WIDTH = 120
_ROOT_ORDER = ("hipplan", "name", "description", "include", *list(Plan.model_fields)[3:])
_PLAIN = re.compile(r"(?:[A-Za-z0-9_/$]|\.(?=[/\w]))[A-Za-z0-9_./$()*+%<>=@~-]*(?: [A-Za-z0-9_./$()*+%<>=@~-]+)*")
_OUTSIDE = re.compile("#[^\r\n\x85\u2028\u2029]*|[&*%]")
_HEADER = re.compile(r"[|>]-?[ \t]*\r?\n?")

Path = tuple[Hashable, ...]


@dataclass(slots=True, eq=False)
class Item:
    """One entry of a mapping or a list, with the comments that are about it."""

    key: yaml.ScalarNode | None
    value: yaml.Node
    parent: Item | None
    items: list[Item] = field(default_factory=list)
    above: list[str] = field(default_factory=list)
    """Comments on the lines before it; an empty text is an empty line."""
    behind: str = ""
    """The comment on its first line."""
    behind_column: int = 0
    """Where that comment began: it stays there if there is room, so that columns of comments stay columns."""
    below: list[str] = field(default_factory=list)
    """Comments after the last of its items, which are about nothing that follows."""
    blank: bool = False
    """An empty line stands before it."""

    @property
    def start(self) -> yaml.Mark:
        return (self.key or self.value).start_mark

    @property
    def flows(self) -> bool:
        """Whether it is written as {...} or [...]."""
        return isinstance(self.value, yaml.CollectionNode) and bool(self.value.flow_style)

    @property
    def column(self) -> int:
        """Of its first sign, from 0: for an item of a list its dash."""
        in_list = self.key is None and self.parent is not None and not self.parent.flows
        return int(self.start.column) - (2 - self.is_empty) * in_list

    @property
    def end(self) -> int:
        return int(self.value.end_mark.index)

    @property
    def around(self) -> Iterator[Item]:
        """What it is in, from inside out."""
        outer = self.parent
        while outer:
            yield outer
            outer = outer.parent

    @property
    def is_empty(self) -> bool:
        """Nothing is written behind its colon or dash, and comments can stand below it."""
        value, parent = self.value, self.parent
        in_block = parent is not None and not parent.flows
        return in_block and isinstance(value, yaml.ScalarNode) and value.start_mark.index == value.end_mark.index

    @property
    def at_the_end(self) -> list[str]:
        """Where a comment goes that comes after all that it holds."""
        return self.below if self.items or self.is_empty else self.above

    @property
    def commented(self) -> bool:
        return bool(self.below) or any(item.above or item.behind or item.commented for item in self.items)


def canonical(source: Source) -> str:
    """The plan as `hipplan fmt` writes it. Raises PlanError for errors in the plan, or HP026 if formatting would lose
    something."""
    if source.found:
        raise PlanError(source.found)
    text, comments = _written(source)
    try:
        again = load_yaml(text, source.name)
        twice, kept = _written(again)
        if _same(source.data, again.data) and Counter(comments) == Counter(kept) and twice == text:
            return text
    except PlanError:  # the text is not even YAML
        pass
    raise _cannot(source, 0, "formatting would change its data or drop a comment")


def _cannot(source: Source, index: int, why: str) -> PlanError:
    line, column = _Lines(source.text).place(index)
    where = source.text_span(line + 1, column + 1)
    return PlanError(Diagnostic("HP026", "this plan cannot be formatted", where, why=why, hint="format it by hand"))


def _same(a: Any, b: Any) -> bool:
    """Equal, types too: 1 is neither true nor 1.0."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and (a == b or a != a)


def _written(source: Source) -> tuple[str, list[str]]:
    """The canonical text and the comments of the source."""
    assert source.root is not None
    root = Item(None, source.root, None)
    items = list(_tree(root))
    head, comments = _attach(source, root, items, _Lines(source.text))
    lines = [*head, *_Writer(source).body(root)]
    return "\n".join(lines).strip("\n") + "\n", comments


def _tree(parent: Item) -> Iterator[Item]:
    """Every item below one, in the order of the text."""
    node = parent.value
    if isinstance(node, yaml.MappingNode):
        pairs = [(key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        pairs = [(None, value) for value in node.value]
    else:
        return
    for key, value in pairs:
        item = Item(key, value, parent)
        parent.items.append(item)
        yield item
        yield from _tree(item)


class _Lines:
    """Where the lines of a text begin, counted as YAML counts them."""

    def __init__(self, text: str) -> None:
        self.texts = LINE_BREAK.split(text)
        self._starts = [0, *(match.end() for match in LINE_BREAK.finditer(text))]

    def place(self, index: int) -> tuple[int, int]:
        """(line, column) of a character, from 0."""
        line = bisect_right(self._starts, index) - 1
        return line, index - self._starts[line]

    def empty(self, line: int) -> bool:
        return line >= 0 and not self.texts[line].strip(" \t")


def _attach(source: Source, root: Item, items: list[Item], lines: _Lines) -> tuple[list[str], list[str]]:
    """Gives each comment to the item that it is about; the comments before the first item, and all of them."""
    head: list[str] = []
    all_of_them: list[str] = []
    at = 0
    for index, comment in _comments(source, items, lines):
        all_of_them.append(comment)
        while at < len(items) and items[at].start.index < index:
            at += 1
        line, column = lines.place(index)
        with_space = [""] * lines.empty(line - 1) + [comment]
        if at > 0 and lines.texts[line][:column].strip(" -"):
            _behind(items[at - 1], index, column, comment)
        elif at == 0:
            head += with_space if head else [comment]
        else:
            after = items[at] if at < len(items) else None
            _on_its_own(root, items[at - 1], after, index, column).extend(with_space)
    for item in items:
        space = lines.empty(item.start.line - 1)
        item.blank = item.above[0] == "" if item.above else space
        item.above = item.above[1:] if item.above[:1] == [""] else item.above
        item.above += [""] * (space and bool(item.above))
    if head and items and items[0].blank:
        head.append("")
    return head, all_of_them


def _comments(source: Source, items: list[Item], lines: _Lines) -> Iterator[tuple[int, str]]:
    """(where, text) of each comment: they stand outside the scalars."""
    for start, end in _gaps(source, items):
        for match in _OUTSIDE.finditer(source.text, start, end):
            if not match[0].startswith("#"):
                raise _cannot(
                    source, match.start(), f"{match[0]} (an anchor, an alias or a directive) would be dropped"
                )
            yield match.start(), match[0].rstrip(" \t")


def _gaps(source: Source, items: list[Item]) -> Iterator[tuple[int, int]]:
    end = 0
    for item in items:
        for node in (item.key, item.value):
            if isinstance(node, yaml.ScalarNode):
                yield end, node.start_mark.index
                end = node.end_mark.index
    yield end, len(source.text)


def _behind(last: Item, index: int, column: int, comment: str) -> None:
    """A comment behind `{a: 1, b: 2}` is about the whole, not about b."""
    while last.parent and last.parent.parent and last.parent.flows and last.parent.end <= index:
        last = last.parent
    if last.behind:
        last.at_the_end.append(comment)
    else:
        last.behind, last.behind_column = comment, column


def _on_its_own(root: Item, before: Item, after: Item | None, index: int, column: int) -> list[str]:
    """Where a comment on a line of its own goes: above what follows, unless it ends a block that is over."""
    if not before.items and before.end > index:
        return before.above  # between its key and what is written there
    block = next((one for one in before.around if one.flows and one.end > index), None)
    if block is None and before.is_empty and column > before.column:
        block = before
    if block is None and (after is None or after.column < column):
        block = root if column == 0 else _block_at(before, column)
    if after is not None and (block is None or block in after.around):
        return after.above
    assert block is not None
    return block.at_the_end


def _block_at(last: Item, column: int) -> Item:
    """The owner of the block that is indented like this, or less."""
    while last.parent and last.column > column:
        last = last.parent
    return last.parent or last


class _Writer:
    def __init__(self, source: Source) -> None:
        self.source = source

    def body(self, root: Item) -> list[str]:
        if not root.items:
            return [self.flow(root.value), *root.below]
        return self.block(root, 0, ())

    def block(self, parent: Item, indent: int, path: Path) -> list[str]:
        """The items of a mapping or a list, on lines of their own."""
        lines: list[str] = []
        pad = " " * indent
        for number, item in enumerate(self.ordered(parent, path)):
            if item.blank and number:
                lines.append("")
            lines += [pad + comment if comment else "" for comment in item.above]
            if item.key is not None:
                lines += self.entry(pad + self.scalar(item.key) + ":", item, indent, path)
            else:
                lines += self.listed(item, indent, (*path, number))
        return lines + self.said_below(parent, indent)

    def said_below(self, item: Item, indent: int) -> list[str]:
        return [" " * indent + comment if comment else "" for comment in item.below]

    def ordered(self, parent: Item, path: Path) -> list[Item]:
        """Keys of the language in its own order; names, and keys that do not exist, as written."""
        if not isinstance(parent.value, yaml.MappingNode):
            return parent.items
        known = _ROOT_ORDER if not path else ("each", "kind", *fields_at(Plan, self.source.data, path))
        if len(known) == 2:  # no key of the language stands here: these are names
            return parent.items
        rank = {key: number for number, key in enumerate(dict.fromkeys(known))}
        return sorted(parent.items, key=lambda item: rank.get(item.key.value if item.key else "", len(rank)))

    def entry(self, prefix: str, item: Item, indent: int, path: Path) -> list[str]:
        """`key: value`, on one line if it can be."""
        value = item.value
        if item.key is not None:
            path = (*path, item.key.value)
        if isinstance(value, yaml.ScalarNode):
            if value.style in ("|", ">"):
                return self.lines_of(prefix, value, item, indent)
            written = self.scalar(value)
            said = self.said_below(item, indent + 2)
            return [_beside(f"{prefix} {written}" if written else prefix, item), *said]
        if not item.items or (item.flows and not item.commented):
            line = f"{prefix} {self.flow(value, path)}"
            if not item.items or len(line) <= WIDTH:
                return [_beside(line, item)]
        return [_beside(prefix, item), *self.block(item, indent + 2, path)]

    def listed(self, item: Item, indent: int, path: Path) -> list[str]:
        """`- value`; a block begins behind the dash, with what is said of its beginning above."""
        pad = " " * indent
        lines = self.entry(pad + "-", item, indent, path)
        if len(lines) == 1 or not item.items:
            return lines
        first = next(number for number, line in enumerate(lines) if number and line.strip(" ")[:1] not in ("", "#"))
        said = [item.behind] * bool(item.behind) + [line.strip(" \t") for line in lines[1:first]]
        above = [pad + comment if comment else "" for comment in said]
        return [*above, f"{pad}- {lines[first].lstrip(' ')}", *lines[first + 1 :]]

    def flow(self, node: yaml.Node, path: Path = ()) -> str:
        """A value on one line."""
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node) or "null"
        if isinstance(node, yaml.SequenceNode):
            return "[" + ", ".join(self.flow(one, (*path, i)) for i, one in enumerate(node.value)) + "]"
        holder = Item(None, node, None)
        holder.items = [Item(key, value, holder) for key, value in node.value]
        pairs = [(str(item.key.value), item) for item in self.ordered(holder, path) if item.key is not None]
        parts = (f"{self.scalar(item.key)}: {self.flow(item.value, (*path, key))}" for key, item in pairs)
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
        """A text of several lines: moved as it stands."""
        start = node.start_mark.index
        header, *lines = self.source.text[start : node.end_mark.index].splitlines()
        if not _HEADER.fullmatch(header) or item.behind:
            raise _cannot(self.source, start, "the first line of a multi-line text has more than | or > or -")
        while lines and not lines[-1].strip(" \t"):
            lines.pop()
        if not lines:
            return [f'{prefix} ""']
        margin = min(len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" \t"))
        pad = " " * (indent + 2)
        return [f"{prefix} {header.strip()}", *(pad + line[margin:] if line.strip(" \t") else "" for line in lines)]


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
