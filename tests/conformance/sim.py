"""The simulator's own interface (hipsim.h) over ctypes, for runtimes that have it."""

from __future__ import annotations

import ctypes
import json
import os
from ctypes import c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from .hip import Hip

PERSONALITIES = {"6.3": "6.3.42133", "7.2": "7.2.53211", "7.14": "7.14.60850"}

TWO_DEVICES = """
host_memory=68719476736
device.0.name=Sim A
device.0.arch=gfx942
device.0.memory=17179869184
device.0.pci=0000:0c:00.0
device.1.name=Sim B
device.1.arch=gfx942
device.1.memory=17179869184
device.1.pci=0000:22:00.0
device.2.name=Sim C
device.2.arch=gfx90a
device.2.memory=8589934592
device.2.pci=0001:c1:00.1
link.0.1=xgmi,1
link.1.0=xgmi,1
"""
"""Three devices, the third not linked to the others."""


def machine(personality: str) -> str:
    """The profile of this suite."""
    return f"hip_version={PERSONALITIES[personality]}\n{TWO_DEVICES}"


def machine_of(hip: Hip) -> str:
    """The profile for another process that must find the same machine; "" on a runtime that cannot change its own."""
    return machine("{}.{}".format(*hip.version)) if hasattr(hip.library, "hipsim_configure") else ""


def library_path() -> str:
    """HIPSIM_LIBRARY, else the library built with the package."""
    if given := os.environ.get("HIPSIM_LIBRARY"):
        return given
    from hipplan.machines import simulator

    return str(simulator.library_path())


class Simulator:
    def __init__(self, hip: Hip) -> None:
        lib = self.library = hip.library
        lib.hipsim_configure.argtypes = [c_char_p]
        lib.hipsim_last_message.restype = c_char_p
        lib.hipsim_ledger.argtypes = [c_void_p, c_size_t]
        lib.hipsim_ledger.restype = c_size_t
        lib.hipsim_fail.argtypes = [c_char_p]
        lib.hipsim_fail_fired.restype = lib.hipsim_fail_calls.restype = c_uint64
        lib.hipsim_trace.argtypes = [c_char_p]
        lib.hipsim_touch.argtypes = [c_int, c_void_p, c_size_t, c_int]
        lib.hipsim_set_in_use.argtypes = [c_int, c_uint64]
        lib.hipsim_quirks.restype = c_char_p

    @property
    def message(self) -> str:
        text: bytes = self.library.hipsim_last_message()
        return text.decode()

    def configure(self, text: str = "") -> None:
        assert self.library.hipsim_configure(text.encode()) == 0, self.message

    def ledger(self) -> dict[str, Any]:
        out = ctypes.create_string_buffer(self.library.hipsim_ledger(None, 0) + 1)
        self.library.hipsim_ledger(out, len(out))
        parsed: dict[str, Any] = json.loads(out.value)
        return parsed

    def alive(self) -> dict[str, Any]:
        """The parts of the ledger that name something alive; empty if nothing leaked."""
        ledger = self.ledger()
        left = {name: value for name, value in ledger.items() if name not in ("devices", "host_used") and value}
        if ledger["host_used"]:
            left["host_used"] = ledger["host_used"]
        used = {d["device"]: d["used"] for d in ledger["devices"] if d["used"]}
        return {**left, **({"used": used} if used else {})}

    def undo_everything(self, hip: Hip) -> None:
        """Free what a failed test left alive, so that the next one starts on an empty machine."""
        ledger = self.ledger()
        for piece in ledger["mappings"]:
            hip.hipMemUnmap(int(piece["address"], 16), piece["size"])
        for place in ledger["reservations"]:
            hip.hipMemAddressFree(int(place["address"], 16), place["size"])
        for allocation in ledger["allocations"]:
            for _ in range(allocation["references"]):
                hip.hipMemRelease(int(allocation["handle"], 16))
        for buffer in ledger["buffers"]:
            free = hip.hipHostUnregister if buffer["kind"] == "registered" else hip.hipFree
            free(int(buffer["address"], 16))
        for stream in ledger["streams"]:
            hip.hipStreamDestroy(int(stream["stream"], 16))
        for event in ledger["events"]:
            hip.hipEventDestroy(int(event["event"], 16))
        for peer in ledger["peers"]:
            hip.hipSetDevice(peer["device"])
            hip.hipDeviceDisablePeerAccess(peer["peer"])

    def fail(self, rules: str = "") -> None:
        assert self.library.hipsim_fail(rules.encode()) == 0, self.message

    def touch(self, device: int, address: int, size: int, mode: int = 3) -> int:
        code: int = self.library.hipsim_touch(device, address, size, mode)
        return code
