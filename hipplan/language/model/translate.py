"""pydantic's errors -> our diagnostics: a code, the place in the file, a hint, "did you mean"."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from hipplan.codes import CODES
from hipplan.errors import Diagnostic, Span, suggest
from hipplan.language.budget import LIMITS
from hipplan.language.findings import Findings
from hipplan.language.kinds import beginning
from hipplan.language.model.forms import FORMS, WRITTEN
from hipplan.language.model.habits import SPACE_AFTER_COLON, added, bounds, meant_key, meant_value
from hipplan.language.model.places import Path, fields_of, kinds_of, place_at, written_as
from hipplan.language.model.unindented import Unindented
from hipplan.plain import called, meant_variable, odd_space, shown

SpanOf = Callable[..., "Span | None"]

# Options of HIP that have no key in a plan, and why.
REFUSED = {
    "offset": "every HIP release requires offset 0 into the allocation",
    "flags": "HIP requires 0 here, or the flags have their own keys",
    "compression": "hipMemCreate reads type, location and handle type of its properties, nothing else",
    "gpu_direct_rdma": "it is called rdma: rdma: true",
    "io_memory": "hipHostRegisterIoMemory is for the memory of another PCIe device, which a plan cannot name",
    "sparse": "hipMemMapArrayAsync returns hipErrorNotSupported in every release",
}
REFUSED_VALUES = {
    ("shareable", "fabric"): "fabric handles need HIP 7.14, which hipplan does not support yet",
    ("shareable", "win32"): "hipplan runs on Linux only",
    (
        "type",
        "managed",
    ): "allocations of type managed need HIP 7.15; use a buffer of kind managed",
}
_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_UNKNOWN = "extra_forbidden"
MOST = 20_000
"""How many errors are reported; the rest is counted."""
_LOOKED_AT = 100
"""Keys of a document that are looked at, to see whether it is a plan at all."""
_INTEGER = re.compile(r"-?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
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


def translate(
    error: ValidationError,
    model: type[BaseModel],
    data: Any,
    span: SpanOf,
    more_keys: Callable[[Path], tuple[str, ...]] = lambda path: (),
    is_unknown: Callable[[Path], bool] = lambda path: False,
) -> list[Diagnostic]:
    """Every error of a document as a diagnostic, in the order of the file; past the limit of mistakes their number.

    more_keys: that the object at a path may have besides its model's.
    is_unknown: whether nothing can be said of a path, because an error at or below it is reported already.
    """
    if too_many(error):
        return [_their_number(error, data, span)]
    findings = Findings()
    is_strange = _is_strange(data, model)
    unindented = Unindented(model, data)
    repeated: dict[object, Diagnostic] = {}
    reported: set[tuple[Path, str, str]] = set()
    for number, details in enumerate(error.errors(include_url=False)):
        if number == MOST:
            findings.add(Diagnostic("HP027", "", left_out=error.error_count() - MOST))
            break
        kind, path, at_key = _at(data, details)
        if unindented.has(path):
            if (about := unindented.diagnostic(path, span)) is not None:
                findings.add(about)
            continue
        if is_unknown(path) or (is_strange and len(path) == 1 and details["type"] == _UNKNOWN):
            continue
        where = span(path)
        key = (details["type"], str(where), path[-1:]) if where is not None and where.expansion else None
        if key in repeated:  # by the thousand: words for the first one are enough
            findings.add(repeated[key])
            continue
        if key is None and findings.enough():
            continue
        context = details.get("ctx", {})
        problem = _Problem(kind, details["input"], context, details["msg"], path, at_key, span)
        known = [*_fields_at(model, data, path[:-1]), *more_keys(path[:-1])] if problem.kind == _UNKNOWN else []
        elsewhere = _of_other_kinds(model, path, known) if known else {}
        diagnostic = problem.diagnostic(known, elsewhere, _below(data, path[:-1]) if known else ())
        if key is not None:
            repeated[key] = diagnostic
        # A key that is there, with a space that is missing or odd, is reported as unknown.
        new = [] if problem.is_misspelt(_below(data, problem.owner)) else [(path, diagnostic)]
        if problem.kind in ("union_tag_invalid", "union_tag_not_found"):  # pydantic looks no further
            known = [*_fields_of_any(model, path), *more_keys(path)]
            for key in (key for key in problem.given if key not in known):
                unknown = replace(problem, kind=_UNKNOWN, path=(*path, key)).diagnostic(known, {}, problem.given)
                new.append(((*path, key), unknown))
        for at, finding in new:
            if (at, finding.code, finding.summary) not in reported:
                reported.add((at, finding.code, finding.summary))
                findings.add(finding)
    return findings.all


def _is_strange(data: Any, model: type[BaseModel]) -> bool:
    """Whether a document has no key of the model's, not even a misspelt one: it is a file of another program."""
    known = list(fields_of(model))
    keys = [*itertools.islice(data, _LOOKED_AT)] if isinstance(data, dict) else []
    return bool(keys) and not any(key in known or suggest(str(key), known) for key in keys)


