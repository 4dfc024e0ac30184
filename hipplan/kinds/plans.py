"""The list of the kinds of buffers, as a plan has them."""

from typing import Annotated, get_args

from pydantic import Field

from hipplan.kinds.coherent.plan import CoherentBuffer
from hipplan.kinds.device.plan import DeviceBuffer
from hipplan.kinds.managed.plan import ManagedBuffer
from hipplan.kinds.pinned.plan import PinnedBuffer
from hipplan.kinds.plan import BufferPlan
from hipplan.kinds.registered.plan import RegisteredBuffer

Buffer = Annotated[
    DeviceBuffer | CoherentBuffer | PinnedBuffer | RegisteredBuffer | ManagedBuffer,
    Field(discriminator="kind"),
]
BUFFERS: tuple[type[BufferPlan], ...] = get_args(get_args(Buffer)[0])
KINDS: tuple[str, ...] = tuple(get_args(buffer.model_fields["kind"].annotation)[0] for buffer in BUFFERS)
