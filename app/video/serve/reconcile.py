"""Compares the table of files made from films with the bucket, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from app.core.made_files import Made
from app.storage.s3.bucket import Bucket
from app.storage.s3.reconcile import ORPHAN_AGE
from app.video.serve.bucket_folder import OBJECTS, object_name
from app.video.serve.made_files import MadeFileRecords

ASKED_AT_ONCE = 500


def orphans(bucket: Bucket, records: MadeFileRecords, now: datetime) -> Iterator[str]:
    """The names of old objects that no row names."""
    listed = bucket.list_objects(OBJECTS)
    while some := list(islice(listed, ASKED_AT_ONCE)):
        known = records.known([_version(found.name) for found in some])
        for found in some:
            if _version(found.name) not in known and found.changed_at < now - ORPHAN_AGE:
                yield found.name


def missing(bucket: Bucket, records: MadeFileRecords) -> Iterator[Made]:
    """Files in the table whose objects are missing from the bucket."""
    for upload_id in records.videos():
        made = {object_name(each): each for each in records.of(upload_id)}
        listed = {found.name for found in bucket.list_objects(f"{OBJECTS}{upload_id}/")}
        for name in sorted(made.keys() - listed):
            if records.find(upload_id, made[name].name) == made[name]:  # Not discarded since.
                yield made[name]


def _version(name: str) -> str:
    return name.rpartition(".")[2]
