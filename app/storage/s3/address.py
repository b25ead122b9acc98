"""Where a bucket is, and the key that opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A server, one of its buckets, and the prefix of all object names."""

    scheme: str
    host: str
    port: int
    region: str
    bucket: str
    prefix: str = ""
    """Empty, or ends in a slash."""
    is_path_style: bool = True
    """Whether the bucket's name is in the path instead of the host name."""

    @classmethod
    def of(cls, storage: str, *, endpoint: str, region: str) -> BucketAddress:
        """Build the address from `s3://bucket/prefix` and the server's URL; without a URL, for AWS.

        The values must have passed `settings.values.bucket_url` and `server_url`.
        """
        bucket, _, folder = storage.removeprefix("s3://").partition("/")
        prefix = f"{folder}/" if folder else ""
        if endpoint:
            parts = urlsplit(endpoint)
            port = parts.port or DEFAULT_PORTS[parts.scheme]
            return cls(parts.scheme, parts.hostname or "", port, region, bucket, prefix)
        server = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
        if "." in bucket:  # A certificate for *.s3.REGION does not cover a.b.s3.REGION.
            return cls("https", server, 443, region, bucket, prefix)
        host = f"{bucket}.{server}"
        return cls("https", host, 443, region, bucket, prefix, is_path_style=False)

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme and authority, the start of each URL."""
        return f"{self.scheme}://{self.authority}"

    @property
    def server(self) -> str:
        """URL of the server, without the bucket."""
        return self.origin if self.is_path_style else self.origin.replace(f"{self.bucket}.", "", 1)

    def url(self, name: str, query: Mapping[str, str]) -> str:
        """Returns the URL of an object; `name` is without the prefix."""
        path = f"/{self.bucket}/" if self.is_path_style else "/"
        path += quote(self.prefix + name, safe="/-_.~")
        text = urlencode(sorted(query.items()), quote_via=quote, safe="")
        return f"{self.origin}{path}?{text}" if text else f"{self.origin}{path}"


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key of the object store; `token` is for temporary keys only."""

    id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)
