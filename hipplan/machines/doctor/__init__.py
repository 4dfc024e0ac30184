"""What a user should know of a machine before the first apply.

In: files of the kernel, the environment, libraries on disk, and what a driver answers in a process of its own. Out: a
Report: facts, and findings, each with what to do about it. Nothing here loads a driver into the process that asks.
"""
