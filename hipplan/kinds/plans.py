"""The list of the kinds of buffers, as a plan has them."""

from typing import Annotated

from pydantic import Field

from hipplan.language.model.buffers import DeviceBuffer, ManagedBuffer, PinnedBuffer, RegisteredBuffer

Buffer = Annotated[
    DeviceBuffer | PinnedBuffer | RegisteredBuffer | ManagedBuffer,
    Field(discriminator="kind"),
]
BUFFERS = (DeviceBuffer, PinnedBuffer, RegisteredBuffer, ManagedBuffer)
