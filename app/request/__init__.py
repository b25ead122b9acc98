"""What a request carries through every layer: its slot, and the clock of its stages.

Context variables that the layers below the web use without knowing of requests. Standard library
only. `slots.py` limits how many requests run at once; `stages.py` measures where their time goes.
"""
