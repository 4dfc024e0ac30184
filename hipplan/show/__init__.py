"""Output for people and programs. No decision is made here.

In: plans, programs, layouts, machines. Out: text, tables, colours, JSON and the schema.
"""
