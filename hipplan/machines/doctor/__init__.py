"""Examines a machine before the first apply.

In: files of the kernel, the environment, libraries on disk, and the answers of a driver in a process of its own. Out:
a Report with facts and findings, each with what to do about it. No driver is loaded into the calling process.
"""
