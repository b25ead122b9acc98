"""HTML pages for people; they show what the uploads service knows and hold no rules.

May import `app.wire` and what is below it. Start reading at `pages.py`; what happens in the
browser is in `static/js/main.js`.
"""
