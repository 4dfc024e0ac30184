"""Signals that wait for the end of a piece of work."""

from __future__ import annotations

import runpy
import signal

import pytest

from hipplan.layout import signals_wait


def test_a_signal_without_a_name_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As signal 16 on Python 3.10, where importing this module failed."""
    unnamed = signal.SIGRTMIN - 1
    with pytest.raises(ValueError, match="is not a valid Signals"):
        signal.Signals(unnamed)
    monkeypatch.setattr(signal, "valid_signals", lambda: {signal.SIGINT, signal.SIGKILL, unnamed})

    assert runpy.run_path(signals_wait.__file__)["_SIGNALS"] == {signal.SIGINT}
