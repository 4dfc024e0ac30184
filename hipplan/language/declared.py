"""What is wrong with the declaration of a variable: hints."""

from __future__ import annotations

from hipplan.errors import Span
from hipplan.language.expanded import Path
from hipplan.language.include import NamedObject


def is_plain(text: str, span: Span | None) -> bool:
    """Whether a text is written without quotes. span: where it is written."""
    return span is not None and span.text[span.column - 1 :].startswith(text)


def declared_below(name: str, user: Path, entry: NamedObject) -> str:
    """The hint for a variable that the declaration of another one uses before its own. user: the path of that one."""
    if user[1] == name:
        return "a variable has no value yet where it is declared: use another name"
    where = entry.source.span(("vars", name), key=True)
    return f"move it up: it is declared at {where}, below this" if where else "move it up, above this"
