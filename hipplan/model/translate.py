"""pydantic's errors -> our diagnostics: a code, the place in the file, a hint, "did you mean"."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hipplan.errors import CODES, Diagnostic, Span, suggest

SpanOf = Callable[..., "Span | None"]
Path = tuple[Hashable, ...]

# Keys people will look for because HIP has such an option, and why a plan has no field for it.
REFUSED = {
    "offset": "HIP demands that the offset into an allocation is 0, in every release",
    "flags": "HIP demands 0 here, or the flags have names of their own",
    "compression": "HIP ignores hipMemAllocationProp.compressionType",
    "gpu_direct_rdma": "HIP ignores hipMemAllocationProp.gpuDirectRDMACapable",
    "sparse": "HIP answers hipMemMapArrayAsync with NotSupported, in every release",
}
_TYPES = {
    "int_type": "an integer",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than",
    "greater_than_equal",
    "less_than",
    "less_than_equal",
    "string_too_long",
    "string_too_short",
    "too_long",
    "too_short",
    "int_parsing_size",
}
_NAMES = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    int: "an integer",
    float: "a fraction",
    bool: "true or false",
    type(None): "nothing",
}


def translate(error: ValidationError, model: type[BaseModel], data: Any, span: SpanOf) -> list[Diagnostic]:
    """Every error of a document as a diagnostic, in the order of the file."""
    found: dict[tuple[Path, str, str], Diagnostic] = {}
    for details in error.errors(include_url=False):
        path, at_key = path_in(data, details["loc"])
        diagnostic = _diagnostic(details, model, data, path, at_key, span)
        found.setdefault((path, diagnostic.code, diagnostic.summary), diagnostic)
    return sorted(found.values(), key=_place)


def _place(diagnostic: Diagnostic) -> tuple[int, int]:
    return (diagnostic.span.line, diagnostic.span.column) if diagnostic.span else (0, 0)


def path_in(data: Any, loc: tuple[int | str, ...]) -> tuple[Path, bool]:
    """pydantic's location as a path of the document: without the names it gives to branches of unions."""
    path: list[Hashable] = []
    at_key = tagged = False
    for index, step in enumerate(loc):
        if step == "[key]":
            at_key = True
        elif not tagged and isinstance(data, dict) and data.get("kind") == step:
            tagged = True  # the branch of a union, which pydantic puts first; a key of that name may follow
        elif isinstance(data, dict) and step in data:
            path.append(step)
            data, tagged = data[step], False
        elif isinstance(data, list) and isinstance(step, int):
            path.append(step)
            data = data[step] if step < len(data) else None
        elif index == len(loc) - 1 and isinstance(data, dict):
            path.append(step)
    return tuple(path), at_key


def _diagnostic(
    details: ErrorDetails, model: type[BaseModel], data: Any, path: Path, at_key: bool, span: SpanOf
) -> Diagnostic:
    kind, context = details["type"], details.get("ctx", {})
    name = path[-1] if path else "the document"
    if kind in CODES:
        at = context.get("at")
        where = span((*path, at), key=False) if at else span(path)
        return Diagnostic(kind, context["message"], where, why=context["why"], hint=context["hint"])
    if kind == "extra_forbidden":
        return _unknown_key(name, fields_at(model, data, path[:-1]), span(path, key=True))
    if kind == "missing" or kind == "union_tag_not_found":
        missing = name if kind == "missing" else _unquoted(context["discriminator"])
        owner = path[:-1] if kind == "missing" else path
        of = f"'{owner[-1]}'" if owner else "the document"
        return Diagnostic(
            "HP102",
            f"{of} needs the key '{missing}'",
            span(owner, key=True),
            hint=f"add {missing}:",
        )
    if kind in ("literal_error", "union_tag_invalid"):
        key = "expected" if kind == "literal_error" else "expected_tags"
        if kind == "union_tag_invalid":
            path = (*path, _unquoted(context["discriminator"]))
        return _not_a_choice(
            details["input"],
            path,
            re.findall(r"'([^']*)'|(\d+)", context[key]),
            context.get("tag"),
            span(path),
        )
    if at_key:
        return Diagnostic(
            "HP106",
            f"'{_cut(name)}' cannot be a name",
            span(path, key=True),
            hint="letters, digits, _ and -, beginning with a letter; parts joined by dots",
        )
    if kind in _TYPES:
        got = _NAMES.get(type(details["input"]), "something else")
        return Diagnostic(
            "HP103",
            f"'{name}' must be {_TYPES[kind]}, not {got}",
            span(path),
            hint=_type_hint(kind, details["input"]),
        )
    code = "HP105" if kind in _BOUNDS or kind == "string_pattern_mismatch" else "HP103"
    return Diagnostic(code, f"'{name}': {details['msg'][0].lower()}{details['msg'][1:]}", span(path))


def _unknown_key(name: Hashable, known: list[str], where: Span | None) -> Diagnostic:
    why = REFUSED.get(str(name), "")
    hint = "" if why else suggest(name, known) or (f"keys here are {', '.join(known)}" if known else "")
    return Diagnostic("HP101", f"there is no key '{_cut(name)}' here", where, why=why, hint=hint)


def _not_a_choice(
    given: Any, path: Path, choices: list[tuple[str, str]], tag: Any, where: Span | None
) -> Diagnostic:
    known = [a or b for a, b in choices]
    value = tag if tag is not None else given
    if path == ("hipplan",):
        return Diagnostic(
            "HP108",
            f"this hipplan reads version 1 of a plan, not {_cut(value)}",
            where,
            hint="write hipplan: 1",
        )
    return Diagnostic(
        "HP104",
        f"'{path[-1]}' cannot be {_cut(value)}",
        where,
        hint=suggest(value, known) or f"one of {', '.join(known)}",
    )


def _type_hint(kind: str, given: Any) -> str:
    if kind == "bool_type" and str(given).lower() in ("yes", "on", "no", "off", "y", "n"):
        return "YAML 1.2 writes true and false"
    if kind == "int_type" and isinstance(given, str) and given.isdigit():
        return "remove the quotes"
    return ""


def fields_at(model: type[BaseModel], data: Any, path: Path) -> list[str]:
    """The keys that the object at `path` may have: what "did you mean" chooses from."""
    annotation: Any = model
    for step in path:
        data = _get(data, step)
        annotation = _step_into(annotation, step)
    for candidate in _models(annotation):
        kinds = (
            get_args(candidate.model_fields["kind"].annotation) if "kind" in candidate.model_fields else ()
        )
        if not kinds or (isinstance(data, dict) and data.get("kind") in kinds):
            return list(candidate.model_fields)
    return []


def _get(data: Any, step: Any) -> Any:
    return data[step] if isinstance(data, (dict, list)) else None


def _step_into(annotation: Any, step: Hashable) -> Any:
    for candidate in _models(annotation):
        if step in candidate.model_fields:
            return candidate.model_fields[str(step)].annotation
    for part in _flat(annotation):
        if get_origin(part) in (dict, list):
            return get_args(part)[-1]
    return None


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [part for part in _flat(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]


def _flat(annotation: Any) -> list[Any]:
    """The branches of a union, and what Annotated wraps."""
    origin = get_origin(annotation)
    if origin is None or origin in (dict, list):
        return [annotation]
    return [part for inner in get_args(annotation) for part in _flat(inner)]


def _unquoted(text: str) -> str:
    return text.strip("'")


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
