"""Assigns each comment of a document to the item that it is about, for `hipplan fmt`.

root, head, comments = commented(load_yaml("plan.yaml"))
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from hipplan.errors import Diagnostic, PlanError
from hipplan.language.source import Source
from hipplan.language.yaml12 import LINE_BREAK

_OUTSIDE = re.compile("#[^\r\n\x85\u2028\u2029]*|[&*%]")
_NEEDS_A_LOOK = re.compile("[#&*%\r\n\x85\u2028\u2029]")
"""Characters that begin a comment, an anchor or an alias, or break a line."""


@dataclass(slots=True, eq=False)
class Item:
    """One entry of a mapping or a list, with the comments that are about it."""

    key: yaml.ScalarNode | None
    value: yaml.Node
    parent: Item | None
    items: list[Item] = field(default_factory=list)
    one_piece: bool = False
    """It is on one line without a comment in it. Its items are made only if it needs several lines: most of a large
    plan is such lines."""
    above: list[str] = field(default_factory=list)
    """Comments on the lines before it; an empty text is an empty line."""
    behind: str = ""
    """The comment on its first line."""
    behind_column: int = 0
    """Where that comment began: it stays there if there is room, so that columns of comments stay columns."""
    below: list[str] = field(default_factory=list)
    """Comments after the last of its items that do not belong to what follows."""
    blank: bool = False
    """There is an empty line before it."""

    @property
    def start(self) -> yaml.Mark:
        return (self.key or self.value).start_mark

    @property
    def flows(self) -> bool:
        """Whether it is written as {...} or [...]."""
        return isinstance(self.value, yaml.CollectionNode) and bool(self.value.flow_style)

    @property
    def has_parts(self) -> bool:
        """Whether it is a mapping or a list with anything in it."""
        return isinstance(self.value, yaml.CollectionNode) and bool(self.value.value)

    @property
    def column(self) -> int:
        """The column of its first character, from 0; for an item of a list, of its dash."""
        in_list = self.key is None and self.parent is not None and not self.parent.flows
        return int(self.start.column) - (2 - self.is_empty) * in_list

    @property
    def end(self) -> int:
        return int(self.value.end_mark.index)

    @property
    def around(self) -> Iterator[Item]:
        """The items that contain it, innermost first."""
        outer = self.parent
        while outer:
            yield outer
            outer = outer.parent

    @property
    def is_empty(self) -> bool:
        """Whether there is no value behind its colon or dash; comments can be below it."""
        value, parent = self.value, self.parent
        in_block = parent is not None and not parent.flows
        return in_block and isinstance(value, yaml.ScalarNode) and value.start_mark.index == value.end_mark.index

    @property
    def at_the_end(self) -> list[str]:
        """The list for a comment that comes after all of its contents."""
        return self.below if self.has_parts or self.is_empty else self.above

    @property
    def commented(self) -> bool:
        return bool(self.below) or any(item.above or item.behind or item.commented for item in self.items)


def commented(source: Source) -> tuple[Item, list[str], list[str]]:
    """The document as an item, the comments before the first item in it, and all comments."""
    assert source.root is not None
    root = Item(None, source.root, None)
    items = opened(source.text, root)
    return root, *_attach(source, root, items, _CommentLines(source.text))


def cannot_be_formatted(source: Source, index: int, why: str) -> PlanError:
    """HP026, at a character."""
    line, column = _CommentLines(source.text).place(index)
    where = source.text_span(line + 1, column + 1)
    return PlanError(Diagnostic("HP026", "this plan cannot be formatted", where, why=why, hint="format it by hand"))


def opened(text: str, parent: Item) -> list[Item]:
    """Makes the items below one; all of them, in the order of the text."""
    items: list[Item] = []
    for key, value in _pairs(parent.value):
        item = Item(key, value, parent)
        parent.items.append(item)
        items.append(item)
        if isinstance(value, yaml.CollectionNode):
            item.one_piece = _is_one_piece(text, value)
            if not item.one_piece:
                items += opened(text, item)
    return items


def _pairs(node: yaml.Node) -> Sequence[tuple[Any, yaml.Node]]:
    """The keys and values of a mapping, or the values of a list; of a scalar nothing."""
    if isinstance(node, yaml.SequenceNode):
        return [(None, value) for value in node.value]
    return node.value if isinstance(node, yaml.MappingNode) else []


def _is_one_piece(text: str, node: yaml.CollectionNode) -> bool:
    """Whether it is on one line without a comment in it."""
    start, end = node.start_mark.index, node.end_mark.index
    return bool(node.flow_style) and not _NEEDS_A_LOOK.search(text, start, end)


class _CommentLines:
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


def _attach(source: Source, root: Item, items: list[Item], lines: _CommentLines) -> tuple[list[str], list[str]]:
    """Gives each comment to the item that it is about; the comments before the first item, and all of them."""
    head: list[str] = []
    all_of_them: list[str] = []
    at = 0
    for index, comment in _comments(source, items):
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


def _comments(source: Source, items: list[Item]) -> Iterator[tuple[int, str]]:
    """(where, text) of each comment: they stand outside the scalars."""
    for start, end in _gaps(source, items):
        for match in _OUTSIDE.finditer(source.text, start, end):
            if not match[0].startswith("#"):
                raise cannot_be_formatted(
                    source, match.start(), f"{match[0]} (an anchor, an alias or a directive) would be dropped"
                )
            yield match.start(), match[0].rstrip(" \t")


def _gaps(source: Source, items: list[Item]) -> Iterator[tuple[int, int]]:
    end = 0
    for item in items:
        for node in (item.key, item.value):
            if isinstance(node, yaml.ScalarNode) or (item.one_piece and node is item.value):
                yield end, node.start_mark.index
                end = node.end_mark.index
    yield end, len(source.text)


def _behind(last: Item, index: int, column: int, comment: str) -> None:
    """Assign a comment at the end of a line. Behind `{a: 1, b: 2}` it is about the whole, not about b."""
    while last.parent and last.parent.parent and last.parent.flows and last.parent.end <= index:
        last = last.parent
    if last.behind:
        last.at_the_end.append(comment)
    else:
        last.behind, last.behind_column = comment, column


def _on_its_own(root: Item, before: Item, after: Item | None, index: int, column: int) -> list[str]:
    """The list for a comment on a line of its own: above the next item, unless it is the end of the block before."""
    between = before.flows and before.value.start_mark.index > index  # its key and its value
    if between or (not before.has_parts and before.end > index):
        return before.above
    block = next((item for item in before.around if item.flows and item.end > index), None)
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
