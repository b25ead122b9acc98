"""Permissions, as one table.

Every caller has a role in each project it may access. Every view requires one action, declared
with `@requires`. `REACH` defines how far a role's action reaches: to all of a project, or only to
the caller's own uploads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType

from app.core import errors
from app.core.addresses import network_of
from app.core.upload import Upload

FIRST_PROJECT = "local"
"""The project that every database starts with; without accounts it is the only one. Uploads from
before projects existed belong to it."""


class Role(StrEnum):
    """A caller's role in a project.

    The value is used in records and the API.
    """

    GUEST = "guest"
    """Has a link to certain videos."""
    SENDER = "sender"
    """Has a link for uploads."""
    VIEWER = "viewer"
    UPLOADER = "uploader"
    EDITOR = "editor"
    MANAGER = "manager"


MEMBERS = (Role.VIEWER, Role.UPLOADER, Role.EDITOR, Role.MANAGER)
"""The roles that people and keys can have, in ascending order."""


def lower_of(role: Role, other: Role) -> Role:
    """The lower of two member roles."""
    return min(role, other, key=MEMBERS.index)


def parse_role(text: str) -> Role:
    """Parse the role of a member or key; raises `InvalidField`."""
    if text not in MEMBERS:
        raise errors.InvalidField(f"A role is one of {', '.join(MEMBERS)}.", field="role")
    return Role(text)


class Action(StrEnum):
    """The action that a request performs."""

    VISIT = "visit"
    """View public pages: sign-in, health, static files."""
    BROWSE = "browse"
    """List and search videos, and view their metadata."""
    WATCH = "watch"
    """Play videos whose ids the caller knows."""
    DOWNLOAD = "download"
    """Download video files."""
    FOLLOW = "follow"
    """View the state of unfinished uploads."""
    SEND = "send"
    """Create, resume or cancel uploads."""
    CHANGE = "change"
    """Rename or delete videos, and request renditions."""
    SHARE = "share"
    """Create share links and upload links."""
    MANAGE = "manage"
    """Manage the project: its members, keys and webhooks."""
    AUDIT = "audit"
    """Read the project's audit log; that of the whole server, for administrators."""
    BELONG = "belong"
    """List the caller's projects."""
    HAVE_ACCOUNT = "have_account"
    """Manage the caller's own account."""
    SECURE_ACCOUNT = "secure_account"
    """The part of it available to a person who must set up a second factor first."""
    ADMINISTER = "administer"
    """Administer the server: people, projects, status."""
    MEASURE = "measure"
    """Read the server's metrics. Programs on the same machine need no key."""


class Reach(StrEnum):
    """How far an action of a role reaches in a project."""

    NONE = "none"
    LISTED = "listed"
    """The videos of a share link."""
    OWN = "own"
    """The caller's own uploads."""
    ALL = "all"


def _row(**reaches: Reach) -> Mapping[Role, Reach]:
    return MappingProxyType({Role(name): reach for name, reach in reaches.items()})


_ALL, _OWN, _LISTED = Reach.ALL, Reach.OWN, Reach.LISTED

REACH: Mapping[Action, Mapping[Role, Reach]] = MappingProxyType(
    {
        Action.BROWSE: _row(viewer=_ALL, uploader=_ALL, editor=_ALL, manager=_ALL),
        Action.WATCH: _row(viewer=_ALL, uploader=_ALL, editor=_ALL, manager=_ALL, guest=_LISTED),
        Action.DOWNLOAD: _row(viewer=_ALL, uploader=_ALL, editor=_ALL, manager=_ALL, guest=_LISTED),
        Action.FOLLOW: _row(viewer=_ALL, uploader=_ALL, editor=_ALL, manager=_ALL, sender=_OWN),
        Action.SEND: _row(uploader=_OWN, editor=_ALL, manager=_ALL, sender=_OWN),
        Action.CHANGE: _row(uploader=_OWN, editor=_ALL, manager=_ALL),
        Action.SHARE: _row(editor=_ALL, manager=_ALL),
        Action.MANAGE: _row(manager=_ALL),
        Action.AUDIT: _row(manager=_ALL),
    }
)
"""A role that is not listed has no reach. Actions that are not listed do not concern a project."""


OF_ONE_PROJECT = frozenset({Action.SHARE, Action.MANAGE, Action.AUDIT})
"""Actions on the project that the request names. Uploads can also be accessed by id alone, in any
project in which the caller has the reach."""


def reach_of(action: Action, role: Role | None) -> Reach:
    """The reach of an action for a role; `NONE` without a role."""
    return Reach.NONE if role is None else REACH[action].get(role, Reach.NONE)


