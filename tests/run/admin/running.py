"""Runs an operator's command with the settings of a server."""

from __future__ import annotations

from contextlib import closing

from click.testing import Result

from app.http import context
from app.run.admin.commands import operator_app
from app.run.build import build_services
from app.settings import from_env
from tests.live_server import Server


def run_command(server: Server, *words: str) -> Result:
    """In this process: another would first import the application, for a second.

    A data folder that it keeps servers out of stays closed to them until this process ends.
    """
    app, services = operator_app(), build_services(from_env(server.environment))
    with closing(services.database):
        context.init_app(app, services)
        return app.test_cli_runner().invoke(args=words)
