"""Indexes MP4 and MOV files, and builds the files that players request without copying media.

Start in `movie`, which reads. `fast_start`, `segments`, `muxing` and `texts` build files from its
result, as pieces of a `virtual_file`. Imports only the standard library and `app.core`.

Standard: ISO/IEC 14496-12 (ISO base media file format), and Apple's QuickTime File Format.
"""
