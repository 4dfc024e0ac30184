"""A link that lets one device reach buffers of another (hipDeviceEnablePeerAccess), as a model."""

from hipplan.language.base import PlanModel


class PeerLink(PlanModel):
    """Lets one device access the ordinary memory of another, in one direction (hipDeviceEnablePeerAccess).

    For buffers only: mappings use `access` and need no peer link.
    """

    device: str
    """The device that gets access.

    Errors: HP201 no such device.
    Source: hipDeviceEnablePeerAccess, called with this device current.
    """

    peer: str
    """The device that holds the memory.

    Errors: HP201 no such device; HP209 the same device; HP306 the machine does not link them.
    Source: hipDeviceEnablePeerAccess(peerDeviceId).
    """
