"""HTML pages for people: they show what the services know and hold no rules.

May import `app.http` and what is below it. Start with `blueprint.py`; what happens in the browser
starts in `static/js/main.js`.
"""
