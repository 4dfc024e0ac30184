"""$(...): names, integers, sizes and + - * // % with parentheses. A parser of its own, never Python's eval.

    substitute("layer.$(i)", {"i": 3})      -> "layer.3"        a text with expressions in it stays a text
    substitute("$(i * 64MiB)", {"i": 3})    -> 201326592        a lone expression keeps its type

A variable that is a list can only stand alone. `$$(` stands for a literal `$(`. Everything is bounded: length, nesting,
values below 2^64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd

from hipplan.errors import Diagnostic, suggest
from hipplan.language.rank import VARIABLES
from hipplan.units import BYTES_MAX, SizeError, parse_size

Scalar = int | bool | str
Value = Scalar | list[Scalar]
TEXT_MAX = 4096
NESTING_MAX = 32

_TOKEN = re.compile(
    r" *(?:(?P<size>[0-9]+(?:\.[0-9]+)?[KMGTP]i?B\b)|(?P<int>0x[0-9A-Fa-f]+|[0-9]+)(?![A-Za-z_.0-9])"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(?P<op>//|[-+*%()]))"
)


_FRACTION = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}(?![\w.])")
_HOLDS = "an expression has names, integers, sizes, + - * // % and parentheses"


class ExpressionError(Exception):
    """What is wrong with an expression, and where in the text: `start` counts characters from 0."""

    def __init__(self, code: str, summary: str, start: int, length: int = 1, hint: str = "") -> None:
        super().__init__(summary)
        self.diagnostic = Diagnostic(code, summary, hint=hint)
        self.start = start
        self.length = length


def substitute(text: str, scope: Mapping[str, Value], nearest: Callable[..., str] = suggest) -> Value:
    """The text with its expressions evaluated. Raises ExpressionError. nearest: makes the hint for an unknown name."""
    if len(text) > TEXT_MAX:
        raise ExpressionError("HP020", f"text with expressions has at most {TEXT_MAX} characters", 0)
    parts: list[str] = []
    length = end = 0
    while (start := text.find("$(", end)) >= 0:
        if start > end and text[start - 1] == "$":
            parts.append(text[end : start - 1] + "$(")
            end = start + 2
            continue
        parser = _Parser(text, start + 2, scope, nearest)
        value = parser.whole()
        if start == 0 and parser.at == len(text):
            return value
        if isinstance(value, list):
            raise in_text(start, parser.at - start)
        parts += [text[end:start], str(value).lower() if isinstance(value, bool) else str(value)]
        end = parser.at
        length += len(parts[-1])
        if length > TEXT_MAX:
            break
    result = "".join(parts) + text[end:]
    if len(result) > TEXT_MAX:
        raise ExpressionError("HP022", f"this becomes a text of more than {TEXT_MAX} characters", 0, len(text))
    return result


def in_text(start: int, length: int) -> ExpressionError:
    """The error for a list within a text or a name."""
    hint = "a list is a value by itself, such as shape: $(name); each: $(name) repeats over it"
    return ExpressionError("HP022", "a list cannot be part of a text", start, length, hint)


@lru_cache(maxsize=16_384)  # one text is read again for each of thousands of repetitions
def _token(text: str, at: int) -> tuple[str, str, int, int] | None:
    """(kind, text, start, end) of the next token; None: it is not part of any expression."""
    match = _TOKEN.match(text, at)
    if match is None:
        return None
    kind = match.lastgroup or ""
    return kind, match[kind], match.start(kind), match.end()


class _Parser:
    """Recursive descent over one $(...); computes while it reads."""

    def __init__(self, text: str, at: int, scope: Mapping[str, Value], nearest: Callable[..., str]) -> None:
        self.text = text
        self.at = at
        self.begin = at - 2
        self.scope = scope
        self.nearest = nearest
        self.depth = 0
        self.kind = ""
        self.token = ""
        self.start = at
        self.next()

    def next(self) -> None:
        token = _token(self.text, self.at)
        if token is None:
            rest = self.text[self.at :].lstrip(" ")
            self.start = len(self.text) - len(rest)
            if not rest:
                raise ExpressionError("HP020", "$( without its )", self.begin, 2, hint="close it with )")
            if fraction := _FRACTION.match(rest):
                summary, hint = f"{fraction[0]} is not a whole number", _as_ratio(fraction[0])
                raise ExpressionError("HP020", summary, self.start, len(fraction[0]), hint)
            hint = "divide with //, which drops the remainder" if rest[0] == "/" else _HOLDS
            raise ExpressionError("HP020", f"'{rest[0]}' has no meaning in an expression", self.start, hint=hint)
        self.kind, self.token, self.start, self.at = token

    def whole(self) -> Value:
        """The value before the closing parenthesis, which becomes the current token."""
        value = self.sum()
        if self.token != ")":
            raise self.unexpected()
        return value

    def sum(self) -> Value:
        value = self.product()
        while self.kind == "op" and self.token in "+-":
            operator, place = self.token, self.start
            left = self.number(value, place)
            self.next()
            right = self.number(self.product(), place)
            value = self.bounded(left + right if operator == "+" else left - right, place)
        return value

    def product(self) -> Value:
        value = self.atom()
        while self.token in ("*", "//", "%"):
            operator, place = self.token, self.start
            left = self.number(value, place)
            self.next()
            right = self.number(self.atom(), place)
            if operator != "*" and right == 0:
                raise ExpressionError("HP022", "division by zero", place, len(operator))
            result = left * right if operator == "*" else left // right if operator == "//" else left % right
            value = self.bounded(result, place)
        return value

    def atom(self) -> Value:
        kind, token, start = self.kind, self.token, self.start
        if kind == "op" and token in "-(":
            self.depth += 1
            if self.depth > NESTING_MAX:
                raise ExpressionError("HP020", f"nested deeper than {NESTING_MAX} levels", start)
            self.next()
            if token == "-":
                value: Value = -self.number(self.atom(), start)
            else:
                value = self.whole()
                self.next()
            self.depth -= 1
            return value
        if kind == "op":
            raise self.unexpected()
        if kind == "name" and self.text.startswith("(", self.at):
            raise ExpressionError("HP021", f"there is no function '{token[:60]}'", start, len(token), _HOLDS)
        value = self.lookup(token, start) if kind == "name" else self.literal(token, start)
        self.next()
        return value

    def literal(self, token: str, start: int) -> int:
        try:
            return parse_size(int(token, 16) if token.startswith("0x") and len(token) <= 20 else token)
        except SizeError as error:
            raise ExpressionError("HP022", str(error), start, len(token), error.hint) from None

    def lookup(self, name: str, start: int) -> Value:
        if name not in self.scope:
            hint = _meant(name, self.scope, self.nearest)
            raise ExpressionError("HP021", f"the variable '{name}' is not defined", start, len(name), hint)
        return self.scope[name]

    def number(self, value: Value, place: int) -> int:
        """The operand of an operator: a number, or a text that is a size."""
        if isinstance(value, str):
            try:
                return parse_size(value)
            except SizeError:
                pass
        if isinstance(value, (bool, str, list)):
            shown = (
                "a list"
                if isinstance(value, list)
                else repr(value[:40])
                if isinstance(value, str)
                else str(value).lower()
            )
            hint = "only numbers and sizes can be used in arithmetic"
            raise ExpressionError("HP022", f"{shown} is not a number", place, hint=hint)
        return value

    def bounded(self, value: int, place: int) -> int:
        if abs(value) >= BYTES_MAX:
            raise ExpressionError("HP022", "the result is past 2^64", place)
        return value

    def unexpected(self) -> ExpressionError:
        return ExpressionError("HP020", f"'{self.token}' is not expected here", self.start, len(self.token))


def _as_ratio(text: str) -> str:
    """How to write a fraction with whole numbers: 1.5 is 3 // 2."""
    whole, _, fraction = text.partition(".")
    upper, lower = int(whole + fraction), 10 ** len(fraction)
    common = gcd(upper, lower)
    return f"multiply by {upper // common}, then divide by {lower // common}: * {upper // common} // {lower // common}"


def _meant(name: str, scope: Mapping[str, Value], nearest: Callable[..., str]) -> str:
    """The hint for a variable that is not defined."""
    if name in ("each", "index") or name.endswith(".index"):
        return f"$({name}) has a value only inside an each: repetition: add each: 4 to it, or declare it under vars:"
    if name in VARIABLES:
        return f"$({name}) has a value in a plan for ranks: add ranks: {{}}, or declare it under vars:"
    return nearest(name, scope) or f"declare it under vars:, such as {name[:60]}: 1"
