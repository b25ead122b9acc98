"""Entry point of `python -m app.client`."""

from app.client.cli.main import main

main()
