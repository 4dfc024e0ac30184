"""docs/coverage.md: every HIP function in scope, each parameter, flag and enum value -> where a user says it -> a test.

The functions and their parameters come from cpp/hip/hip_calls.def, the values from cpp/hip/hip_abi.h, what a user says
from docs/coverage.yaml. Raises CoverageError if anything has no row, or a row names a field, call or test that is not
there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml

import hipplan
from hipplan.cli.main import VERBS
from hipplan.language.model.describe import models_below
from hipplan.language.model.plan import Plan
from hipplan.language.model.translate import REFUSED, REFUSED_VALUES
from hipplan.machines.machine import Limits, Link, Machine, MachineDevice

ROOT = Path(__file__).parents[1]
_MODELS = {Plan.__name__: Plan, **models_below(Plan)}
_PROFILE = {model.__name__: model for model in (Machine, MachineDevice, Link, Limits)}
_HEAD = """# HIP coverage: the key of a plan for each function and flag

This page lists every HIP function in scope, each of its parameters, flags and values, where a plan sets it, and the
tests. Use it to find the key for a call that you know from HIP.

- `Model.field`: a key of a plan, described in [plan-reference.md](plan-reference.md).
- *profile*: a figure of a machine profile (`hipplan machine`).
- *hipplan*: hipplan sets or keeps it itself.
- *refused*: a plan that asks for it is refused.

`docs/generate.py` generates the page from `cpp/hip/hip_calls.def`, `cpp/hip/hip_abi.h` and `docs/coverage.yaml`. It
fails if a function, parameter or value has no row, or if a row names a field or test that does not exist.
"""

# Parameters that are plain numbers in C, and the constants that they are made of.
_FLAGS = {
    ("hipExtMallocWithFlags", "flags"): "hipDeviceMalloc",
    ("hipHostMalloc", "flags"): "hipHostMalloc",
    ("hipHostRegister", "flags"): "hipHostRegister",
    ("hipMallocManaged", "flags"): "hipMemAttach",
    ("hipStreamAttachMemAsync", "flags"): "hipMemAttach",
    ("hipStreamCreateWithFlags", "flags"): "hipStream",
    ("hipEventCreateWithFlags", "flags"): "hipEvent",
}


class CoverageError(Exception):
    """The table would not be complete, or not be true."""


def coverage(table: dict[str, Any] | None = None) -> str:
    """docs/coverage.md. Raises CoverageError."""
    table = table or yaml.safe_load((ROOT / "docs" / "coverage.yaml").read_text())
    functions = dict(_functions())
    if wrong := functions.keys() ^ table.keys():
        raise CoverageError(f"functions without rows, or rows without a function: {sorted(wrong)}")
    parts = [_HEAD]
    for function, parameters in functions.items():
        needed = list(_rows_of(function, parameters))
        given: dict[str, str] = table[function]["rows"]
        if wrong := set(needed) ^ given.keys():
            raise CoverageError(f"{function}: rows that are missing, or too many: {sorted(wrong)}")
        tests = table[function]["tests"]
        if not tests:
            raise CoverageError(f"{function} has no test")
        parts.append(f"## {function}\n")
        parts.append("\n".join(["| | |", "|---|---|", *(f"| `{row}` | {_said(given[row])} |" for row in needed)]))
        parts.append("\nTests: " + ", ".join(map(_test, tests)) + "\n")
    return "\n".join(parts)


def _functions() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(function, [(type, name) of each parameter]), as the list of calls has them."""
    text = (ROOT / "cpp" / "hip" / "hip_calls.def").read_text()
    for name, parameters in re.findall(r"^HIP_CALL(?:_OPTIONAL)?\((hip\w+), \((.*?)\), \(", text, re.M):
        split = [one.strip().rpartition(" ") for one in parameters.split(",") if one.strip()]
        yield name, [(kind, parameter) for kind, _, parameter in split]


