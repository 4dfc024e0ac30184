"""Several processes and threads: sharing, forks, ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from ..conftest import not_under_tsan
from .conftest import Program

SHARED = """
import socket
ours, theirs = socket.socketpair()
def exporter():
    driver = Driver()
    handle = driver.allocate(2 * MIB, 0)  # virtual memory: an import has the address
    first = driver.call("export_dmabuf", handle=handle).descriptor
    here = driver.call("import_dmabuf", address=0x7000_0000_0000, gpu_id=driver.gpus[0], descriptor=first).handle
    os.close(first)
    driver.map(here, 0)
    source, given = driver.host(b"from the exporter")
    Queue(driver).copy(0x7000_0000_0000 + 4096, ctypes.addressof(given), 17)
    driver.unmap(here, 0)
    driver.free(here)
    return driver, handle, driver.call("export_dmabuf", handle=handle).descriptor
"""


def test_memory_outlives_the_process_that_made_it(program: Program) -> None:
    """As a dma-buf does: its descriptor keeps it, on its way too."""
    program(
        SHARED
        + """
child = os.fork()
if not child:
    driver, handle, descriptor = exporter()
    socket.send_fds(theirs, [b"x"], [descriptor])
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
_, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
driver = Driver()
reply = driver.call("get_dmabuf_info", descriptor=descriptor)
assert (reply.size, reply.gpu_id) == (2 * MIB, driver.gpus[0])
imported = driver.call("import_dmabuf", address=0x7100_0000_0000, gpu_id=driver.gpus[1], descriptor=descriptor).handle
os.close(descriptor)
driver.map(imported, 1)
target, taken = driver.host(b"\\0")
Queue(driver, 1).copy(ctypes.addressof(taken), 0x7100_0000_0000 + 4096, 17)
assert taken.raw[:17] == b"from the exporter"
assert ledger()["buffers"][0]["kind"] == "of another process"
assert ledger()["gpus"][0]["used"] == 0  # it is charged to its maker
driver.unmap(imported, 1)
driver.free(imported)
"""
    )


def test_memory_is_charged_until_the_last_descriptor_is_gone(program: Program) -> None:
    program(
        SHARED
        + """
driver, handle, descriptor = exporter()
used = libc.kfdsim_used(0)
again = os.dup(descriptor)
driver.free(handle)
os.close(descriptor)
assert libc.kfdsim_used(0) == used
assert [memory["size"] for memory in ledger()["exported"]] == [2 * MIB]
back = driver.call("import_dmabuf", address=0x7200_0000_0000, gpu_id=driver.gpus[0], descriptor=again).handle
os.close(again)
assert libc.kfdsim_used(0) == used and not ledger()["exported"]
driver.free(back)
assert libc.kfdsim_used(0) == 0 and not ledger()["exported"]
"""
    )


def test_memory_with_an_address_is_exported_with_its_bytes(program: Program) -> None:
    """What hipMalloc has; also where the host sees it, then and later. Registered memory is refused."""
    program("""
import mmap, socket
ours, theirs = socket.socketpair()
child = os.fork()
if not child:
    ours.close()
    driver = Driver()
    base, whole = 0x7000_0000_0000, 4 * MIB
    before = driver.allocate(MIB, base + whole)
    made = driver.call("alloc_memory_of_gpu", address=base, size=whole, gpu_id=driver.gpus[0], flags=VRAM | WRITABLE)
    node = os.open("/dev/dri/renderD128", os.O_RDWR)
    libc.mmap.restype = c_void_p
    def seen(): return libc.mmap(None, ctypes.c_size_t(whole), 3, 1, node, ctypes.c_long(made.offset))
    first = (c_char * whole).from_address(seen())
    driver.map(made.handle, 0)
    source, given = driver.host(b"by the GPU")
    queue = Queue(driver)
    queue.copy(base + 3 * MIB, ctypes.addressof(given), 10)
    first[:11] = b"by the host"
    descriptor = driver.call("export_dmabuf", handle=made.handle).descriptor
    assert os.fstat(descriptor).st_size >= whole
    assert mmap.mmap(descriptor, whole)[:11] == b"by the host"
    first[100:105] = b"later"
    later = (c_char * whole).from_address(seen())
    later[200:209] = b"elsewhere"
    assert later[:11] == b"by the host" and first[200:209] == b"elsewhere"
    assert first[3 * MIB : 3 * MIB + 10] == b"by the GPU"
    queue.copy(base + 2 * MIB, ctypes.addressof(given), 10)
    theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor.to_bytes(4, "little"))])
    try: driver.call("export_dmabuf", handle=source)
    except OSError as error: assert error.errno == errno.EPERM
    else: raise AssertionError("registered memory was exported")
    again = driver.call("export_dmabuf", handle=made.handle).descriptor
    driver.unmap(made.handle, 0)
    driver.free(made.handle)
    assert [memory["size"] for memory in ledger()["exported"]] == [whole] and libc.kfdsim_used(0) == whole + MIB
    os.close(descriptor)
    assert theirs.recv(1) == b"y"  # the other process has imported and closed it
    os.close(again)
    assert libc.kfdsim_used(0) == MIB and not ledger()["exported"]
    os._exit(0)
