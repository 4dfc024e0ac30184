"""Contents: what memory holds once the plan is applied."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from hipplan.language.model.base import FilePath, Offset, PlanModel, refuse
from hipplan.language.model.regions import DTypeName
from hipplan.plain import number


def _number(value: Any) -> Any:
    value = number(value)
    if value.__class__ not in (bool, int, float):
        hint = (
            "remove the quotes"
            if isinstance(value, str) and re.fullmatch(r"[-+.0-9eE]+", value)
            else "such as 0 or 0.5"
        )
        raise refuse("HP103", "'value' must be a number, true or false", hint=hint)
    return value


Number = Annotated[bool | int | float, BeforeValidator(_number), WithJsonSchema({"type": ["number", "boolean"]})]

_OF_FILES = ("at", "tensor", "part", "parts")


class Content(PlanModel):
    """What a buffer, a region, a tensor or a mapping holds: a value, a file, or a copy. Said in the order in which it
    happens, after everything is made; a mistake in a file is told before anything is."""

    value: Number | None = None
    """Every element is this.

    Errors: HP105 the dtype cannot hold it; HP107 not exactly one of value, file and copy_of.
    Source: hipMemsetAsync, hipMemcpyAsync.
    """

    dtype: DTypeName | None = None
    """What `value` is. Left out: the tensor's dtype; u8 for all else.

    Errors: HP107 without value, or for a tensor, which has one.
    Source: ours.
    """

    file: FilePath | None = None
    """A file, by its path from the plan's folder; in an included file too that is the folder of the plan which is
    applied. What it is, its name tells: `.npy`, `.safetensors`, `.safetensors.index.json`, else bytes. A tensor takes
    an array of its own dtype and shape, a buffer any of its size, a region its tensors by their names, or bytes.

    Errors: HP405 it cannot be read; HP421 another dtype, shape or length; HP422 damaged.
    Source: hipMemcpyAsync, through pinned memory.
    """

    at: Offset | None = None
    """Where in a file of bytes to begin. Left out: at its start, and then it must be just as long. Unit: bytes.

    Errors: HP107 of a file of arrays, which tells itself.
    Source: ours.
    """

    tensor: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Which tensor of a safetensors file. Left out: the one of the same name as in the region; for a buffer its only
    one.

    Errors: HP107 of another file; HP421 there is none of that name.
    Source: ours.
    """

    part: Annotated[int, Field(ge=0, lt=2**20)] | None = None
    """Take one part of each tensor of the file: the one with this number, from 0.

    Errors: HP107 without parts, or of a file of bytes; HP105 not below it.
    Source: ours; tensor parallel.
    """

    parts: Annotated[int, Field(ge=1, le=2**20)] | None = None
    """How many parts: a tensor of the file is this many times as large in one dimension as the tensor here. One of
    just the same shape is taken whole.

    Source: ours.
    """

    copy_of: str | None = None
    """Another buffer, region, tensor or mapping of as many bytes.

    Errors: HP213 there is none; HP421 of another size or dtype.
    Source: hipMemcpyAsync, hipMemcpyPeerAsync.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        said = [key for key in ("value", "file", "copy_of") if getattr(self, key) is not None]
        if len(said) != 1:
            summary = f"{' and '.join(said)} do not go together" if said else "contents need a source"
            hint = "keep one" if said else "add value:, file: or copy_of:"
            raise refuse("HP107", summary, at=said[-1] if said else "", hint=hint)
        for key in _OF_FILES:
            if getattr(self, key) is not None and self.file is None:
                raise refuse("HP107", f"{key} needs file:", at=key, hint=f"remove {key}")
        if self.dtype is not None and self.value is None:
            raise refuse("HP107", "dtype needs value:", at="dtype", hint="remove it: files have their own dtype")
        if (self.part is None) != (self.parts is None):
            raise refuse("HP107", "part and parts go together", hint="part: 0 with parts: 8 is the first of eight")
        if self.part is not None and self.parts is not None and self.part >= self.parts:
            raise refuse("HP105", f"there is no part {self.part} of {self.parts}", at="part", hint="parts count from 0")
        for key, of in self._for_other_files():
            raise refuse("HP107", f"{key} is for {of}, not for {self.file}", at=key, hint=f"remove {key}")
        return self

    def _for_other_files(self) -> Iterator[tuple[str, str]]:
        """Keys that this kind of file has no use for, and which has."""
        if self.file is None:
            return
        from hipplan.files.tensorfiles import is_safetensors  # most plans name no file, and start sooner without

        tensors = is_safetensors(self.file)
        arrays = tensors or self.file.endswith(".npy")
        if self.at is not None and arrays:
            yield "at", "a file of bytes"
        if self.tensor is not None and not tensors:
            yield "tensor", "a safetensors file"
        if self.parts is not None and not arrays:
            yield "parts", "a file of arrays"
