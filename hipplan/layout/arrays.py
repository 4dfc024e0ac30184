"""NumPy arrays for a layout's memory: new ones, and checks of those that a caller writes. Nothing is converted."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from hipplan.files.dtypes import BY_NAME, BYTE, DType, dtype_of
from hipplan.program.memory import Refused
from hipplan.program.resources import Resource

_NO_TYPE = "HP421"


def numpy_for(call: str) -> Any:
    """The module. Raises RuntimeError."""
    try:
        return import_module("numpy")
    except ImportError:
        raise RuntimeError(f"{call} needs NumPy, which is not installed") from None


def empty(numpy: Any, resource: Resource, dtype: object) -> Any:
    """A new array for all of a resource's bytes. dtype: in place of the resource's own. Raises Refused, ValueError."""
    own, shape = _typed(resource)
    if dtype is None:
        return numpy.empty(shape, _numpy_dtype(numpy, resource.name, own))
    wanted = dtype_of(dtype)
    row = (shape[-1] if shape else 1) * own.size
    if row % wanted.size:
        raise Refused(_NO_TYPE, f"a row of '{resource.name}' has {row} bytes, which {wanted} does not divide")
    return numpy.empty((*shape[:-1], row // wanted.size), _numpy_dtype(numpy, resource.name, wanted))


def fitting(numpy: Any, resource: Resource, array: Any) -> Any:
    """The array, made contiguous. Raises Refused if it does not fit the resource."""
    given = numpy.asarray(array)
    own, shape = _typed(resource)
    name = resource.name
    if given.dtype.hasobject:
        raise Refused(_NO_TYPE, f"an array of {given.dtype} has no bytes for '{name}'")
    if given.dtype.byteorder == (">" if sys.byteorder == "little" else "<"):
        hint = f"array.astype('{given.dtype.newbyteorder('=').str}')"
        raise Refused(_NO_TYPE, f"'{name}' cannot hold big-endian elements: nothing is converted", hint=hint)
    if resource.dtype:
        if not _is_of(given.dtype, own):
            hint = f"nothing is converted: array.astype('{own.torch}')" if own.typestr else "nothing is converted"
            raise Refused(_NO_TYPE, f"'{name}' is of {own}, the array of {given.dtype}", hint=hint)
        if given.shape != shape:
            raise Refused(_NO_TYPE, f"'{name}' has the shape {list(shape)}, the array {list(given.shape)}")
    elif given.nbytes != resource.size:
        raise Refused(_NO_TYPE, f"'{name}' has {resource.size} bytes, the array {given.nbytes}")
    return numpy.ascontiguousarray(given)


def _typed(resource: Resource) -> tuple[DType, tuple[int, ...]]:
    return (BY_NAME[resource.dtype], resource.shape) if resource.dtype else (BYTE, (resource.size,))


def _numpy_dtype(numpy: Any, name: str, dtype: DType) -> Any:
    """Raises Refused: neither NumPy nor ml_dtypes has it."""
    if dtype.typestr:
        return numpy.dtype(dtype.typestr)
    try:
        return numpy.dtype(getattr(import_module("ml_dtypes"), dtype.torch))
    except (ImportError, AttributeError):
        hint = f"install ml_dtypes, which has it, or read the bits: read('{name}', dtype='u{dtype.bits}')"
        raise Refused(_NO_TYPE, f"NumPy has no {dtype}, of which '{name}' is", hint=hint) from None


def _is_of(given: Any, own: DType) -> bool:
    """Whether elements of a NumPy dtype are those of a tensor: by name, or as its bits where NumPy has no such type."""
    if given.name == own.torch:
        return True
    return not own.typestr and given.kind == "u" and bool(given.itemsize == own.size)