theirs.close()
_, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
driver = Driver()
at = 0x7100_0000_0000
imported = driver.call("import_dmabuf", address=at, gpu_id=driver.gpus[0], descriptor=descriptor).handle
os.close(descriptor)
driver.map(imported, 0)
target, taken = driver.host(b"\\0" * 4096)
queue = Queue(driver)
for offset, text in ((0, b"by the host"), (100, b"later"), (200, b"elsewhere"), (2 * MIB, b"by the GPU"),
                     (3 * MIB, b"by the GPU"), (MIB, bytes(10))):
    queue.copy(ctypes.addressof(taken), at + offset, len(text))
    assert taken.raw[: len(text)] == text, (offset, taken.raw[:16])
driver.unmap(imported, 0)
driver.free(imported)
ours.send(b"y")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""")


def test_what_a_process_writes_on_memory_is_read_by_others(program: Program) -> None:
    """AMD's 7.2 passes a token of hipIpcGetMemHandle so; the driver hands it out with each dma-buf."""
    program("""
import socket
ours, theirs = socket.socketpair()
class Information(ctypes.Structure):
    _fields_ = [("size", c_uint64), ("alignment", c_uint64), ("heap", c_uint32), ("flags", c_uint64),
                ("metadata", METADATA)]
class Imported(ctypes.Structure): _fields_ = [("buffer", c_void_p), ("size", c_uint64)]
libc.amdgpu_bo_import.argtypes = [c_void_p, c_uint32, c_uint32, c_void_p]
libc.amdgpu_bo_set_metadata.argtypes = libc.amdgpu_bo_query_info.argtypes = [c_void_p, c_void_p]
libc.amdgpu_bo_free.argtypes = [c_void_p]
def imported(descriptor):
    device, result = c_void_p(), Imported()
    node = os.open("/dev/dri/renderD128", os.O_RDWR)
    major, minor = c_uint32(), c_uint32()
    assert libc.amdgpu_device_initialize(node, *map(ctypes.byref, (major, minor, device))) == 0
    assert libc.amdgpu_bo_import(device, 2, descriptor, ctypes.byref(result)) == 0
    return result.buffer
def words(size): return METADATA(flags=7, tiling=9, size=size, words=(c_uint32 * 64)(*range(100, 164)))
if not os.fork():
    driver = Driver()
    descriptor = driver.call("export_dmabuf", handle=driver.allocate(MIB, 0)).descriptor
    ask = driver.call("get_dmabuf_info", descriptor=descriptor, metadata=1, metadata_size=64)  # nothing to write there
    assert (ask.size, ask.metadata_size) == (MIB, 0)
    buffer = imported(descriptor)
    assert libc.amdgpu_bo_set_metadata(buffer, ctypes.byref(words(260))) == -errno.EINVAL
    assert libc.amdgpu_bo_set_metadata(buffer, ctypes.byref(words(12))) == 0
    assert libc.amdgpu_bo_free(buffer) == 0
    theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor.to_bytes(4, "little"))])
    os._exit(0)
_, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
driver = Driver()
room = (c_uint32 * 64)()
def ask(size, address):
    return driver.call("get_dmabuf_info", descriptor=descriptor, metadata=address, metadata_size=size)
reply = ask(64, ctypes.addressof(room))
assert (reply.metadata_size, list(room)[:4]) == (12, [100, 101, 102, 0])
for size, address, code in ((11, ctypes.addressof(room), errno.EINVAL), (12, 4096, errno.EFAULT)):
    try: ask(size, address)
    except OSError as error: assert error.errno == code
    else: raise AssertionError((size, address))
buffer, there = imported(descriptor), Information()
assert libc.amdgpu_bo_query_info(buffer, ctypes.byref(there)) == 0
assert (there.size, there.heap, there.metadata.flags, there.metadata.tiling) == (MIB, 4, 7, 9)
assert list(there.metadata.words)[:3] == [100, 101, 102]
""")


