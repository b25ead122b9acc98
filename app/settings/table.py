"""The settings: variable, type, default, one line of help; and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.core.access import Role
from app.core.policy import RenditionPolicy, UploadPolicy
from app.settings import values
from app.settings.staging import choose_staging

MOST_WORKERS = 512
MOST_THREADS = 4096
"""More than any machine can use: larger numbers are mistakes."""

LEAST_SESSION_SECONDS = 60.0
"""A shorter session would end while people read."""

LEAST_SECONDS = 0.1
"""Minimum of intervals and timeouts: shorter ones would keep a core busy for nothing."""

MOST_STOP_SECONDS = 86_400.0
"""Maximum time a stopping server waits. Longer is a mistake: it would never stop."""

LONGEST_SESSION_SECONDS = 90 * 24 * 3600.0
RESERVED_BYTES_PER_LINK = 100 * 1024**3
REQUESTS_PER_MINUTE = 6000
"""Default with accounts. A fast client with sixteen parallel chunks stays far below."""

HIDDEN = frozenset(
    (values.secret, values.link_secret, values.mail_url, values.database_server, values.server_url)
)
"""Parsers of values that may contain a secret: neither `repr` nor error messages show them."""


def _option(parse: Callable[[str], Any], default: str, text: str) -> Any:
    return field(
        repr=parse not in HIDDEN,
        default_factory=lambda: parse(default),
        metadata={"parse": parse, "default": default, "help": text},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every option; its variable is `SLUICE_` and the field's name in capitals."""

    host: str = _option(values.listening_address, "127.0.0.1", "Address to serve on.")
    port: int = _option(values.port_number, "8000", "Port to serve on.")
    staging_dir: Path = field(
        default_factory=lambda: choose_staging().path,
        metadata={
            "parse": values.folder,
            "default": "/tmp/sluice",
            "help": "Folder where chunks are written; best on the disk of the data. By default "
            "`/var/tmp/sluice` where `/tmp` is in memory; with `-UID` if that is another user's.",
        },
    )
    data_dir: Path = _option(
        values.folder, "./data", "Folder of the finished files and the database."
    )
    database_url: str = _option(
        values.database_server,
        "",
        "A PostgreSQL database, as in `postgresql://user@host/name`; empty for a file in the data "
        "folder.",
    )
    storage: str = _option(
        values.bucket_url,
        "",
        "Bucket for the bytes of uploads and videos, as in `s3://bucket/folder`; empty for the "
        "folders above.",
    )
    s3_endpoint: str = _option(
        values.server_url,
        "",
        "URL of the bucket's server, as in `https://s3.example`; empty for AWS.",
    )
    s3_region: str = _option(values.region, "us-east-1", "Region of the bucket.")
    spool_bytes: int = _option(
        values.sizes(1),
        "2147483648",
        "With a bucket, the most bytes of videos that ffmpeg reads on this machine's disk.",
    )
    direct_uploads: bool = _option(
        values.switch,
        "0",
        "With a bucket, let the page and the client send straight to it what they can.",
    )
    chunk_bytes: int = _option(values.sizes(1), "20971520", "Largest chunk that the page sends.")
    max_upload_bytes: int = _option(values.sizes(1), "1099511627776", "Largest single upload.")
    allowed_extensions: frozenset[str] = _option(
        values.extensions, "", "File name extensions to accept, as in `mp4,mov`; empty for all."
    )
    workers: int = field(
        default_factory=values.default_workers,
        metadata={
            "parse": values.whole(1, MOST_WORKERS),
            "default": "cores, at least 2",
            "help": "Worker processes.",
        },
    )
    threads: int = _option(
        values.whole(1, MOST_THREADS),
        "64",
        "Threads per worker process, one for each running request.",
    )
    durability: str = _option(
        values.one_of("chunk", "file", "none"),
        "chunk",
        "What is on the disk before it is acknowledged: each `chunk`, each finished `file`, "
        "or `none`.",
    )
    expiry_seconds: float = _option(
        values.seconds_within(LEAST_SECONDS), "604800", "Uploads idle this long are deleted."
    )
    project_quota_bytes: int = _option(
        values.sizes(0),
        "0",
        "Quota of new projects: the most bytes that their videos and uploads may have together; 0 "
        "for no limit. Administrators can change it for each project.",
    )
    max_uploads_per_sender: int = _option(
        values.count,
        "1000",
        "With accounts, the most unfinished uploads that one sender (a person, a key or a visitor "
        "of a link) may have at once; 0 for no limit.",
    )
    max_reserved_bytes_per_link: int = _option(
        values.sizes(0),
        str(RESERVED_BYTES_PER_LINK),
        "The most bytes that all unfinished uploads of one upload link may hold together: those "
        "received, and those expected within a minute. All links together may hold five times as "
        "many, or 500 GiB if this is 0, for no limit.",
    )
    requests_per_minute: int | None = _option(
        values.optional_count,
        "",
        "Requests per minute to one node from one sender, or from one address if the sender is not "
        "known. One in five may begin an upload, not counting files sent whole in one request. 0 "
        "for no limit, but 1200 new uploads with accounts. If empty, 6000 with accounts, and no "
        "limit without.",
    )
    bytes_per_second: float = _option(
        values.rate,
        "0",
        "Bytes per second that all senders together may send to one node, shared fairly among "
        "them; 0 for no limit.",
    )
    bytes_per_second_per_sender: float = _option(
        values.rate, "0", "Bytes per second that one sender may send to one node; 0 for no limit."
    )
    graceful_seconds: float = _option(
        values.seconds_within(LEAST_SECONDS, MOST_STOP_SECONDS),
        "30",
        "How long running requests may take to finish when the server stops.",
    )
    drain_seconds: float = _option(
        values.seconds_within(0, MOST_STOP_SECONDS),
        "0",
        "How long the server serves on after SIGTERM, with `/readyz` answering 503, so that load "
        "balancers send it nothing more before it closes its port. A second signal ends that.",
    )
    access: str = _option(
        values.one_of("auto", "open", "accounts"),
        "auto",
        "`open`: everyone who reaches the server may do everything; `accounts`: people sign in. "
        "`auto` is `open` on an address that only this machine reaches, `accounts` on all others.",
    )
    sign_in: frozenset[str] = _option(
        values.words_of("passwords", "passkeys"),
        "passwords,passkeys",
        "How people sign in, besides at an OpenID provider; empty for there alone.",
    )
    second_factor: str = _option(
        values.one_of("optional", "administrators", "managers", "everyone"),
        "optional",
        "Who must sign in with more than a password: with a passkey, at the OpenID provider, or "
        "with a one-time code. Managers include administrators.",
    )
    session_idle_seconds: float = _option(
        values.seconds_within(LEAST_SESSION_SECONDS),
        "2592000",
        "A browser that is not used for this long is signed out; one that is, after three times "
        "as long, or after 90 days if that is shorter.",
    )
    oidc_issuer: str = _option(
        values.issuer,
        "",
        "OpenID provider at which people sign in too, as in `https://login.example.org`; empty "
        "for none.",
    )
    oidc_client_id: str = _option(values.secret, "", "What the provider calls this server.")
    oidc_client_secret: str = _option(
        values.secret, "", "The secret that the provider has given it."
    )
    oidc_join: tuple[tuple[str, Role], ...] = _option(
        values.joining,
        "",
        "Who may join through the provider without an invitation, and their role in the first "
        "project, as in `@example.org, films=editor`: people with a verified e-mail address in "
        "this domain, and those in the provider's group `films`. A role is `viewer`, `uploader` "
        "(the default), `editor` or `manager`.",
    )
    smtp_url: str = _option(
        values.mail_url,
        "",
        "Server that sends mail with invitations and links for new passwords, as in "
        "`smtps://name:password@mail.example`; `smtp://` changes to TLS where it is offered. Empty "
        "for none: administrators pass the links on themselves.",
    )
    mail_from: str = _option(
        values.mail_sender,
        "sluice@localhost",
        "Sender of that mail, as in `Sluice <films@example.org>`.",
    )
    audit_seconds: float = _option(
        values.seconds_within(1), "31536000", "How long entries of the audit log are kept."
    )
    webhook_private: bool = _option(
        values.switch, "0", "Whether webhooks may lead to private networks, and to this machine."
    )
    cors_origins: frozenset[str] = _option(
        values.origins,
        "",
        "Origins of other sites whose pages may upload here, as in `https://a.example`; `*` for "
        "all, empty for none.",
    )
    allowed_hosts: frozenset[str] = _option(
        values.host_names,
        "",
        "Host names to answer to, as in `videos.example`; `.example` for it and all below it. "
        "Empty for any; without accounts, and on this machine alone, for the machine's own.",
    )
    trusted_proxies: tuple[values.IPNetwork, ...] = _option(
        values.networks,
        "127.0.0.1,::1",
        "Addresses or networks of proxies whose `X-Forwarded-` headers count.",
    )
    public_url: str = _option(
        values.public_url,
        "",
        "URL at which people open this server, as in `https://videos.example`: links for people "
        "begin with it. Empty for the one of each request; required with `SLUICE_SMTP_URL`.",
    )
    location: str = _option(
        values.one_of("auto", "path", "url"),
        "auto",
        "What a `Location` holds: a whole `url`, a `path`, or `auto` for a path only if an "
        "unknown proxy is in between.",
    )
    accel_redirect: str = _option(
        values.internal_location,
        "",
        "Internal location of an nginx in front that sends the library's files, as in "
        "`/protected/`; empty to send them from here.",
    )
    direct_downloads: bool = _option(
        values.switch,
        "0",
        "Whether downloads are redirected to the bucket, at URLs that are signed for 15 minutes; "
        "only with files in a bucket.",
    )
    secure_link_secret: str = _option(
        values.link_secret,
        "",
        "What the nginx in front checks signed URLs of share links with, as in "
        "`deploy/nginx-secure-link.conf`; empty to sign none.",
    )
    renditions: str = _option(
        values.one_of("ondemand", "eager", "off"),
        "ondemand",
        "Other qualities of videos: made `ondemand` when they are watched, `eager` for all, or "
        "`off`.",
    )
    media_cache_bytes: int = _option(
        values.sizes(0),
        "21474836480",
        "Room for other qualities of videos; those watched least recently make room for new ones. "
        "0 for no limit.",
    )
    log_level: str = _option(
        values.one_of("debug", "info", "warning", "error"),
        "info",
        "Lowest level of what is logged.",
    )

    # ---- constants -------------------------------------------------------------------------------
    # No settings: only tests choose other values, here or with TEST_CONSTANTS (environment.py).

    sweep_seconds: float = 60.0
    """Longest time between two searches for expired uploads."""
    reservation_seconds: float = 600.0
    """An upload that received no byte for this long releases its disk space; see docs/access.md."""
    connections_per_address: int = 512
    """Open connections of one address in each worker; trusted proxies have no limit."""
    body_idle_seconds: float = 30.0
    """A request body that stays idle this long ends with 408."""
    min_bytes_per_second: float = 1024.0
    """A request body that arrives more slowly ends with 408; 0 for any rate."""

    # ---- what follows from the settings ----------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether every client of the server may do everything."""
        return self.access == "open" or (self.access == "auto" and self.is_local)

    @property
    def has_passwords(self) -> bool:
        """Whether people sign in with passwords."""
        return "passwords" in self.sign_in

    @property
    def has_passkeys(self) -> bool:
        """Whether people sign in with passkeys."""
        return "passkeys" in self.sign_in

    @property
    def session_seconds(self) -> float:
        """A browser is signed out after this long even if it is used."""
        return min(
            3 * self.session_idle_seconds, max(LONGEST_SESSION_SECONDS, self.session_idle_seconds)
        )

    @property
    def request_limit(self) -> int:
        """Requests per minute of each caller; 0 for no limit."""
        if self.requests_per_minute is not None:
            return self.requests_per_minute
        return 0 if self.is_open else REQUESTS_PER_MINUTE

    @property
    def new_upload_limit(self) -> int:
        """Uploads that each sender may begin per minute; 0 for no limit."""
        if self.is_open and not self.request_limit:
            return 0
        return math.ceil((self.request_limit or REQUESTS_PER_MINUTE) / 5)

    @property
    def max_reserved_bytes_of_links(self) -> int:
        """Maximum of bytes that unfinished uploads through all links hold."""
        return 5 * (self.max_reserved_bytes_per_link or RESERVED_BYTES_PER_LINK)

    @property
    def least_chunk_bytes(self) -> int:
        """Clients use smaller chunks only if this size takes over ten seconds; 0 for no minimum.

        In a bucket each chunk becomes an object. 5 MiB is the smallest part of most stores.
        """
        return min(5 * 1024 * 1024, self.chunk_bytes) if self.storage else 0

    @property
    def is_local(self) -> bool:
        """Whether the address is reachable only from this machine."""
        return values.is_local(self.host)

    @property
    def own_url(self) -> str:
        """A URL that opens the server on this machine."""
        return values.local_url(self.host, self.port)

    @property
    def link_url(self) -> str:
        """The base URL of links created without a request."""
        return self.public_url or self.own_url

    @property
    def names(self) -> frozenset[str]:
        """Host names to answer to; empty for any.

        A page of another site can reach a server on this machine by pointing its own host name here
        (DNS rebinding). Without sign-in, only the names of the machine itself are safe.
        """
        if not self.allowed_hosts and self.is_open and self.is_local:
            return values.LOCAL_NAMES
        return self.allowed_hosts

    @property
    def library_dir(self) -> Path:
        """Folder of the published files."""
        return self.data_dir / "library"

    @property
    def file_url(self) -> str:
        """URL of the database in the data folder."""
        return f"sqlite:///{self.data_dir / 'sluice.db'}"

    @property
    def records_url(self) -> str:
        """URL of the database in use: a server's, or else that of the file."""
        return self.database_url or self.file_url

    @property
    def policy(self) -> UploadPolicy:
        """The operator's limits, for the core."""
        return UploadPolicy(self.max_upload_bytes, self.allowed_extensions)

    @property
    def rendition_policy(self) -> RenditionPolicy:
        """The operator's settings for renditions, for the core."""
        mode = self.renditions
        return RenditionPolicy(mode != "off", mode == "eager", self.media_cache_bytes)
