"""What gunicorn and `flask --app wsgi` load."""

from __future__ import annotations

import os

from app.factory import create_app
from app.monitoring.instruments import Instruments
from app.services import build_services
from app.settings import from_env

instruments = Instruments()
services = build_services(from_env(os.environ), instruments.count_upload)
services.prepare()
app = create_app(services, instruments)
