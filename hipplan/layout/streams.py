"""Streams of a live layout, for other libraries to enqueue work in."""

from __future__ import annotations

from typing import Any

from hipplan.layout.views import Piece


class Stream(Piece):
    """layout["copy"]: a stream of the plan.

        torch.cuda.ExternalStream(layout["copy"].handle)
        cuda.core.Stream.from_handle(layout["copy"].handle)    # or what takes an object with __cuda_stream__

    The stream lives until the layout is closed or a changed plan removes it; do not use its handle afterwards. Closing
    waits for the work in it.
    """

    def __init__(self, handle: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._handle = handle

    @property
    def device(self) -> str:
        """The plan's name for the device whose work it orders."""
        return self.resource.device

    @property
    def handle(self) -> int:
        """The driver's: a hipStream_t, or CUstream, as a number."""
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """(version of the protocol, handle), for cuda.core and others that take foreign streams."""
        return 0, self._handle

    def __repr__(self) -> str:
        return f"<stream '{self.name}' of {self.device}: handle {self._handle:#x}>"
