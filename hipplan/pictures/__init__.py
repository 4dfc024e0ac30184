"""Pictures of programs and layouts, for people.

In: programs, one or one for each rank, or the difference of two.
Out: an SVG, or an HTML page of that SVG with zoom and search. The same program gives the same bytes.
"""
