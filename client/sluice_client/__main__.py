"""Where `sluice` and `python -m sluice_client` begin.

Signals wait until the imports are done: one that comes before then would end in a traceback.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line and end the process."""
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    )  # `run_until_signalled` unblocks them
    from sluice_client.cli.main import main as run  # noqa: PLC0415 - see above

    run()


if __name__ == "__main__":
    main()
