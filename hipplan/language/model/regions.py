"""Regions: one address range, a few large pieces of memory behind it, named tensors in it."""

from math import prod
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from hipplan.files.dtypes import BY_NAME, meant_dtype
from hipplan.kinds.mapping.plan import Access, Attached
from hipplan.language.base import FILL, Alignment, AutoSize, Name, OfRank, PlanModel, Size, SizeOrShare, Steps, refuse
from hipplan.language.host import is_host
from hipplan.language.model.memory_of import MemoryOf
from hipplan.language.model.ranks import RegionMap
from hipplan.language.model.torch import Torch
from hipplan.units import BYTES_MAX, format_size

OWNER = "owner"
"""In the access of a region: the device that holds the memory."""
OTHERS = "others"
"""In the access of a region: its devices but the owner."""

TENSOR_ALIGNMENT = 256
"""The default alignment of a tensor's offset: hipMalloc and cudaMalloc guarantee as much."""


def _dtype(value: object) -> object:
    if isinstance(value, str) and value not in BY_NAME:
        raise refuse("HP104", f"there is no dtype '{value[:60]}'", hint=meant_dtype(value[:60]))
    return value


DTypeName = Annotated[str, BeforeValidator(_dtype), WithJsonSchema({"enum": sorted(BY_NAME)})]
"""The name of an element type, as hipplan, HIP, NumPy, PyTorch or safetensors write it."""

Extent = Annotated[int, Field(ge=-1, lt=2**63)]


class Tensor(PlanModel):
    """A named array in a region, in C order. It costs no driver call: hipplan only calculates its offset."""

    dtype: DTypeName
    """The type of its elements: bf16, f32, f8_e4m3fn, i64, ..., or the name in HIP (`__hip_bfloat16`), NumPy
    (`float32`), PyTorch (`bfloat16`) or safetensors (`BF16`).

    Errors: HP104 no such type.
    Source: ours; DLPack's DLDataType.
    """

    shape: Annotated[list[Extent], Field(max_length=32)]
    """The number of elements in each dimension. One dimension of the last tensor may be -1: it takes the rest of the
    mapped memory, and grows with it.

    Errors: HP212 the tensor does not fit; HP107 -1 twice, or not in the last tensor.
    Source: ours.
    """

    alignment: Alignment | None = None
    """The alignment of its offset in bytes, a power of two. Default: 256 bytes.

    Errors: HP105 not a power of two.
    Source: ours.
    """

    device: str | None = None
    """In a region with spread: blocks, the device whose part holds the tensor. Default: after the previous tensor.

    Errors: HP201 no such device; HP107 the region has no block on it.
    Source: ours.
    """

    @property
    def step(self) -> int:
        """The alignment of its offset."""
        return max(self.alignment or 0, TENSOR_ALIGNMENT)

    @property
    def bytes_least(self) -> int:
        """Its bytes; if a dimension is -1, those of one row."""
        return abs(prod(self.shape)) * BY_NAME[self.dtype].size

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.shape.count(-1) > 1:
            raise refuse("HP107", "only one dimension can be -1", at="shape", hint="write -1 only once")
        if 0 in self.shape:
            raise refuse("HP105", "a tensor has no elements", at="shape", hint="remove it")
        if self.bytes_least >= BYTES_MAX:
            why = "sizes and addresses have 64 bits"
            raise refuse("HP105", "a tensor of 2^64 bytes or more", at="shape", why=why, hint="make it smaller")
        return self