def too_many(error: ValidationError) -> bool:
    """Whether the limit of mistakes is past: pydantic makes a list of all or none, a kilobyte each."""
    return error.error_count() > LIMITS["errors"]


def _their_number(error: ValidationError, data: Any, span: SpanOf) -> Diagnostic:
    """Says that there are so many, and where most is written: what has few entries has few mistakes."""
    path = _longest(data)
    summary = f"this document has {error.error_count():,} errors"
    why = f"the limit of one document is {LIMITS['errors']:,} errors; beyond it they are not listed"
    hint = f"check '{_named(path)}' first: it has {len(_below(data, path)):,} entries" if path else ""
    return Diagnostic("HP023", summary, span(path, key=True), why=why, hint=hint)


def _longest(data: Any) -> Path:
    """The path of the mapping or list with the most entries."""
    longest: Path = ()
    most = 0
    left: list[tuple[Path, Any]] = [((), data)]
    for path, value in left:
        if len(value) > most:
            longest, most = path, len(value)
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        left += [((*path, key), inner) for key, inner in entries if isinstance(inner, (dict, list))]
    return longest


def _at(data: Any, details: Any) -> tuple[str, Path, bool]:
    """The kind of an error, its path, and whether it is about a name. Of a model's key that UTF-8 lacks pydantic says
    no more than where the model is."""
    path, at_key = path_in(data, details["loc"])
    kind, given = details["type"], details["input"]
    owner = _below(data, path) if kind == "string_unicode" and not at_key else None
    if isinstance(owner, dict) and given in owner:
        return _UNKNOWN, (*path, given), False
    return kind, path, at_key


def path_in(data: Any, loc: tuple[int | str, ...]) -> tuple[Path, bool]:
    """pydantic's location as a path of the document: without the names it gives to branches of unions."""
    path: list[Hashable] = []
    at_key = tagged = False
    for index, step in enumerate(loc):
        if step == "[key]":
            at_key = True
        elif path[:1] == ["buffers"] and len(path) == 2 and not tagged:
            tagged = True  # buffers are the one union of models: pydantic puts the kind in front
        elif path == ["peers"] and step in ("all", "links"):
            continue  # the branches of peers
        elif isinstance(data, dict) and (key := written_as(step, data)) in data:
            path.append(key)
            data = data[key]
        elif isinstance(data, list) and isinstance(step, int):
            path.append(step)
            data = data[step] if step < len(data) else None
        elif index == len(loc) - 1 and isinstance(data, dict):
            path.append(step)
    return tuple(path), at_key


