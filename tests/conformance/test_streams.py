"""Streams and events: handles and their rules."""

import ctypes
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from ctypes import c_float, c_int, c_uint, c_void_p

import pytest

from .hip import CONTEXT_DESTROYED, DANGLING, INVALID_HANDLE, INVALID_VALUE, NOT_READY, SUCCESS, Hip

NON_BLOCKING = 1
HARDWARE_QUEUES = 4
"""How many AMD's library makes for a device. More streams share them, and then wait for each other."""


def about(function: str) -> pytest.MarkDecorator:
    return pytest.mark.function(function)


each_wait = pytest.mark.parametrize(
    "function", [pytest.param(n, marks=about(n)) for n in ("hipStreamSynchronize", "hipStreamQuery")]
)


def bad_stream(hip: Hip) -> int:
    return INVALID_VALUE if hip.version >= (7, 0) else CONTEXT_DESTROYED


@about("hipStreamCreateWithFlags")
def test_create_checks_output_and_flags(hip: Hip) -> None:
    assert hip.hipStreamCreateWithFlags(None, 0) == INVALID_VALUE
    assert hip.hipStreamCreateWithFlags(ctypes.byref(c_void_p()), 2) == INVALID_VALUE
    with hip.stream() as stream:
        assert stream


@about("hipStreamCreate")
def test_create(hip: Hip) -> None:
    assert hip.hipStreamCreate(None) == INVALID_VALUE
    assert hip.hipStreamDestroy(hip.get("hipStreamCreate", c_void_p)) == SUCCESS


@about("hipStreamCreateWithPriority")
def test_priorities_are_brought_into_range(hip: Hip) -> None:
    least, greatest = c_int(), c_int()
    assert hip.hipDeviceGetStreamPriorityRange(ctypes.byref(least), ctypes.byref(greatest)) == SUCCESS
    for asked, got in [(-99, greatest.value), (99, least.value), (0, 0)]:
        stream = hip.get("hipStreamCreateWithPriority", c_void_p, 1, asked)
        priority, flags = c_int(), c_uint()
        assert hip.hipStreamGetPriority(stream, ctypes.byref(priority)) == SUCCESS
        assert hip.hipStreamGetFlags(stream, ctypes.byref(flags)) == SUCCESS
        assert (priority.value, flags.value) == (got, 1)
        assert hip.hipStreamDestroy(stream) == SUCCESS


@about("hipStreamDestroy")
@pytest.mark.needs("handle checks")
def test_destroy_twice_and_of_no_stream(hip: Hip) -> None:
    stream = hip.get("hipStreamCreate", c_void_p)
    assert hip.hipStreamDestroy(stream) == SUCCESS
    assert hip.hipStreamDestroy(stream) == bad_stream(hip)
    assert hip.hipStreamDestroy(None) == INVALID_HANDLE


@each_wait
def test_idle_streams(hip: Hip, function: str) -> None:
    with hip.stream() as stream:
        for handle in (stream, None, 2):
            assert getattr(hip, function)(handle) == SUCCESS


@each_wait
@pytest.mark.needs("handle checks")
def test_a_bad_stream_has_the_release_s_code(hip: Hip, function: str) -> None:
    assert getattr(hip, function)(DANGLING) == bad_stream(hip)


@about("hipStreamGetDevice")
@pytest.mark.needs("two devices")
def test_a_stream_belongs_to_the_device_current_at_its_creation(hip: Hip) -> None:
    hip.hipSetDevice(1)
    with hip.stream() as stream:
        hip.hipSetDevice(0)
        device = c_int()
        assert hip.hipStreamGetDevice(stream, ctypes.byref(device)) == SUCCESS
        assert device.value == 1


@about("hipStreamAddCallback")
def test_a_callback_is_called_with_its_stream_and_data(hip: Hip) -> None:
    seen: list[tuple[int, int, int]] = []
    kind = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)
    callback = kind(lambda stream, status, data: seen.append((stream, status, data)))
    with hip.stream() as stream:
        address = ctypes.cast(callback, c_void_p)
        assert hip.hipStreamAddCallback(stream, address, 7, 0) == SUCCESS
        assert hip.hipStreamAddCallback(stream, None, 7, 0) == INVALID_VALUE
        assert hip.hipStreamAddCallback(stream, address, 7, 1) == INVALID_VALUE
        assert hip.hipStreamSynchronize(stream) == SUCCESS

        assert seen == [(stream, 0, 7)]


