"""The media jobs of the background worker, which make what players need.

`work.py` names the steps, `jobs.py` hands them to the job worker, `sweep.py` finds work in the
records. `ffmpeg` and `sandbox` run the programs.
"""
