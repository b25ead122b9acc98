"""What gunicorn and `flask --app wsgi` load."""

from __future__ import annotations

import os

from app.admin.printing import is_command
from app.factory import create_app
from app.monitoring.instruments import Instruments
from app.server.child_processes import SUPERVISOR_VARIABLE
from app.services import build_services
from app.settings import from_env

instruments = Instruments()
services = build_services(from_env(os.environ), instruments.count_upload)
if SUPERVISOR_VARIABLE not in os.environ:
    # The supervisor has: its workers can start while the database is away. If one could not,
    # gunicorn would end them all.
    services.prepare()
    if not is_command():  # Those that need the files ask for them.
        services.prepare_storage()
app = create_app(services, instruments)
