/** Puts the start page together: uploads, the library, and what is announced between them. */

import "./elements/arriving_videos.js";
import "./elements/library_search.js";
import "./elements/selection_bar.js";
import "./elements/video_library.js";
import "./elements/video_player.js";
import { ArrivingVideos } from "./library/arriving_videos.js";
import { Library, Selection } from "./library/library.js";
import { Preparation } from "./library/preparation.js";
import { startUploads } from "./upload_page.js";
import { isSignedIn } from "./uploads/api.js";

const find = (selector) => document.querySelector(selector);

function connectLibrary(library, { confirm, announce }) {
  const list = find("video-library");
  const selection = new Selection();
  const play = (video) => find("player-dialog").open(video);
  list.connect({ library, selection, confirm, announce, play });
  new Preparation(library, { videos: list.initialVideos });
  find("library-search").connect({ library, list, announce });
  find("selection-bar").connect({ library, selection, list, confirm, announce });
  const videos = new ArrivingVideos();
  find("arriving-videos").connect({ videos, play });
  return videos;
}

/** What the library needs on the page of somebody who may watch, and not upload. */
function watchOnly() {
  return {
    confirm: (question) => find("confirm-dialog").ask(question),
    announce: (text) => find("live-announcer").say(text),
  };
}

function start() {
  const library = new Library(find("video-library").initial);
  if (!find("upload-drop")) {
    connectLibrary(library, watchOnly());
    return;
  }
  const { queue, interrupted, connection, confirm, announce } = startUploads({ signedIn: isSignedIn });
  const arriving = connectLibrary(library, { confirm, announce });
  arriving.addEventListener("left", ({ detail }) => {
    interrupted.forget(detail);
    library.refresh().catch(() => {});
  });
  queue.addEventListener("cancelled", ({ detail }) => arriving.forget(detail.id));
  queue.addEventListener("discard-failed", ({ detail }) => arriving.recall(detail.id));
  interrupted.addEventListener("discarded", ({ detail }) => arriving.forget(detail));
  connection.addEventListener("change", () => {
    if (!connection.isReachable) return;
    interrupted.refresh().catch(() => {});
    library.refresh().catch(() => {});
  });
  queue.addEventListener("completed", ({ detail }) => {
    arriving.forget(detail.id);
    library.refresh(detail.id).catch(() => {});
  });
  library.addEventListener("removed", ({ detail }) => queue.dismissCompleted((upload) => upload.id === detail));
}

start();
