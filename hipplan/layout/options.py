"""What a caller may want of one change besides its program: one value, passed down unchanged to the transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hipplan.plain import callback, flag
from hipplan.program.steps import Step

if TYPE_CHECKING:
    from hipplan.layout.notice import Notice
    from hipplan.layout.record import Recorder
    from hipplan.layout.together import Together

OnStep = Callable[[int, Step], None]
"""Called before each step with its number from 0. An exception in it rolls back. With it, steps run one by one."""
OnProgress = Callable[[int, int], None]
"""Called every few milliseconds with the number of steps done and of all steps. An exception in it rolls back."""
OnBytes = Callable[[int, int], None]
"""Called every 25 ms while bytes are moved, with (bytes done, bytes in total). Its exception stops the work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of a change."""

    bind: Mapping[str, Any] | None = None
    """What the caller passes by name, besides what it passed before."""
    on_step: OnStep | None = None
    on_progress: OnProgress | None = None
    on_bytes: OnBytes | None = None
    verify: bool = True
    """Read back from the driver what was made."""
    record: Recorder | None = None
    """Where each step is written to."""
    together: Together | None = None
    """Other ranks, which make the same change: descriptors come from them, and the decision is that of all."""
    force: bool = False
    """Memory with views may be removed, too."""
    lose: Sequence[str] = ()
    """Names and patterns of what an update may lose, equal in all ranks."""
    is_reviewed: bool = False
    """`lose` is that of a reviewed change."""
    notice: Notice | None = None
    """What a sleep calls before its memory goes."""

    def checked(self) -> Options:
        """The same options. Raises TypeError for an invalid flag or callback of the caller."""
        flag(self.verify, "verify")
        callback(self.on_step, "on_step")
        callback(self.on_bytes, "on_bytes")
        return self


DEFAULT = Options()
