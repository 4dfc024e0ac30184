"""Sequences that share what is equal, against a tuple that is copied each time."""

from __future__ import annotations

import copy
import pickle
import random

import pytest

from hipplan.program.series import Series


@pytest.mark.parametrize("seed", range(5))
def test_a_series_is_what_a_copied_tuple_is(seed: int) -> None:
    numbers = random.Random(seed)
    plain: tuple[int, ...] = tuple(range(numbers.choice((0, 1, 40))))
    series = Series(plain)
    history = [(series, plain)]
    for step in range(300):
        chance = numbers.random()
        if chance < 0.1 and plain:
            gone = sorted(numbers.sample(range(len(plain)), numbers.randint(1, min(4, len(plain)))))
            plain, series = tuple(x for at, x in enumerate(plain) if at not in gone), series.without(gone)
        elif chance < 0.35:
            count = numbers.randint(max(0, len(plain) - 6), len(plain))
            plain, series = plain[:count], series.first(count)
        elif chance < 0.6:
            changed = dict.fromkeys(numbers.sample(range(len(plain)), min(len(plain), numbers.randint(0, 3))), -step)
            plain = tuple(changed.get(number, item) for number, item in enumerate(plain))
            series = series.with_changed(changed)
        else:
            more = tuple(range(step, step + numbers.randint(0, 5)))
            plain, series = plain + more, series.with_more(more)
        history.append((series, plain))
    for made, expected in history:  # those before are unchanged
        assert (tuple(made), len(made), made == expected, bool(made)) == (expected, len(expected), True, bool(expected))
        assert made != (*expected, 1)
        assert tuple(reversed(made)) == expected[::-1]
        for start in range(0, len(expected) + 2, 3):
            assert (made[start:], made[:start], made[-start:], made[start : start + 5]) == (
                expected[start:],
                expected[:start],
                expected[-start:],
                expected[start : start + 5],
            )
        for place in range(-len(expected), len(expected)):
            assert made[place] == expected[place]
        with pytest.raises(IndexError):
            made[len(expected)]


def test_a_series_with_changes_is_copied_and_continues_another() -> None:
    series = Series(range(10)).with_changed({3: -3, 9: -9}).first(9)
    assert copy.deepcopy(series) == pickle.loads(pickle.dumps(series)) == (0, 1, 2, -3, 4, 5, 6, 7, 8)
    assert Series((1,)).with_more(series) == (1, 0, 1, 2, -3, 4, 5, 6, 7, 8)
    assert Series(series) == series


def test_single_changes_make_few_layers_and_copy_little() -> None:
    items = tuple(range(2_000))
    series = Series(items)
    for number in range(2_000):
        series = series.with_changed({number: -number})
        assert series._changed is None or (len(series._changed) < 2_000 and len(series._changed._layers) <= 11)
    assert series == [-number for number in range(2_000)]


def test_single_additions_make_few_parts() -> None:
    series: Series[int] = Series()
    for number in range(12_000):
        series = series.with_more((number,))
    assert len(series._parts) <= 14
    for count in reversed(range(12_000)):
        series = series.first(count)
    assert (tuple(series), series._parts) == ((), ())
