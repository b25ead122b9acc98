/** Puts the start page together: uploads, the library, and what is announced between them. */

import "./elements/arriving_videos.js";
import "./elements/library_search.js";
import "./elements/selection_bar.js";
import "./elements/video_library.js";
import "./elements/video_player.js";
import { ArrivingVideos } from "./library/arriving_videos.js";
import { Library, Selection } from "./library/library.js";
import { Preparation } from "./library/preparation.js";
import { find } from "./page/parts.js";
import { startUploads } from "./upload_page.js";
import { isSignedIn } from "./uploads/api.js";

/** @import { OpenedVideo } from "./player/video_state.js" */

/** @param {Library} library */
function connectLibrary(library) {
  const list = find("video-library");
  const selection = new Selection();
  const play = (/** @type {OpenedVideo} */ video) => find("player-dialog").open(video);
  list.connect({ library, selection, play });
  new Preparation(library, { videos: list.initialVideos });
  find("library-search").connect({ library, list });
  find("selection-bar").connect({ library, selection, list });
  const videos = new ArrivingVideos();
  find("arriving-videos").connect({ videos, play });
  return videos;
}

function start() {
  const library = new Library(find("video-library").initial);
  const maySend = document.querySelector("upload-drop") !== null;
  const uploads = maySend ? startUploads({ signedIn: isSignedIn }) : null;
  const arriving = connectLibrary(library);
  if (!uploads) return;
  const { queue, interrupted, connection } = uploads;
  arriving.addEventListener("left", ({ detail }) => {
    interrupted.forget(detail);
    library.refresh().catch(() => {});
  });
  queue.addEventListener("cancelled", ({ detail }) => detail.id && arriving.forget(detail.id));
  queue.addEventListener("discard-failed", ({ detail }) => detail.id && arriving.recall(detail.id));
  interrupted.addEventListener("discarded", ({ detail }) => arriving.forget(detail));
  connection.addEventListener("change", () => {
    if (!connection.isReachable) return;
    interrupted.refresh().catch(() => {});
    library.refresh().catch(() => {});
  });
  queue.addEventListener("completed", ({ detail }) => {
    if (detail.id) arriving.forget(detail.id);
    library.refresh(detail.id).catch(() => {});
  });
  library.addEventListener("removed", ({ detail }) => queue.dismissCompleted((upload) => upload.id === detail));
}

start();
