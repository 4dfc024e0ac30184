"""Files from the world outside: bytes in, bytes out.

In: paths. Out: headers and elements of .npy and .safetensors files, JSON by the standard, files written whole or not
at all. Knows nothing of plans.
"""
