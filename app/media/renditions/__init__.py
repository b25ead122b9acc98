"""Other qualities of films: which are offered, and how they are made, kept and asked for.

`offers.py` is what the web asks, `steps.py` what the media worker does; `rungs.py` says where they
meet: names of files and of jobs. `ladder.py` decides what is offered, `encoder.py` makes a segment.
"""
