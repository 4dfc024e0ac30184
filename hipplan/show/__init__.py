"""What people and programs see: no decision is made here.

In: plans, programs, layouts, machines. Out: text, tables, colours, JSON and the schema.
"""
