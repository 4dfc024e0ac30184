"""Properties are held against generated examples however long one takes: the machine may be busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("any time", deadline=None)
settings.load_profile("any time")
