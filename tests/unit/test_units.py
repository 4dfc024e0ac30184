"""Byte sizes: exact, bounded, and the way back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipplan.units import SizeError, about_size, format_size, full_size, parse_size, round_up, short_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (4096, 4096),
        ("4096", 4096),
        ("64MiB", 64 * 2**20),
        ("64 MiB", 64 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("2GB", 2 * 10**9),
        ("0.5KiB", 512),
        ("1B", 1),
        ("16383PiB", 16383 * 2**50),
        ("0.000000001GB", 1),
    ],
)
def test_sizes_mean_what_they_say(text: int | str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("64Mb", "64MB"),
        ("64mib", "64MiB"),
        ("1.5", "1.5GiB"),
        ("0.3KiB", "smaller unit"),
        ("-1", "64MiB"),
        (-1, "from 0"),
        (2**64, "smaller"),
        ("16384PiB", "smaller"),
        ("1e3", "64MiB"),
        ("", "64MiB"),
        ("12 apples", "KiB"),
        ("9" * 31, "64MiB"),
        ("0x10", "64MiB"),
        ("\u0661GiB", "64MiB"),
    ],
)
def test_what_is_no_size_says_what_to_write(text: int | str, hint: str) -> None:
    with pytest.raises(SizeError) as raised:
        parse_size(text)

    assert hint in raised.value.hint


@given(st.integers(0, 2**64 - 1))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("size", "exact", "short", "full"),
    [
        (100_000_000, "100MB", "100MB", "100MB"),
        (1000, "1000B", "1000B", "1000B"),
        (12345, "12345B", "12.1KiB", "12.1KiB (12,345 bytes)"),
        (100_000_001, "100000001B", "95.4MiB", "95.4MiB (100,000,001 bytes)"),
        (999_960 * 2**20 // 1000, "1048534056B", "1000MiB", "1000MiB (1,048,534,056 bytes)"),
        (724996 * 2**20, "724996MiB", "708.0GiB", "708.0GiB (760,213,405,696 bytes)"),
    ],
)
def test_a_size_is_short_in_a_table_exact_in_a_plan_and_both_in_details(
    size: int, exact: str, short: str, full: str
) -> None:
    assert (format_size(size), short_size(size), full_size(size)) == (exact, short, full)


@given(st.integers(0, 2**63))
def test_a_short_size_has_at_most_four_digits_and_is_near(size: int) -> None:
    short = short_size(size)

    assert re.fullmatch(r"[0-9.]{1,5}[KMGTP]?i?B", short)
    assert sum(map(str.isdigit, short)) <= 4
    number, unit = re.findall(r"[0-9.]+|[A-Za-z]+", short)
    assert abs(float(number) * parse_size(f"1{unit}") - size) <= max(1, size) / 10


@given(st.text(max_size=60))
def test_any_text_is_a_size_or_a_size_error(text: str) -> None:
    try:
        assert 0 <= parse_size(text) < 2**64
    except SizeError as error:
        assert len(str(error)) < 200


@given(st.integers(0, 2**64), st.integers(1, 2**40))
def test_rounding_up_is_the_least_multiple(size: int, step: int) -> None:
    rounded = round_up(size, step)

    assert rounded % step == 0
    assert size <= rounded < size + step


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (4097, "4097B"),
        (12345, "about 12.1KiB"),
        (3 * 2**29, "1.5GiB"),
        (724996 * 2**20, "about 708.0GiB"),
        (34004496 * 2**10, "about 32.4GiB"),
        (9999 * 2**20, "9999MiB"),
    ],
)
def test_sizes_of_many_digits_are_rounded_for_people(size: int, told: str) -> None:
    assert about_size(size) == told