@dataclass(frozen=True, slots=True)
class _Problem:
    """One of pydantic's errors, at its path in the document."""

    kind: str
    given: Any
    context: dict[str, Any]
    message: str
    path: Path
    at_key: bool
    span: SpanOf

    @property
    def name(self) -> str:
        return _named(self.path) if self.path else "the document"

    @property
    def owner(self) -> Path:
        """The path of the object that lacks a key."""
        return self.path if self.kind == "union_tag_not_found" else self.path[:-1]

    @property
    def missing(self) -> str:
        """The key that is missing; empty if this is about something else."""
        if self.kind == "union_tag_not_found":
            return _unquoted(self.context["discriminator"])
        return self.name if self.kind == "missing" else ""

    def is_misspelt(self, beside: Any) -> bool:
        """Whether a key that is missing stands there as `kind:device` or with a no-break space. beside: the owner."""
        if not (missing := self.missing) or not isinstance(beside, dict):
            return False
        return any(
            isinstance(key, str) and (key.startswith(f"{missing}:") or (odd_space(key)[1] and missing in key))
            for key in beside
        )

    def diagnostic(self, known: list[str], elsewhere: dict[str, str], beside: Container[Hashable]) -> Diagnostic:
        """known: keys to choose from, where this is about one that does not exist; elsewhere: those of other kinds of
        the same noun, with the kinds; beside: those that are written there."""
        diagnostic = self._diagnostic(known, elsewhere, beside)
        is_key = self.at_key or self.kind == _UNKNOWN
        written = self.name if is_key else self.context.get("tag", self.given)
        _, hint = odd_space(written) if isinstance(written, str) else (-1, "")
        return replace(diagnostic, hint=hint) if hint else diagnostic

    def _diagnostic(self, known: list[str], elsewhere: dict[str, str], beside: Container[Hashable]) -> Diagnostic:
        if self.kind in CODES:
            return self._ours()
        if self.kind == _UNKNOWN:
            return self._unknown_key(known, elsewhere, beside)
        if self.missing:
            return self._missing()
        if self.kind in ("literal_error", "union_tag_invalid"):
            return self._not_a_choice()
        if self.at_key:
            return self._bad_name()
        return self._wrong_value()

    def _ours(self) -> Diagnostic:
        context = self.context
        where = self.span((*self.path, context["at"]) if context["at"] else self.path)
        return Diagnostic(self.kind, context["message"], where, why=context["why"], hint=context["hint"])

    def _unknown_key(self, known: list[str], elsewhere: dict[str, str], beside: Container[Hashable]) -> Diagnostic:
        where, reason = self.span(self.path, key=True), REFUSED.get(self.name, "")
        if reason:
            hint = "remove it"
            if self.name == "offset" and "at" in known:
                hint = "remove it; to place a mapping in its reservation, use at:"
            return Diagnostic("HP109", f"a plan has no key '{self.name}'", where, why=reason, hint=hint)
        hint = meant_key(self.name, known, beside) or suggest(self.name, [*known, *elsewhere])
        meant = hint.removeprefix("did you mean '").removesuffix("'?")
        if meant in elsewhere:
            hint = f"{'' if meant == self.name else hint + ' '}{meant}: is for buffers of kind {elsewhere[meant]}"
        hint = hint or (f"allowed keys are {', '.join(known)}" if known else "")
        return Diagnostic("HP101", f"there is no key '{self.name}' here", where, hint=hint)

    def _missing(self) -> Diagnostic:
        missing, owner = self.missing, self.owner
        of = f"'{_named(owner)}'" if owner else "the document"
        return Diagnostic("HP102", f"{of} needs the key '{missing}'", self.span(owner, key=True), hint=added(missing))

    def _not_a_choice(self) -> Diagnostic:
        path, value, expected = self.path, self.given, "expected"
        if self.kind == "union_tag_invalid":
            path, expected = (*path, _unquoted(self.context["discriminator"])), "expected_tags"
            value = self.context["tag"]
        where, written = self.span(path), shown(value)
        known = [text or number for text, number in re.findall(r"'([^']*)'|(\d+)", self.context[expected])]
        only = f"write {path[-1]}: {known[0]}" if len(known) == 1 else ""
        hint = meant_value(value, known) or suggest(value, known) or only or f"one of {', '.join(known)}"
        reason = REFUSED_VALUES.get((str(path[-1]), str(value)), "")
        code = "HP109" if reason else "HP104"
        written = f"'{written}'" if isinstance(value, str) else written  # 'read', not read
        return Diagnostic(code, f"'{_named(path)}' cannot be {written}", where, why=reason, hint=hint)

    def _bad_name(self) -> Diagnostic:
        hint = "letters, digits, _ and -, beginning with a letter; parts joined by dots"
        return Diagnostic("HP106", f"'{self.name}' cannot be a name", self.span(self.path, key=True), hint=hint)

    def _wrong_value(self) -> Diagnostic:
        where = self.span(self.path)
        if self.kind in _TYPES:
            subject = f"'{self.name}'" if self.path else "the document"
            summary = f"{subject} must be {_TYPES[self.kind]}, not {called(self.given)}"
            return Diagnostic("HP103", summary, where, hint=self._type_hint())
        if self.kind == "string_unicode":
            hint = "rename the file" if self.name == "file" else ""
            return Diagnostic("HP103", f"'{self.name}' must be text in UTF-8", where, hint=hint)
        if self.kind == "invalid_key":
            summary = f"a key of the document is {called(self.path[-1])}: {shown(self.path[-1])}"
            return Diagnostic("HP011", summary, where, hint="keys must be text")
        if self.kind == "string_pattern_mismatch":
            hint = FORMS.get(self.name, "")
            return Diagnostic("HP105", f"'{self.name}' cannot be {shown(self.given)}", where, hint=hint)
        if self.kind == "string_too_short" and not self.given:
            return Diagnostic("HP105", f"'{self.name}' cannot be empty", where, hint=FORMS.get(self.name, ""))
        if self.kind == "string_too_long":
            summary = f"'{self.name}' has at most {self.context['max_length']} characters, not {len(self.given)}"
            return Diagnostic("HP105", summary, where)
        if self.kind == "too_short":
            least = self.context["min_length"]
            if least == 1:
                return Diagnostic("HP105", f"'{self.name}' cannot be empty", where, hint=self._written())
            summary = f"'{self.name}' must have at least {least} items, not {len(self.given)}"
            return Diagnostic("HP105", summary, where)
        if bound := bounds(self.context):
            return Diagnostic("HP105", f"'{self.name}' {bound}, not {shown(self.given)}", where)
        code = "HP105" if self.kind in _BOUNDS else "HP103"
        return Diagnostic(code, f"'{self.name}': {self.message[0].lower()}{self.message[1:]}", where)

    def _written(self) -> str:
        """How this list or mapping is written; of a named object and of an item of a list, what holds it."""
        path = self.path
        has_holder = isinstance(path[-1], int) or path[-2:-1] == ("tensors",)
        field = path[0] if len(path) == 2 else path[-2] if has_holder else path[-1]
        if field == "devices" and self.kind == "list_type":
            named = str(self.given) if isinstance(self.given, str) and self.given != "all" else "gpu.*"
            return f"write devices: [{named}]"
        example = WRITTEN.get(str(field), "")
        return f"write {example}" if example else ""

    def _type_hint(self) -> str:
        given = self.given
        if not self.path:
            wanted = {"Machine": "profile", "Experiment": "experiment", "Lock": "lock"}
            return beginning(wanted.get(str(self.context.get("class_name")), "plan"))
        if _TYPES[self.kind] in ("a mapping", "a list") and self.path:
            joined = re.match(r"([A-Za-z_]+):(\S+)", given) if isinstance(given, str) else None
            return f"{SPACE_AFTER_COLON}: {joined[1]}: {joined[2]}" if joined else self._written()
        if self.kind == "string_type" and given.__class__ is int and _names_a_device(self.path):
            return f"write the name of a device: gpu.{given}, or one of devices:, as gpu: {{ordinal: {given}}}"
        if self.kind == "bool_type" and str(given).lower() in ("yes", "on", "no", "off", "y", "n", "true", "false"):
            return "remove the quotes" if given in ("true", "false") else "in YAML 1.2 the booleans are true and false"
        if self.kind == "bool_type" and given in (0, 1):
            return f"write {'true' if given else 'false'}"
        if self.kind == "int_type" and isinstance(given, str):
            return "remove the quotes" if _INTEGER.fullmatch(given) else meant_variable(given)
        if self.kind == "string_type" and isinstance(given, (int, float)):
            return FORMS.get(self.name) or "put it in quotes"
        return ""


