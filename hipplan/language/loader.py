"""`load(source, vars)` reads a plan: it returns a LoadedPlan, or raises PlanError with every error of the plan.

    loaded.plan            the Plan as written (after vars, each and include), counts not yet spread
    loaded.objects         the Objects: every concrete thing by its concrete name, in the order written
    loaded.span(*path)     Span of a path in the document: ("reservations", "model", "mappings", 0, "at");
                           of the nearest ancestor if that is not written; of a plan from Python its keys
    loaded.warnings        diagnostics that do not stop anything
    loaded.source_name     what messages call the document
    loaded.digest          sha256 of the expanded document: the same for the same layout, made in the same order

Objects (hipplan/language/objects.py) hold `devices`, `peers`, `allocations`, `reservations`, `streams` and `buffers`.
Each thing carries `name`, `spec` (its model) and `path` (for span), and its names are resolved: devices are
names from `objects.devices` or "host", `count` is spread into name.0, name.1, ..., a pattern such as `kv.*`
into one mapping each, and access is a dict of device name -> "none" | "r" | "rw". The allocations of one line are
one thing under several names.

`source` may be a path, an open stream, a text (a str with a line break), or data already in Python (a dict).
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import IO, Any

from pydantic import ValidationError

from hipplan.errors import Diagnostic, PlanError, Span
from hipplan.files.working_folder import Folder, working_folder
from hipplan.language.budget import Budget, no_garbage_collection
from hipplan.language.expand import expand
from hipplan.language.expanded import Expanded
from hipplan.language.expression import TEXT_MAX
from hipplan.language.findings import in_order
from hipplan.language.include import NOUNS, keys_taken
from hipplan.language.model.plan import Plan
from hipplan.language.objects import Objects, Path
from hipplan.language.rank import Rank
from hipplan.language.resolve import resolve
from hipplan.plain import flag, shown

_EXPRESSION = re.compile(r"\$\([^$,}'\"]*")

PlanSource = str | os.PathLike[str] | IO[Any] | Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class LoadedPlan:
    """A plan without errors of its own. Whether a machine can hold it is checked by the compiler."""

    plan: Plan
    objects: Objects
    warnings: tuple[Diagnostic, ...]
    _document: Expanded
    rank: Rank = Rank()
    """The rank that the plan was loaded for."""
    loaded_in: Folder | None = field(default_factory=working_folder, compare=False)
    """The working folder then, in which its paths begin."""

    def span(self, *path: Hashable, key: bool = False) -> Span | None:
        """Where the value (or the key) at `path` was written."""
        return self._document.span(path, key=key)

    def __repr__(self) -> str:
        return f"<hipplan.LoadedPlan '{self.plan.name or self.source_name}'>"

    @property
    def source_name(self) -> str:
        return self._document.name

    @property
    def budget(self) -> Budget:
        """What is left of the limits for a program of this plan."""
        return self._document.budget.copy()

    @property
    def files(self) -> frozenset[str]:
        """Paths of all files that it uses: the included plans, the files of contents and of buffers."""
        contents = [content.file for content in self.objects.contents.values()]
        contents += [getattr(line.first.spec, "file", None) for line in self.objects.buffers.lines]
        return self._document.files.union(self.path_from_here(file) for file in contents if file is not None)

    def path_of(self, file: str) -> str:
        """The path of a file that the plan names, from where the plan was loaded."""
        return str(PurePath(self.source_name).parent / file)

    def path_from_here(self, file: str) -> str:
        """The same path, absolute if this process has changed its working folder since the plan was loaded."""
        path = self.path_of(file)
        return path if self.loaded_in is None else self.loaded_in.path_from_here(path)

    @cached_property
    def digest(self) -> str:
        import hashlib
        import json

        text = json.dumps(_in_their_order(self._document.data), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def digest_of_all(self) -> str:
        """sha256 of what is equal for all ranks: the document before expansion, and its variables."""
        import hashlib

        return hashlib.sha256(repr(self._document.written).encode("utf-8", "surrogatepass")).hexdigest()


def load(
    source: PlanSource,
    vars: Mapping[str, Any] | None = None,  # noqa: A002
    *,
    ambient: Mapping[str, Any] | None = None,
    include_anywhere: bool = False,
    rank: Rank = Rank(),
) -> LoadedPlan:
    """Read, expand, validate and resolve one plan. Raises PlanError with all diagnostics of all its files.

    source: the plan's path, its text (of more than one line), an open file, or its data as mappings and lists.
    vars: values of the plan's variables; one that the plan does not declare is an error (HP210).
    ambient: values for variables that the plan declares and `vars` leaves out; others are ignored.
    include_anywhere: the plan may include files from outside its own folder.
    rank: load this rank's part of a plan for ranks; left out, that of the only rank of a group of one.
    """
    plan, errors = examine(source, vars, ambient=ambient, include_anywhere=include_anywhere, rank=rank)
    if errors:
        raise PlanError(errors)
    return plan


def examine(
    source: PlanSource,
    vars: Mapping[str, Any] | None = None,  # noqa: A002
    *,
    ambient: Mapping[str, Any] | None = None,
    include_anywhere: bool = False,
    rank: Rank = Rank(),
) -> tuple[LoadedPlan, list[Diagnostic]]:
    """A plan and its errors. A plan with errors has only its sound objects, and may be compiled only to find more
    errors. Raises PlanError if nothing is left to check.

    vars: values of the plan's variables; one that the plan does not declare is an error (HP210).
    ambient: values for those variables that the plan declares and `vars` leaves out; the others are ignored.
    include_anywhere: the plan may include files from outside its own folder.
    rank: whose part of a plan for ranks it is; left out, that of the only rank of a group of one.
    """
    if not isinstance(rank, Rank):
        raise TypeError(f"rank must be a hipplan.Rank, such as Rank(rank=3, ranks=8), not {type(rank).__name__}")
    if vars is not None and not isinstance(vars, Mapping):
        raise TypeError(f"vars must be a mapping of names to values, not {type(vars).__name__}")
    given, include_anywhere = vars or {}, flag(include_anywhere, "include_anywhere")
    set_outside = {**(ambient or {}), **given}
    try:
        with no_garbage_collection():
            document = expand(source, given, ambient, include_anywhere=include_anywhere, rank=rank)
            plan, diagnostics, left_out = _validate(document)
            diagnostics += _mistakes_beside(document)
            left_out |= document.left_out
            broken = document.broken.union(":".join(map(str, (*path, "")[:2])) for path in left_out)
            try:
                objects, more = resolve(plan, document.span, document.budget, broken, left_out, rank)
            except PlanError as past:  # a limit was reached; the errors found before are reported too
                raise PlanError(in_order([*document.findings, *diagnostics, *past.diagnostics])) from None
    except PlanError as error:
        raise PlanError([_with_given(diagnostic, set_outside) for diagnostic in error.diagnostics]) from None
    ordered = in_order([*document.findings, *diagnostics, *more])
    errors = [_with_given(diagnostic, set_outside) for diagnostic in ordered if diagnostic.severity == "error"]
    warnings = tuple(diagnostic for diagnostic in ordered if diagnostic.severity != "error")
    return LoadedPlan(plan, objects, warnings, document, rank), errors


def _with_given(diagnostic: Diagnostic, given: Mapping[str, Any]) -> Diagnostic:
    """The diagnostic with a note on variables near it whose values are not the plan's defaults."""
    span = diagnostic.span
    if span is None or not given:
        return diagnostic
    begin, end = span.column - 1, span.end_column - 1 if span.end_line == span.line else len(span.text)
    near = max(0, begin - TEXT_MAX), begin + TEXT_MAX  # a line may have megabytes and a thousand errors
    expressions = [
        match for match in _EXPRESSION.finditer(span.text, *near) if match.start() < end and begin < match.end()
    ]
    named = dict.fromkeys(
        name for expression in expressions for name in re.findall(r"\w+", expression[0]) if name in given
    )
    notes = [f"given: {name}={shown(given[name])} (not the plan's own value)" for name in named]
    return replace(diagnostic, notes=(*diagnostic.notes, *notes))


