"""No import circles in hipplan: every import counts, those for types and inside functions too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.test_house_rules import CPP, PYTHON


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "hipplan").with_suffix("").parts)


MODULES = {_name(path): path for path in PYTHON if path.name != "__init__.py"}


def _imported(path: Path) -> Iterator[str]:
    """The files of hipplan that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "hipplan":
            module = node.module.partition(".")[2]
            yield from {module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)} & set(MODULES)
        elif isinstance(node, ast.Import):
            yield from {alias.name.removeprefix("hipplan.") for alias in node.names} & set(MODULES)


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    collected: set[str] = set()
    waiting = [start]
    while waiting:
        for module in graph[waiting.pop()] - collected:
            collected.add(module)
            waiting.append(module)
    return collected


def test_there_is_no_import_circle() -> None:
    graph = {name: set(_imported(path)) - {name} for name, path in MODULES.items()}
    reached = {name: _reached(graph, name) for name in graph}
    circles = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}

    assert circles == {frozenset()}


def test_cpp_imports_no_module_of_hipplan() -> None:
    collected = {path.name: set(re.findall(r'import\("(hipplan\.[\w.]+)"\)', path.read_text())) for path in CPP}

    assert {name: modules for name, modules in collected.items() if modules} == {}
