"""Arguments that no driver may trust: sizes, pointers and orders of ioctls that AMD's libraries never use."""

from __future__ import annotations

import pytest

from ..conftest import WHOLE, not_under_tsan
from .conftest import Program


def test_memory_that_was_freed_makes_room_for_more_than_the_memory_file_holds(program: Program) -> None:
    """64 GiB, 2,100 times, are more than 2**47 bytes."""
    program("""
driver, at = Driver(), 0x7000_0000_0000
source, given = driver.host(b"some bytes")
target, taken = driver.host(b"\\0")
queue = Queue(driver)
kept = [driver.allocate(MIB, at + (n << 40)) for n in (1, 2, 3)]  # which later memory must not overlap
for handle, n in zip(kept, (1, 2, 3)):
    driver.map(handle, 0)
    queue.copy(at + (n << 40), ctypes.addressof(given), 10)
for number in range(2100):
    handle = driver.allocate(64 << 30, at)
    if number % 50 == 0 or number > 2040:
        driver.map(handle, 0)
        queue.copy(ctypes.addressof(taken), at + (64 << 30) - 4096, 10)
        assert taken.raw[:10] == bytes(10), number  # and not what earlier memory had
        queue.copy(at + (64 << 30) - 4096, ctypes.addressof(given), 10)
        queue.copy(ctypes.addressof(taken), at + (64 << 30) - 4096, 10)
        assert taken.raw[:10] == b"some bytes"
        driver.unmap(handle, 0)
    driver.free(handle)
for n in (1, 2, 3):
    queue.copy(ctypes.addressof(taken), at + (n << 40), 10)
    assert taken.raw[:10] == b"some bytes"
""")


def test_what_is_refused_for_its_size_takes_nothing(program: Program) -> None:
    program("""
driver, at = Driver(), 0x7000_0000_0000
for flags in (VRAM, GTT):
    for address in (at, 0):
        for size in (64 << 40, 1 << 47, (1 << 47) + 1, 1 << 62, 2**63, 2**64 - 8192, 2**64 - 4096, 2**64 - 1):
            try: driver.allocate(size, address, flags=flags | WRITABLE)
            except OSError as error: assert error.errno == errno.ENOMEM, (size, error)
            else: raise AssertionError(size)
for size, address, flags in (
    (0, at, VRAM), (4096, at, 0), (4096, at + 1, VRAM), (4096, 2**64 - 4096, VRAM), (4096, at, 8), (16384, at, 16)
):
    try: driver.allocate(size, address, flags=flags)
    except OSError as error: assert error.errno == errno.EINVAL, (size, address, flags)
    else: raise AssertionError((size, address, flags))
assert alive(ledger()) == {} and libc.kfdsim_used(0) == 0
handle = driver.allocate(32 << 10, at)
driver.map(handle, 0)
source, given = driver.host(b"some bytes")
target, taken = driver.host(b"\\0")
queue = Queue(driver)
queue.copy(at, ctypes.addressof(given), 10)
queue.copy(ctypes.addressof(taken), at, 10)
assert taken.raw[:10] == b"some bytes"
""")


def test_a_descriptor_of_the_driver_shows_memory_to_its_end_alone(program: Program) -> None:
    program("""
driver = Driver()
made = driver.call("alloc_memory_of_gpu", address=0x7000_0000_0000, size=MIB, gpu_id=driver.gpus[0], flags=VRAM)
virtual = driver.call("alloc_memory_of_gpu", size=MIB, gpu_id=driver.gpus[0], flags=VRAM)
libc.mmap.restype = c_void_p
def seen(offset, size):
    at = libc.mmap(None, ctypes.c_size_t(size), 3, 1, driver.file, ctypes.c_long(offset))
    return at if at != c_void_p(-1).value else errno.errorcode[ctypes.get_errno()]
for memory in (made.offset, virtual.offset):
    assert isinstance(seen(memory, MIB), int) and isinstance(seen(memory + MIB - 4096, 4096), int)
    for offset, size in ((memory, MIB + 4096), (memory + MIB, 4096), (memory + MIB - 4096, 8192)):
        assert seen(offset, size) == "EINVAL", (offset - memory, size)
for offset in (0x4000_0000_0000_0000, 1 << 46, 1 << 62 | 5 << 40): assert seen(offset, 4096) == "EINVAL", offset
driver.free(made.handle)
assert seen(made.offset, 4096) == "EINVAL"
""")


