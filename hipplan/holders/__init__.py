"""Layouts that outlive the process that made them: holders, and those who attach to them.

In: a plan, filled once by a process of its own. Out: descriptors of its memory and the program that they are of, kept
by a process without a device context, and the same layout in each process that asks for it.
"""
