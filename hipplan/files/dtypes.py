"""Element types of tensors: one table, with the names that HIP, NumPy, PyTorch and safetensors give them."""

from __future__ import annotations

from typing import NamedTuple

from hipplan.errors import suggest


class DType(NamedTuple):
    """One element type."""

    name: str
    """hipplan's own, as bf16."""
    code: int
    """DLPack's DLDataTypeCode."""
    bits: int
    format: str
    """The letter of Python's struct module and NumPy; empty where neither has the type."""
    names: tuple[str, ...]
    """What else it is called: NumPy's and PyTorch's name first, then HIP's and safetensors'."""

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    @property
    def typestr(self) -> str:
        """NumPy's array interface; empty where that has no such type."""
        kind = {"?": "b"}.get(self.format, {0: "i", 1: "u", 2: "f", 5: "c"}.get(self.code, ""))
        order = "|" if self.size == 1 else "<"
        return f"{order}{kind}{self.size}" if self.format else ""

    @property
    def torch(self) -> str:
        """Its name in PyTorch."""
        return self.names[0]

    @property
    def safetensors(self) -> str:
        """Its name in a safetensors file; empty where that has no such type."""
        return "" if self.names[-1].startswith("HIP_") else self.names[-1]

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self.name == (other.name if isinstance(other, DType) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.name)


_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

DTYPES = (
    DType("bool", _BOOL, 8, "?", ("bool", "BOOL")),
    DType("i8", _INT, 8, "b", ("int8", "int8_t", "signed char", "HIP_R_8I", "I8")),
    DType("i16", _INT, 16, "h", ("int16", "int16_t", "short", "HIP_R_16I", "I16")),
    DType("i32", _INT, 32, "i", ("int32", "int32_t", "int", "HIP_R_32I", "I32")),
    DType("i64", _INT, 64, "q", ("int64", "int64_t", "long", "long long", "HIP_R_64I", "I64")),
    DType("u8", _UINT, 8, "B", ("uint8", "uint8_t", "unsigned char", "HIP_R_8U", "U8")),
    DType("u16", _UINT, 16, "H", ("uint16", "uint16_t", "unsigned short", "HIP_R_16U", "U16")),
    DType("u32", _UINT, 32, "I", ("uint32", "uint32_t", "unsigned int", "HIP_R_32U", "U32")),
    DType("u64", _UINT, 64, "Q", ("uint64", "uint64_t", "unsigned long", "HIP_R_64U", "U64")),
    DType("f16", _FLOAT, 16, "e", ("float16", "half", "__half", "HIP_R_16F", "F16")),
    DType("f32", _FLOAT, 32, "f", ("float32", "float", "HIP_R_32F", "F32")),
    DType("f64", _FLOAT, 64, "d", ("float64", "double", "HIP_R_64F", "F64")),
    DType("c64", _COMPLEX, 64, "Zf", ("complex64", "cfloat", "hipFloatComplex", "HIP_C_32F", "C64")),
    DType("c128", _COMPLEX, 128, "Zd", ("complex128", "cdouble", "hipDoubleComplex", "HIP_C_64F")),
    DType("bf16", _BFLOAT, 16, "", ("bfloat16", "__hip_bfloat16", "hip_bfloat16", "HIP_R_16BF", "BF16")),
    DType("f8_e4m3fn", 10, 8, "",
          ("float8_e4m3fn", "fp8_e4m3", "__hip_fp8_e4m3", "HIP_R_8F_E4M3", "F8_E4M3")),
    DType("f8_e4m3fnuz", 11, 8, "",
          ("float8_e4m3fnuz", "__hip_fp8_e4m3_fnuz", "HIP_R_8F_E4M3_FNUZ", "F8_E4M3FNUZ")),
    DType("f8_e5m2", 12, 8, "", ("float8_e5m2", "fp8_e5m2", "__hip_fp8_e5m2", "HIP_R_8F_E5M2", "F8_E5M2")),
    DType("f8_e5m2fnuz", 13, 8, "",
          ("float8_e5m2fnuz", "__hip_fp8_e5m2_fnuz", "HIP_R_8F_E5M2_FNUZ", "F8_E5M2FNUZ")),
    DType("f8_e8m0fnu", 14, 8, "", ("float8_e8m0fnu", "HIP_R_8F_UE8M0", "F8_E8M0")),
)  # fmt: skip

BYTE = DTYPES[5]
"""What memory without a type is made of."""

BY_NAME = {name: dtype for dtype in DTYPES for name in (dtype.name, *dtype.names)}


_PYTHON: dict[object, str] = {bool: "bool", int: "i64", float: "f64", complex: "c128"}
"""What NumPy means by Python's own types; by name, `float` is C's and HIP's."""

_BY_TYPESTR = {dtype.typestr[1:]: dtype for dtype in DTYPES if dtype.typestr}


def by_typestr(text: str) -> DType | None:
    """The element type of NumPy's array interface and .npy files, as `<f4`; None if there is none such."""
    return _BY_TYPESTR.get(text[1:]) if text[:1] in ("<", "=", "|") else None


def meant_dtype(name: str) -> str:
    """The hint for an element type that does not exist: what begins like it, such as the f8 types of float8."""
    short = name.rpartition(".")[2].lower()
    known = {other.lower(): dtype.name for other, dtype in BY_NAME.items()}
    if short in known:
        return f"write {known[short]}"
    if short in ("int4", "uint4", "i4", "u4", "fp4", "float4", "f4", "nf4"):
        return "elements have at least 8 bits: pack two 4-bit elements into a u8"
    short = short.replace("fp", "float")
    near = {
        dtype.name: None for dtype in DTYPES if any(other.startswith(short) for other in (dtype.name, *dtype.names))
    }
    if len(near) > 1:
        return f"one of {', '.join(near)}"
    hint = next((f"write {candidate}" for candidate in near), "") or (
        suggest(name, BY_NAME) if name[:1].isalpha() else ""
    )
    return hint or f"there are {', '.join(map(str, DTYPES))}, and their names in NumPy, PyTorch and HIP"


def dtype_of(given: object) -> DType:
    """The element type that a name, a dtype of NumPy or PyTorch, or a scalar type means. ValueError if none.

    Python's types mean what they do to NumPy: float is f64.
    """
    if isinstance(given, DType):
        return given
    name = _PYTHON.get(given, given.__name__) if isinstance(given, type) else str(given)
    dtype = BY_NAME.get(name.rpartition(".")[2]) or BY_NAME.get(name) or by_typestr(name)
    if dtype is None:
        short = by_typestr(f"<{name}")
        meant = f"; NumPy's '<{name}' is {short}, and '{short}' or '<{name}' says so" if short else ""
        raise ValueError(f"there is no dtype '{name[:60]}'{meant or f'; {meant_dtype(name)}'}")
    return dtype