def loaded(
    plan: LoadedPlan | PlanSource,
    vars: Mapping[str, Any] | None = None,  # noqa: A002
    rank: Rank | None = None,
) -> LoadedPlan:
    """Load a plan unless it is loaded already.

    Raises as load() does, and TypeError if the plan is loaded already and vars or another rank are given.
    """
    if not isinstance(plan, LoadedPlan):
        return load(plan, vars, rank=rank or Rank())
    if vars:
        raise TypeError("the plan is already loaded: pass vars to hipplan.load()")
    if rank is not None and plan.plan.ranks is not None and plan.rank != rank:
        raise TypeError(f"the plan was loaded for {plan.rank}, and this is {rank}: pass its path or text instead")
    return plan


def _validate(document: Expanded) -> tuple[Plan, list[Diagnostic], dict[Path, Any]]:
    """(the plan, errors, objects left out). With errors the plan has only its good part, so that its names can still
    be checked."""
    diagnostics: list[Diagnostic] = []
    left_out: dict[Path, Any] = {}
    while True:  # pydantic checks combinations of keys only when each key is good
        try:
            return Plan.model_validate(document.data), diagnostics, left_out
        except ValidationError as error:
            from hipplan.language.model.translate import too_many, translate

            diagnostics += translate(error, Plan, document.data, document.span, keys_taken)
            if too_many(error):
                raise PlanError(in_order([*document.findings, *diagnostics])) from None
            good, wrong = _without_the_wrong(document.data, error)
        if good == document.data:
            raise PlanError(in_order([*document.findings, *diagnostics])) from None
        document.data = good
        left_out |= wrong