NAMED = """
ours, theirs = os.pipe(), os.pipe()
child = os.fork()
if not child:
    driver = Driver()
    at = 0x7000_0000_0000
    handle = driver.allocate(2 * MIB, at)
    driver.map(handle, 0)
    source, given = driver.host(b"from the exporter")
    queue = Queue(driver)
    queue.copy(at + 4096, ctypes.addressof(given), 17)
    made = driver.call("ipc_export_handle", handle=handle, gpu_id=driver.gpus[0], flags=0x1234)
    os.write(ours[1], bytes(made.shared))
    assert os.read(theirs[0], 1) == b"y"
    queue.copy(ctypes.addressof(given), at + 8192, 17)
    os._exit(0 if given.raw[:17] == b"from the importer" else 1)
driver = Driver()
name = (c_uint32 * 4).from_buffer_copy(os.read(ours[0], 16))
at = 0x7100_0000_0000
there = driver.call("ipc_import_handle", address=at, shared=name, gpu_id=driver.gpus[0])
assert there.flags == 0x1234
driver.map(there.handle, 1)
target, taken = driver.host(b"from the importer")
queue = Queue(driver, 1)
queue.copy(at + 8192, ctypes.addressof(taken), 17)
"""


def test_memory_has_a_name_that_other_processes_open(program: Program) -> None:
    """What AMD's 6.4 does for hipIpcGetMemHandle, on the ioctls of AMD's own kernel module."""
    program(
        NAMED
        + """
libc.mmap.restype = c_void_p
seen = libc.mmap(None, ctypes.c_size_t(2 * MIB), 3, 1, driver.file, ctypes.c_long(there.offset))
assert ctypes.string_at(seen + 4096, 17) == b"from the exporter"
os.write(theirs[1], b"y")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
queue.copy(ctypes.addressof(taken), at + 4096, 17)  # it outlives the process that made it
assert taken.raw[:17] == b"from the exporter"
assert ledger()["buffers"][0]["kind"] == "of another process"
driver.unmap(there.handle, 1)
driver.free(there.handle)
"""
    )


def test_names_of_no_memory_are_refused(program: Program) -> None:
    program(
        NAMED
        + """
wrong = [(c_uint32 * 4)(*(word + (number == changed) for number, word in enumerate(name))) for changed in range(4)]
os.write(theirs[1], b"y")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for other in (*wrong, name, (c_uint32 * 4)(os.getpid(), driver.file), (c_uint32 * 4)()):
    try: driver.call("ipc_import_handle", address=at, shared=other, gpu_id=driver.gpus[0])
    except OSError as error: assert error.errno == errno.EINVAL
    else: raise AssertionError(list(other))
source, given = driver.host(b"registered")
for handle in (source, 0):
    try: driver.call("ipc_export_handle", handle=handle, gpu_id=driver.gpus[0])
    except OSError as error: assert error.errno == errno.EINVAL
    else: raise AssertionError(handle)
"""
    )


def test_what_is_no_dma_buf_is_refused(program: Program, tmp_path: Path) -> None:
    program(f"""
driver = Driver()
file = os.open({str(tmp_path / "file")!r}, os.O_RDWR | os.O_CREAT)
os.write(file, b"x" * 10000)
for descriptor in (file, driver.file, 0, 1000000):
    try: driver.call("import_dmabuf", gpu_id=driver.gpus[0], descriptor=descriptor)
    except OSError as error: assert error.errno == errno.EINVAL
    else: raise AssertionError(descriptor)
assert alive(ledger()) == {{}}
""")


@not_under_tsan  # which does not survive a fork beside threads
def test_a_forked_child_is_another_client(program: Program) -> None:
    """The parent's descriptor is refused there, and what it makes is its own."""
    program("""
driver = Driver()
handle = driver.allocate(MIB, 0x7000_0000_0000)
queue = Queue(driver)
child = os.fork()
if not child:
    try: driver.call("get_version")
    except OSError as error: assert error.errno == errno.EBADF
    else: os._exit(1)
    own = Driver()
    assert alive(ledger()) == {}
    own.allocate(3 * MIB, 0x7000_0000_0000)
    os.close(driver.file)
    replaced = os.open("/dev/null", os.O_RDONLY)  # takes its number
    assert libc.ioctl(replaced, 0x5401, None) == -1 and ctypes.get_errno() == errno.ENOTTY
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert len(ledger()["buffers"]) == 2 and ledger()["gpus"][0]["used"] == MIB
source, given = driver.host(b"abc")
target, taken = driver.host(b"\\0")
queue.copy(ctypes.addressof(taken), ctypes.addressof(given), 3)  # its queues go on
assert taken.raw[:3] == b"abc"
""")


def test_child_programs_see_an_unchanged_environment(program: Program) -> None:
    program("""
import subprocess
driver = Driver()
driver.allocate(MIB, 0x7000_0000_0000)
for number in range(20):
    assert subprocess.run([sys.executable, "-c", "open('/dev/null').read()"]).returncode == 0
assert len(ledger()["buffers"]) == 1 and ledger()["descriptors"] == 1
""")


