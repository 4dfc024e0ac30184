"""Fits programs and changes to the HIP release of a machine, as the steps and rows that its driver gets.

In: a Program as planned, and the change from one to the next. Out: both in the pieces and with the calls that this
release takes, or HP309. Everything else knows only what is planned: locks, previews, consent, holders and other ranks.
Pure.
"""
