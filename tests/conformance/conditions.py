"""What a stream waits for: the conditions of hipStreamWaitValue, for tests of the calls and of AMD's own kernel."""

import pytest

AT_LEAST, EQUAL, AND, NOR = range(4)
ALL_BITS = 2**64 - 1

each_condition = pytest.mark.parametrize(
    ("condition", "value", "mask", "not_yet", "enough"),
    [
        (AT_LEAST, 7, ALL_BITS, 6, 9),
        (AT_LEAST, 7, 0xFF, 0x106, 0x107),
        (EQUAL, 7, ALL_BITS, 9, 7),
        (EQUAL, 7, 0xFF, 0x700, 0x107),
        (AND, 6, ALL_BITS, 9, 4),
        (AND, 6, 2, 4, 2),
        (NOR, 0xF0, 0xFF, 0x0F, 0x0E),
    ],
)
