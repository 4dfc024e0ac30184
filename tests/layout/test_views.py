"""Pieces of a layout in NumPy's hands: zero copy, shown by address; read-only stays read-only."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

import numpy
import pytest

import hipplan
from hipplan import _core
from hipplan.files.dtypes import BY_NAME
from hipplan.layout.dlpack import places_of
from hipplan.layout.layout import Layout
from hipplan.machines.family import family_of
from tests.conftest import Simulator

C_ORDER, FORTRAN_ORDER, EITHER_ORDER = 0x38, 0x58, 0x98
"""PyBUF_C_CONTIGUOUS and the like."""

PLAN = """
hipplan: 1
devices:
  gpu: {count: 2}
allocations:
  block: {device: gpu.0, size: 2MiB}
reservations:
  shared:
    mappings: [{allocation: block, access: {gpu.0: rw, gpu.1: r}}]
  told:
    mappings: [{allocation: block, access: {gpu.0: r}}]
  nobody:
    mappings: [{allocation: block}]
streams:
  copy: {device: gpu.0}
buffers:
  scratch: {kind: device, device: gpu.1, size: 1MiB}
  staging: {kind: pinned, size: 1MiB}
  fresh: {kind: registered, anonymous: {size: 64KiB}}
  table: {kind: managed, size: 64KiB}
