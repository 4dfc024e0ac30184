"""An experiment file, as pydantic models. docs/experiment-reference.md comes from their docstrings.

No `from __future__ import annotations`: see hipplan/language/model.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from hipplan.language.base import FilePath, Name, PlanModel, refuse, written
from hipplan.plain import called, shown

Value = int | bool | str
"""A value of a variable, of the plan or of the environment."""

Measurement = Literal["copy", "prefetch", "map", "first_touch", "latency"]
_SCALAR: dict[str, Any] = {"type": ["integer", "boolean", "string"]}
REPEAT_MAX = 100_000
_VALUES_MAX = 1000
_TEXT_MAX = 4096


def _value(value: Any) -> Value:
    """One validator, because pydantic reports each branch of a union."""
    if value.__class__ in (int, bool):
        return value
    if not isinstance(value, str):
        hint = "put it in quotes" if isinstance(value, float) else ""
        raise refuse("HP103", f"a value must be an integer, true, false or text, not {called(value)}", hint=hint)
    if len(value) > _TEXT_MAX or "\0" in value:
        raise refuse("HP105", f"a value has at most {_TEXT_MAX} characters, none of them NUL")
    return value


def _values(value: Any) -> list[Value]:
    if not isinstance(value, list):
        raise refuse("HP103", f"the values must be a list, not {called(value)}", hint=f"write [{shown(value)}]")
    return _checked(value)


def _checked(values: list[Any]) -> list[Value]:
    if not 1 <= len(values) <= _VALUES_MAX:
        raise refuse("HP105", f"from 1 to {_VALUES_MAX} values, not {len(values)}")
    known: set[tuple[type, Value]] = set()
    for value in map(_value, values):
        if (value.__class__, value) in known:
            raise refuse("HP105", f"the value {shown(value)} appears twice", hint="remove one: repeat: repeats a cell")
        known.add((value.__class__, value))
    return values


def _value_or_values(value: Any) -> Any:
    return _checked(value) if isinstance(value, list) else _value(value)


def _metric(value: Any) -> Any:
    return {"match": value} if isinstance(value, str) else value


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise refuse("HP105", f"this is not a regular expression: {error}") from None
    if groups != 1:
        hint = r"such as 'Triad: (\S+) GB/s'; (?:...) is a group that takes nothing"
        raise refuse("HP105", f"the pattern must have one group, which takes the number; it has {groups}", hint=hint)
    return text


def _plain_name(name: str) -> str:
    """Folders of packs and files of plots have this name."""
    if "/" in name or name in (".", "..") or not name.isprintable():
        odd = next((sign for sign in name if not sign.isprintable()), "")
        what = "a name has no slash and no character that cannot be printed, and is not . or .."
        what = f"a name cannot have the character U+{ord(odd):04X}, which cannot be printed" if odd else what
        raise refuse("HP105", what, why="folders and files of reports are named after it")
    return name


def _version(value: Any) -> Any:
    if value.__class__ is not int or value != 1:
        hint = "write hipplan_experiment: 1"
        raise refuse("HP108", f"this hipplan reads version 1 of experiments, not {shown(value)}", hint=hint)
    return value


OneValue = Annotated[Value, BeforeValidator(_value), WithJsonSchema(_SCALAR)]
Values = Annotated[
    list[Value],
    BeforeValidator(_values),
    WithJsonSchema({"type": "array", "items": _SCALAR, "minItems": 1, "maxItems": _VALUES_MAX}),
]
OneOrMore = Annotated[
    Value | list[Value],
    BeforeValidator(_value_or_values),
    WithJsonSchema({"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR, "minItems": 1, "maxItems": _VALUES_MAX}]}),
]
"""A value, or a list of them."""

Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]
Axis = Annotated[str, Field(min_length=1, max_length=256)]
Condition = dict[Axis, OneOrMore]
Argument = Annotated[str, Field(max_length=_TEXT_MAX, pattern=r"^[^\x00]*$")]
Count = Annotated[int, Field(ge=1, le=REPEAT_MAX)]
Seconds = Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)]


class Metric(PlanModel):
    """A number that a repetition gives."""

    match: Annotated[str, Field(min_length=1, max_length=_TEXT_MAX)] | None = None
    """A regular expression with one group, which takes the number from a line of the output; of several matches, also
    within a line, the last counts that is not empty. Default: the number comes from what the function returns, or from
    a line of the output that is a JSON object.

    Errors: HP105 not a regular expression, or not one group.
    """

    unit: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """The unit of the number, for tables and plots, such as GB/s."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.match is not None:
            _pattern(self.match)
        return self


