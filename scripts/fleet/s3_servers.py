"""S3 servers in a folder: versitygw, and Garage, which differs in places.

`make setup-dev` builds the first, `make setup-s3` both. Neither syncs to the disk here: they
outlive a kill, and no power cut.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scripts.fleet.programs import Program, can_connect, free_port

TOOLS = Path(__file__).parents[2] / ".tools"
"""Set-up links the servers here."""

BUCKET = "sluice"
REGION = "garage"

GARAGE_CONFIGURATION = """\
metadata_dir = "{folder}/metadata"
data_dir = "{folder}/data"
db_engine = "lmdb"
replication_factor = 1
disable_scrub = true
rpc_bind_addr = "127.0.0.1:{rpc_port}"
rpc_public_addr = "127.0.0.1:{rpc_port}"
rpc_secret = "{rpc_secret}"

[s3_api]
api_bind_addr = "127.0.0.1:{port}"
s3_region = "{region}"
"""


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs to use a server's bucket."""

    endpoint: str
    key: str
    secret: str
    bucket: str = BUCKET
    region: str = REGION

    def settings(self, prefix: str = "", *, endpoint: str = "") -> dict[str, str]:
        """Environment of a Sluice that keeps its files there; another endpoint may be a proxy."""
        return {
            "SLUICE_STORAGE": f"s3://{self.bucket}/{prefix}".rstrip("/"),
            "SLUICE_S3_ENDPOINT": endpoint or self.endpoint,
            "SLUICE_S3_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
        }


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server with one empty bucket; it keeps its port and files when it is started again."""

    program: Program
    access: Access
    port: int


def garage(folder: Path) -> S3Server:
    """Garage with one node and one copy of everything, not started yet."""
    port = free_port()
    access = Access(f"http://127.0.0.1:{port}", f"GK{secrets.token_hex(12)}", secrets.token_hex(32))
    configuration = folder / "garage.toml"
    configuration.write_text(
        GARAGE_CONFIGURATION.format(
            folder=folder,
            port=port,
            rpc_port=free_port(),
            rpc_secret=secrets.token_hex(32),
            region=access.region,
        )
    )
    configuration.chmod(0o600)
    options = ("--single-node", "--default-access-key", "--default-bucket")
    program = Program(
        (TOOLS / "garage", "--config", configuration, "server", *options),
        folder / "log",
        partial(can_connect, port),
        environment={
            **os.environ,
            "RUST_LOG": "garage=warn",
            "GARAGE_DEFAULT_ACCESS_KEY": access.key,
            "GARAGE_DEFAULT_SECRET_KEY": access.secret,
            "GARAGE_DEFAULT_BUCKET": access.bucket,
        },
    )
    return S3Server(program, access, port)


def versitygw(folder: Path) -> S3Server:
    """A gateway to files of this machine, not started yet."""
    port = free_port()
    access = Access(f"http://127.0.0.1:{port}", secrets.token_hex(12), secrets.token_hex(32))
    files, facts = folder / "files", folder / "facts"
    (files / access.bucket).mkdir(parents=True, exist_ok=True)
    facts.mkdir(exist_ok=True)
    address = ("--port", f"127.0.0.1:{port}", "--region", access.region)
    # Facts in files of their own: not every /tmp has extended attributes.
    program = Program(
        (TOOLS / "versitygw", *address, "--keep-alive", "posix", "--sidecar", facts, files),
        folder / "log",
        partial(can_connect, port),
        environment={
            **os.environ,
            "ROOT_ACCESS_KEY": access.key,
            "ROOT_SECRET_KEY": access.secret,
        },
    )
    return S3Server(program, access, port)
