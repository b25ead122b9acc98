"""What the blueprints share: the request's context, its body, errors as answers, header codecs.

The only code below the blueprints that knows Flask. Start with `problems.py`.
"""
