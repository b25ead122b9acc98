"""Who may do what, as one table.

Every caller has a role in each project it may enter. Every view asks for one action: `@requires`
above it names it. `REACH` says how far a role's action reaches: to all of a project, or to what the
caller has sent itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType

from app.core.addresses import network_of
from app.core.errors import (
    InvalidField,
    NoProject,
    NotAllowed,
    NotSignedIn,
    SecondFactorMissing,
    UploadNotFound,
)
from app.core.upload import Upload

FIRST_PROJECT = "local"
"""The project that every database begins with; without accounts it is the only one. Uploads made
before there were projects belong to it."""


class Role(StrEnum):
    """What somebody is in a project; the value is what records and the API show."""

    GUEST = "guest"
    """Has a link to certain videos."""
    SENDER = "sender"
    """Has a link for uploads."""
    VIEWER = "viewer"
    UPLOADER = "uploader"
    EDITOR = "editor"
    MANAGER = "manager"


MEMBERS = (Role.VIEWER, Role.UPLOADER, Role.EDITOR, Role.MANAGER)
"""The roles that people and keys can have, the least first."""


def lower_of(role: Role, other: Role) -> Role:
    """The one of two roles of members that may do less."""
    return min(role, other, key=MEMBERS.index)


def parse_role(text: str) -> Role:
    """The role of a member or key with that name; raises `InvalidField`."""
    if text not in MEMBERS:
        raise InvalidField(f"A role is one of {', '.join(MEMBERS)}.", field="role")
    return Role(text)


class Action(StrEnum):
    """What a request asks for."""

    VISIT = "visit"
    """What everybody may see: sign-in, health, the page's own files."""
    BROWSE = "browse"
    """Find videos, and what is known about them."""
    WATCH = "watch"
    """Play videos that the caller knows of."""
    DOWNLOAD = "download"
    """The files of videos."""
    FOLLOW = "follow"
    """The state of uploads on their way."""
    SEND = "send"
    """Begin, continue or cancel uploads."""
    CHANGE = "change"
    """Rename or delete videos, and order other qualities."""
    SHARE = "share"
    """Make links for others."""
    MANAGE = "manage"
    """The project: its members, keys and webhooks."""
    AUDIT = "audit"
    """What happened in the project; on the whole server, for administrators."""
    BELONG = "belong"
    """The projects one may enter."""
    HAVE_ACCOUNT = "have_account"
    """A person's own account."""
    SECURE_ACCOUNT = "secure_account"
    """The same, as far as somebody needs it who must set up a second factor first."""
    ADMINISTER = "administer"
    """The server: people, projects, its state."""
    MEASURE = "measure"
    """The server's metrics. Programs on the same machine read them without a key."""


class Reach(StrEnum):
    """How far an action of a role reaches in a project."""

    NONE = "none"
    LISTED = "listed"
    """To the videos of a link."""
    OWN = "own"
    """To what the caller has sent."""
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
"""A role that is not named has no reach. The other actions do not concern a project."""


OF_ONE_PROJECT = frozenset({Action.SHARE, Action.MANAGE, Action.AUDIT})
"""They concern the project that the request is for. Uploads are also reached by their ids alone,
in any project in which the caller has the reach."""


def reach_of(action: Action, role: Role | None) -> Reach:
    """How far the action of a role reaches; without a role nowhere."""
    return Reach.NONE if role is None else REACH[action].get(role, Reach.NONE)


class CallerKind(StrEnum):
    """How a caller has shown who it is."""

    NOBODY = "nobody"
    LOCAL = "local"
    """Whoever can reach a server without accounts."""
    PERSON = "person"
    KEY = "key"
    UPLOAD_LINK = "upload_link"
    SHARE_LINK = "share_link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a request.

    `id` is the id of the person, key or link, and `name` what people call it. `roles` are those in
    each project, and `project` is the one that new uploads go to. `visitor` tells those apart who
    use the same upload link, and `is_crowd` says that several people may be that visitor; `videos`
    are those of a share link. With `needs_second_factor`, a person may only set one up.
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
        """Whether the caller manages its project; administrators manage every one."""
        return self.role is Role.MANAGER or (self.is_admin and self.project != "")

    def require_at_most_own(self, role: Role) -> None:
        """Raise `NotAllowed` for a role above the caller's: no key reaches further than that."""
        own = Role.MANAGER if self.is_manager else self.role
        if own not in MEMBERS or MEMBERS.index(role) > MEMBERS.index(own):
            raise NotAllowed("A key cannot have a higher role than yours.")

    @property
    def sender(self) -> str:
        """How records name whoever sent an upload: "person:..." or the like, or nothing."""
        if self.kind in {CallerKind.NOBODY, CallerKind.LOCAL}:
            return ""
        return f"{self.kind}:{self.id}{self.visitor and ':' + self.visitor}"

    @property
    def actor(self) -> str:
        """How the audit log names the caller: as `sender`, or "local", or "nobody"."""
        return self.sender or self.kind.value