class CallerKind(StrEnum):
    """How a caller was authenticated."""

    ANONYMOUS = "nobody"
    LOCAL = "local"
    """Any client of a server without accounts."""
    PERSON = "person"
    KEY = "key"
    UPLOAD_LINK = "upload_link"
    SHARE_LINK = "share_link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The principal of a request.

    `id` is the id of the person, key or link, and `name` its display name. `roles` has the role in
    each project, and `project` is the one that new uploads go to. `visitor` identifies a user of an
    upload link, and `is_crowd` says that several people may share that `visitor`; `videos` are
    those of a share link. With `needs_second_factor`, a person may only set one up.
    """

    kind: CallerKind
    id: str = ""
    name: str = ""
    project: str = ""
    roles: Mapping[str, Role] = field(default_factory=dict, hash=False)
    is_admin: bool = False
    visitor: str = ""
    is_crowd: bool = False
    session: str = ""
    videos: frozenset[str] = frozenset()
    can_download: bool = True
    needs_second_factor: bool = False

    @property
    def role(self) -> Role | None:
        """The role in the caller's project."""
        return self.roles.get(self.project)

    @property
    def is_manager(self) -> bool:
        """Whether the caller manages its project; administrators manage all projects."""
        return self.role is Role.MANAGER or (self.is_admin and self.project != "")

    def require_at_most_own(self, role: Role) -> None:
        """Raise `NotAllowed` for a role above the caller's, which limits the keys it creates."""
        own = Role.MANAGER if self.is_manager else self.role
        if own not in MEMBERS or MEMBERS.index(role) > MEMBERS.index(own):
            raise errors.NotAllowed("A key cannot have a higher role than yours.")

    @property
    def sender(self) -> str:
        """The sender of an upload as recorded, such as "person:..."; empty if not authenticated."""
        if self.kind in {CallerKind.ANONYMOUS, CallerKind.LOCAL}:
            return ""
        return f"{self.kind}:{self.id}{self.visitor and ':' + self.visitor}"

    @property
    def actor(self) -> str:
        """The caller's name in the audit log: its `sender`, or "local", or "nobody"."""
        return self.sender or self.kind.value


THROUGH_LINKS = frozenset({CallerKind.UPLOAD_LINK, CallerKind.SHARE_LINK})
"""Callers that share one link; a client can be any number of visitors."""


def counted_as(caller: Caller | None, address: str) -> str:
    """The key by which rate limits count the client of a request from that address.

    Unauthenticated clients are counted by network, and so are users of the same link.
    """
    if caller is not None and caller.kind in THROUGH_LINKS:
        return f"{caller.kind}:{caller.id} {network_of(address)}"
    return (caller.sender if caller is not None else "") or network_of(address)


def is_through_link(sender: str) -> bool:
    """Whether an upload of this sender came through an upload link."""
    return sender.startswith(f"{CallerKind.UPLOAD_LINK}:")


ANONYMOUS = Caller(kind=CallerKind.ANONYMOUS)

