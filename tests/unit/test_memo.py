"""Values that are computed once, and forgotten with their object."""

from __future__ import annotations

import gc
import weakref
from functools import cached_property

import pytest

import hipplan
from hipplan.lowering.lowered import lowered
from hipplan.program.memo import Memo, keep, kept

IN_PIECES = """
hipplan: 1
devices: {gpu: {count: 2}}
allocations:
  small: {device: gpu.0, size: 2MiB}
  large: {device: gpu.0, size: 6MiB}
reservations:
  range:
    size: 16MiB
    mappings:
      - {allocation: small, at: 0, access: {gpu.0: rw}}
      - {allocation: large, at: 2MiB, access: {gpu.0: rw, gpu.1: r}}
"""


class Thing:
    pass


def test_a_value_is_computed_once_for_each_object() -> None:
    memo: Memo[Thing, list[int]] = Memo()
    first, other = Thing(), Thing()
    value = memo.value(first, lambda: [1])
    assert memo.value(first, lambda: [2]) is value
    assert memo.value(other, lambda: [3]) == [3]


def test_a_value_goes_with_its_object() -> None:
    memo: Memo[Thing, Thing] = Memo()
    thing = Thing()
    alive = weakref.ref(memo.value(thing, Thing))
    assert alive() is not None
    del thing
    gc.collect()
    assert alive() is None


def test_an_object_that_is_its_own_value_is_not_kept() -> None:
    memo: Memo[Thing, Thing] = Memo()
    things = [Thing()]
    assert memo.value(things[0], lambda: things[0]) is things[0]
    alive = weakref.ref(things.pop())
    gc.collect()
    assert alive() is None


def test_a_program_that_was_lowered_is_freed() -> None:
    program = hipplan.compile(IN_PIECES, hipplan.machine("sim-2"))
    assert lowered(program) is lowered(program) is not program
    alive = weakref.ref(program)
    del program
    gc.collect()
    assert alive() is None


class Seen:
    @cached_property
    def squares(self) -> list[int]:
        raise AssertionError("it was known")


def test_what_is_known_of_an_object_is_not_computed() -> None:
    seen = Seen()
    assert not kept(seen)
    keep(seen, squares=[1, 4])
    assert seen.squares == [1, 4]
    assert kept(seen) == {"squares"}


def test_only_a_cached_property_is_kept() -> None:
    with pytest.raises(TypeError, match=r"Seen\.cubes is no cached property"):
        keep(Seen(), cubes=[1, 8])
