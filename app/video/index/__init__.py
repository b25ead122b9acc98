"""From the boxes of an MP4 or MOV file to what players ask for, without copying its media.

Start in `movie`, which reads. `fast_start`, `segments`, `extract` and `texts` make something of
what it found, as pieces of a `virtual_file`. It imports the standard library and `app.core`.

Standard: ISO/IEC 14496-12 (ISO base media file format), and Apple's QuickTime File Format.
"""
