"""The upload protocols: one blueprint each, none knows another.

An adapter parses, calls `UploadService.append`, and prints the outcome. A rule that two of them
need belongs to the service.
"""