def test_pointers_that_point_nowhere_are_efault(program: Program) -> None:
    """Those to the arguments, and those in them."""
    program("""
driver = Driver()
libc.mmap.restype = c_void_p
locked = libc.mmap(None, ctypes.c_size_t(4096), 1, 0x22, -1, ctypes.c_long(0))
nowhere = (0, 1, 8, 0x1000, 0x7FFF_FFFF_F000, 2**63, 2**64 - 8)
def code_of(call):
    try: call()
    except OSError as error: return errno.errorcode[error.errno]
    return "done"
libc.kfdsim_calls.restype = ctypes.c_char_p
for name, (number, kind) in CALLS.items():
    request = 3 << 30 | sizeof(kind) << 16 | ord("K") << 8 | number
    for address in (*nowhere, locked):
        assert libc.ioctl(driver.file, request, c_void_p(address)) == -1, (name, hex(address))
        assert ctypes.get_errno() == errno.EFAULT, (name, hex(address), ctypes.get_errno())
lost = ledger()["events"]  # of create_event, which could read its arguments, and not write them
event = driver.call("create_event").event_id
handle = driver.allocate(4096, 0x7000_0000_0000)
for address in nowhere:
    assert code_of(lambda: driver.call("get_process_apertures_new", pointer=address, count=2)) == "EFAULT"
    assert code_of(lambda: driver.call("wait_events", events=address, count=1, all=1)) == "EFAULT"
    assert code_of(lambda: driver.call("map_memory_to_gpu", handle=handle, ids=address, count=2)) == "EFAULT"
    assert code_of(lambda: driver.call("unmap_memory_from_gpu", handle=handle, ids=address, count=2)) == "EFAULT"
    assert code_of(lambda: driver.allocate(4096, 0x7100_0000_0000, flags=USERPTR, offset=address)) == "EFAULT"
    pointers = {"ring": address, "write_pointer": address, "read_pointer": address}
    wanted = {"ring_size": 4096, "gpu_id": driver.gpus[0], "queue_type": SDMA}
    assert code_of(lambda: driver.call("create_queue", **pointers, **wanted)) == "EINVAL"  # not mapped by the GPU
ids = (c_uint32 * 2)(*driver.gpus)
for count, done in ((0, 0), (2, 3)):
    wanted = {"handle": handle, "ids": ctypes.addressof(ids), "count": count, "success": done}
    assert code_of(lambda: driver.call("map_memory_to_gpu", **wanted)) == "EINVAL"
for count in (2**32 - 1, 2**31):
    assert code_of(lambda: driver.call("wait_events", events=ctypes.addressof(ids), count=count, all=1)) == "ENOMEM"
driver.free(handle)
driver.call("destroy_event", event_id=event)
assert alive(ledger(), but=["events"]) == {} and ledger()["events"] == lost == 1
""")


def test_attributes_of_managed_memory_must_lie_in_the_arguments(program: Program) -> None:
    program("""
import mmap
driver = Driver()
pages = mmap.mmap(-1, 8192)
start = ctypes.addressof((c_char * 1).from_buffer(pages))
def code_of(start, size, count, room):
    body = (c_uint32 * (6 + 2 * room))()
    head = SVM_HEAD(start=start, size=size, op=0, count=count)
    ctypes.memmove(body, ctypes.byref(head), sizeof(head))
    request = 3 << 30 | sizeof(body) << 16 | ord("K") << 8 | 0x20
    return errno.errorcode[ctypes.get_errno()] if libc.ioctl(driver.file, request, body) else "done"
assert code_of(start, 4096, 1, 1) == "done"
for count in (2, 2**31, 2**32 - 1): assert code_of(start, 4096, count, 1) == "EINVAL"
assert code_of(start, 2**64 - 4096, 1, 1) == "EINVAL"  # it wraps around
assert code_of(start, 2**63, 1, 1) == "EFAULT"
""")


