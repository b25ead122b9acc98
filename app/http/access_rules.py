"""What each URL asks for. A test fails for every URL that is not named here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from app.domain.access import Action

_ENDPOINTS: Mapping[Action, tuple[str, ...]] = {
    Action.VISIT: (
        "static",
        "health.alive",
        "health.ready",
        "api_openapi.show",
        "api_openapi.show_yaml",
        "api_server.show",
        "resumable.options",
        "shared.show",
        "shared.visit",
        "shared.film",
        "shared.state",
        "upload_link.page",
        "sign_in.show",
        "sign_in.sign_in",
        "sign_in.sign_out",
        "passkeys.begin_sign_in",
        "passkeys.sign_in",
        "openid.begin",
        "openid.finish",
        "invitations.set_up",
        "invitations.join",
        "invitations.reset",
        "api_session.show",
        "api_session.begin",
        "api_session.end",
    ),
    Action.HAVE_ACCOUNT: (
        "account.show",
        "account.rename",
        "account.change_password",
        "account.end_session",
        "account.end_other_sessions",
        "passkeys.begin_registration",
        "passkeys.register",
        "passkeys.remove",
    ),
    Action.BROWSE: (
        "pages.index",
        "pages.watch",
        "api_videos.index",
        "api_videos.show",
    ),
    Action.WATCH: (
        "playback.play",
        "playback.master",
        "playback.playlist",
        "playback.segment",
        "playback.initialization",
        "playback.rung_playlist",
        "playback.rung_segment",
        "playback.rung_initialization",
        "playback.made",
        "playback.subtitles_beside",
        "delivery.media",
    ),
    Action.DOWNLOAD: ("archive.archive", "playback.rendition"),
    Action.FOLLOW: ("api_uploads.index", "api_uploads.show"),
    Action.SEND: (
        "api_uploads.create",
        "api_uploads.cancel",
        "batch.batch",
        "upload.upload",
        "tus.collection",
        "tus.one",
        "resumable.create",
        "resumable.append",
        "resumable.cancel",
        "resumable.look",
        "simple_uploader.probe",
        "resumablejs.probe",
        "resumablejs.upload",
        "flow.probe",
        "flow.upload",
        "filepond.process",
        "filepond.patch",
        "filepond.show",
        "filepond.revert",
        "fineuploader.upload",
        "fineuploader.delete",
    ),
    Action.CHANGE: (
        "api_videos.rename",
        "api_videos.delete",
        "api_videos.order_rendition",
        "api_videos.remove_rendition",
    ),
    Action.SHARE: (
        "api_share_links.index",
        "api_share_links.create",
        "api_share_links.revoke",
        "api_upload_links.index",
        "api_upload_links.create",
        "api_upload_links.show",
        "api_upload_links.change",
        "api_upload_links.close",
    ),
    Action.AUDIT: ("api_audit.index", "api_audit.export", "audit.index"),
    Action.MANAGE: (
        "api_keys.index",
        "api_keys.make",
        "api_keys.revoke",
        "api_projects.show",
        "api_projects.change",
        "api_projects.members",
        "api_projects.add_member",
        "api_projects.change_member",
        "api_projects.remove_member",
    ),
    Action.BELONG: ("api_projects.index",),
    Action.ADMINISTER: (
        "api_projects.make",
        "api_projects.remove",
        "people.index",
        "people.invite",
        "people.withdraw",
        "people.make_reset_link",
        "people.change",
        "status.page",
        "api_status.show",
    ),
    Action.MEASURE: ("metrics.everything",),
}

RULES: Mapping[str, Action] = MappingProxyType(
    {endpoint: action for action, endpoints in _ENDPOINTS.items() for endpoint in endpoints}
)
"""The action of each endpoint, as Flask names them."""

BELOW_LINKS = frozenset({"static", "health.alive", "api_server.show", "resumable.options"})
"""What everybody may see that is also found below a link; nothing else of it is."""
