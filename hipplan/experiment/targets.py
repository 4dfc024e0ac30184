"""What an experiment runs: whether its function or command is there. Needs no compiled part."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hipplan.errors import Problem, suggest_or_list


def command_path(name: str, folder: Path) -> str:
    """The path of a command: one with a slash is relative to the folder. Raises Problem (HP463)."""
    path = str(folder / name) if "/" in name else shutil.which(name)
    if path is None or not Path(path).is_file():
        raise Problem("HP463", f"there is no command '{name}'", hint="is it built, and on the PATH?")
    if not os.access(path, os.X_OK):
        raise Problem("HP463", f"'{name}' cannot be executed", hint=f"chmod +x {path}")
    return path


def check_function(name: str, folder: Path) -> None:
    """Checks that there is such a function, and imports nothing: its file's text counts. Raises Problem (HP463)."""
    module_name, _, function_name = name.partition(":")
    path = file_of(module_name, folder)
    try:
        if path is None:
            if importlib.util.find_spec(module_name.partition(".")[0]) is None:
                hint = f"{folder / module_name}.py would be the file of this module"
                raise Problem("HP463", f"there is no module '{module_name}'", hint=hint)
            return
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise Problem("HP463", f"the module '{module_name}' cannot be read", why=str(error)) from None
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function_name not in names and not _may_have_more(tree):
        hint = suggest_or_list(function_name, sorted(names))
        raise Problem("HP463", f"{path.name} has no function '{function_name}'", hint=hint)


def _may_have_more(tree: ast.Module) -> bool:
    """Whether names of a module can come from elsewhere than its functions."""
    return any(not isinstance(node, (ast.FunctionDef, ast.Expr, ast.Import)) for node in tree.body)


def files_of(path: Path) -> set[Path]:
    """A Python file and those beside it that it imports, directly or not. What cannot be read imports nothing."""
    known: set[Path] = set()
    unread = [path]
    while unread:
        path = unread.pop()
        if path in known:
            continue
        known.add(path)
        for name in _imported(path):
            if beside := file_of(name, path.parent):
                unread.append(beside)
            package = path.parent / name.partition(".")[0]
            if (package / "__init__.py").is_file():
                unread += package.rglob("*.py")
    return known


def _imported(path: Path) -> Iterator[str]:
    """The names of modules that a file imports."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from [node.module] if node.module else (alias.name for alias in node.names)


def file_of(module_name: str, folder: Path) -> Path | None:
    """The module's file in the folder, if there is one."""
    path = folder / f"{module_name.replace('.', '/')}.py"
    return path if path.is_file() else None
