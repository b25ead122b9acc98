"""The media worker, which runs in the background worker: claims jobs and runs their steps.

`worker.py` claims, `sweep.py` finds work in the records, `work.py` names the steps. `ffmpeg` and
`sandbox` run the programs.
"""