def test_threads_wait_for_events(program: Program) -> None:
    program("""
import threading
driver = Driver()
event = driver.call("create_event", auto_reset=1).event_id
def wait(timeout):
    wanted = EVENT_DATA(event_id=event)
    return driver.call("wait_events", events=ctypes.addressof(wanted), count=1, all=1, timeout=timeout).result
assert wait(1) == 1  # the time is over
done = []
threads = [threading.Thread(target=lambda: done.append(wait(0xFFFFFFFF))) for _ in range(4)]
for thread in threads: thread.start()
for n in range(4):
    driver.call("set_event", event_id=event)
    until(lambda: len(done) > n)  # each time one: it resets itself
for thread in threads: thread.join()
assert done == [0] * 4
driver.call("destroy_event", event_id=event)
try: wait(0)
except OSError as error: assert error.errno == errno.EINVAL
assert alive(ledger()) == {}
""")


def test_many_threads_at_once(program: Program) -> None:
    """What ThreadSanitizer watches in its build."""
    program("""
import threading
driver = Driver()
def work(number):
    base = 0x7000_0000_0000 + number * (1 << 30)
    for _ in range(20):
        handle = driver.allocate(MIB, base, number % 2)
        driver.map(handle, 0, 1)
        source, given = driver.host(bytes([number + 1]) * 64)
        queue = Queue(driver, number % 2)
        queue.copy(base, ctypes.addressof(given), 64)
        queue.copy(ctypes.addressof(given) + 64, base, 64)
        assert given.raw[64:128] == bytes([number + 1]) * 64
        queue.destroy()
        driver.unmap(source, 0, 1)
        driver.free(source)
        driver.unmap(handle, 0, 1)
        driver.free(handle)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert alive(ledger()) == {}
""")


def test_a_process_ends_while_a_thread_waits_and_the_ledger_is_written(program: Program, tmp_path: Path) -> None:
    ran = program(
        """
import threading
driver = Driver()
driver.allocate(5 * MIB, 0x7000_0000_0000)
event = driver.call("create_event").event_id
queue = Queue(driver)
wanted = EVENT_DATA(event_id=event)
forever = dict(events=ctypes.addressof(wanted), count=1, all=1, timeout=0xFFFFFFFF)
threading.Thread(target=lambda: driver.call("wait_events", **forever), daemon=True).start()
print(os.getpid())
""",
        KFDSIM_LEDGER_AT_EXIT=str(tmp_path / "ledger.json"),
    )
    (line,) = (tmp_path / "ledger.json").read_text().splitlines()
    left = json.loads(line)

    assert left["pid"] == int(ran.stdout)
    assert left["buffers"][0]["size"] == 5 * 2**20
    assert (left["events"], len(left["queues"]), left["descriptors"]) == (1, 1, 1)


LAUNCHES = """
driver = Driver()
queue = Queue(driver, kind=COMPUTE_AQL)
for _ in range(3):
    dispatch = (2).to_bytes(2, "little") + bytes(62)
    queue.submit(dispatch, 1)
queue.wait()
print(libc.kfdsim_kernels_not_run())
"""


def test_a_kernel_of_the_program_s_own_is_reported_and_not_run(program: Program) -> None:
    ran = program(LAUNCHES)

    assert ran.stdout == "3\n"
    assert ran.stderr.count("is not run: there is no GPU") == 1
    assert "3 launches of kernels were not run: there is no GPU" in ran.stderr.splitlines()[-1]


def test_where_launches_are_refused_a_kernel_that_comes_to_a_queue_is_a_fault(program: Program) -> None:
    ended = program(LAUNCHES, check=False, KFDSIM_REFUSE_KERNELS="1")
    assert (ended.returncode, ended.stdout) == (-signal.SIGABRT, "")
    assert "is not run: there is no GPU" in ended.stderr

    assert program(LAUNCHES, KFDSIM_REFUSE_KERNELS="1", KFDSIM_ON_FAULT="count").stdout == "3\n"
    assert program(LAUNCHES, KFDSIM_REFUSE_KERNELS="0").stdout == "3\n"


def test_a_program_that_does_not_ask_for_the_driver_sees_nothing_of_it(program: Program, tmp_path: Path) -> None:
    ran = program(
        """
with open(sys.executable, "rb") as file: assert file.read(4) == b"\\x7fELF"
opened = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
assert not [path for path in opened if os.path.exists(path) and "kfdsim" in os.readlink(path)]
""",
        KFDSIM_LEDGER_AT_EXIT=str(tmp_path / "none"),
    )
    assert ran.stderr == ""
    assert not (tmp_path / "none").exists()
