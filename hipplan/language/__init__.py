"""The language of plans: from text to a LoadedPlan.

In: YAML with includes, expressions and `each`. Out: every object of the plan, named, counted and checked, with its
place in the text; or all errors. Nothing here depends on a machine.
"""
