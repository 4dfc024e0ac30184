"""The base class of all models, and the scalar types of a plan."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from hipplan.errors import PlanError
from hipplan.language.budget import LIMITS, Budget
from hipplan.language.rank import FIRST_OF_NODE, RANKS_MAX
from hipplan.plain import shown
from hipplan.units import SizeError, is_share, parse_share, parse_size


class PlanModel(BaseModel):
    """Unknown keys are errors, values are never converted silently, nothing changes after reading."""

    # pydantic could take the docstrings of fields itself (use_attribute_docstrings), but it parses the source again at
    # each start, a tenth of the time `validate` takes. describe.py reads them on demand.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


def refuse(code: str, message: str, *, at: str = "", why: str = "", hint: str = "") -> PydanticCustomError:
    """The error a validator raises: a hipplan code and what goes with it. `at` names the key to point at."""
    context = {"message": message, "at": at, "why": why, "hint": hint}
    return PydanticCustomError(code, "{message}", context)


def written(model: PlanModel, keys: tuple[str, ...], what: str) -> list[str]:
    """Which of the keys are set. Two are an error (HP107). what: the common meaning of the keys, for the message."""
    set_keys = [key for key in keys if getattr(model, key) is not None and getattr(model, key) is not False]
    if len(set_keys) > 1:
        raise refuse("HP107", f"{set_keys[0]} and {set_keys[1]} both {what}", at=set_keys[1], hint="keep one")
    return set_keys


def _within_steps(value: Any, info: ValidationInfo) -> Any:
    """Check the length before pydantic checks the items: it keeps more than a kilobyte for each wrong one."""
    try:
        Budget().take("steps", len(value) if isinstance(value, list) else 0, f"'{info.field_name}'")
    except PlanError as past:
        (diagnostic,) = past.diagnostics
        raise refuse(diagnostic.code, diagnostic.summary, why=diagnostic.why, hint=diagnostic.hint) from None
    return value


Item = TypeVar("Item")
Steps = Annotated[list[Item], BeforeValidator(_within_steps), Field(json_schema_extra={"maxItems": LIMITS["steps"]})]
"""A list of things that become driver calls: at most as many as a document may have."""


FILL = "fill"
"""The size of what takes all memory of a device that is left."""


def _size(value: Any, more: str = "") -> int:
    try:
        return parse_size(value)
    except SizeError as error:
        if is_share(value) or (isinstance(value, str) and value == FILL):
            hint = "only regions and device buffers can be as large as a device's memory allows"
            raise refuse(error.code, str(error), hint=hint) from None
        raise refuse(error.code, str(error), hint=(error.hint + more).removeprefix(", or ")) from None


def _positive_size(value: Any, more: str = "") -> int:
    size = _size(value, more)
    if size == 0:
        raise refuse(
            "HP105",
            "a size of 0 bytes",
            why="HIP rejects it or returns a null pointer",
            hint="remove the object",
        )
    return size


def _power_of_two(alignment: int) -> int:
    if alignment & (alignment - 1):
        raise refuse("HP105", "the alignment is not a power of two", hint="use 4KiB or 2MiB")
    return alignment


def _share(value: str) -> str:
    try:
        share = parse_share(value)
    except SizeError as error:
        raise refuse(error.code, str(error), hint=error.hint) from None
    if share == 0:
        raise refuse("HP105", "a share of nothing", why="HIP rejects a size of 0 bytes", hint="remove it")
    return value.replace(" ", "")


_MEANT_FILL = ("fill", "full", "all", "max", "rest")
"""In any case: what people write for `fill`."""


def _open_size(value: Any, more: str = "") -> int | str:
    if isinstance(value, float) and 0 < value <= 1:
        raise refuse("HP103", f"expected a byte size, not {value}", hint=f"write {value * 100:g}%")
    if is_share(value):
        return _share(value)
    if isinstance(value, str) and value != FILL and value.lower() in _MEANT_FILL:
        raise refuse("HP013", f"'{value}' is not a size", hint=f"write {FILL}")
    return FILL if isinstance(value, str) and value == FILL else _positive_size(value, more)


def _auto_or_size(value: Any) -> int | str:
    """One validator, because pydantic reports each branch of a union."""
    if isinstance(value, str) and value == "auto":
        return value
    is_size = not isinstance(value, float) and not is_share(value) and value not in (FILL, *_MEANT_FILL)
    return 0 if is_size and _is_zero(value) else _open_size(value, ", or auto")


def _is_zero(value: Any) -> bool:
    try:
        return parse_size(value) == 0
    except SizeError:
        return False


def _size_or_share(value: Any) -> int | str:
    return _share(value) if is_share(value) else _positive_size(value)


def _size_schema(minimum: int, *more: dict[str, Any]) -> dict[str, Any]:
    number = {"type": "integer", "minimum": minimum, "exclusiveMaximum": 2**64}
    pattern = r"^[0-9]+(\.[0-9]+)? ?([KMGTP]i?B|B)?$"
    return {"anyOf": [*more, number, {"type": "string", "pattern": pattern}]}


Offset = Annotated[int, BeforeValidator(_size), WithJsonSchema(_size_schema(0))]
"""Bytes from 0; a number or a text such as 64MiB."""

Size = Annotated[int, BeforeValidator(_positive_size), WithJsonSchema(_size_schema(1))]
"""Bytes, at least 1; a number or a text such as 64MiB."""

Alignment = Annotated[Size, AfterValidator(_power_of_two)]
"""What an address or an offset is a multiple of. Unit: bytes."""

_WORDS: list[dict[str, Any]] = [{"const": word, "type": "string"} for word in ("auto", FILL)]
_SHARES: dict[str, Any] = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?%$"}

OpenSize = Annotated[int | str, BeforeValidator(_open_size), WithJsonSchema(_size_schema(1, _WORDS[1], _SHARES))]
"""A Size, or what the machine decides: `fill`, or a percentage. Text is a size that is still open."""

AutoSize = Annotated[int | str, BeforeValidator(_auto_or_size), WithJsonSchema(_size_schema(0, *_WORDS, _SHARES))]
"""An OpenSize, `auto`: what is needed, or 0: what starts empty."""

SizeOrShare = Annotated[int | str, BeforeValidator(_size_or_share), WithJsonSchema(_size_schema(1, _SHARES))]
"""A Size, or a percentage."""

Count = Annotated[int, Field(ge=1, json_schema_extra={"maximum": LIMITS["objects"]})]
"""How many times an object is made."""

FilePath = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
"""A path; the system would cut it at a NUL."""

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=256)]
"""What a plan calls an object: letters, digits, `_` and `-`, parts joined by dots."""

MemoryName = Annotated[str, Field(pattern=NAME_PATTERN.removesuffix("$") + r"(\[[0-9]+\])?$", max_length=256)]
"""A name, or a mapping by its reservation and number: range[0]."""


def _of_rank(value: Any) -> Any:
    """One validator, because pydantic reports each branch of a union."""
    if value != FIRST_OF_NODE and (value.__class__ is not int or not 0 <= value < RANKS_MAX):
        hint = f"write the number of a rank, from 0, or {FIRST_OF_NODE}"
        raise refuse("HP104", f"'rank' cannot be {shown(value)}", hint=hint)
    return value


_NUMBER = {"type": "integer", "minimum": 0, "exclusiveMaximum": RANKS_MAX}
OfRank = Annotated[
    int | Literal["first_of_node"],
    BeforeValidator(_of_rank),
    WithJsonSchema({"anyOf": [{"const": FIRST_OF_NODE, "type": "string"}, _NUMBER]}),
]
"""Which rank makes an object: a rank by its number, or the first rank of each node."""