def _names_a_device(path: Path) -> bool:
    return path[-1] in ("device", "peer", "to") or path[-2:-1] == ("devices",)


def _named(path: Path) -> str:
    """The last name of a path; an item of a list by its list and number."""
    return f"{path[-2]}[{path[-1]}]" if isinstance(path[-1], int) and len(path) > 1 else shown(path[-1])


def _fields_at(model: type[BaseModel], data: Any, path: Path) -> list[str]:
    """The keys that the object at `path` may have: what "did you mean" chooses from."""
    written = _below(data, path)
    return list(place_at(model, path).fields(written.get("kind") if isinstance(written, dict) else None))


def _fields_of_any(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that an object at `path` may have, whatever its kind."""
    return list(dict.fromkeys(field for candidate in place_at(model, path).models for field in fields_of(candidate)))


def _of_other_kinds(model: type[BaseModel], path: Path, known: list[str]) -> dict[str, str]:
    """The keys that objects of other kinds of the same noun have, and those kinds."""
    keys_by_kind: dict[str, list[str]] = {}
    for candidate in place_at(model, path[:-1]).models:
        for field in fields_of(candidate):
            if field not in known:
                keys_by_kind.setdefault(field, []).extend(kinds_of(candidate))
    return {field: " or ".join(kinds) for field, kinds in keys_by_kind.items() if kinds}


def _below(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step] if isinstance(data, (dict, list)) else None
    return data


def _unquoted(text: str) -> str:
    return text.strip("'")