def _mistakes_beside(document: Expanded) -> list[Diagnostic]:
    """Errors in other keys of objects that were left out because a value could not be expanded."""
    if not document.left_out:
        return []
    data: dict[str, Any] = {"hipplan": 1}
    for (noun, name), value in document.left_out.items():
        data.setdefault(str(noun), {})[name] = value
    try:
        Plan.model_validate(data)
    except ValidationError as error:
        from hipplan.language.model.translate import translate

        return translate(error, Plan, data, document.span, keys_taken, document.is_unknown)
    return []


def _without_the_wrong(data: Any, error: ValidationError) -> tuple[Any, dict[Path, Any]]:
    """The document without unknown keys and without named objects that have other errors; and those objects."""
    from hipplan.language.model.translate import path_in

    wrong: dict[Path, Any] = {}
    unknown: list[Path] = []
    for details in error.errors(include_url=False, include_input=False):
        path = path_in(data, details["loc"])[0]
        if details["type"] == "extra_forbidden":
            unknown.append(path)
        elif path:
            wrong[path[:2]] = None
    good = _copied(data) if isinstance(data, dict) else {}
    for *owner, key in unknown:
        _at(good, owner).pop(key)
    for noun, *name in [*wrong]:
        things = good.get(noun)
        if name and isinstance(things, dict) and name[0] in things:
            wrong[noun, name[0]] = things.pop(name[0])
        else:
            wrong[noun,] = good.pop(noun, None)
    return {**good, "hipplan": 1}, wrong


def _copied(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(value) for value in data] if isinstance(data, list) else data


def _in_their_order(data: Mapping[str, Any]) -> dict[str, Any]:
    """The document with mappings of named objects turned into lists, for the digest: their order decides the order of
    devices, driver calls, tensors and contents."""
    out = {key: [*value.items()] if key in NOUNS else value for key, value in data.items()}
    if "regions" in out:
        out["regions"] = [
            (name, {**region, "tensors": [*region.get("tensors", {}).items()]}) for name, region in out["regions"]
        ]
    return out


def _at(data: Any, path: Sequence[Hashable]) -> Any:
    for step in path:
        data = data[step]
    return data
