"""Reports of `hipplan validate` that CI systems show: JUnit's XML, and GitLab's code quality."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from hipplan.cli.reports import Checked, message
from hipplan.errors import Diagnostic, printable
from hipplan.files import strict_json

_SEVERITY = {"error": "major", "warning": "minor"}


def as_junit(checked: Sequence[Checked]) -> str:
    """JUnit's XML: each file is a test, which fails if it has an error. Warnings are its output."""
    cases = [_case(file, diagnostics) for file, _, diagnostics in checked]
    failures = sum(any(map(_is_error, diagnostics)) for _, _, diagnostics in checked)
    suite = f'<testsuite name="hipplan validate" tests="{len(cases)}" failures="{failures}" errors="0" skipped="0">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', suite, *cases, "</testsuite>"])


def _case(file: str, diagnostics: Sequence[Diagnostic]) -> str:
    head = f'<testcase classname="hipplan" name={quoteattr(printable(file))} file={quoteattr(printable(file))}'
    errors = [diagnostic for diagnostic in diagnostics if _is_error(diagnostic)]
    warnings = [diagnostic for diagnostic in diagnostics if not _is_error(diagnostic)]
    inner = []
    if errors:  # one element: most readers of the format show the first alone
        about = printable(errors[0].summary) + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else "")
        kind = f"type={quoteattr(errors[0].code)} message={quoteattr(about)}"
        inner.append(f"<failure {kind}>{_text(errors)}</failure>")
    if warnings:
        inner.append(f"<system-out>{_text(warnings)}</system-out>")
    return f"{head}>\n{chr(10).join(inner)}\n</testcase>" if inner else f"{head}/>"


def _text(diagnostics: Sequence[Diagnostic]) -> str:
    return escape("\n".join(str(diagnostic) for diagnostic in diagnostics))


def as_gitlab(checked: Sequence[Checked]) -> str:
    """GitLab's code quality report, which a merge request shows beside the lines that it changes."""
    seen: Counter[str] = Counter()
    entries = [_entry(file, diagnostic, seen) for file, _, diagnostics in checked for diagnostic in diagnostics]
    return strict_json.dumps(entries, indent=2)


def _entry(file: str, diagnostic: Diagnostic, seen: Counter[str]) -> dict[str, Any]:
    """seen: how often each fingerprint was there. Lines are no part of it: a moved error is the same one."""
    span = diagnostic.span
    path = printable(span.file if span else file).removeprefix("./")
    what = f"{path}\n{diagnostic.code}\n{diagnostic.summary}"
    number = seen[what]
    seen[what] += 1
    return {
        "description": message(diagnostic),
        "check_name": diagnostic.code,
        "fingerprint": hashlib.sha256(f"{what}\n{number}".encode(errors="replace")).hexdigest(),
        "severity": _SEVERITY[diagnostic.severity],
        "location": {"path": path, "lines": {"begin": max(1, span.line) if span else 1}},
    }


def _is_error(diagnostic: Diagnostic) -> bool:
    return diagnostic.severity == "error"
