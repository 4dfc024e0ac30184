"""Experiments: plans with other values, what is measured of each, and results that say where they come from.

In: an experiment file (YAML), the plan that it names. Out: results.jsonl, one line for each repetition; reports of it.
"""
