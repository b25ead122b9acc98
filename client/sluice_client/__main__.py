"""Entry point of `python -m sluice_client`."""

from sluice_client.cli.main import main

main()
