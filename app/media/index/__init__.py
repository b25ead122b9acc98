"""From the boxes of an MP4 or MOV file to what players ask for, without copying its media.

Standard: ISO/IEC 14496-12 (ISO base media file format), and Apple's QuickTime File Format.
"""
