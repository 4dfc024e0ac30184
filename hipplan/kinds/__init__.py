"""The kinds of buffers, a folder each: `plan.py` is what a plan says of it, `live.py` what is made of that.

The rest of hipplan asks what they say of themselves. `plans.py` and `lives.py` list them.
"""
