"""What a request carries through every layer: its slot, and the clock of its stages.

Context variables, so that the layers below need not know about requests. Standard library
only. `slots.py` limits how many requests run at once; `stages.py` measures where their time goes;
`minute_counts.py` counts requests in all processes, by name.
"""