"""


@pytest.fixture
def layout(sim: Simulator):  # type: ignore[no-untyped-def]
    with hipplan.apply(PLAN, runtime="sim") as layout:
        yield layout


@pytest.mark.parametrize("name", ["staging", "fresh", "table"])
def test_numpy_sees_host_memory_at_its_own_address(name: str, layout: Layout) -> None:
    piece = layout[name].view("f32", (4, -1))
    array = numpy.asarray(piece)
    array[1, 2] = 7.5

    assert array.ctypes.data == piece.address
    assert array.dtype == numpy.float32
    assert array.shape == piece.shape
    assert array.strides == piece.strides
    assert numpy.frombuffer(layout.runtime.read(piece.address, 4 * array.size), numpy.float32).sum() == 7.5


def test_numpy_takes_host_memory_through_dlpack(layout: Layout) -> None:
    piece = layout["staging"].view("i64")
    array = numpy.from_dlpack(piece)

    assert array.ctypes.data == piece.address
    assert array.dtype == numpy.int64
    assert array.flags.writeable
    assert piece.__dlpack_device__() == (1, 0)


def test_device_memory_is_not_for_the_cpu(layout: Layout) -> None:
    with pytest.raises(BufferError, match="the CPU may not access 'scratch'"):
        memoryview(layout["scratch"])
    with pytest.raises(BufferError, match="the CPU may not access 'scratch'"):
        numpy.asarray(layout["scratch"])  # and not an array of one object
    assert layout["scratch"].__dlpack_device__() == (10, 1)
    assert layout["shared[0]"].__dlpack_device__() == (10, 0)


def test_device_memory_is_copied_where_the_cpu_is_asked_for(layout: Layout) -> None:
    piece = layout["scratch"].view("u16", -1)
    layout.runtime.write(piece.address, b"\x01\x02" * 8)
    array = numpy.from_dlpack(piece, device="cpu")

    assert array[:9].tolist() == [0x201] * 8 + [0]
    assert array.ctypes.data != piece.address
    with pytest.raises(BufferError, match="never copied"):
        numpy.from_dlpack(piece, device="cpu", copy=False)


def test_a_copy_of_host_memory_is_one(layout: Layout) -> None:
    array = numpy.from_dlpack(layout["staging"], copy=True)

    assert array.ctypes.data != layout["staging"].address
    assert array.flags.writeable


def test_read_only_stays_read_only(tmp_path: Path, sim: Simulator) -> None:
    (tmp_path / "data.bin").write_bytes(b"abcd" * 1024)
    (tmp_path / "plan.yaml").write_text(
        "hipplan: 1\nbuffers: {data: {kind: registered, file: data.bin, read_only: true}}\n"
    )
    with hipplan.apply(tmp_path / "plan.yaml", runtime="sim") as layout:
        piece = layout["data"]
        array = numpy.asarray(piece)
        through_dlpack = numpy.from_dlpack(piece)

        assert piece.read_only
        assert piece.size == 4096
        assert bytes(array[:4]) == b"abcd"
        assert not array.flags.writeable
        assert not through_dlpack.flags.writeable
        with pytest.raises(BufferError, match="read-only"):
            piece.__dlpack__()
        with pytest.raises((BufferError, TypeError)):
            (ctypes.c_char * 4096).from_buffer(piece)
        del array, through_dlpack


def test_the_right_of_the_device_that_looks_decides(layout: Layout) -> None:
    piece = layout["shared[0]"]

    assert not piece.read_only
    assert piece.on("gpu.1").read_only
    assert piece.on("gpu.1").__dlpack_device__() == (10, 1)
    assert layout["told[0]"].read_only
    assert flags_of(layout["told[0]"].__dlpack__(max_version=(1, 0))) == 1
    assert flags_of(piece.__dlpack__(max_version=(1, 0))) == 0
    assert flags_of(piece.__dlpack__(max_version=(1, 0), dl_device=(10, 1))) == 1


def flags_of(capsule: object) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_uint64.from_address(pointer(capsule, b"dltensor_versioned") + 24).value


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody[0]", "gives no device access"),
        ("shared", r"addresses but no memory of its own; name a mapping: shared\[0\]$"),
        ("block", "has no address: it is of the kind allocation"),
        ("copy", "has no address: it is of the kind stream"),
    ],
)
def test_what_has_no_bytes_to_show_says_why(name: str, message: str, layout: Layout) -> None:
    with pytest.raises(BufferError, match=message):
        layout[name].__dlpack__()
    with pytest.raises(BufferError, match=message):
        layout[name].__dlpack_device__()
    with pytest.raises(AttributeError):
        layout[name].__cuda_array_interface__  # noqa: B018


def test_the_cuda_array_interface_describes_device_memory(layout: Layout) -> None:
    piece = layout["told[0]"].view("f16", (2, -1))
    reported = piece.__cuda_array_interface__

    assert reported == {
        "shape": (2, 2**19),
        "typestr": "<f2",
        "data": (layout["told[0]"].address, True),
        "strides": None,
        "stream": None,
        "version": 3,
    }
    assert not hasattr(layout["staging"], "__cuda_array_interface__")
    assert not hasattr(layout["scratch"].view("bf16"), "__cuda_array_interface__")


def test_the_cuda_array_interface_is_refused_from_a_device_that_it_cannot_name(sim: Simulator) -> None:
    """Its reader asks the driver, and works on the device that holds the memory: with no right to it, a fault."""
    mappings = [{"allocation": "theirs", "access": {"gpu.0": "rw"}}]
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {"theirs": {"device": "gpu.1", "size": "2MiB"}},
        "reservations": {"r": {"mappings": mappings}},
        "regions": {"spread": {"devices": ["gpu.0", "gpu.1"], "size": "4MiB", "chunk": "2MiB", "spread": "interleave"}},
        "buffers": {"table": {"kind": "managed", "size": "64KiB", "device": "gpu.0"}},
    }
    with hipplan.apply(plan, runtime="sim") as layout:
        refused = [layout["r[0]"], layout["spread"].on("gpu.1"), layout["table"].on("gpu.1").view("f32")]
        for piece in refused:
            with pytest.raises(BufferError, match=r"cannot express .* use from_dlpack"):
                piece.__cuda_array_interface__  # noqa: B018
            assert piece.__dlpack_device__() == (10, 0 if piece.name == "r[0]" else 1)
        for piece in (layout["spread"].on("gpu.0"), layout["table"].on("gpu.0")):
            assert piece.__cuda_array_interface__["data"][0] == piece.address
        del piece


def test_bf16_has_no_buffer_but_its_bytes_have(layout: Layout) -> None:
    piece = layout["staging"].view("bfloat16", (512, -1))

    with pytest.raises(BufferError, match=r"no bf16; use DLPack, or \.view\('u8'\)"):
        memoryview(piece)
    assert memoryview(piece.view("u8")).nbytes == 2**20


def test_managed_memory_goes_out_as_the_caller_says(layout: Layout) -> None:
    table = layout["table"]

    assert table.__dlpack_device__() == (10, 0)
    assert table.on("gpu.1").__dlpack_device__() == (10, 1)
    assert table.on("host").__dlpack_device__() == (1, 0)
    assert numpy.from_dlpack(table, device="cpu", copy=False).ctypes.data == table.address
    with pytest.raises(BufferError, match=r"only from gpu\.0, gpu\.1, host"):
        table.on("managed")  # DLPack has no such type for ROCm


def test_pinned_memory_goes_out_as_the_cpus_or_as_pinned(layout: Layout) -> None:
    assert layout["staging"].__dlpack_device__() == (1, 0)
    assert layout["staging"].on("pinned").__dlpack_device__() == (11, 0)


@pytest.mark.parametrize(
    ("name", "stream", "allowed"),
    [("scratch", None, True), ("scratch", 0, True), ("scratch", -1, True), ("scratch", 4096, True),
     ("scratch", 1, False), ("scratch", 2, False), ("scratch", "0", False), ("scratch", -2, False),
     ("staging", None, True), ("staging", -1, True), ("staging", 0, False)],
)  # fmt: skip
def test_streams_are_checked_as_the_protocol_says(name: str, stream: object, allowed: bool, layout: Layout) -> None:
    if allowed:
        layout[name].__dlpack__(stream=stream)
        return
    with pytest.raises(BufferError, match="is not valid"):
        layout[name].__dlpack__(stream=stream)


def test_a_view_must_fit(layout: Layout) -> None:
    staging = layout["staging"]

    assert staging.view("u8", 100).nbytes == 100
    assert staging.view("f64", ()).shape == ()
    assert numpy.asarray(staging.view("f64", ())).shape == ()
    for dtype, shape in (("f32", (2**18 + 1,)), ("f32", (3, -1)), ("f32", (-1, -1)), ("f32", (-2,))):
        with pytest.raises(ValueError, match=r"does not fit|is not a shape"):
            staging.view(dtype, shape)
    with pytest.raises(ValueError, match="no dtype 'float7'"):
        staging.view("float7")


def test_the_cpu_may_look_at_device_memory_that_a_machine_shows_it(sim: Simulator) -> None:
    from hipplan.machines.profiles import load_machine

    machine = load_machine("sim-2")
    shown = [device.model_copy(update={"host_visible": True}) for device in machine.devices]
    machine = machine.model_copy(update={"name": "shown", "devices": shown})
    with hipplan.apply(PLAN, runtime="sim", machine=machine) as layout:
        for name in ("scratch", "shared[0]"):
            array = numpy.asarray(layout[name])
            array[5] = 9
            assert layout.runtime.read(layout[name].address, 6)[5] == 9
            del array
        assert numpy.asarray(layout["told[0]"]).flags.writeable is False


def test_the_device_type_of_a_runtime_s_memory() -> None:
    assert family_of("/x/libhipcuda.so") == "cuda"
    assert family_of("/x/libhipsim.so") == "sim"
    assert family_of("/opt/rocm/lib/libamdhip64.so.7") == "amd"


def test_a_piece_says_what_it_is(layout: Layout) -> None:
    address = layout["scratch"].address

    assert repr(layout["scratch"].view("f32", (512, 512))) == (
        f"<device 'scratch' on gpu.1: f32 512x512 at {address:#x}>"
    )
    assert isinstance(layout["scratch"], _core.Window)
    piece = layout["scratch"].view("f32")
    assert piece.dtype == "f32" and piece.dtype != "f64" and {piece.dtype: 1}["f32"] and piece.dtype == BY_NAME["f32"]
    for attribute in ("dtype", "shape", "address", "resource"):
        with pytest.raises(AttributeError, match=attribute):
            setattr(piece, attribute, None)
    shared = layout["shared"]
    assert repr(shared) == f"<reservation 'shared': u8 {shared.size} at {shared.address:#x}>"


@pytest.mark.parametrize(("visible", "may_look"), [((True, False), False), ((True, True), True)])
def test_the_cpu_views_a_region_only_if_all_its_devices_are_host_visible(
    visible: tuple[bool, bool], may_look: bool
) -> None:
    machine = hipplan.machine("sim-2")
    pairs = zip(machine.devices, visible, strict=True)
    machine = machine.model_copy(
        update={"devices": [device.model_copy(update={"host_visible": pair}) for device, pair in pairs]}
    )
    tensor = {"dtype": "f32", "shape": [2 * 2**20]}
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "regions": {"r": {"devices": ["gpu.*"], "tensors": {"t": tensor}}},
    }
    program = hipplan.compile(hipplan.load(plan), machine)
    both = [resource for resource in program.resources if resource.kind in ("region", "tensor")]

    assert [("host" in places_of(resource, program, "sim")) for resource in both] == [may_look, may_look]
    (first,) = [resource for resource in program.resources if resource.name == "r[0]"]
    assert "host" in places_of(first, program, "sim")  # all of it on gpu.0


@pytest.mark.parametrize(
    ("shape", "flags", "given"),
    [
        ((4, -1), C_ORDER, True),
        ((4, -1), FORTRAN_ORDER, False),
        ((4, -1), EITHER_ORDER, True),
        ((1, -1, 1), FORTRAN_ORDER, True),
        ((-1,), FORTRAN_ORDER, True),
    ],
)
def test_memory_is_given_in_the_order_that_it_has(
    shape: tuple[int, ...], flags: int, given: bool, layout: Layout
) -> None:
    piece, buffer = layout["staging"].view("f32", shape), ctypes.create_string_buffer(256)
    window = ctypes.py_object(memoryview(piece).obj)
    with contextlib.nullcontext() if given else pytest.raises(BufferError, match="'staging' is row-major"):
        ctypes.pythonapi.PyObject_GetBuffer(window, buffer, flags)
        ctypes.pythonapi.PyBuffer_Release(buffer)


def test_a_piece_over_several_devices_names_them_all_and_no_one_of_them(sim: Simulator) -> None:
    devices = {"gpu": {"count": 2}}
    spread = {"devices": ["gpu.*"], "size": "4MiB", "tensors": {"rows": {"dtype": "f32", "shape": [4, 262144]}}}
    with hipplan.apply({"hipplan": 1, "devices": devices, "regions": {"spread": spread}}, runtime="sim") as layout:
        for piece in (layout["spread"], layout["spread.rows"], layout["spread"].view("f32")):
            assert piece.devices == ("gpu.0", "gpu.1")
            with pytest.raises(AttributeError, match=r"gpu.0, gpu.1: use .devices, or .on"):
                _ = piece.device
            assert piece.on("gpu.1").device == "gpu.1"
            assert piece.on("gpu.1").view("u8").device == "gpu.1"
            assert "on gpu.0, gpu.1: " in repr(piece)


def test_a_piece_names_its_devices_and_the_device_of_its_view(layout: Layout) -> None:
    held = {name: (layout[name].devices, layout[name].device) for name in ("scratch", "staging", "table", "told[0]")}

    assert held == {
        "scratch": (("gpu.1",), "gpu.1"),
        "staging": (("host",), "host"),
        "table": (("gpu.0",), "gpu.0"),
        "told[0]": (("gpu.0",), "gpu.0"),
    }
    assert layout["shared"].devices == ()


def test_tensors_are_views_of_their_own_bytes(sim: Simulator) -> None:
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "regions": {
            "r": {
                "devices": ["gpu.*"],
                "access": {"gpu.*": "rw"},
                "tensors": {"a": {"dtype": "f32", "shape": [3, 5]}, "b": {"dtype": "i64", "shape": [2**20]}},
            },
            "fixed": {"device": "gpu.1", "access": {"gpu.1": "r"}, "tensors": {"c": {"dtype": "f32", "shape": [4]}}},
        },
    }
    with hipplan.apply(plan, runtime="sim") as layout:
        a, b, c = layout["r.a"], layout["r.b"], layout["fixed.c"]
        base = layout["r"].address
        assert base is not None
        assert (a.address, a.shape, str(a.dtype), a.device) == (base, (3, 5), "f32", "gpu.0")
        assert b.address == base + 256
        assert a.strides == (20, 4)
        assert layout["r"].nbytes == layout["r"].size
        assert c.read_only
        assert c.__dlpack_device__() == (10, 1)
        wanted = numpy.arange(2**20)
        layout.runtime.write(b.address, wanted.tobytes())  # across the border of two devices
        assert (numpy.from_dlpack(b, device="cpu") == wanted).all()
