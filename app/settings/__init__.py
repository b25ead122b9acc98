"""The options of the server.

`table.py` declares each once, with its default and help; `values.py` parses them;
`staging.py` chooses the staging folder where none is set; `removed.py` lists the settings of
earlier versions, and what replaces them.
"""

from app.settings.environment import PREFIX, SettingsError, from_env, without_effect
from app.settings.table import Settings

__all__ = ["PREFIX", "Settings", "SettingsError", "from_env", "without_effect"]
