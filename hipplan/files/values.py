"""Numbers as the bytes of one element, for each dtype; those that neither Python nor NumPy writes among them."""

from __future__ import annotations

import math
import struct
from functools import cache

from hipplan.files.dtypes import BY_NAME
from hipplan.plain import called, number

_SMALL = {  # name: (bits of the mantissa, bias, whether it has infinities and -0 as IEEE has)
    "f8_e4m3fn": (3, 7, False),
    "f8_e4m3fnuz": (3, 8, False),
    "f8_e5m2": (2, 15, True),
    "f8_e5m2fnuz": (2, 16, False),
}


def encode(dtype: str, value: float | bool) -> bytes:
    """One element, little endian. ValueError, with what is possible, if the type cannot hold the value."""
    kind = BY_NAME[dtype]
    value = number(value)
    if value.__class__ not in (bool, int, float):
        raise ValueError(f"expected a number, true or false, not {called(value)}")
    if kind.name == "bool" or isinstance(value, bool):
        if kind.name != "bool":
            raise ValueError(f"{kind} takes numbers; true and false are for bool")
        if not isinstance(value, bool):
            raise ValueError("bool takes only true and false")
        return bytes([value])
    try:
        if kind.name == "bf16":
            return _bfloat16(value)
        if not kind.format:
            return bytes([_nearest(kind.name, value)])
        if kind.format.startswith("Z"):
            return struct.pack(f"<2{kind.format[1]}", value, 0.0)
        if kind.format not in "efd" and isinstance(value, float):
            raise ValueError(f"{kind} takes whole numbers")
        return struct.pack(f"<{kind.format}", value)
    except (struct.error, OverflowError):
        raise ValueError(f"{value} is out of range for {kind}") from None


def _bfloat16(value: float) -> bytes:
    """The upper half of a float32, rounded to nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value != value:
        return b"\xc0\x7f"
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    if rounded & 0x7F80 == 0x7F80 and not math.isinf(value):
        raise OverflowError
    return struct.pack("<H", rounded)


def _nearest(name: str, value: float) -> int:
    """The 8 bits whose value is nearest; of two equally near ones the even."""
    if name == "f8_e8m0fnu" and not value > 0 and value == value:
        raise OverflowError  # powers of two only
    values = _decoded(name)
    if value != value:
        return next(code for code, known in values.items() if known != known)
    if math.isinf(value):
        codes = [code for code, known in values.items() if known == value]
        if not codes:
            raise OverflowError
        return codes[0]
    finite = {code: known for code, known in values.items() if math.isfinite(known)}
    top = max(finite.values())
    if abs(value) > top:
        raise OverflowError
    sign = math.copysign(1, value)
    return min(finite, key=lambda code: (abs(finite[code] - value), math.copysign(1, finite[code]) != sign, code & 1))


@cache
def _decoded(name: str) -> dict[int, float]:
    """Code -> value, of all 256."""
    if name == "f8_e8m0fnu":
        return {code: 2.0 ** (code - 127) for code in range(255)} | {255: math.nan}
    mantissa_bits, bias, ieee = _SMALL[name]
    return {code: _decode(code, mantissa_bits, bias, ieee, name.endswith("fnuz")) for code in range(256)}


def _decode(code: int, mantissa_bits: int, bias: int, ieee: bool, fnuz: bool) -> float:
    sign = -1.0 if code & 0x80 else 1.0
    mantissa = code & ((1 << mantissa_bits) - 1)
    exponent = (code & 0x7F) >> mantissa_bits
    if fnuz and code == 0x80:
        return math.nan
    if ieee and exponent == 0x7F >> mantissa_bits:
        return math.nan if mantissa else sign * math.inf
    if not ieee and not fnuz and code & 0x7F == 0x7F:
        return math.nan
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits)
