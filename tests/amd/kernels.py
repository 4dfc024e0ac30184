"""Compiles kernels for a GPU with AMD's own compiler library, libamd_comgr."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_uint64

OPENCL, SOURCE, EXECUTABLE, COMPILE_TO_EXECUTABLE = 1, 1, 8, 14  # of amd_comgr.h


class _Handle(ctypes.Structure):
    _fields_ = [("handle", c_uint64)]


def code_object(source: str, target: str) -> bytes:
    """What hipModuleLoadData takes. source: OpenCL C; target: such as gfx942."""
    library = ctypes.CDLL("libamd_comgr.so.3")

    def call(function: str, *arguments: object) -> None:
        status = getattr(library, f"amd_comgr_{function}")(*arguments)
        assert status == 0, f"amd_comgr_{function}: {status}"

    given, made, text, options = _Handle(), _Handle(), _Handle(), _Handle()
    code = source.encode()
    call("create_data", c_int(SOURCE), ctypes.byref(text))
    call("set_data", text, c_size_t(len(code)), code)
    call("set_data_name", text, b"kernels.cl")
    call("create_data_set", ctypes.byref(given))
    call("create_data_set", ctypes.byref(made))
    call("data_set_add", given, text)
    call("create_action_info", ctypes.byref(options))
    call("action_info_set_language", options, c_int(OPENCL))
    call("action_info_set_isa_name", options, f"amdgcn-amd-amdhsa--{target}".encode())
    call("action_info_set_option_list", options, (ctypes.c_char_p * 1)(b"-nogpulib"), c_size_t(1))
    call("do_action", c_int(COMPILE_TO_EXECUTABLE), options, given, made)
    executable, size = _Handle(), c_size_t()
    call("action_data_get_data", made, c_int(EXECUTABLE), c_size_t(0), ctypes.byref(executable))
    call("get_data", executable, ctypes.byref(size), None)
    out = ctypes.create_string_buffer(size.value)
    call("get_data", executable, ctypes.byref(size), out)
    return out.raw
