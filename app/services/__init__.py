"""The composition root: builds everything below the web layer from the settings. No Flask.

Start with `build.py`. Nothing is opened here: gunicorn's workers build their own services after
forking.
"""

from app.services.build import build_services
from app.services.services import BOOT_MARKER, Services

__all__ = ["BOOT_MARKER", "Services", "build_services"]
