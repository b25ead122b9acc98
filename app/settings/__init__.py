"""The options of the server.

`table.py` declares each once, with its default and help; `values.py` and `addresses.py` parse them.
Only `domain` is below.
"""

from app.settings.environment import PREFIX, SettingsError, from_env
from app.settings.table import Settings

__all__ = ["PREFIX", "Settings", "SettingsError", "from_env"]