class Experiment(PlanModel):
    """An experiment: a plan with several values, and what is measured of each."""

    hipplan_experiment: Annotated[Literal[1], BeforeValidator(_version)]
    """The version of the language of experiments: 1.

    Errors: HP108 another version.
    """

    name: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_plain_name)] | None = None
    """The experiment's name in reports, and of what `report --plots` and `pack` write. Default: the name of the file.

    Errors: HP105 it has a slash or a character that cannot be printed, or is . or ..
    """

    description: Annotated[str, Field(max_length=10_000)] | None = None
    """Free text for readers."""

    plan: FilePath
    """The plan, by path relative to this file. All of it is made and verified for each repetition, or nothing.

    Errors: HP001 it cannot be read, and all errors of plans.
    """

    locked: FilePath | None = None
    """A lock that `hipplan lock` wrote, by path relative to this file: each cell has to be exactly that.

    Errors: HP320, HP321 the plan or the machine differs from it.
    """

    vars: dict[Variable, OneValue] = {}
    """Values of the plan's variables that are equal in all cells.

    Errors: HP210 the plan has no such variable.
    """

    vary: dict[Variable, Values] = {}
    """Values of the plan's variables. The cells are all combinations of these and of the lists of `env`.

    Errors: HP210 the plan has no such variable; HP460 too many cells.
    """

    env: dict[Variable, OneOrMore] = {}
    """Variables of the environment of a cell, such as HSA_XNACK: a value, or a list of values to vary. true is 1, and
    false is 0.

    Errors: HP204 a name that `vary` has too.
    """

    only: list[Condition] = []
    """Keeps the cells that have the values of at least one of these, such as {size: 1GiB, holder: [gpu.0, host]}.
    Default: all.

    Errors: HP460 no such axis or value.
    """

    not_: Annotated[list[Condition], Field(alias="not")] = []
    """Drops the cells that have the values of any of these.

    Errors: HP460 no such axis or value, or no cell is left.
    """

    repeat: Count = 6
    """The number of repetitions of each cell. Each has a process, and a layout, of its own. Fewer than six give no 95 %
    interval."""

    warmup: Annotated[int, Field(ge=0, le=100_000)] = 0
    """How many times the function or command runs in a repetition before the run that counts."""

    order: Literal["shuffled", "written"] = "shuffled"
    """The order of all repetitions of all cells: at random, so that a machine that gets warmer or slower does not favor
    a cell; or each cell in turn, as written."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """The seed of the random order. Default: a new one for each run; the results have it."""

    timeout: Seconds = 600.0
    """The seconds that a repetition may take. Then all its processes are killed, and its result is a failure.
    Unit: seconds."""

    inside: Annotated[str, Field(pattern=r"^[\w.]+:[A-Za-z_]\w*$", max_length=256)] | None = None
    """A Python function, as module:function; it is called with the layout. The module is a file beside this one, or
    installed. What it returns, if it is a mapping of names to numbers, are metrics.

    Errors: HP463 there is no such function.
    """

    measure: Annotated[list[Measurement], Field(min_length=1)] | None = None
    """What hipplan itself measures of the plan's memory: `copy` between its objects, `prefetch` and `first_touch` of
    managed memory, `map` and unmap of its mappings, `latency` of a small copy. `hipplan bench PLAN` shows the same."""

    objects: list[Argument] = []
    """For `measure`: the objects between which `copy` and `latency` are measured, by name or pattern, such as kv.*, or
    '*' for all. Default: the first 16.

    Errors: HP107 without measure; HP460 a repetition has no such object.
    """

    run: Annotated[list[Argument], Field(min_length=1, max_length=1000)] | None = None
    """A command and its arguments. A holder keeps the plan's memory meanwhile, and the command attaches to it with
    hipplan.attach(). Its environment has HIPPLAN_HOLDER, the cell's values as HIPPLAN_VAR_name, and the places of
    objects as HIPPLAN_ADDRESS_name and HIPPLAN_SIZE_name. A path with a slash is relative to this file.

    Errors: HP450 the plan has something that a holder cannot hold; HP463 there is no such command.
    """

    metrics: dict[Name, Annotated[Metric, BeforeValidator(_metric)]] = {}
    r"""The numbers that each repetition must give, by name; a text is short for `match`. Default: all numbers that the
    function returns, or that lines of the output that are JSON objects have.

    Errors: HP462 a repetition does not give it.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not written(self, ("inside", "measure", "run"), "say what is measured"):
            hint = "such as run: [./stream]"
            raise refuse("HP102", "an experiment needs one of the keys inside, measure and run", hint=hint)
        if self.measure is not None and self.metrics:
            why = "hipplan names what it measures itself"
            raise refuse("HP107", "metrics are for inside and run", at="metrics", why=why, hint="remove them")
        if self.objects and self.measure is None:
            raise refuse("HP107", "objects are for measure", at="objects", hint="remove them")
        if both := self.vary.keys() & self.vars.keys():
            raise refuse(
                "HP204", f"'{min(both)}' has one value in vars and several in vary", at="vars", hint="keep one"
            )
        if both := (self.vary.keys() | self.vars.keys()) & self.env.keys():
            raise refuse("HP204", f"'{min(both)}' is a variable of the plan and of the environment", at="env")
        return self
