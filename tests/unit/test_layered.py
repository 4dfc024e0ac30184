"""Mappings that share what is equal, against a dict that is copied each time."""

from __future__ import annotations

import random

import pytest

from hipplan.program.layered import Layered, Overlay


@pytest.mark.parametrize("seed", range(5))
def test_a_layered_mapping_is_what_a_copied_dict_is(seed: int) -> None:
    numbers = random.Random(seed)
    plain: dict[int, int] = {n: n for n in range(numbers.choice((0, 3, 50)))}
    layered = Layered(plain)
    history = [(layered, dict(plain))]
    for step in range(300):
        if plain and numbers.random() < 0.4:
            gone = numbers.sample(sorted(plain), numbers.randint(1, min(4, len(plain))))
            plain = {key: value for key, value in plain.items() if key not in gone}
            layered = layered.without(gone)
        elif numbers.random() < 0.3:
            changed = dict.fromkeys(numbers.sample(range(200), 3), -step)
            plain, layered = {**plain, **changed}, layered.with_changed(changed)
        else:
            more = {key: step for key in numbers.sample(range(200), 5) if key not in plain}
            plain, layered = {**plain, **more}, layered.with_more(more)
        history.append((layered, plain))
    for made, expected in history:  # those before are unchanged
        assert dict(made) == expected
        assert len(made) == len(expected)
        for key in range(200):
            assert made.get(key) == expected.get(key)
            assert (key in made) == (key in expected)


def test_single_additions_make_few_layers() -> None:
    layered: Layered[int, int] = Layered({})
    for number in range(12_000):
        layered = layered.with_more({number: number})
    assert len(layered._layers) <= 14
    for number in range(12_000):
        layered = layered.without([number])
    assert (len(layered), len(layered._layers)) == (0, 1)


def test_an_overlay_looks_below() -> None:
    below = {"a": 1}
    over: Overlay[str, int] = Overlay(below)
    over["b"] = 2
    assert (over["a"], over["b"], "a" in over, "c" in over) == (1, 2, True, False)
    assert below == {"a": 1}
    with pytest.raises(KeyError):
        over["c"]