@cache
def _abi() -> tuple[dict[str, list[str]], dict[str, list[tuple[str, str]]], list[str]]:
    """Enums and their values, structs and their fields, and the constants, of HIP's ABI."""
    text = re.sub(r"//[^\n]*", "", (ROOT / "cpp" / "hip" / "hip_abi.h").read_text())
    enums = {
        name: re.findall(r"(hip\w+) = ", body) for name, body in re.findall(r"enum (\w+) : [^{]*\{(.*?)\};", text, re.S)
    }
    structs = {}
    for name, body in re.findall(r"^struct (hip\w+) \{(.*?)^\};", text, re.S | re.M):
        body = re.sub(r"struct \{(.*?)\} (\w+);", lambda m: re.sub(r"(\w+);", rf"{m[2]}.\1;", m[1]), body, flags=re.S)
        structs[name] = re.findall(r"([\w:]+\*?) ([\w.]+)(?:\[\d+\])?;", body)
    return enums, structs, re.findall(r"inline constexpr [a-z ]+ (hip\w+) =", text)


def _rows_of(function: str, parameters: list[tuple[str, str]]) -> Iterator[str]:
    for kind, name in parameters:
        yield from _rows(function, kind, name)


def _rows(function: str, kind: str, name: str) -> Iterator[str]:
    """A parameter; of one that goes in, the fields of its struct and the values of its enum too."""
    enums, structs, constants = _abi()
    bare = kind.replace("const ", "").rstrip("*")
    yield name
    if "*" in kind and "const" not in kind:
        return  # it comes out
    if (function, name) in _FLAGS:
        yield from (f"{name}={one}" for one in constants if re.fullmatch(_FLAGS[function, name] + r"[A-Z]\w*", one))
    yield from (f"{name}={value}" for value in enums.get(bare, []))
    for field_kind, field in structs.get(bare, []):
        yield from _rows(function, "const " + field_kind, f"{name}.{field}")


def _said(text: str) -> str:
    """One row: `plan: A.b, C.d=value; words`, or profile:, command:, python:, refused:, hipplan: words."""
    how, _, rest = text.partition(": ")
    what, _, words = rest.partition("; ")
    more = f"; {words}" if words else ""
    if how == "plan":
        return ", ".join(_field(_MODELS, one) for one in what.split(", ")) + more
    if how == "profile":
        return "*profile* " + ", ".join(_field(_PROFILE, one) for one in what.split(", ")) + more
    if how == "command" and what.split()[0] in VERBS:
        return f"`hipplan {what}`{more}"
    if how == "python":
        return ", ".join(f"`{_python(one)}`" for one in what.split(", ")) + more
    if how == "refused" and (what in REFUSED or tuple(what.split("=")) in REFUSED_VALUES):
        reason = REFUSED.get(what) or REFUSED_VALUES[tuple(what.split("="))]  # type: ignore[index]
        return f"*refused*: `{what.replace('=', ': ')}` (HP109), {reason}"
    if how == "hipplan" and rest:
        return f"*hipplan*: {rest}"
    raise CoverageError(f"this names nothing that exists: {text!r}")


def _field(models: dict[str, Any], reference: str) -> str:
    name, _, value = reference.partition("=")
    model, _, field = name.partition(".")
    found = models[model].model_fields.get(field) if model in models else None
    if found is None:
        raise CoverageError(f"there is no field {name}")
    if value and value not in _values(found.annotation):
        raise CoverageError(f"{name} cannot be {value}")
    return f"`{name}{': ' + value if value else ''}`"


def _values(annotation: Any) -> set[str]:
    if annotation is bool:
        return {"true", "false"}
    inner = get_args(annotation)
    return {value for one in inner for value in (_values(one) if get_args(one) or one is bool else {str(one)})}


def _python(reference: str) -> str:
    found: Any = hipplan
    for part in reference.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise CoverageError(f"there is no hipplan.{reference}")
    return f"hipplan.{reference}"


def _test(reference: str) -> str:
    file, _, function = reference.partition("::")
    if function not in _tests_in(file):
        raise CoverageError(f"there is no test {reference}")
    return f"`{reference}`"


@cache
def _tests_in(file: str) -> frozenset[str]:
    path = ROOT / file
    if path.suffix != ".py" or not path.exists():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset({"", *(node.name for node in tree.body if isinstance(node, ast.FunctionDef))})
