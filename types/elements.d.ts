/** The custom elements of the page, and the events that they emit. */
import type { ArrivingVideosList } from "../static/js/elements/arriving_videos.js";
import type { InterruptedPanel } from "../static/js/elements/interrupted_panel.js";
import type { LibrarySearch } from "../static/js/elements/library_search.js";
import type { ConfirmDialog, ConnectionNotice, LiveAnnouncer } from "../static/js/elements/notices.js";
import type { PasskeyForm, PasskeySignIn } from "../static/js/elements/passkeys.js";
import type { RateLimitChoice } from "../static/js/elements/rate_limit_choice.js";
import type { RetryForm } from "../static/js/elements/retry_form.js";
import type { SelectionBar } from "../static/js/elements/selection_bar.js";
import type { LinkLimits, SentFilesPanel } from "../static/js/elements/sent_files.js";
import type { UploadDrop } from "../static/js/elements/upload_drop.js";
import type { PanelTotals, UploadPanel } from "../static/js/elements/upload_panel.js";
import type { UploadRow } from "../static/js/elements/upload_row.js";
import type { VideoLibrary } from "../static/js/elements/video_library.js";
import type { PlayerDialog, VideoPlayer } from "../static/js/elements/video_player.js";
import type { VideoRenditions } from "../static/js/elements/video_renditions.js";
import type { CopyText } from "../static/js/forms.js";

declare global {
  interface HTMLElementTagNameMap {
    "arriving-videos": ArrivingVideosList;
    "confirm-dialog": ConfirmDialog;
    "connection-notice": ConnectionNotice;
    "copy-text": CopyText;
    "interrupted-panel": InterruptedPanel;
    "library-search": LibrarySearch;
    "link-limits": LinkLimits;
    "live-announcer": LiveAnnouncer;
    "passkey-form": PasskeyForm;
    "passkey-sign-in": PasskeySignIn;
    "player-dialog": PlayerDialog;
    "rate-limit-choice": RateLimitChoice;
    "retry-form": RetryForm;
    "selection-bar": SelectionBar;
    "sent-files": SentFilesPanel;
    "upload-drop": UploadDrop;
    "upload-panel": UploadPanel;
    "upload-row": UploadRow;
    "video-library": VideoLibrary;
    "video-player": VideoPlayer;
    "video-renditions": VideoRenditions;
  }

  interface HTMLElementEventMap {
    "files-chosen": CustomEvent<File[]>;
    arrived: Event;
    totals: CustomEvent<PanelTotals>;
  }
}
