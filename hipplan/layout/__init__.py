"""The live memory of programs: the only room that changes what a driver has.

In: a Program and a Runtime. Out: a Layout, whole or not at all; its change into another one; views of its memory, bytes
into and out of it, and what happened, as a record.
"""
