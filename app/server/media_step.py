"""Runs one step of the media worker in a process with limits of its own: `app/media/steps/alone`.

python -m app.server.media_step PARENT UPLOAD STEP ARGUMENT
"""

from __future__ import annotations

import os
import sys
from functools import partial

from app.domain.upload import parse_upload_id
from app.media.sandbox.launcher import end_with_parent
from app.media.steps.alone import limit_this_process, outcome_of
from app.media.work import MediaWork
from app.server.access_log import configure_logging
from app.services import build_services
from app.settings import from_env


def main() -> None:
    """Run the step, and print how it ended."""
    parent, upload_id, step, argument = sys.argv[1:]
    end_with_parent(int(parent))
    limit_this_process()
    settings = from_env(os.environ)
    configure_logging(settings.log_level, settings.log_format)
    work = MediaWork(build_services(settings).media)
    run = partial(work.run_step, parse_upload_id(upload_id), step, argument)
    sys.stdout.write(outcome_of(run))


if __name__ == "__main__":
    main()