def test_a_queue_has_a_ring_of_a_power_of_two_that_its_gpu_has_mapped(program: Program) -> None:
    program("""
driver = Driver()
handle, whole = driver.host(bytes(65536))
start = ctypes.addressof(whole)
good = dict(ring=start, ring_size=4096, write_pointer=start + 4096, read_pointer=start + 4104,
            gpu_id=driver.gpus[0], queue_type=SDMA)
def code_of(**changed):
    try: queue = driver.call("create_queue", **good | changed).queue_id
    except OSError as error: return errno.errorcode[error.errno]
    driver.call("destroy_queue", queue_id=queue)
    return "done"
assert code_of() == "done"
for changed in (
    {"ring_size": 0}, {"ring_size": 512}, {"ring_size": 4095}, {"ring_size": 6144}, {"ring_size": 131072},
    {"ring": start + 4}, {"ring": start + 63488}, {"write_pointer": start + 65536}, {"read_pointer": start + 3},
    {"queue_type": 0}, {"queue_type": 9}, {"queue_type": SDMA_BY_ENGINE, "engine": 8},
    {"percentage": 101}, {"priority": 16}, {"gpu_id": 1},
): assert code_of(**changed) == "EINVAL", changed
for engine in (0, 7): assert code_of(queue_type=SDMA_BY_ENGINE, engine=engine) == "done"
driver.unmap(handle, 0)
assert code_of() == "EINVAL" and code_of(gpu_id=driver.gpus[1]) == "done"
""")


def test_a_queue_keeps_the_memory_of_its_ring(program: Program) -> None:
    program("""
driver, at = Driver(), 0x7000_0000_0000
ring = driver.allocate(MIB, at)
driver.map(ring, 0)
queue = driver.call("create_queue", ring=at, ring_size=65536, write_pointer=at + 65536, read_pointer=at + 65544,
                    gpu_id=driver.gpus[0], queue_type=SDMA).queue_id
driver.unmap(ring, 0)
driver.free(ring)
assert libc.kfdsim_used(0) == MIB
driver.call("destroy_queue", queue_id=queue)
assert libc.kfdsim_used(0) == 0 and alive(ledger()) == {}
""")


def test_a_dma_buf_that_claims_more_than_its_file_has_is_refused(program: Program) -> None:
    """One that a program has made up, or changed."""
    program("""
driver = Driver()
handle = driver.allocate(MIB, 0)
descriptor = driver.call("export_dmabuf", handle=handle).descriptor
described = os.pread(descriptor, 64, MIB)
for change in (lambda: os.ftruncate(descriptor, 4096), lambda: os.ftruncate(descriptor, 1 << 40)):
    try: change()
    except PermissionError: pass
    else: raise AssertionError("the file of a dma-buf has another size now")
for size in (8192, MIB + 4096):
    made_up = os.memfd_create("made up")
    os.ftruncate(made_up, size)
    os.pwrite(made_up, described, size - 4096)
    try: driver.call("import_dmabuf", address=0x7000_0000_0000, gpu_id=driver.gpus[0], descriptor=made_up)
    except OSError as error: assert error.errno == errno.EINVAL
    else: raise AssertionError("imported")
""")


