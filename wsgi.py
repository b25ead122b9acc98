"""What gunicorn and `flask --app wsgi` load."""

from __future__ import annotations

import os

from app.run.admin.opening import end_in_one_line, is_command, is_server, one_line_errors

if is_command():
    from app.run.admin.commands import operator_app

    end_in_one_line()
    app = operator_app()
else:
    from app.run.build import build_services
    from app.run.factory import create_app
    from app.run.monitoring.instruments import Instruments
    from app.run.server.child_processes import SUPERVISOR_VARIABLE
    from app.settings import from_env

    instruments = Instruments()
    with one_line_errors():
        services = build_services(from_env(os.environ), instruments.count_upload)
        if is_server() and SUPERVISOR_VARIABLE not in os.environ:
            # The supervisor has: its workers can start while the database is away. If one could
            # not, gunicorn would end them all.
            services.prepare()
            services.prepare_storage()
    app = create_app(services, instruments)
