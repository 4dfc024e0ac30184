"""Reports of `hipplan validate` for programs, GitHub and SARIF viewers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hipplan import __version__
from hipplan.codes import CODES
from hipplan.errors import Diagnostic, ExitCode, printable
from hipplan.explain import explain
from hipplan.files import strict_json

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

Checked = tuple[str, ExitCode, Sequence[Diagnostic]]
"""(file, exit code, diagnostics)."""


def as_json(checked: Sequence[Checked]) -> str:
    """One JSON document."""
    files = [
        {
            "file": file,
            "valid": code != ExitCode.INVALID,
            "exit_code": code,
            "diagnostics": [diagnostic.to_json() for diagnostic in diagnostics],
        }
        for file, code, diagnostics in checked
    ]
    return strict_json.document(files=files)


def as_github(checked: Sequence[Checked]) -> str:
    """Workflow commands, a line each: GitHub shows them beside the lines of a pull request."""
    return "\n".join(_command(file, diagnostic) for file, _, diagnostics in checked for diagnostic in diagnostics)


def as_sarif(checked: Sequence[Checked]) -> str:
    """A log of SARIF 2.1.0 (OASIS), for code scanning and editors."""
    with_files = [(file, diagnostic) for file, _, diagnostics in checked for diagnostic in diagnostics]
    rules = sorted({diagnostic.code for _, diagnostic in with_files})
    run = {
        "tool": {"driver": {"name": "hipplan", "version": __version__, "rules": [_rule(code) for code in rules]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(file, diagnostic, rules.index(diagnostic.code)) for file, diagnostic in with_files],
    }
    return strict_json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _command(file: str, diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    where = {"file": span.file if span else file}
    if span:
        where |= {"line": str(span.line), "col": str(span.column), "endLine": str(span.end_line)}
        where |= {"endColumn": str(span.end_column)} if span.end_line == span.line else {}
    where["title"] = diagnostic.code
    properties = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in where.items())
    return f"::{diagnostic.severity} {properties}::{_escaped(message(diagnostic))}"


def _escaped(text: str, more: str = "") -> str:
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return printable(text)


def message(diagnostic: Diagnostic) -> str:
    """A diagnostic as lines of text, without its place."""
    summary = diagnostic.summary + (f" ({diagnostic.label})" if diagnostic.label else "")
    expansion = diagnostic.span.expansion if diagnostic.span else ""
    named = {"in": expansion, "why": diagnostic.why, "hint": diagnostic.hint}
    return "\n".join([summary, *(f"{name}: {text}" for name, text in named.items() if text), *diagnostic.notes])


def _rule(code: str) -> dict[str, Any]:
    page = str(explain(code))
    return {"id": code, "shortDescription": {"text": CODES[code]}, "help": {"text": page, "markdown": page}}


def _result(file: str, diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    span = diagnostic.span
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(span.file if span else file)}}
    if span:
        place["region"] = {
            "startLine": span.line,
            "startColumn": span.column,
            "endLine": span.end_line,
            "endColumn": span.end_column,
        }
    return {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": diagnostic.severity,
        "message": {"text": message(diagnostic)},
        "locations": [{"physicalLocation": place}],
    }


def _uri(file: str) -> str:
    """The file as a URI. A relative path stays relative: viewers resolve it from the root of the checkout."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))
