"""vars, $(...), each and include: from a document as written to the document after expansion.

$(...) has names of variables, integers, sizes such as 64MiB, the operators + - * // % and parentheses. All numbers
are whole numbers, and // drops the remainder. $(layers * 64MiB) alone is a number; inside text it becomes part of the
text: part-$(n).bin. $$( writes the characters $( themselves. $x and ${x} are not expressions.

A variable may be a list, as a value by itself: with `vars: {page: [-1, 32, 128], gpus: [gpu.0, gpu.1]}` a plan may have
shape: $(page), devices: $(gpus) and each: $(gpus). On the command line it is --var gpus=gpu.2,gpu.3.

`each` repeats a named object, a tensor of a region, or an item of a list:

    weights: {each: gpu, device: $(each), size: 1GiB}            # weights.0 on gpu.0, weights.1 on gpu.1
    layer:   {each: {layer: 80, rank: gpu}, device: $(rank), ..} # layer.0.0, layer.0.1, ..., layer.79.7
    tensors: {layer.$(n).wq: {each: {n: 80}, dtype: bf16, ..}}   # layer.0.wq, ..., layer.79.wq

It repeats over a number (from 0 up to it), a family of devices, a list, {from, count, step}, or a mapping of names to
those, which repeats over all combinations. Inside, $(each) or the given names are the current values, $(rank.index) is
the position of a value in its list, and $(index) is the number of the repetition. Names are numbered by the index, from
0, whatever `from` and `step` are: layer: {each: {from: 4, count: 2}} gives layer.0 with $(each) = 4 and layer.1 with 5.
A name that contains $(...) gets no number: layer.$(each) gives layer.4 and layer.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from hipplan.errors import Diagnostic, PlanError, Span, Suggestions
from hipplan.language.declared import declared_below, is_plain
from hipplan.language.expanded import Expanded, Path, Position
from hipplan.language.expression import ExpressionError, Scalar, Value, in_text, substitute
from hipplan.language.include import NOUNS, Documents, NamedObject
from hipplan.language.rank import VARIABLES, Rank
from hipplan.language.scalars import VALUES, as_dict, as_dicts, is_value, like, plain, size_of
from hipplan.language.source import Source, load_yaml, within
from hipplan.language.yaml12 import DEPTH_MAX
from hipplan.plain import INTEGER_END, called, number, shown_number
from hipplan.units import ungrouped

_NAME = re.compile(r"[A-Za-z_]\w*")
_CAUSES = ("$(", "vars", "each", "include")

_RANGE_KEYS = frozenset(("from", "count", "step"))

Scope = Mapping[str, Value]


def expand(
    source: Any,
    given: Mapping[str, Any],
    ambient: Mapping[str, Any] | None = None,
    *,
    include_anywhere: bool = False,
    rank: Rank = Rank(),
) -> Expanded:
    """Reads a document and expands it. Raises PlanError with all errors found.

    given: values of variables, all of which the document must declare. ambient: values of variables that it may
    declare. rank: the rank for $(rank) and similar variables, if the document is for ranks.
    """
    if isinstance(source, Mapping):
        root = Source("<data>", "", as_dicts(source), None)
    else:
        root = load_yaml(source)
        if not given and not len(root.findings) and not any(cause in root.text for cause in _CAUSES):
            return Expanded(root, root.data)
    if not isinstance(root.data, dict):
        return Expanded(root, root.data)
    return _Expander(Documents(root, include_anywhere), given, ambient or {}, rank).run()


class _Expander:
    def __init__(self, documents: Documents, given: Mapping[str, Any], ambient: Mapping[str, Any], rank: Rank) -> None:
        self.documents = documents
        self.given = {**{name: ambient[name] for name in documents.vars if name in ambient}, **given}
        self.findings = documents.findings
        self.budget = documents.root.budget
        self.nearest = Suggestions().nearest
        self.broken: set[Path] = set()
        self.variables: dict[str, Value] = {}
        """The variables that the document declares."""
        self.for_ranks = documents.root.data.get("ranks") is not None
        self.scope: dict[str, Value] = dict(rank.variables) if self.for_ranks else {}
        self.wrong: set[str] = set()
        """Variables with a wrong definition: objects that use one are left out without another error."""
        self.families: dict[str, list[Scalar]] = {}
        self.out = Expanded(documents.root, None)

    def run(self) -> Expanded:
        root = self.documents.root
        self._variables()
        if self.documents.complete:
            self._report_unknown()
        data: dict[str, Any] = {}
        try:
            for noun, entries in self.documents.nouns.items():
                data[noun] = self._named(noun, entries)
                if noun == "devices":
                    self._find_families(data[noun])
            for key, value in root.data.items():
                if key not in data and key not in ("include", "vars"):
                    data[key] = self._walk(value, self.scope, Position(root, (key,), (key,)))
        except PlanError as past:  # a limit
            self.findings.extend(past.diagnostics)
            raise PlanError(self.findings) from None
        for path in self.broken:
            if len(path) == 1:
                data.pop(str(path[0]), None)
        for noun in self.documents.nouns:
            for name in [name for name in data[noun] if (noun, name) in self.broken]:
                self.out.left_out[noun, name] = data[noun].pop(name)
        if self.variables:
            data["vars"] = self.variables
        self.out.data = data
        self.out.written = (*self.documents.texts, self.given)
        self.out.files = frozenset(map(str, self.documents.read))
        self.out.findings = self.findings
        self.out.broken = frozenset(":".join(map(str, path)) for path in self.broken)
        if not self.documents.complete:
            self.out.broken |= frozenset(NOUNS)
        return self.out

    # Variables

    def _report_unknown(self) -> None:
        """HP210: unknown variables. Nothing uses them, so all other errors can be reported too."""
        declared = self.documents.vars
        span = self.documents.root.span(("vars",), key=True)
        for name in self.given:
            if name not in declared:
                hint = self.nearest(name, declared) or "declare it under vars: with a default"
                self.findings.add(Diagnostic("HP210", f"the plan has no variable '{name}'", span, hint=hint))

    def _variables(self) -> None:
        declared = self.documents.vars
        for name, value in self.given.items():
            if name in declared:
                place = Position(declared[name].source, ("vars", name), ("vars", name))
                self._set_given(name, value, declared[name].value, place)
                self._set_aside(name)
        for name, entry in declared.items():
            place = Position(entry.source, ("vars", name), ("vars", name))
            if not _NAME.fullmatch(name):
                hint = "letters, digits and _, beginning with a letter"
                self._report("HP106", f"'{name[:60]}' cannot be a variable", place, key=True, hint=hint)
            elif name in VARIABLES and self.for_ranks:
                why, hint = f"every rank sets its own $({name})", "rename it, or remove it"
                summary = f"'{name}' cannot be a variable of a plan for ranks"
                self._report("HP106", summary, place, key=True, why=why, hint=hint)
            elif name not in self.variables and self.out.doubled.has(entry.source, place.origin):
                self.wrong.add(name)
            elif name not in self.variables and name not in self.wrong:
                value = self._walk(entry.value, self.scope, place)
                if (
                    isinstance(value, str)
                    and (digits := ungrouped(value))
                    and is_plain(value, place.source.span(place.origin))
                ):
                    self._report("HP103", f"{value} is text, not a number", place, hint=f"write {digits}")
                elif is_value(value):
                    self._set(name, value)
                else:
                    self._report("HP103", f"the variable '{name}' must be {VALUES}", place)
            self._set_aside(name)

    def _set_given(self, name: str, given: Any, default: Any, place: Position) -> None:
        """Set a variable to a value from outside of the document."""
        value = like(given, default)
        wanted = "" if is_value(value) else f"{VALUES}, not {called(given)}"
        if isinstance(value, list) and isinstance(default, (int, str)) and "$(" not in str(default):
            wanted = "an integer, true, false or text, as its default is, not a list"
        if wanted:
            self._report("HP103", f"the variable '{name}' must be {wanted}", place)
        self._set(name, [self._number(item, place) for item in value] if isinstance(value, list)
                  else self._number(value, place))  # fmt: skip

    def _set(self, name: str, value: Value) -> None:
        self.scope[name] = self.variables[name] = value

    def _set_aside(self, name: str) -> None:
        """Mark a variable as wrong, so that the others can be used."""
        if ("vars",) in self.broken:
            self.broken.discard(("vars",))
            self.wrong.add(name)
            self.scope.pop(name, None)
            self.variables.pop(name, None)

    def _find_families(self, devices: Mapping[str, Any]) -> None:
        budget = self.budget.copy()  # making the devices counts them again
        for name, selector in devices.items():
            count = selector.get("count") if isinstance(selector, dict) else None
            if isinstance(count, int) and count > 0:
                budget.take("objects", count, f"'{name}'", partial(self.out.span, ("devices", name, "count")))
                self.families[name] = [f"{name}.{i}" for i in range(count)]
            else:
                self.families[name] = [name]
            if "." in name:
                self.families.setdefault(name.rpartition(".")[0], []).append(name)

    # The walk

    def _named(self, noun: str, entries: Mapping[str, NamedObject]) -> dict[str, Any]:
        """The objects of one noun; an object with `each` becomes several."""
        result: dict[str, Any] = {}
        for entry in entries.values():
            place = Position(entry.source, (noun, entry.name), (noun, entry.name))
            self._add_named(result, entry.name, entry.value, self.scope, place)
        return result

    def _add_named(self, out: dict[str, Any], written: str, value: Any, scope: Scope, place: Position) -> None:
        """Add one written object under each name that it expands to."""
        for suffix, inner, expansion, body in self._repeat(value, scope, place):
            name = written
            if "$(" in name:
                name = str(self._text(name, inner, place, key=True))
            elif suffix:
                name += suffix
            repetition = f"{name} ({expansion})" if expansion else ""
            repetition = (
                f"{place.expansion}, {repetition}" if place.expansion and repetition else repetition or place.expansion
            )
            made = Position(place.source, (*place.path[:-1], name), place.origin, repetition)
            if name in out:
                hint = "use the variables of each in the name"
                self._report("HP204", f"the name '{name}' is used twice", made, key=True, hint=hint)
            self.out.came_from(made.path, made.source, made.origin, made.expansion)
            if self.out.doubled.has(made.source, made.origin):
                self._leave_out(made)
            out[name] = self._walk(body, inner, made)

    def _walk(self, value: Any, scope: Scope, place: Position) -> Any:
        if len(place.path) > DEPTH_MAX:
            raise PlanError(Diagnostic("HP009", f"nested deeper than {DEPTH_MAX} levels", self._span(place)))
        if isinstance(value, str):
            return self._text(value, scope, place) if "$(" in value else value
        value = as_dict(value)
        if not isinstance(value, (dict, list, tuple)):
            return self._number(value, place)
        if place.source.root is None:  # data from Python, which is not counted yet
            self.budget.take("values", len(value), "this", lambda: self._span(place))
        return self._mapping(value, scope, place) if isinstance(value, dict) else self._list(value, scope, place)

    def _number(self, value: Any, place: Position) -> Any:
        """A number from Python data as int or float, with at most as many digits as a text may have."""
        value = number(value)
        if type(value) is int and abs(value) >= INTEGER_END:
            hint = "numbers in a plan have at most 64 bits"
            self._report("HP012", shown_number(value).capitalize(), place, hint=hint)
            return 0
        return value

    def _mapping(self, value: Mapping[str, Any], scope: Scope, place: Position) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if len(place.path) == 3 and (place.path[0], place.path[2]) == ("regions", "tensors"):
            for written, inner in value.items():
                self._add_named(result, str(written), inner, scope, place.child(written, written))
            return result
        for written, inner in value.items():
            key = written
            if isinstance(written, str) and "$(" in written:
                key = str(self._text(written, scope, place.child(written, written), key=True))
                if key in result:
                    self._report("HP005", f"the key '{key}' appears twice", place.child(written, written), key=True)
                self.out.came_from((*place.path, key), place.source, (*place.origin, written), place.expansion)
            result[key] = inner if plain(inner) else self._walk(inner, scope, place.child(key, written))
        return result

    def _list(self, value: Sequence[Any], scope: Scope, place: Position) -> list[Any]:
        result: list[Any] = []
        moved = False
        for index, item in enumerate(value):
            if not moved and plain(item):
                result.append(item)
                continue
            for suffix, inner, expansion, body in self._repeat(item, scope, place.child(len(result), index)):
                made = place.child(len(result), index)
                moved = moved or bool(suffix)
                if expansion:
                    made.expansion = f"{place.expansion}, {expansion}" if place.expansion else expansion
                if moved:
                    self.out.came_from(made.path, place.source, made.origin, made.expansion)
                result.append(self._walk(body, inner, made))
        return result

    def _text(self, text: str, scope: Scope, place: Position, *, key: bool = False) -> Value:
        self.budget.take("characters of expressions", len(text), "this text", lambda: self._span(place, key=key))
        try:
            value = substitute(text, scope, self.nearest)
            if isinstance(value, list):
                if key:
                    raise in_text(0, len(text))
                who, characters = "this list", sum(len(str(item)) for item in value)
                self.budget.take("values", len(value), who, lambda: self._span(place))
                self.budget.take("characters", characters, who, lambda: self._span(place))
            return value
        except ExpressionError as error:
            self._leave_out(place)
            stand_in = 1 if text.startswith("$(") and text.endswith(")") and not key else text
            name = text[error.start : error.start + error.length]
            if error.diagnostic.code == "HP021" and (name in self.wrong or not self.documents.complete):
                return stand_in  # only its definition is reported, which may be in a file that could not be read
            span = place.source.span(place.origin, key=key)
            if span is not None:
                span = replace(within(span, text, error.start, error.length), expansion=place.expansion)
            finding = error.diagnostic
            if finding.code == "HP021" and name in self.documents.vars and place.origin[0] == "vars":
                finding = replace(finding, hint=declared_below(name, place.origin, self.documents.vars[name]))
            self.findings.add(replace(finding, span=span))
            return stand_in

    # each

    def _repeat(self, value: Any, scope: Scope, place: Position) -> Iterator[tuple[str, Scope, str, Any]]:
        """(suffix of the name, scope, description, the object without `each`) for each repetition."""
        value = as_dict(value)
        if not isinstance(value, dict) or "each" not in value:
            yield "", scope, "", value
            return
        body = {key: inner for key, inner in value.items() if key != "each"}
        each = as_dict(value["each"])
        where = place.child("each", "each")
        several = isinstance(each, dict) and not (each.keys() <= _RANGE_KEYS or each.keys() == {"from", "to"})
        named = each if several else {"each": each}
        domains: list[list[Scalar]] = []
        total = 1
        for name, domain in named.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                self._report("HP024", f"'{name}' cannot be the name of a value", where, hint="letters, digits and _")
                values = None
            else:
                values = self._domain(self._walk(domain, scope, where), where.child(name, name) if several else where)
            if values is None:  # once, to report its other errors, but none about the missing values
                unknown = {"index", *map(str, named), *(f"{variable}.index" for variable in named)} - self.wrong
                self.wrong |= unknown
                yield "", scope, "", body
                self.wrong -= unknown
                return
            total *= len(values)
            domains.append(values)
        self._ask(total, body, domains, where)
        for index, choice in enumerate(product(*(enumerate(values) for values in domains))):
            inner: dict[str, Value] = {**scope, "index": index}
            for name, (own, item) in zip(named, choice, strict=True):
                inner[name] = item
                inner[f"{name}.index"] = own
            shown = ", ".join(f"{name}={item}" for name, (_, item) in zip(named, choice, strict=True))
            yield "".join(f".{own}" for own, _ in choice), inner, shown, body

    def _ask(self, times: int, body: Any, domains: list[list[Scalar]], place: Position) -> None:
        """Count everything that a repetition makes; inner repetitions are counted by themselves. Raises PlanError."""
        who = f"each, {shown_number(times)} times,"
        values, characters = size_of(body)
        budget = self.budget.copy()  # evaluating a text counts it again
        self.budget.take("repetitions", times, who, lambda: self._span(place))
        budget.take("characters of expressions", times * characters, who, lambda: self._span(place))
        self.budget.take("values", times * (values + len(self.scope)), who, lambda: self._span(place))
        self.budget.take("repeated values", times * values, who, lambda: self._span(place))
        characters = sum(times // len(values) * sum(len(str(item)) for item in values) for values in domains if times)
        characters += times * len(place.expansion)  # each has the names of all enclosing repetitions
        self.budget.take("characters", characters, who, lambda: self._span(place))

    def _domain(self, domain: Any, place: Position) -> list[Scalar] | None:
        """The values of one name of an `each`; None: an error, which is reported."""
        if isinstance(domain, str) and domain in self.families:
            return self.families[domain]
        if isinstance(domain, list) and all(isinstance(item, (int, str)) for item in domain):
            return domain
        if isinstance(domain, dict) and "count" in domain and domain.keys() <= _RANGE_KEYS:
            start, count, step = (domain.get(key, default) for key, default in (("from", 0), ("count", 0), ("step", 1)))
        else:
            start, count, step = 0, domain, 1
        if all(type(each) is int for each in (start, count, step)) and count >= 0:
            self.budget.take("values", count, "each", lambda: self._span(place))
            return [start + step * i for i in range(count)]
        if isinstance(domain, str) and not domain[:1].isdigit():
            hint = self.nearest(domain, self.families) or "define a family under devices:, such as gpu: {count: 8}"
            self._report("HP024", f"there is no family of devices '{domain[:60]}'", place, hint=hint)
        else:
            hint = "a number from 0, a family of devices, a list, or {from: 4, count: 8, step: 2}"
            self._report("HP024", "each cannot repeat over this", place, hint=hint)
        return None

    def _report(self, code: str, summary: str, place: Position, *, key: bool = False, **more: str) -> None:
        self._leave_out(place)
        if not self.findings.enough():
            self.findings.add(Diagnostic(code, summary, self._span(place, key=key), **more))  # type: ignore[arg-type]

    def _span(self, place: Position, *, key: bool = False) -> Span | None:
        span = place.source.span(place.origin, key=key)
        return replace(span, expansion=place.expansion) if span is not None and place.expansion else span

    def _leave_out(self, place: Position) -> None:
        """Leave out the named object at this place, by its expanded name and by the written one."""
        length = 2 if place.path[0] in NOUNS else 1
        self.broken |= {place.path[:length], place.origin[:length]}
        self.out.unfilled.update(place.path[:end] for end in range(length, len(place.path) + 1))
