"""The files and devices that tools look for: /sys, /dev/dri, /proc/modules, and the ioctls of a render node."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hipplan.machines import topology
from hipplan.machines.machine import Machine

from .conftest import Program


def test_tools_find_the_cards_of_the_profile(program: Program) -> None:
    program("""
import fcntl, glob, stat
from pathlib import Path
drm = Path("/sys/class/drm")
assert sorted(os.listdir(drm)) == ["card0", "card1", "renderD128", "renderD129", "version"]
assert (drm / "card1/device/vendor").read_text() == "0x1002\\n" and (drm / "card1/device/device").stat().st_size == 7
assert int((drm / "card1/device/mem_info_vram_total").read_text()) == 192 << 30
assert os.readlink(drm / "card1/device/driver") == "../../../bus/pci/drivers/amdgpu"
device = "/sys/devices/pci0000:02/0000:02:00.0"
for path in ("/sys/class/drm/renderD129/device", "/sys/dev/char/226:129/device", "/sys/bus/pci/devices/0000:02:00.0"):
    assert os.path.realpath(path) == device, path
libc.realpath.restype = ctypes.c_void_p
out = ctypes.create_string_buffer(4096)
assert libc.realpath(b"/sys/class/drm/renderD129/device", out) and out.value.decode() == device
assert Path(device, "unique_id").read_text() == "1000000000000002\\n"
class Glob(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("paths", ctypes.POINTER(ctypes.c_char_p)), ("rest", ctypes.c_char * 128)]
found = Glob()
assert libc.glob(b"/sys/class/drm/card*", 0, None, ctypes.byref(found)) == 0
assert [found.paths[n] for n in range(found.count)] == [b"/sys/class/drm/card0", b"/sys/class/drm/card1"]
assert Path("/sys/module/amdgpu/initstate").read_text() == "live\\n"
assert sum(line.startswith("amdgpu ") for line in open("/proc/modules")) == 1
assert os.listdir("/sys/class/kfd/kfd/proc") == [] and len(os.listdir("/sys/class/kfd/kfd/topology/nodes")) == 3
assert os.path.samefile("/sys/class/kfd/kfd/topology", "/sys/devices/virtual/kfd/kfd/topology")
""")


def test_what_is_not_the_driver_s_is_this_machine_s(program: Program, tmp_path: Path) -> None:
    listed = (
        "import json; print(json.dumps([sorted(os.listdir(p)) for p in ('/sys/class', '/sys/bus/pci', '/proc/sys')]))"
    )
    here = [sorted(path.name for path in Path(name).iterdir()) for name in ("/sys/class", "/sys/bus/pci", "/proc/sys")]

    assert json.loads(program(listed).stdout) == here
    program("""
for path in ("/sys/class/drm/card9", "/sys/module/amdgpu/version", "/dev/dri/renderD130", "/sys/devices/pci0000:02"):
    for call in (os.stat, os.lstat, os.listdir, open, os.readlink):
        try: call(path)
        except FileNotFoundError: pass
        else: raise AssertionError(path)
""")


def test_nothing_of_the_driver_s_files_can_be_changed(program: Program) -> None:
    program("""
for path in ("/sys/class/drm/card0/device/vendor", "/sys/class/drm/card0/device/power_dpm_force_performance_level"):
    for mode in ("w", "a", "r+"):
        try: open(path, mode)
        except PermissionError: pass
        else: raise AssertionError((path, mode))
libc.fopen.restype = ctypes.c_void_p
for mode in (b"w", b"a", b"r+"): assert libc.fopen(b"/sys/class/drm/card0/device/vendor", mode) is None
assert open("/sys/class/drm/card0/device/vendor").read() == "0x1002\\n"
""")


def test_the_devices_are_devices(program: Program) -> None:
    program("""
import stat
assert sorted(os.listdir("/dev/dri")) == ["card0", "card1", "renderD128", "renderD129"]
for path, major, minor in (("/dev/kfd", 510, 0), ("/dev/dri/renderD129", 226, 129), ("/dev/dri/card1", 226, 129)):
    opened = os.open(path, os.O_RDWR)
    for seen in (os.stat(path), os.lstat(path), os.fstat(opened), os.fstat(os.dup(opened))):
        assert stat.S_ISCHR(seen.st_mode) and (os.major(seen.st_rdev), os.minor(seen.st_rdev)) == (major, minor), path
    os.close(opened)
for more in ({}, {"effective_ids": True}):  # access, and faccessat
    assert os.access("/dev/kfd", os.R_OK, **more) and os.access("/sys/class/drm/card1/device", os.X_OK, **more)
    assert not os.access("/dev/dri/card2", os.F_OK, **more)
""")


def test_each_way_to_ask_for_a_file_s_status_is_answered(program: Program) -> None:
    """Python itself uses stat, lstat and fstat alone."""
    program("""
import stat, struct
out = ctypes.create_string_buffer(256)  # struct stat: mode at 24, the device's number at 40, size at 48
kfd, vendor = os.open("/dev/kfd", os.O_RDWR), b"/sys/class/drm/card0/device/vendor"
for name in ("stat", "lstat", "__xstat", "__lxstat", "fstat", "__fxstat", "fstatat"):
    for call in (getattr(libc, name), getattr(libc, name + "64")):
        first = (1,) if name.startswith("__") else (-100,) if name == "fstatat" else ()
        last = (out, 0) if name == "fstatat" else (out,)
        target = kfd if "fx" in name or name == "fstat" else b"/dev/kfd"
        assert call(*first, target, *last) == 0, name
        assert stat.S_ISCHR(struct.unpack_from("I", out, 24)[0]), name
        assert out[40:48] == bytes.fromhex("00fe010000000000"), name
        if target == kfd: continue
        assert call(*first, vendor, *last) == 0 and struct.unpack_from("Q", out, 48) == (7,), name
