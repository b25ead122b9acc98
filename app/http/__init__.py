"""Shared by all blueprints: request context, request bodies, error responses, header codecs.

The only code below the blueprints that uses Flask. Start with `problems.py`.
"""
