"""Diagnostics gathered while compiling, so that one run tells them all."""

from __future__ import annotations

from hipplan.errors import Diagnostic


class Findings:
    """A list of diagnostics that knows whether any of them is an error."""

    def __init__(self) -> None:
        self.all: list[Diagnostic] = []

    def add(self, diagnostic: Diagnostic) -> None:
        self.all.append(diagnostic)

    @property
    def errors(self) -> list[Diagnostic]:
        return [one for one in self.all if one.severity == "error"]

    @property
    def warnings(self) -> list[Diagnostic]:
        return [one for one in self.all if one.severity == "warning"]
