"""The language of plans: from text to a LoadedPlan.

In: YAML with includes, expressions and `each`. Out: every object that the plan means, named, counted and checked, with
its place in the text; or all that is wrong with it. Knows no machine.
"""
