"""Prints the folder with the package `torch_memory_saver`:

PYTHONPATH=$(python -m hipplan.torch_memory_saver) python script.py
"""

from hipplan.torch_memory_saver.naming import folder

print(folder())
