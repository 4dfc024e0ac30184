"""Machines and the runtimes on them.

In: a profile, or a HIP library and its answers about this machine. Out: a Machine, which plans are checked against, and
the chosen Runtime.
"""