THROUGH_LINKS = frozenset({CallerKind.UPLOAD_LINK, CallerKind.SHARE_LINK})
"""Callers who share one link, and can be as many visitors as they like."""


def counted_as(caller: Caller | None, address: str) -> str:
    """The name by which limits count whoever sends a request from that address.

    Who is not known is told apart by network, and so are those who use the same link.
    """
    if caller is not None and caller.kind in THROUGH_LINKS:
        return f"{caller.kind}:{caller.id} {network_of(address)}"
    return (caller.sender if caller is not None else "") or network_of(address)


def is_through_link(sender: str) -> bool:
    """Whether an upload of this sender came through an upload link."""
    return sender.startswith(f"{CallerKind.UPLOAD_LINK}:")


NOBODY = Caller(kind=CallerKind.NOBODY)

LOCAL = Caller(
    kind=CallerKind.LOCAL,
    project=FIRST_PROJECT,
    roles=MappingProxyType({FIRST_PROJECT: Role.MANAGER}),
    is_admin=True,
)
"""Everybody, on a server without accounts."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The uploads that one request may reach; `Scope("p")` are all of the project "p".

    Without a project they are all of the server.
    `reach` is that in `project`, `others` those in further projects, whose uploads can be reached
    by their ids only. `own` is what the records of the caller's own uploads begin with, and
    `seen` are the projects in which the caller may know about all uploads. Unless it `may_delete`,
    it can cancel uploads but not delete the videos they have become. If several people may be its
    `sender` (`is_crowd`), they are not told of each other's uploads.
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
        """Whether the caller finds only what it has sent itself."""
        return self.reach is Reach.OWN

    @property
    def finds_of(self) -> str | None:
        """The sender whose uploads it finds without their ids or keys; None for everybody's."""
        if self.is_crowd:
            return CallerKind.NOBODY
        return self.sender if self.is_private else None

    def key(self, client_key: str) -> str:
        """The key under which a client's own key is recorded.

        Who finds only its own uploads can neither guess nor block the keys of others, nor write
        into their files: libraries make the same key for files of the same name and size.
        """
        if not self.is_private:
            return client_key
        return f"own:{sha256(f'{self.sender} {client_key}'.encode()).hexdigest()}"

    def target(self) -> str:
        """The project that new uploads go to; raises `NotAllowed` if there is none."""
        if self.project is None or self.reach not in {Reach.ALL, Reach.OWN}:
            raise NotAllowed("You may not send files to this project.")
        return self.project

    def whole(self) -> str | None:
        """The project if all of it is reached, None for the server; raises `NotAllowed`."""
        if self.reach is not Reach.ALL:
            raise NotAllowed("You do not manage this project.")
        return self.project

    def require(self, upload: Upload) -> Upload:
        """The upload itself; raises `UploadNotFound`, or `NotAllowed` for one that is known."""
        is_in_project = self.project in {upload.owner, None}
        reach = self.reach if is_in_project else self.others.get(upload.owner)
        if reach is Reach.ALL:
            return upload
        if reach is Reach.OWN and self.own and upload.sender.startswith(self.own):
            return upload
        if reach is Reach.LISTED and upload.id in self.listed:
            return upload
        if upload.owner in self.seen:
            raise NotAllowed("You may see this upload, but it is not yours to change.")
        raise UploadNotFound("No upload has this id.")

    def includes(self, earlier: Scope) -> bool:
        """Whether the same caller reaches in each project at least as far as it did before."""
        order = list(Reach)
        return all(
            order.index(self.reach_in(project)) >= order.index(earlier.reach_in(project))
            for project in (earlier.project, *earlier.others)
        )

    def reach_in(self, project: str | None) -> Reach:
        """How far it reaches in one project."""
        return self.reach if project == self.project else self.others.get(project or "", Reach.NONE)


EVERYTHING = Scope(None)
"""For the operator of the server."""


def scope_of(caller: Caller, action: Action) -> Scope:
    """What the caller's action reaches; raises `NotSignedIn` or `NotAllowed`."""
    if caller.needs_second_factor and action not in {Action.VISIT, Action.SECURE_ACCOUNT}:
        raise SecondFactorMissing("Add one-time codes or a passkey on the page of your account.")
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


def _refusal(caller: Caller, action: Action) -> NotSignedIn | NotAllowed:
    if caller.kind is CallerKind.NOBODY:
        return NotSignedIn("Sign in, or send an API key.")
    if caller.kind is CallerKind.PERSON and action in REACH and not caller.roles:
        return NoProject("Ask an administrator of this server to let you into one.")
    return NotAllowed("You may not do this here.")