def test_lines_of_the_map_of_this_process_may_be_long(program: Program, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A file with a path of thousands of bytes is mapped in front of the memory that the driver looks up."""
    program(f"""
import mmap
folder = {str(tmp_path)!r}
for name in range(12):
    folder += "/" + "7f0000000000-7fffffffffff r" * 9  # which must not read as a line of its own
    os.mkdir(folder)
path = folder + "/file"
with open(path, "wb") as file: file.truncate(4096)
driver = Driver()
libc.mmap.restype = c_void_p
libc.mmap.argtypes = [c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [c_void_p, ctypes.c_size_t]
anonymous, shared_at = 0x22, 0x11
at = libc.mmap(None, 16384, 3, anonymous, -1, 0)
assert libc.mmap(at, 4096, 3, shared_at, os.open(path, os.O_RDWR), 0) == at
assert libc.munmap(at + 8192, 8192) == 0
driver.free(driver.allocate(8192, 0x7000_0000_0000, flags=USERPTR, offset=at))
try: driver.allocate(16384, 0x7000_0000_0000, flags=USERPTR, offset=at)
except OSError as error: assert error.errno == errno.EFAULT
else: raise AssertionError("registered what is not there")
""")


RANDOM = """
import itertools, random
chosen = random.Random(SEED)
driver = Driver()
libc.mmap.restype = c_void_p
libc.mprotect.argtypes = [c_void_p, ctypes.c_size_t, ctypes.c_int]
start = libc.mmap(None, ctypes.c_size_t(65 * 4096), 3, 0x22, -1, ctypes.c_long(0))
arena = (c_char * (64 * 4096)).from_address(start)
assert libc.mprotect(start + len(arena), 4096, 0) == 0  # what would go on behind the arena ends here
arena[:] = chosen.randbytes(len(arena))
seen = {"handle": [1], "queue_id": [1], "event_id": [1], "descriptor": [driver.file, 0, 1 << 20]}
names = [(c_uint32 * 4)()]
POINTERS = ("pointer", "ids", "events", "ring", "write_pointer", "read_pointer", "metadata", "offset", "eop", "context")

FLAGS = (VRAM, GTT, USERPTR, DOORBELL, 16, VRAM | WRITABLE)

def pointer():
    inside = start + chosen.choice((0, 8, 1, 4096, 4095, chosen.randrange(len(arena)), len(arena) - 8))
    return chosen.choice((inside, inside, inside & -4096, start + len(arena), 0, chosen.getrandbits(64), 2**64 - 1))

def number(bits):
    near = chosen.choice((0, 1, 4096, 8192, MIB, 1 << 30, 64 << 30, 1 << 47, 1 << 63, 2**bits - 1, 2**bits - 4096))
    return (near + chosen.choice((0, 0, 0, -1, 1))) % 2**bits

def value(name, bits):
    if name in POINTERS: return pointer()
    if name == "shared": return chosen.choice(names[-20:])
    if name == "gpu_id": return chosen.choice((*driver.gpus, *driver.gpus, 0, 7))
    if name == "address": return chosen.choice((0, 0x7000_0000_0000, 0x7000_0010_0000, start & -4096, pointer()))
    if name in ("count", "success", "auto_reset", "all"): return chosen.choice((0, 1, 2, 2, 3, number(bits)))
    if name == "queue_type": return chosen.choice((0, 1, 2, 3, 4, 9))
    if name == "timeout": return chosen.choice((0, 1))  # a thread that waits for ever is right, and not seen here
    if name == "ring_size": return chosen.choice((4096, 8192, number(bits)))
    if name == "flags": return chosen.choice((*FLAGS, chosen.getrandbits(32)))
    if name in seen and chosen.random() < 0.8: return chosen.choice(seen[name]) % 2**bits
    return number(bits)

def run_random_packets():
    handle = driver.allocate(len(arena), start, flags=USERPTR | WRITABLE, offset=start)
    driver.map(handle, 0, 1)
    ring, pointers = (start + 4096 * chosen.randrange(60) for _ in range(2))
    made = driver.call("create_queue", ring=ring, ring_size=4096, write_pointer=pointers, read_pointer=pointers + 8,
                       gpu_id=chosen.choice(driver.gpus), queue_type=chosen.choice((SDMA, COMPUTE_AQL)))
    seen["queue_id"].append(made.queue_id)
    arena[pointers - start : pointers - start + 2] = chosen.randbytes(2)

codes = {}
for turn in range(COUNT):
    if turn % 500 == 0: run_random_packets()
    name = chosen.choice((*CALLS, "svm", "any"))
    if name == "any":
        arguments, number_of = chosen.randbytes(chosen.randrange(200)), chosen.randrange(256)
        if number_of == 0x0c: continue  # it may wait
        size = chosen.choice((len(arguments), chosen.getrandbits(14)))
        body = (c_char * max(size, 1))(*arguments[:size])
    elif name == "svm":
        values = (*driver.gpus, 0, 0xFFFFFFFF)
        pairs = [(chosen.randrange(10), chosen.choice(values)) for _ in range(chosen.randrange(4))]
        body = (c_uint32 * (6 + 2 * len(pairs)))()
        head = SVM_HEAD(start=pointer() & -4096, size=number(64), op=chosen.randrange(3), count=len(pairs))
        ctypes.memmove(body, ctypes.byref(head), sizeof(head))
        body[6:] = list(itertools.chain(*pairs))
        number_of, size = 0x20, sizeof(body)
    else:
        number_of, kind = CALLS[name]
        body = kind(**{field: value(field, 8 * sizeof(of)) for field, of in kind._fields_ if sizeof(of) in (4, 8, 16)})
        size = sizeof(kind)
        if chosen.random() < 0.02: size = chosen.getrandbits(14)
        if size > sizeof(body): ctypes.resize(body, size)
    direction = 3 if chosen.random() < 0.98 else chosen.randrange(4)
    request = direction << 30 | size << 16 | ord("K") << 8 | number_of
    own = chosen.random() < 0.97 or name == "wait_events"  # random bytes may tell it to wait for days
    at = ctypes.addressof(body) if own else pointer()
    failed = libc.ioctl(driver.file, request, c_void_p(at))
    code = errno.errorcode[ctypes.get_errno()] if failed else "done"
    codes.setdefault(name, set()).add(code)
    whole = direction == 3 and own and size >= sizeof(body)
    if not failed and whole and name in CALLS:
        for field in seen:
            if hasattr(body, field): seen[field] = [*seen[field][-20:], getattr(body, field)]
        if name == "ipc_export_handle": names.append((c_uint32 * 4)(*body.shared))
        if name == "export_dmabuf" and body.descriptor > 2 and chosen.random() < 0.9:
            os.close(body.descriptor)
ledger()  # which reads all that is there
assert libc.kfdsim_page_faults() > 0
for name in {*CALLS, "svm"} - {"create_queue"}: assert "done" in codes[name], (name, codes[name])
for name in ("alloc_memory_of_gpu", "map_memory_to_gpu", "create_queue", "wait_events", "import_dmabuf"):
    assert codes[name] >= {"EINVAL", "EFAULT"}, (name, codes[name])
print("to the end", flush=True)
os._exit(0)  # the queues are alive: Python would take their memory away
"""


@pytest.mark.in_turns
@not_under_tsan  # GPUs write into the arena while the test reads it
@pytest.mark.parametrize("seed", range(20 if WHOLE else 1))
def test_random_ioctls_end_without_a_signal(program: Program, seed: int) -> None:
    """Any sizes, pointers and orders; queues whose packets are random bytes, and page faults, among them."""
    quiet = {"KFDSIM_ON_FAULT": "count", "KFDSIM_LOG": "/dev/null"}
    ran = program(f"SEED, COUNT = {seed}, 100_000\n{RANDOM}", check=False, **quiet)

    assert (ran.returncode, ran.stdout) == (0, "to the end\n"), ran.stderr