class Region(PlanModel):
    """One address range with memory and named tensors. It becomes allocations (chunks), one reservation and mappings;
    `preview` shows them."""

    device: MemoryOf | None = None
    """The memory's device, or `host`: docs/regions.md. {host: {numa: near}} is host memory near the region's GPU, and
    {host: {numa: 1}} on NUMA node 1. Default: the first device of the plan.

    Errors: HP201 no such device; HP107 together with devices; HP309 this release has no host memory for it; HP316 this
    process cannot use the node. HP256, a warning: the GPU's node is unknown. HP261, a warning: atomics of AMD GPUs are
    unproved there.
    Source: hipMemAllocationProp.location.
    """

    devices: Steps[MemoryOf] | None = None
    """Several devices, or patterns such as gpu.*, that share one address range. The host may be one of them.

    Errors: HP201 no such device; HP209 a device twice.
    Source: ours.
    """

    sizes: Steps[Size] | None = None
    """In place of a size, the bytes on each of `devices`, in their order, each rounded up to whole chunks:
    devices: [gpu.0, host] with sizes: [8GiB, 24GiB].

    Errors: HP107 without devices, with a size or with spread: interleave; not as many as devices.
    Source: hipMemCreate, hipMemMap.
    """

    spread: Literal["blocks", "interleave"] = "blocks"
    """With several devices, `blocks` gives each one contiguous part, in order; `interleave` assigns chunks in turn.

    Source: ours.
    """

    size: AutoSize = "auto"
    """How many bytes are mapped, rounded up to whole chunks (on each device). `auto`: as many as the tensors need.
    A percentage, such as 80%, is of each device's memory, whatever is free of it; `fill` is all that is left on each
    device after everything else of the plan. Both are rounded down to whole chunks, and decided for a machine:
    docs/regions.md. 0: it starts empty, and reserves the addresses that it grows into.

    Errors: HP107 auto without tensors, or with -1 in a shape; two fill one device; HP301 nothing is left; HP105 0
    without reserve.
    Source: hipMemCreate, hipMemMap.
    """

    reserve: SizeOrShare | None = None
    """The size of the address range in bytes, so that the region can grow and its address never changes. Default: the
    mapped size.

    With `size: fill` it is instead the memory to leave free on each device: bytes, or a percentage of the device's
    memory. A region that fills and has a `chunk` reserves as many addresses as its devices have memory.

    Errors: HP206 less than the mapped size; HP105 more addresses than a process has; HP107 a percentage without fill.
    Source: hipMemAddressReserve(size).
    """

    chunk: Size | None = None
    """The size of one allocation in bytes, rounded up to the granularity. Default: one allocation on each device. Each
    chunk costs driver calls, and a file descriptor on AMD, so do not make chunks small.

    Errors: HP107 missing with interleave or with room to grow.
    Source: hipMemCreate(size).
    """

    overflow: Literal["host"] | None = None
    """`host`: layout.grow() adds memory on the host once its device has too little: docs/regions.md. Default: growing a
    region beyond its device is an error.

    Errors: HP107 without room to grow, with map, rdma or torch, or for a region that is on the host; HP309 this release
    has no host memory for it.
    Source: hipMemAllocationProp.location.
    """

    alignment: Alignment | None = None
    """The alignment of the address in bytes, a power of two. Default: the runtime's.

    Errors: HP105 not a power of two.
    Source: hipMemAddressReserve(alignment).
    """

    access: Access | None = None
    """The access of each device. Default: rw for the devices that hold the memory. `owner` is the device that holds the
    bytes, also after layout.remap(), and `others` are the other devices of a region over several; name devices outside
    the region. The more specific entry wins: a device's name before owner and others, and those before patterns. Memory
    on the host is owned by the region's GPUs (the plan's first device, if it has none) and by the host, which has the
    most that a GPU has, unless access names `host`.

    Errors: HP201 no such device; HP104 not none, r or rw; HP107 others where there is one device, or without owner.
    HP258, a warning: a device that holds the memory has none, and the region has no contents.
    Source: hipMemSetAccess.
    """

    rdma: bool = False
    """true lets network cards read and write it (GPUDirect RDMA): docs/rdma.md.

    Errors: HP309 this device or release cannot.
    Source: hipMemAllocationProp.allocFlags.gpuDirectRDMACapable.
    """

    seal: bool = False
    """Makes it read-only after its contents are loaded: rw becomes r for every device, and hipplan reads that back.
    layout.unseal() makes it writable again.

    Errors: HP257, a warning: it has no contents.
    Source: hipMemSetAccess.
    """

    attached: Attached = "r"
    """What processes that attach to a holder may do with it: `r` reads; `rw` also writes, by the devices that have rw
    in `access` (docs/holders.md). It has no effect on an apply.

    Errors: HP255, a warning: no device may write it.
    Source: hipMemSetAccess, in each process that attaches.
    """

    rank: OfRank | None = None
    """The rank that makes it: a number, or `first_of_node`. Default: every rank makes its own.

    Errors: HP107 in a plan without ranks:.
    Source: ours.
    """

    map: RegionMap | None = None
    """The other ranks that map this memory too. If every rank makes its own region, layout.rank(2)["region"] is rank
    2's; if one rank makes it, layout["region"] is the same memory in all ranks. Default: none.

    Errors: HP107 in a plan without ranks:; HP309 this release cannot share it.
    Source: hipMemExportToShareableHandle, hipMemImportFromShareableHandle.
    """

    addresses: Literal["any", "symmetric"] = "any"
    """`symmetric`: each rank's part has the same address in every process that maps it, one part after the other, so
    pointers into it are valid everywhere.

    Errors: HP107 without map; HP435 no such addresses are free in all ranks.
    Source: hipMemAddressReserve(addr).
    """

    torch: Torch | None = None
    """Makes its memory a pool that takes chunks as PyTorch allocates; for a region with `size: 0` on one device.

    Errors: HP107 with a size, devices, map or seal, or in a plan for ranks; HP204 a tag used twice on one device.
    Source: ours; hipMemCreate, hipMemMap, hipMemSetAccess, while the program runs.
    """

    tensors: dict[Name, Tensor] = {}
    """Named arrays, placed in this order; layout["region.tensor"] is one. The same plan always gives the same offsets,
    and adding a tensor at the end moves no other.

    Errors: HP204 a name used twice; HP212 a tensor that does not fit.
    Source: ours.
    """

    @property
    def range_size(self) -> int | None:
        """The bytes of addresses that it asks for, if it does."""
        return self.reserve if isinstance(self.reserve, int) and self.size != FILL else None

    @property
    def starts_empty(self) -> bool:
        """Whether nothing is mapped at first."""
        return self.size == 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._empty()
        if isinstance(self.reserve, str) and self.size != FILL:
            why = "it is the memory that size: fill leaves free; without fill, reserve is the bytes of addresses"
            hint = "write size: fill, or bytes: reserve: 64GiB"
            raise refuse("HP107", f"a reserve of {self.reserve} needs size: fill", at="reserve", why=why, hint=hint)
        if self.device is not None and self.devices is not None:
            raise refuse("HP107", "device and devices exclude each other", at="device", hint="remove device")
        if self.devices == []:
            raise refuse("HP105", "a region needs at least one device", at="devices", hint="name one")
        self._sized_by_device()
        self._overflows()
        if self.size == "auto" and not self.tensors and self.sizes is None:
            raise refuse("HP107", "a region needs a size or tensors", hint="add size: 1GiB")
        holders = len(self.devices or ()) > 1 or any(name.endswith(".*") for name in self.devices or ())
        if self.range_size is not None and holders and self.spread == "blocks":
            why = "memory added at the end would be outside the blocks"
            raise refuse("HP107", "a region in blocks cannot grow", at="reserve", why=why, hint="use interleave")
        if self.chunk is None and self.torch is None and (self.spread == "interleave" or self.range_size is not None):
            why = "chunk is the size of one step"
            hint = f"add chunk: {format_size(self._fair_chunk())}"
            raise refuse("HP107", "interleaving and growing need a chunk", why=why, hint=hint)
        self._owners()
        self._open_tensors()
        self._mapped_by_others()
        return self

    @property
    def may_be_on_host(self) -> bool:
        """Whether the plan puts some of its memory on the host."""
        return any(map(is_host, (self.device or "", *(self.devices or ()))))

    def _sized_by_device(self) -> None:
        """Check that `sizes` stands alone, and that nothing is asked for that host memory cannot be."""
        if self.sizes is not None:
            if self.devices is None:
                raise refuse("HP107", "sizes are those of several devices", at="sizes", hint="write size, or devices")
            if self.size != "auto" or self.spread == "interleave":
                what = "spread: interleave" if self.size == "auto" else "size"
                raise refuse("HP107", f"sizes and {what} exclude each other", at="sizes", hint=f"remove {what}")
        if self.may_be_on_host:
            for key, why in (("rdma", "network cards reach a GPU's memory"), ("map", "other ranks map a GPU's memory")):
                if getattr(self, key):
                    raise refuse("HP107", f"{key} is not for host memory", at=key, why=why, hint=f"remove {key}")

    def _overflows(self) -> None:
        """Check that only a region that grows on devices overflows to the host."""
        if self.overflow is None:
            return
        for key in ("map", "rdma", "torch"):
            if getattr(self, key):
                why = "its memory stays on its device"
                raise refuse("HP107", f"overflow and {key} exclude each other", at="overflow", why=why,
                             hint=f"remove overflow, or {key}")  # fmt: skip
        if self.range_size is None and self.size != FILL:
            why = "it is about the memory that grow() adds"
            hint = "add reserve: and chunk:, or remove it"
            raise refuse("HP107", "overflow needs room to grow", at="overflow", why=why, hint=hint)
        if self.may_be_on_host:
            hint = "remove it: grow() adds memory where the plan has the region"
            raise refuse("HP107", "overflow is for a region on devices", at="overflow", hint=hint)

    def _mapped_by_others(self) -> None:
        if self.addresses == "symmetric" and self.map is None:
            hint = "add map: {ranks: node, access: r}"
            raise refuse("HP107", "symmetric addresses need memory that other ranks map", at="addresses", hint=hint)
        if self.map is not None and self.map.access == "rw" and self.seal:
            hint = "write access: r, or remove seal"
            raise refuse("HP107", "a sealed region cannot be mapped for writing", at="map", hint=hint)

    def _empty(self) -> None:
        """Check that only a region that can grow starts empty, and that a pool for PyTorch does."""
        if self.torch is not None:
            others = {"devices": self.devices, "map": self.map, "seal": self.seal, "tensors": self.tensors}
            other = next((key for key, value in others.items() if value), "")
            if other:
                why = "its memory is a pool, made and freed as tensors come and go"
                hint = f"remove {other}, or torch"
                raise refuse("HP107", f"torch and {other} exclude each other", at=other, why=why, hint=hint)
            if not self.starts_empty:
                why = "a pool takes memory when tensors come"
                raise refuse("HP107", "a pool for PyTorch starts empty", at="torch", why=why, hint="write size: 0")
        if not self.starts_empty:
            return
        if self.reserve is None:
            why = "HIP rejects it or returns a null pointer"
            hint = "remove the object, or add reserve: and chunk: for a region that starts empty"
            raise refuse("HP105", "a size of 0 bytes", at="size", why=why, hint=hint)
        if self.tensors or self.map is not None:
            key = "tensors" if self.tensors else "map"
            hint = f"remove {key}, or write a size"
            raise refuse("HP107", f"a region that starts empty has no {key}", at=key, hint=hint)

    def _owners(self) -> None:
        """Check that `others` is used only in regions over several devices, and beside `owner`."""
        words = [word for word in (OWNER, OTHERS) if word in (self.access or {})]
        if OTHERS in words and self.devices is None:
            hint = f"name the devices: access: {{owner: rw, {self.device or 'gpu.0'}: r}}"
            raise refuse("HP107", f"'{OTHERS}' is for a region over several devices", at="access", hint=hint)
        if words == [OTHERS]:
            hint = "add owner: rw, or owner: none if that is intended"
            raise refuse("HP107", "'others' leaves out the owner's own access", at="access", hint=hint)

    def _fair_chunk(self) -> int:
        """A chunk size with which each device gets a share of the mapped bytes: a power of two, 2MiB to 1GiB."""
        needed = sum(tensor.bytes_least for tensor in self.tensors.values())
        bytes_ = self.size if isinstance(self.size, int) else needed if self.size == "auto" else 2**64
        patterns = any(name.endswith(".*") for name in self.devices or ())
        share = bytes_ // (8 if patterns else max(1, len(self.devices or ())))
        return min(max(1 << max(0, share.bit_length() - 1), 2 << 20), 1 << 30)

    def _open_tensors(self) -> None:
        """Check that -1 is used only in the last tensor, or the last of a device's part, and that the size is given."""
        placed = [tensor.device is not None for tensor in self.tensors.values()]
        if self.size == "auto" and self.sizes is None and any(placed) and not all(placed):
            hint = "write device: for all tensors or for none, or add size:"
            raise refuse("HP107", "some tensors have a device, others do not", at="tensors", hint=hint)
        last = {tensor.device: name for name, tensor in self.tensors.items()}
        for name, tensor in self.tensors.items():
            if -1 not in tensor.shape:
                continue
            if self.size == "auto" and self.sizes is None:
                raise refuse(
                    "HP107",
                    f"'{name}' takes the rest of the region, but the region has no size",
                    at="tensors",
                    hint="add size: 1GiB",
                )
            if last[tensor.device] != name:
                hint = "write it last"
                raise refuse("HP107", f"'{name}' takes the rest, but another follows it", at="tensors", hint=hint)