@about("hipLaunchHostFunc")
def test_a_host_function_is_called(hip: Hip) -> None:
    seen: list[int] = []
    callback = ctypes.CFUNCTYPE(None, c_void_p)(seen.append)
    assert hip.hipLaunchHostFunc(None, ctypes.cast(callback, c_void_p), 9) == SUCCESS
    assert hip.hipLaunchHostFunc(None, None, 9) == INVALID_VALUE
    assert hip.hipStreamSynchronize(None) == SUCCESS
    assert seen == [9]


class Blocker:
    """A host function that returns when it is told to."""

    def __init__(self) -> None:
        self.go_on, self.returned = threading.Event(), False
        self.function = ctypes.CFUNCTYPE(None, c_void_p)(self._wait)
        self.callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)(lambda *_: self._wait(None))

    def _wait(self, _: object) -> None:
        self.go_on.wait()
        self.returned = True


@pytest.fixture
def blocker() -> Iterator[Blocker]:
    made = Blocker()
    yield made
    made.go_on.set()


@about("hipStreamAddCallback")
@pytest.mark.parametrize("kind", ["callback", "function"])
def test_a_callback_may_wait_for_what_its_caller_does_afterwards(hip: Hip, blocker: Blocker, kind: str) -> None:
    with hip.stream() as stream, hip.event() as event:
        address = ctypes.cast(getattr(blocker, kind), c_void_p)
        if kind == "callback":
            assert hip.hipStreamAddCallback(stream, address, None, 0) == SUCCESS
        else:
            assert hip.hipLaunchHostFunc(stream, address, None) == SUCCESS
        assert hip.hipEventRecord(event, stream) == SUCCESS
        assert hip.hipStreamQuery(stream) == NOT_READY
        assert hip.hipEventQuery(event) == NOT_READY
        assert not blocker.returned
        blocker.go_on.set()
        assert hip.hipEventSynchronize(event) == SUCCESS
        assert blocker.returned
        assert hip.hipStreamSynchronize(stream) == SUCCESS
        assert hip.hipStreamQuery(stream) == SUCCESS


@about("hipLaunchHostFunc")
@pytest.mark.parametrize("where", ["the stream", "the null stream", "a stream that waits for its event", "the device"])
def test_work_behind_a_host_function_waits_for_it(hip: Hip, blocker: Blocker, where: str) -> None:
    with hip.stream() as stream, hip.stream() as other, hip.event() as event, hip.buffer(64) as memory:
        assert hip.hipLaunchHostFunc(stream, ctypes.cast(blocker.function, c_void_p), None) == SUCCESS
        if where == "a stream that waits for its event":
            assert hip.hipEventRecord(event, stream) == SUCCESS
            assert hip.hipStreamWaitEvent(other, event, 0) == SUCCESS
        assert not blocker.returned
        timer = threading.Thread(target=blocker.go_on.set)
        timer.start()
        place = {"the stream": stream, "a stream that waits for its event": other}.get(where)
        if where == "the device":
            assert hip.hipDeviceSynchronize() == SUCCESS
        else:
            assert hip.hipMemsetAsync(memory, 1, 64, place) == SUCCESS
            assert hip.hipStreamSynchronize(place) == SUCCESS
        assert blocker.returned
        timer.join()


