"""^C raises KeyboardInterrupt, also where the tests run in the background of a shell, which ignores it there."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def interrupt_raises() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
