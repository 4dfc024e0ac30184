"""Compiles a plan for one machine: an ordered list of steps, made without calling a driver.

In: a LoadedPlan and a Machine. Out: a Program, or every reason why not; and the change from one Program to another.
Plain
data: the same input gives the same steps each time.
"""
