"""The kinds of objects, a folder each: `plan.py` is what a plan says of it, `live.py` the steps that are made of that.

The rest of hipplan asks what they say of themselves. `plans.py` and `lives.py` list them.
"""
