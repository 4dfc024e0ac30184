"""Measures the memory of a plan: copies between its objects, prefetch, first touch, map and unmap.

In: a loaded plan and a runtime. Out: figures (`measured`), each beside that of ordinary buffers.
"""
