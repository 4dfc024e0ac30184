"""PyTorch and libhipcuda in one process: the same memory, neither disturbs the other's device.

Usage: with_torch.py PATH-OF-LIBHIPCUDA
"""

import ctypes
import sys

import torch

hip = ctypes.CDLL(sys.argv[1])
size = 1 << 20


def ok(code):
    assert code == 0, f"HIP error {code}"


class Buffer:
    """Memory from hipMalloc, offered to PyTorch without a copy."""

    def __init__(self):
        self.address = ctypes.c_void_p()
        ok(hip.hipMalloc(ctypes.byref(self.address), ctypes.c_size_t(size)))
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.address.value, False),
            "version": 3,
            "strides": None,
        }


last = torch.cuda.device_count() - 1
torch.cuda.set_device(last)
ours = torch.ones(size, dtype=torch.uint8, device=f"cuda:{last}")

buffer = Buffer()  # this thread never chose a device of HIP's: 0
assert torch.cuda.current_device() == last
view = torch.as_tensor(buffer, device="cuda:0")
assert view.data_ptr() == buffer.address.value
view.fill_(7)
torch.cuda.synchronize(0)

back = (ctypes.c_ubyte * size)()
ok(hip.hipMemcpy(back, buffer.address, ctypes.c_size_t(size), 4))
assert bytes(back) == b"\x07" * size, "HIP reads what PyTorch's kernel wrote"
ok(hip.hipMemset(ctypes.c_void_p(ours.data_ptr()), 9, ctypes.c_size_t(size)))
ok(hip.hipDeviceSynchronize())
assert int(ours.sum()) == 9 * size, "PyTorch reads what HIP wrote"
assert torch.cuda.current_device() == last
assert torch.zeros(1, device="cuda").device.index == last
del view
ok(hip.hipFree(buffer.address))
print(f"PyTorch {torch.__version__} on device {last} and HIP on device 0 share memory")