@about("hipLaunchHostFunc")
def test_host_functions_of_a_stream_are_called_in_order_and_another_stream_does_not_wait(
    hip: Hip, blocker: Blocker
) -> None:
    seen: list[int] = []
    append = ctypes.CFUNCTYPE(None, c_void_p)(lambda number: seen.append(number))
    address = ctypes.cast(append, c_void_p)

    def filled(other: c_void_p, memory: int) -> None:
        assert hip.hipMemsetAsync(memory, 1, 64, other) == SUCCESS
        assert hip.hipStreamSynchronize(other) == SUCCESS

    with ExitStack() as made, ThreadPoolExecutor(HARDWARE_QUEUES) as threads:
        stream = made.enter_context(hip.stream(NON_BLOCKING))
        others = [made.enter_context(hip.stream(NON_BLOCKING)) for _ in range(HARDWARE_QUEUES)]
        memory = made.enter_context(hip.buffer(64))
        assert hip.hipLaunchHostFunc(stream, ctypes.cast(blocker.function, c_void_p), None) == SUCCESS
        for number in range(1, 20):
            assert hip.hipLaunchHostFunc(stream, address, number) == SUCCESS
        try:
            next(as_completed((threads.submit(filled, other, memory) for other in others), timeout=60)).result()
            assert (seen, blocker.returned) == ([], False)
        finally:
            blocker.go_on.set()
        assert hip.hipStreamSynchronize(stream) == SUCCESS
        assert seen == list(range(1, 20))


@about("hipEventCreateWithFlags")
def test_event_create_checks_output_and_flags(hip: Hip) -> None:
    assert hip.hipEventCreateWithFlags(None, 0) == INVALID_VALUE
    assert hip.hipEventCreateWithFlags(ctypes.byref(c_void_p()), 0x100) == INVALID_VALUE
    with hip.event(2) as event:
        assert event


@about("hipEventRecord")
def test_record_query_synchronise_wait(hip: Hip) -> None:
    event = hip.get("hipEventCreate", c_void_p)
    with hip.stream() as stream:
        assert hip.hipEventRecord(event, stream) == SUCCESS
        assert hip.hipEventRecordWithFlags(event, stream, 0) == SUCCESS
        assert hip.hipStreamWaitEvent(stream, event, 0) == SUCCESS
        assert hip.hipEventSynchronize(event) == SUCCESS
        assert hip.hipEventQuery(event) == SUCCESS
    assert hip.hipEventDestroy(event) == SUCCESS


@about("hipStreamWaitEvent")
@pytest.mark.needs("stream checks")
def test_a_wait_in_an_invalid_stream_is_an_invalid_handle_before_7(hip: Hip) -> None:
    event = hip.get("hipEventCreateWithFlags", c_void_p, 0)
    assert hip.hipStreamWaitEvent(DANGLING, event, 0) == INVALID_HANDLE
    assert hip.hipEventRecord(event, None) == SUCCESS
    assert hip.hipStreamWaitEvent(DANGLING, event, 0) == INVALID_HANDLE
    assert hip.hipEventDestroy(event) == SUCCESS


@about("hipEventDestroy")
@pytest.mark.needs("handle checks")
def test_events_that_are_invalid(hip: Hip) -> None:
    event = hip.get("hipEventCreate", c_void_p)
    assert hip.hipEventDestroy(event) == SUCCESS
    assert hip.hipEventDestroy(event) == CONTEXT_DESTROYED
    for call in (hip.hipEventQuery, hip.hipEventSynchronize):
        assert call(event) == INVALID_HANDLE
    assert hip.hipEventDestroy(None) == INVALID_HANDLE
    assert hip.hipEventRecord(event, None) == INVALID_HANDLE


@about("hipEventElapsedTime")
def test_elapsed_time_needs_two_timed_recorded_events(hip: Hip) -> None:
    ms = c_float(-1)
    out = ctypes.byref(ms)
    with hip.event() as start, hip.event() as stop, hip.event(2) as untimed:
        assert hip.hipEventElapsedTime(out, start, stop) == INVALID_HANDLE
        hip.hipEventRecord(start, None)
        hip.hipEventRecord(stop, None)
        hip.hipEventRecord(untimed, None)
        hip.hipDeviceSynchronize()
        assert hip.hipEventElapsedTime(None, start, stop) == INVALID_VALUE
        assert hip.hipEventElapsedTime(out, start, untimed) == INVALID_HANDLE
        assert hip.hipEventElapsedTime(out, start, stop) == SUCCESS
    assert ms.value >= 0