for target, mode, numbers in ((b"/dev/dri/renderD129", stat.S_IFCHR, (226, 129)), (vendor, stat.S_IFREG, (0, 0))):
    assert libc.statx(-100, target, 0, 0x7FF, out) == 0
    assert stat.S_IFMT(struct.unpack_from("H", out, 28)[0]) == mode and struct.unpack_from("II", out, 128) == numbers
assert libc.statx(-100, b"/dev/dri/renderD130", 0, 0x7FF, out) == -1 and ctypes.get_errno() == errno.ENOENT
""")


RENDER = """
driver = Driver()
class Version(ctypes.Structure):
    _fields_ = [("numbers", c_int32 * 3), ("name_size", c_uint64), ("name", ctypes.c_char_p), ("rest", c_uint64 * 4)]
class Info(ctypes.Structure):
    _fields_ = [("out", c_uint64), ("size", c_uint32), ("query", c_uint32), ("rest", c_uint32 * 4)]
VERSION, INFO = 0xC0406400, 0x40206445
render = os.open("/dev/dri/renderD128", os.O_RDWR)
"""


def test_a_render_node_says_what_it_is(program: Program) -> None:
    program(
        RENDER
        + """
words = (c_uint32 * 100)()
asked = Info(ctypes.addressof(words), 400, 0x16)
for descriptor in (render, os.dup(render)):
    name = ctypes.create_string_buffer(16)
    version = Version(name_size=3, name=ctypes.addressof(name))
    assert libc.ioctl(descriptor, VERSION, ctypes.byref(version)) == 0
    assert (list(version.numbers), version.name_size, name.value) == ([3, 61, 0], 6, b"amd")
    assert libc.ioctl(descriptor, INFO, ctypes.byref(asked)) == 0
    assert (words[0], words[4], words[12]) == (0x74A0, 141, 228)  # id, family, compute units
assert words[34] == 1  # AMDGPU_IDS_FLAGS_FUSION: an APU
words[0] = words[1] = 7
assert libc.ioctl(render, INFO, ctypes.byref(Info(ctypes.addressof(words), 4, 0x16))) == 0
assert (words[0], words[1]) == (0x74A0, 7)  # no more than was asked for
""",
        machine="mi300a-4",
    )


def test_what_a_render_node_cannot_do_is_an_error(program: Program) -> None:
    program(
        RENDER
        + """
def code_of(request, argument):
    return "done" if libc.ioctl(render, request, argument) == 0 else errno.errorcode[ctypes.get_errno()]
for nowhere in (None, c_void_p(8), c_void_p(2**64 - 8)):
    assert [code_of(request, nowhere) for request in (VERSION, INFO)] == ["EFAULT", "EFAULT"], nowhere
assert code_of(VERSION, ctypes.byref(Version(name_size=6, name=8))) == "EFAULT"
for query in (0x00, 0x16): assert code_of(INFO, ctypes.byref(Info(8, 400, query))) == "EFAULT", query
assert code_of(INFO, ctypes.byref(Info(0, 0, 0x1B))) == "EINVAL"  # the VBIOS
assert code_of(INFO, ctypes.byref(Info(0, 0, 0x15, (0, 129, 0, 0)))) == "EINVAL"  # too many registers
assert code_of(0x40206446, ctypes.byref(Info())) == "EINVAL"
"""
    )


def test_partitions_of_one_gpu_share_its_pci_device(folder: Callable[[str | Machine], Path]) -> None:
    device = {"name": "a GPU", "arch": "gfx942", "memory": 2**30, "pci": "0000:c1:00.0"}
    made = folder(Machine.model_validate({"name": "m", "host_memory": 2**34, "devices": [device, device]}))

    pci = made / "sys/devices/pci0000:c1/0000:c1:00.0"
    assert sorted(path.name for path in (pci / "drm").iterdir()) == ["card0", "card1", "renderD128", "renderD129"]
    assert (made / "sys/class/drm/card1/device").resolve() == pci


@pytest.mark.parametrize(("arch", "kind"), [("gfx942", "0x120000"), ("gfx90a", "0x038000")])
def test_the_kind_of_pci_device_is_the_gpu_s(tmp_path: Path, arch: str, kind: str) -> None:
    device = {"name": "a GPU", "arch": arch, "memory": 2**30}
    topology.write(tmp_path, Machine.model_validate({"name": "m", "host_memory": 2**34, "devices": [device]}))

    pci = tmp_path / "sys/class/drm/card0/device"
    assert (pci / "class").read_text() == f"{kind}\n"
    assert (pci / "config").read_bytes()[:12] == bytes.fromhex("0210") + int((pci / "device").read_text(), 16).to_bytes(
        2, "little"
    ) + bytes.fromhex("06001000 00 00") + int(kind, 16).to_bytes(3, "little")[1:]
    assert len((pci / "config").read_bytes()) == 256 and stat.S_ISREG((pci / "config").stat().st_mode)
