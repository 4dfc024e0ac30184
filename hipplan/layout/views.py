"""Pieces of a live layout as NumPy, PyTorch and CuPy see them: zero copy, each view a lease.

Three protocols: DLPack for everything; `__cuda_array_interface__` for device memory; the buffer protocol for memory
that the CPU may access. A lease ends when the array, tensor or buffer is deleted, from any thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from hipplan import _core
from hipplan.files.dtypes import BY_NAME, BYTE, DType, dtype_of
from hipplan.kinds.lives import lies
from hipplan.layout.dlpack import CPU, ViewPlace
from hipplan.notebooks import InNotebooks
from hipplan.plain import number, shown

if TYPE_CHECKING:
    from hipplan.program.resources import Resource

_GPU_TYPES = (2, 10)  # kDLCUDA, kDLROCM
_ROCM_TYPES = (10, 11)  # kDLROCM, kDLROCMHost


class Piece(_core.Window, InNotebooks):
    """One object of a live layout: where it is, and a view of its bytes.

        numpy.asarray(layout["staging"].view("f32", (1024, 1024)))
        torch.from_dlpack(layout["cache.pages"])

    It is in C order. A Piece itself has no lease; an array or tensor made from it does, and a layout with leases
    cannot be closed.
    """

    def __init__(
        self,
        resource: Resource,
        address: int | None,
        places: dict[str, ViewPlace],
        book: _core.LeaseBook,
        runtime: _core.Runtime,
        age: int,
        *,
        dtype: DType | None = None,
        shape: Sequence[int] | None = None,
        chosen: bool = False,
    ) -> None:
        """chosen: whether on() has chosen the place."""
        if dtype is None:
            dtype = BY_NAME[resource.dtype] if resource.dtype else BYTE
            shape = resource.shape if resource.dtype else (resource.size,)
        shape = tuple(shape or ())
        place = next(iter(places.values()), ViewPlace("", CPU, read_only=True))
        why = _no_buffer(resource.name, places, dtype)
        self._place = place
        self._places = places
        self._chosen = chosen
        self._book = book
        self._runtime = runtime
        self._age = age
        self._resource = resource
        self._address = address
        self._dtype = dtype
        self._shape = shape
        cpu = places.get("host")
        super().__init__(
            book, resource.name, address or 0, shape, dtype.size, "" if why else dtype.format, why,
            cpu is None or cpu.read_only, age,
        )  # fmt: skip

    @property
    def resource(self) -> Resource:
        """Its description in the program."""
        return self._resource

    @property
    def address(self) -> int:
        """Its address, the same for the device and the host.

        Raises AttributeError: allocations, peer links and streams have no address.
        """
        if self._address is None:
            hint = "; its mappings have one" if self.kind == "allocation" else ""
            raise AttributeError(f"'{self.name}' has no address: it is of the kind {self.kind}{hint}")
        return self._address

    @property
    def dtype(self) -> DType:
        """The type of its elements; equal to hipplan's name for it: piece.dtype == "f32"."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements by dimension; view() gives it another one."""
        return self._shape

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def size(self) -> int:
        """Bytes, padding included."""
        return self.resource.size

    @property
    def handle(self) -> int:
        """The driver's handle of a stream. Raises AttributeError for everything else."""
        raise AttributeError(f"'{self.name}' has no handle: it is not a stream, but of the kind {self.kind}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"'{self.name}' cannot be copied or pickled: its memory belongs to the layout")

    @property
    def device_pointer(self) -> int:
        """Its address for devices, which may differ from the host's for pinned and registered memory.

        Raises AttributeError without an address, HipError once the memory is freed. Source: hipHostGetDevicePointer.
        """
        if lies(self.kind) != "host":
            return self.address
        return self._runtime.device_pointer(self.address)

    @property
    def nbytes(self) -> int:
        """Bytes of the view."""
        return prod(self.shape) * self.dtype.size

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by dimension, as in NumPy."""
        return tuple(prod(self.shape[i + 1 :]) * self.dtype.size for i in range(len(self.shape)))

    @property
    def device(self) -> str:
        """The plan's name for the device, or `host`, that a view of it is for.

        Raises AttributeError where several devices have the bytes, and on() has not chosen one.
        """
        if len(self.devices) > 1 and not self._chosen:
            hint = f"use .devices, or .on('{self.devices[0]}') for a view of one device"
            raise AttributeError(f"'{self.name}' is on several devices, {', '.join(self.devices)}: {hint}")
        return self._place.who

    @property
    def devices(self) -> tuple[str, ...]:
        """The plan's names for what has the bytes: devices, in the order of addresses, or `host`; empty for what has
        no memory of its own, such as a reservation."""
        return self.resource.devices

    @property
    def read_only(self) -> bool:
        """Whether the views' device may only read."""
        return self._place.read_only

    def view(self, dtype: object, shape: Sequence[int] | int | None = None) -> Piece:
        """The same bytes as another dtype and shape; -1 stands for the rest.

        ValueError if it does not fit, TypeError for what is no shape.
        """
        kind = dtype_of(dtype)
        return self._like(kind, _fit(self.name, self.nbytes, kind, shape))

    def on(self, where: str) -> Piece:
        """The same bytes for another place with access: a device of the plan, `host`, `pinned`, `managed`.

        Raises BufferError for a place without access.
        """
        self._require_memory()
        if where not in self._places:
            known = ", ".join(self._places)
            raise BufferError(f"'{self.name}' cannot be viewed from '{shown(where)}', only from {known}")
        first = {where: self._places[where]}
        return self._like(self.dtype, self.shape, first | self._places, chosen=True)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule for numpy.from_dlpack, torch.from_dlpack, cupy.from_dlpack. Raises BufferError.

        stream: checked; a layout's memory is complete, so there is nothing to wait for.
        dl_device: any device with access. For a CPU without access the bytes are copied, if copy allows.
        """
        self._require_memory()
        place = self._place_for(dl_device)
        versioned = max_version is not None and max_version[0] >= 1
        dtype = (self.dtype.code, self.dtype.bits)
        if copy or place is None:
            if copy is False or (place is not None and place.dl_device != CPU):
                raise BufferError(f"'{self.name}' is never copied by hipplan; copy it with the array library")
            return self._host_copy(self._runtime, dtype, versioned)
        _check_stream(stream, place)
        self._require_one_runtime(place)
        if place.read_only and not versioned:
            raise BufferError(f"'{self.name}' is read-only, which DLPack before version 1 cannot express")
        return self._capsule(place.dl_device, dtype, place.read_only, versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        self._require_memory()
        return self._place.dl_device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3, for CuPy and Numba. The lease lives as long as this Piece, which its reader keeps.

        Raises AttributeError for host memory and for what NumPy has no dtype for, BufferError where its reader would
        take another device than this piece is for.
        """
        if self._address is None or self._place.dl_device[0] not in _GPU_TYPES:
            raise AttributeError(f"'{self.name}' is not device memory")
        if not self.dtype.typestr:
            raise AttributeError(f"the CUDA array interface has no {self.dtype}; use DLPack")
        self._require_one_runtime(self._place)
        lease = _core.Lease(self, by_cpu=False)
        self._require_driver_device(self._place)
        self._lease = lease
        return {
            "shape": self.shape,
            "typestr": self.dtype.typestr,
            "data": (self._address, self._place.read_only),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """NumPy calls it after the buffer protocol failed, and drops that error; this raises the BufferError again."""
        import numpy

        return numpy.asarray(memoryview(self), dtype=dtype)

    def __repr__(self) -> str:
        where = "no address" if self._address is None else f"{self._address:#x}"
        shape = "x".join(map(str, self.shape))
        holders = (self._place.who,) if self._place.who and len(self.devices) < 2 else self.devices
        on = f" on {', '.join(holders)}" if holders else ""  # a reservation may have memory of several
        return f"<{self.kind} '{self.name}'{on}: {self.dtype} {shape} at {where}>"

    def _like(
        self, dtype: DType, shape: tuple[int, ...], places: dict[str, ViewPlace] | None = None, *, chosen: bool = False
    ) -> Piece:
        return Piece(
            self.resource, self._address, places or self._places, self._book, self._runtime, self._age,
            dtype=dtype, shape=shape, chosen=chosen or self._chosen,
        )  # fmt: skip

    def _place_for(self, dl_device: tuple[int, int] | None) -> ViewPlace | None:
        """The place a consumer wants; None: the CPU, which needs a copy."""
        if dl_device is None:
            return self._place
        wanted = (int(dl_device[0]), int(dl_device[1]))
        for place in (self._place, *self._places.values()):
            if place.dl_device == wanted:
                return place
        if wanted == CPU:
            return None
        raise BufferError(f"'{self.name}' cannot be viewed from DLPack device {wanted}")

    def _require_one_runtime(self, place: ViewPlace) -> None:
        """A second copy of ROCm's library, loaded since by another module, does not know this memory."""
        if place.dl_device[0] not in _ROCM_TYPES or "libamdhip64" not in self._runtime.path:
            return
        copies = {os.path.realpath(path) for path in _core.loaded_libraries("libamdhip64.so")}
        if len(copies) > 1:
            raise BufferError(
                f"'{self.name}' belongs to {self._runtime.path}, and this process has loaded two copies of ROCm's "
                f"library, which do not share pointers: {', '.join(sorted(copies))}. Import the module that brings "
                "its own (PyTorch) before the first apply; then hipplan uses that one"
            )

    def _require_driver_device(self, place: ViewPlace) -> None:
        """Raises BufferError if the driver reports another device for the memory: the array interface does not contain
        the device, so its reader asks the driver."""
        if self.nbytes and self._runtime.pointer_attributes(self.address).device != place.dl_device[1]:
            raise BufferError(
                f"the CUDA array interface cannot express that '{self.name}' is viewed from '{place.who}': its reader "
                "takes the device that holds the memory, which may have no access to it; use from_dlpack"
            )

    def _require_memory(self) -> None:
        if not self._places:
            why = {
                "reservation": f"has addresses but no memory of its own; name a mapping: {self.name}[0]",
                "mapping": "gives no device access",
                "region": "gives no device access to all of it; use a tensor or mapping in one device's part",
                "tensor": "gives no device access to all of it",
            }.get(self.kind, f"has no address: it is of the kind {self.kind}")
            raise BufferError(f"'{self.name}' {why}")


def _no_buffer(name: str, places: dict[str, ViewPlace], dtype: DType) -> str:
    """Why the buffer protocol does not work; empty where it does."""
    if "host" not in places:
        return f"the CPU may not access '{name}'; use from_dlpack, or the CUDA array interface"
    if not dtype.format:
        return f"the buffer protocol has no {dtype}; use DLPack, or .view('u8') for the raw bytes"
    return ""


def _fit(name: str, size: int, dtype: DType, shape: Sequence[int] | int | None) -> tuple[int, ...]:
    given = (-1,) if shape is None else shape if isinstance(shape, Iterable) else (shape,)
    wanted = tuple(map(number, given))
    if any(type(n) is not int for n in wanted):
        raise TypeError(f"{shape!r} is not a shape: a shape is one or more integers")
    rest = prod(n for n in wanted if n != -1) * dtype.size
    if wanted.count(-1) > 1 or min(wanted, default=0) < -1:
        raise ValueError(f"{wanted} is not a shape: only one dimension may be -1")
    if -1 in wanted and rest and size % rest == 0:
        return tuple(size // rest if n == -1 else n for n in wanted)
    if -1 in wanted or rest > size:
        raise ValueError(f"'{name}' has {size} bytes, which {dtype} {wanted} does not fit")
    return wanted


def _check_stream(stream: Any, place: ViewPlace) -> None:
    """What the protocol allows for each kind of device; an error here would be a race elsewhere."""
    kind = place.dl_device[0]
    allowed = {2: stream != 0, 13: stream != 0, 10: stream not in (1, 2)}.get(kind, stream in (None, -1))
    if not allowed or not (stream is None or (isinstance(stream, int) and stream >= -1)):
        raise BufferError(f"stream {stream!r} is not valid on DLPack device type {kind}")
