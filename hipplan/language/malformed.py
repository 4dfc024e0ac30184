"""What libyaml says of a text that is not YAML -> a diagnostic with the place that people look for and a hint."""

from __future__ import annotations

import re
from typing import Protocol

import yaml

from hipplan.errors import Diagnostic, Span
from hipplan.language.yaml12 import LINE_BREAK
from hipplan.plain import odd_space

_NO_VALUES, _NO_COLON = "mapping values are not allowed in this context", "could not find expected ':'"
"""What libyaml says after a line with a key that has no colon after it, or no space after that; or at one that is too
long."""
_KEY_MAX = 1024
"""Characters between the start of a key and its colon."""
_LINE = re.compile(
    r" *(?:- +)?(?P<key>[A-Za-z_][\w.-]*)"
    r"(?:(?P<colon>:)(?P<value>[^#\s:{\[]+)|(?: +(?P<words>[^#:]*[^#:\s]))?) *(?:#.*)?"
)
"""A line with a key that has no colon after it, or no space after that."""
_LINE_MAX = 200
"""Only so many characters of a line are looked at: the pattern takes the square of their number."""


class Lines(Protocol):
    """A document as the words need it."""

    text: str

    def line(self, number: int) -> str: ...

    def text_span(self, line: int, column: int, length: int = 1) -> Span: ...


def malformed(error: yaml.MarkedYAMLError, source: Lines) -> Diagnostic:
    """HP004, or HP010 for a second document."""
    problem, context = error.problem or "this is not YAML", error.context or ""
    mark, begun = error.problem_mark, error.context_mark
    where = source.text_span(mark.line + 1, mark.column + 1) if mark else None
    if "another document" in problem:
        hint = "a plan is one document; remove `---`"
        return Diagnostic("HP010", "a second document starts here", where, hint=hint)
    is_tab = mark is not None and source.text[mark.index : mark.index + 1] == "\t"
    if begun and mark and not is_tab and not source.text[mark.index :].strip():
        # Noticed at the end of the file: show the unclosed bracket or quote, or the last word, instead.
        where = source.text_span(begun.line + 1, begun.column + 1)
        if begun.index >= mark.index:
            lines = LINE_BREAK.split(source.text.rstrip())
            where = source.text_span(len(lines), max(1, len(lines[-1])))
        context, problem = f"{context}: {problem}", "the file ends before this is complete"
    elif begun and mark and begun.line != mark.line:
        context += f", begun in line {begun.line + 1}"
    if where and (better := _habit(source, error.problem or "", where, begun.line + 1 if begun else 0)) is not None:
        return better
    hint = ""
    if "tab" in problem or (where and where.text[: where.column].strip(" ") == "\t"):
        hint = "indent with spaces: YAML does not allow tabs there"
    elif "alias" in problem:
        hint = "define the anchor with & before it is used"
    elif where and (name := re.search(r"[\w.-]+\[$", where.text[: where.column][-257:])):
        number = where.text[where.column :][:10].partition("]")[0]
        hint = f'quote it: "{name[0]}{number}]"'
    elif where and (name := re.match(r"\$\{(\w+)\}", where.text[max(0, where.column - 2) :])):
        hint = f"a variable is $({name[1]}), with parentheses"
    elif "expected ',' or '}'" in problem and "before this is complete" not in problem:
        hint = "put a comma between the keys"
    elif problem == "did not find expected key":
        hint = "keys of one mapping begin in the same column"
    return Diagnostic("HP004", problem, where, why=context, hint=hint)


def _habit(source: Lines, problem: str, where: Span, begun: int) -> Diagnostic | None:
    """What is wrong with the line that makes libyaml stop, where that is certain: a long key, an odd space, no colon.

    begun: the line in which libyaml says that something begins; 0 if it does not say.
    """
    if (too_long := _too_long(source, problem, where, begun)) is not None:
        return too_long
    before = where.line - 1
    while before and not source.line(before).partition("#")[0].strip():
        before -= 1
    for line in (before, where.line):
        at, hint = odd_space(source.line(line).partition("#")[0])
        if hint:
            summary = "YAML does not take this character for a space"
            return Diagnostic("HP004", summary, source.text_span(line, at + 1), hint=hint)
    text, deep = source.line(before), _indent(where.text)
    if problem == _NO_VALUES and _indent(text) <= deep:
        line, match = before, _LINE.fullmatch(text[:_LINE_MAX])
        if match is None and _indent(text) < deep and re.match(r" *[\w.-]+: +[\w.]", text):
            hint = "keys of one mapping begin in the same column"
            return Diagnostic("HP004", "this line is indented more than the key before it", where, hint=hint)
    elif problem == _NO_COLON:
        line, match = begun, _LINE.fullmatch(source.line(begun)[:_LINE_MAX])
    else:
        return None
    if match is None:
        return None
    key, value = match["key"], match["value"] or match["words"] or ""
    span = source.text_span(line, match.start("key") + 1, len(key))
    missing = "space after its colon" if match["colon"] else "colon after it"
    hint = f"write {key}: {value}".rstrip()
    return Diagnostic("HP004", f"the key '{key}' has no {missing}", span, hint=hint)


def _too_long(source: Lines, problem: str, where: Span, begun: int) -> Diagnostic | None:
    """The key on which libyaml gives up before it reads its colon. begun: as of _habit()."""
    line = begun if problem == _NO_COLON else where.line
    text = source.line(line)
    end = text.find(":") if problem == _NO_COLON else where.column - 1
    if text[end : end + 1] != ":":
        return None
    key = text[max(map(text[:end].rfind, "{[,")) + 1 : end].lstrip(" -")
    if len(key) <= _KEY_MAX or ":" in key:
        return None
    span = source.text_span(line, end - len(key) + 1, len(key))
    return Diagnostic("HP004", f"a key has at most {_KEY_MAX:,} characters, not {len(key):,}", span)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