LOCAL = Caller(
    kind=CallerKind.LOCAL,
    project=FIRST_PROJECT,
    roles=MappingProxyType({FIRST_PROJECT: Role.MANAGER}),
    is_admin=True,
)
"""The caller of all requests on a server without accounts."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The uploads that one request may access; `Scope("p")` are all uploads of the project "p".

    Without a project they are all uploads of the server.
    `reach` applies to `project`, and `others` to further projects, whose uploads can be accessed
    only by id. `own` is the prefix of `Upload.sender` in the caller's own uploads, and `seen` are
    the projects in which the caller may know about all uploads. Unless it `may_delete`, it can
    cancel uploads but not delete the videos they have become. If several people may share its
    `sender` (`is_crowd`), they cannot list each other's uploads.
    """

    project: str | None
    sender: str = ""
    reach: Reach = Reach.ALL
    others: Mapping[str, Reach] = field(default_factory=dict, hash=False)
    seen: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    own: str = ""
    may_delete: bool = True
    is_crowd: bool = False

    @property
    def is_private(self) -> bool:
        """Whether the caller finds only its own uploads."""
        return self.reach is Reach.OWN

    @property
    def finds_of(self) -> str | None:
        """The sender whose uploads it can list without ids or keys; None for all senders."""
        if self.is_crowd:
            return CallerKind.ANONYMOUS
        return self.sender if self.is_private else None

    def key(self, client_key: str) -> str:
        """The key under which a client's own key is recorded.

        A caller that finds only its own uploads can neither guess nor block other callers' keys,
        nor write into their files: libraries derive the same key for files of the same name and
        size.
        """
        if not self.is_private:
            return client_key
        return f"own:{sha256(f'{self.sender} {client_key}'.encode()).hexdigest()}"

    def target(self) -> str:
        """The project that new uploads go to; raises `NotAllowed` if there is none."""
        if self.project is None or self.reach not in {Reach.ALL, Reach.OWN}:
            raise errors.NotAllowed("You may not send files to this project.")
        return self.project

    def whole(self) -> str | None:
        """The project if the scope covers all of it, None for the server; raises `NotAllowed`."""
        if self.reach is not Reach.ALL:
            raise errors.NotAllowed("You do not manage this project.")
        return self.project

    def require(self, upload: Upload) -> Upload:
        """Returns `upload`; raises `UploadNotFound`, or `NotAllowed` for one the caller may see."""
        is_in_project = self.project in {upload.owner, None}
        reach = self.reach if is_in_project else self.others.get(upload.owner)
        if reach is Reach.ALL:
            return upload
        if reach is Reach.OWN and self.own and upload.sender.startswith(self.own):
            return upload
        if reach is Reach.LISTED and upload.id in self.listed:
            return upload
        if upload.owner in self.seen:
            raise errors.NotAllowed("You may see this upload, but it is not yours to change.")
        raise errors.UploadNotFound("No upload has this id.")

    def includes(self, earlier: Scope) -> bool:
        """Whether the reach in each project is at least that of the caller's earlier scope."""
        order = list(Reach)
        return all(
            order.index(self.reach_in(project)) >= order.index(earlier.reach_in(project))
            for project in (earlier.project, *earlier.others)
        )

    def reach_in(self, project: str | None) -> Reach:
        """The reach in one project."""
        return self.reach if project == self.project else self.others.get(project or "", Reach.NONE)


EVERYTHING = Scope(None)
"""The scope of the server's operator."""


def scope_of(caller: Caller, action: Action) -> Scope:
    """The scope of the caller's action; raises `NotSignedIn` or `NotAllowed`."""
    if caller.needs_second_factor and action not in {Action.VISIT, Action.SECURE_ACCOUNT}:
        raise errors.SecondFactorMissing(
            "Add one-time codes or a passkey on the page of your account."
        )
    if action is Action.AUDIT and caller.is_admin:
        return EVERYTHING
    if action is Action.MANAGE and caller.is_manager:
        return Scope(caller.project, caller.sender)
    if action in REACH:
        return _scope_in_projects(caller, action)
    is_granted = {
        Action.VISIT: True,
        Action.BELONG: caller.kind in {CallerKind.LOCAL, CallerKind.PERSON, CallerKind.KEY},
        Action.HAVE_ACCOUNT: caller.kind is CallerKind.PERSON,
        Action.SECURE_ACCOUNT: caller.kind is CallerKind.PERSON,
        Action.ADMINISTER: caller.is_admin,
        Action.MEASURE: caller.is_admin,
    }[action]
    if not is_granted:
        raise _refusal(caller, action)
    return Scope(caller.project, caller.sender, Reach.NONE)


@lru_cache(maxsize=1024)
def _scope_in_projects(caller: Caller, action: Action) -> Scope:
    reaches = {project: reach_of(action, role) for project, role in caller.roles.items()}
    if action is Action.DOWNLOAD and not caller.can_download:
        raise _refusal(caller, action)
    reach = reaches.pop(caller.project, Reach.NONE)
    elsewhere = set() if action in OF_ONE_PROJECT else {*reaches.values()} - {Reach.NONE}
    if reach is Reach.NONE and not elsewhere:
        raise _refusal(caller, action)
    sees = {
        project
        for project, role in caller.roles.items()
        if reach_of(Action.WATCH, role) is Reach.ALL
    }
    own = caller.sender.removesuffix(f":{caller.visitor}") if caller.visitor else caller.sender
    changes = {reach_of(Action.CHANGE, role) for role in caller.roles.values()}
    return Scope(
        caller.project,
        caller.sender,
        reach,
        reaches,
        frozenset(sees),
        caller.videos,
        own,
        may_delete=changes != {Reach.NONE},
        is_crowd=caller.is_crowd,
    )


def _refusal(caller: Caller, action: Action) -> errors.NotSignedIn | errors.NotAllowed:
    if caller.kind is CallerKind.ANONYMOUS:
        return errors.NotSignedIn("Sign in, or send an API key.")
    if caller.kind is CallerKind.PERSON and action in REACH and not caller.roles:
        return errors.NoProject("Ask an administrator of this server to let you into one.")
    return errors.NotAllowed("You may not do this here.")
