"""Holders: processes that keep a layout's memory alive, and the processes that attach to it.

In: a plan, which a filler applies and fills once. Out: descriptors of its memory and its program, kept by a process
without a device context, and the same layout in each process that attaches.
"""
