"""Runs a step of the background worker in a process with its own limits: `app/video/make/work.py`.

python -m app.run.server.media_step PARENT UPLOAD STEP ARGUMENT
"""

from __future__ import annotations

import os
import sys
from functools import partial

from app.core.upload import parse_upload_id
from app.run.build import build_services
from app.run.server.logs import configure_logging
from app.settings import from_env
from app.video.make.sandbox.launcher import end_with_parent
from app.video.make.work import MediaWork, limit_this_process, outcome_of


def main() -> None:
    """Run the step, and print its outcome."""
    parent, upload_id, step, argument = sys.argv[1:]
    end_with_parent(int(parent))
    limit_this_process()
    settings = from_env(os.environ)
    configure_logging(settings.log_level)
    work = MediaWork(build_services(settings).media)
    run = partial(work.run_step, parse_upload_id(upload_id), step, argument)
    sys.stdout.write(outcome_of(run))


if __name__ == "__main__":
    main()
