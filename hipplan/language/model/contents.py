"""Contents: the bytes that memory gets when the plan is applied."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from hipplan.language.base import FilePath, Offset, PlanModel, refuse
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
    """The bytes of a buffer, a region, a tensor or a mapping: a value, a file, or a copy. hipplan loads contents in the
    order of the plan, after it has made everything; it checks files before the first driver call."""

    value: Number | None = None
    """The value of every element.

    Errors: HP105 the dtype cannot hold it; HP107 not exactly one of value, file and copy_of.
    Source: hipMemsetAsync, hipMemcpyAsync.
    """

    dtype: DTypeName | None = None
    """The type of `value`. Default: the tensor's dtype; u8 for everything else.

    Errors: HP107 without value, or for a tensor, which has its own.
    Source: ours.
    """

    file: FilePath | None = None
    """The path of a file, relative to the folder of the plan that is applied, in included files too. The extension
    decides the format: `.npy`, `.safetensors`, `.safetensors.index.json`, anything else is raw bytes. A tensor takes an
    array of its own dtype and shape, a buffer any array of its size, a region raw bytes or its tensors by name.

    Errors: HP405 it cannot be read; HP421 another dtype, shape or length; HP422 damaged.
    Source: hipMemcpyAsync, through pinned memory.
    """

    at: Offset | None = None
    """The offset in a file of raw bytes to start at, in bytes. Default: the start, and then the file must have exactly
    the right length.

    Errors: HP107 with a file of arrays, which has its own offsets.
    Source: ours.
    """

    tensor: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """The tensor of a safetensors file. Default: the one with the same name as in the region; for a buffer, the only
    one.

    Errors: HP107 with another kind of file; HP421 no tensor of that name.
    Source: ours.
    """

    part: Annotated[int, Field(ge=0, lt=2**20)] | None = None
    """Loads only one part of each tensor of the file: the part with this number, from 0.

    Errors: HP107 without parts, or with a file of raw bytes; HP105 not less than parts.
    Source: ours; tensor parallel.
    """

    parts: Annotated[int, Field(ge=1, le=2**20)] | None = None
    """The number of parts: a tensor of the file is this many times as large in one dimension as the tensor here. A
    tensor of the same shape is loaded whole.

    Source: ours.
    """

    copy_of: str | None = None
    """Another buffer, region, tensor or mapping with the same number of bytes.

    Errors: HP213 no such object; HP421 another size or dtype.
    Source: hipMemcpyAsync, hipMemcpyPeerAsync.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        set_keys = [key for key in ("value", "file", "copy_of") if getattr(self, key) is not None]
        if len(set_keys) != 1:
            summary = f"{' and '.join(set_keys)} do not go together" if set_keys else "contents need a source"
            hint = "keep one" if set_keys else "add value:, file: or copy_of:"
            raise refuse("HP107", summary, at=set_keys[-1] if set_keys else "", hint=hint)
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
        """(key, kind of file that it is for) of keys that this kind of file does not use."""
        if self.file is None:
            return
        from hipplan.files.tensorfiles import is_safetensors  # slow, and rarely needed

        tensors = is_safetensors(self.file)
        arrays = tensors or self.file.endswith(".npy")
        if self.at is not None and arrays:
            yield "at", "a file of bytes"
        if self.tensor is not None and not tensors:
            yield "tensor", "a safetensors file"
        if self.parts is not None and not arrays:
            yield "parts", "a file of arrays"
