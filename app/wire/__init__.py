"""What the blueprints share: the request's context, its body, errors as answers, header codecs.

The only Flask code below the blueprints. Start with `problems.py`.
"""
