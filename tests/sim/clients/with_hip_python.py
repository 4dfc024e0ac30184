"""A program written for AMD's hip-python: virtual memory, managed memory and peers. It knows no simulator."""

import ctypes

from hip import hip


def check(answer):
    code, *values = answer
    assert code == hip.hipError_t.hipSuccess, code
    return values[0] if len(values) == 1 else tuple(values)


def virtual_memory(size=2 << 20):
    prop = hip.hipMemAllocationProp()
    prop.type = hip.hipMemAllocationType.hipMemAllocationTypePinned
    prop.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    prop.location.id = 0
    flags = hip.hipMemAllocationGranularity_flags.hipMemAllocationGranularityMinimum
    granularity = check(hip.hipMemGetAllocationGranularity(prop, flags))
    assert size % granularity == 0

    address = check(hip.hipMemAddressReserve(4 * size, 0, None, 0))
    handle = check(hip.hipMemCreate(size, prop, 0))
    check(hip.hipMemMap(address, size, 0, handle, 0))
    grants = []
    for device in (0, 1):
        desc = hip.hipMemAccessDesc()
        desc.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
        desc.location.id = device
        desc.flags = hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite
        grants.append(desc)
        check(hip.hipMemSetAccess(address, size, desc, 1))
    there, back = bytearray(b"written by hip-python"), bytearray(21)
    check(hip.hipMemcpy(address, there, len(there), hip.hipMemcpyKind.hipMemcpyHostToDevice))
    check(hip.hipMemcpy(back, address, len(back), hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    assert back == there
    check(hip.hipMemUnmap(address, size))
    check(hip.hipMemRelease(handle))
    check(hip.hipMemAddressFree(address, 4 * size))


def managed_memory(size=1 << 20):
    address = check(hip.hipMallocManaged(size, hip.hipMemAttachGlobal))
    check(hip.hipMemAdvise(address, size, hip.hipMemoryAdvise.hipMemAdviseSetPreferredLocation, 1))
    check(hip.hipMemPrefetchAsync(address, size, 1, None))
    for device in (1, 0):  # the null stream of a prefetch is its device's, and hipFree waits for the memory's alone
        check(hip.hipSetDevice(device))
        check(hip.hipDeviceSynchronize())
    ctypes.memset(int(address), 7, size)
    check(hip.hipFree(address))


def peers():
    assert check(hip.hipDeviceCanAccessPeer(0, 1)) == 1
    check(hip.hipSetDevice(0))
    check(hip.hipDeviceEnablePeerAccess(1, 0))
    check(hip.hipDeviceDisablePeerAccess(1))


assert check(hip.hipGetDeviceCount()) >= 2
virtual_memory()
managed_memory()
peers()
properties = hip.hipDeviceProp_t()
check(hip.hipGetDeviceProperties(properties, 0))
print("hip-python:", properties.name.decode(), properties.gcnArchName.decode())
