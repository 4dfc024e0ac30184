"""Byte sizes as people write them: 4194304, "64MiB", "1.5GiB", "2GB". Always an exact whole number of
bytes. And shares of a memory: "80%"."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hipplan.plain import called, meant_variable, number

BYTES_MAX = 2**64

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
_BINARY, _DECIMAL = ("PiB", "TiB", "GiB", "MiB", "KiB"), ("PB", "TB", "GB", "MB", "KB")
_DIGITS_MAX = 4
"""How many digits of a size people read."""
_ZEROS = re.compile("([-+]?)0+(?=[0-9])")
_SIZE = re.compile(r"([0-9]{1,30})(?:\.([0-9]{1,30}))? ?([A-Za-z]*)")
_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?%")
_GROUPED = re.compile("[0-9]{1,3}([_,'][0-9]{3})+")
_BY_LOWER = {unit.lower(): unit for unit in _UNITS}


def without_zeros(number: str) -> str:
    """The same number without zeros before its first digit; empty if it has none."""
    return _ZEROS.sub(r"\1", number, count=1) if _ZEROS.match(number) else ""


def ungrouped(number: str) -> str:
    """A number with its digits in groups, such as 100_000 or 1,048,576, without what is between them; else empty."""
    return re.sub("[^0-9]", "", number) if _GROUPED.fullmatch(number[:40]) else ""


class SizeError(ValueError):
    """A byte size that cannot be read; the text says why, `hint` what to write, `code` which diagnostic it is."""

    def __init__(self, message: str, hint: str = "", code: str = "HP013") -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def parse_size(value: Any) -> int:
    """The number of bytes that a plan's `size` means. Raises SizeError."""
    if value.__class__ is not str and value.__class__ is not int:
        value = number(value)
        # True is an int to Python, but `size: true` is an error.
        if value.__class__ is not int and not isinstance(value, str):
            whole = isinstance(value, float) and value.is_integer() and 0 <= value < BYTES_MAX
            hint = f"write {int(value)}" if whole else "write bytes, or 64MiB"
            raise SizeError(f"expected a byte size, not {called(value)}", hint, "HP103")
    return _parsed(value)


@lru_cache(maxsize=4096)  # a plan says the same few sizes thousands of times
def _parsed(value: int | str) -> int:
    if isinstance(value, int):
        return _bounded(value, str(value) if -BYTES_MAX < value < BYTES_MAX else "this number")
    match = _SIZE.fullmatch(value)
    if match is None:
        hint = meant_variable(value) or "write bytes, or a number with a unit: 64MiB, 1.5GiB, 2GB"
        if digits := ungrouped(value):
            hint = f"write {digits}"
        raise SizeError(f"{_short(value)} is not a size", hint)
    if short := without_zeros(value):
        raise SizeError(f"{_short(value)} begins with a zero", f"write {short}", "HP015")
    whole, fraction, unit = match.groups()
    if not unit:
        if fraction:
            raise SizeError(f"{value} bytes is not a whole number of bytes", "add a unit: 1.5GiB")
        return _bounded(int(whole), value)
    if unit not in _UNITS:
        short = unit.lower()  # 10Gi, as Kubernetes writes it, or 10G
        known = next((_BY_LOWER[unit] for unit in (short, f"{short}ib", f"{short}b") if unit in _BY_LOWER), None)
        hint = (
            f"write {value[: len(value) - len(unit)].rstrip()}{known}"
            if known
            else "units are KiB MiB GiB TiB PiB (powers of 1024), KB MB GB TB PB (powers of 1000)"
        )
        raise SizeError(f"{_short(unit)} is not a unit of bytes", hint)
    digits = fraction or ""
    size, rest = divmod(int(whole + digits) * _UNITS[unit], 10 ** len(digits))
    if rest:
        raise SizeError(f"{value} is not a whole number of bytes", "use a smaller unit")
    return _bounded(size, value)


def is_share(value: Any) -> bool:
    """Whether a value is meant as a percentage."""
    return isinstance(value, str) and value.endswith("%")


def parse_share(text: str) -> Fraction:
    """The fraction that a percentage such as 80% or 12.5% means: at most 1. Raises SizeError."""
    match = _SHARE.fullmatch(text)
    if match is None:
        raise SizeError(f"{_short(text)} is not a percentage", "write it as 80%")
    if short := without_zeros(text):
        raise SizeError(f"{_short(text)} begins with a zero", f"write {short}", "HP015")
    share = Fraction(match[1]) / 100
    if share > 1:
        raise SizeError(f"{text} is more than all of it", "write at most 100%")
    return share


@lru_cache(maxsize=4096)
def format_size(size: int) -> str:
    """The exact size as a plan may have it: 2MiB, 1.5GiB, 4097B, 100MB. In units of 1000 only where others are long."""
    binary, decimal = ([text for unit in units if (text := _whole(size, unit))] for units in (_BINARY, _DECIMAL))
    written = [*binary, f"{size}B", *decimal]
    return next((text for text in written if _digits(text) <= _DIGITS_MAX), min(written, key=len))


def about_size(size: int) -> str:
    """short_size, which says so where it is rounded."""
    exact = format_size(size)
    return exact if _digits(exact) <= _DIGITS_MAX else f"about {short_size(size)}"


@lru_cache(maxsize=4096)
def short_size(size: int) -> str:
    """The size in at most four digits, in the unit that people would use: for tables and lists."""
    exact = format_size(size)
    if size < _UNITS["KiB"] or _digits(exact) <= _DIGITS_MAX:
        return exact
    unit = next(unit for unit in _BINARY if size >= _UNITS[unit])
    return f"{size / _UNITS[unit]:.{1 if size < 999.95 * _UNITS[unit] else 0}f}{unit}"


def full_size(size: int) -> str:
    """short_size, with the exact bytes beside it where it is rounded: for details, and for sizes that are compared."""
    exact = format_size(size)
    return exact if _digits(exact) <= _DIGITS_MAX else f"{short_size(size)} ({size:,} bytes)"


def _whole(size: int, unit: str) -> str:
    """The size in this unit, if it is a whole number of quarters; else empty."""
    scale = _UNITS[unit]
    quarters, rest = divmod(size * 4, scale)
    return "" if rest or size < scale else f"{quarters // 4}{('', '.25', '.5', '.75')[quarters % 4]}{unit}"


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text))


ADDRESS_SPACE = 2**47
"""Bytes of addresses that a process on x86-64 has, and an AMD GPU maps: 128 TiB."""

PAGE = 4096
"""Bytes of a page of host memory. HIP aligns every reservation to it, and rounds ranges of advice outward to it."""


def round_up(size: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `size`."""
    return -(-size // step) * step


def _bounded(size: int, shown: str) -> int:
    if size < 0:
        raise SizeError(f"{shown} is negative", "a size counts bytes from 0")
    if size >= BYTES_MAX:
        raise SizeError(f"{shown} is 2^64 bytes or more, past every address space", "use a smaller size")
    return size


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def version_text(version: int) -> str:
    """hipRuntimeGetVersion's integer as "7.2.53211"."""
    return f"{version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"
