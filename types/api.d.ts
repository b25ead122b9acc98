/** The JSON that the server answers with, as far as the page uses it; /openapi.json describes all of it. Sizes are bytes. */
declare namespace Api {
  /** A half-open range. */
  type Range = [start: number, end: number];

  type UploadState = "receiving" | "held" | "verifying" | "complete" | "cancelled" | "expired" | "deleted";

  interface Upload {
    id: string;
    filename: string;
    length: number | null;
    received: Range[];
    missing: Range[];
    state: UploadState;
    expires: string | null;
    active: string;
    yours: boolean;
    sender?: Sender | null;
    fingerprint: string | null;
    /** Where the file is, once it is complete. */
    media?: string;
    playback: Playback | null;
    direct: { cell_bytes: number } | null;
  }

  interface Sender {
    kind: "person" | "key" | "upload_link";
    id: string;
    name: string | null;
    /** The title of the upload link. */
    link: string | null;
  }

  interface Video {
    id: string;
    filename: string;
    length: number;
    inline: boolean;
    published: string;
    expires: string | null;
    sender: Sender | null;
    media: string;
    playback: Playback;
  }

  interface Videos {
    videos: Video[];
    next: string | null;
  }

  interface Playback {
    state: "waiting" | "probed" | "playable" | "ready" | "unplayable";
    /** Seconds. */
    duration: number | null;
    width: number | null;
    height: number | null;
    poster: string | null;
    frame_rate: number | null;
    hdr: string | null;
    container: string | null;
    tracks: Track[];
    chapters: { start: number; title: string }[];
    thumbnails: string | null;
    waveform: string | null;
    subtitles: { language: string; title?: string | null; url: string }[];
    playable: { from: "original" | "hls"; mp4: string | null; hls: string | null } | null;
    /** Lists of videos leave them out. */
    renditions?: Rendition[];
    progress: number | null;
    problem: PlaybackProblem | null;
  }

  interface PlaybackProblem {
    code: string;
    detail: string;
  }

  interface Rendition {
    height: number;
    state: "on_demand" | "making" | "ready" | "failed";
    progress: number;
    mp4: string | null;
    problem: PlaybackProblem | null;
  }

  interface Track {
    kind: "video" | "audio" | "text" | "other";
    codec: string;
    language: string;
    title?: string | null;
    /** Bits per second. */
    bit_rate?: number | null;
    channels?: number | null;
  }

  /** The bytes that the server has after a chunk, and `media` once the file is complete. */
  interface ChunkReceipt {
    received: number;
    media?: string;
  }

  /** What became of one file of a bundle. */
  interface FileReceipt {
    id: string;
    media?: string;
    /** An earlier file stands for it. */
    known?: true;
    error?: undefined;
  }

  interface RefusedFile {
    id?: undefined;
    known?: undefined;
    error: Problem;
  }

  /** RFC 9457. */
  interface Problem {
    code?: string;
    status?: number;
    detail?: string;
    retryable?: boolean;
  }

  interface Cell {
    start: number;
    length: number;
    /** In base64. */
    crc32c: string;
  }

  interface CellTarget {
    stored: boolean;
    method?: string;
    url?: string;
    headers?: Record<string, string>;
  }

  /** What the client has sent. */
  interface SentFiles {
    files: { id: string; filename: string; length: number; arrived: string }[];
    count: number;
    bytes: number;
    unfinished: number;
    /** What its upload link still takes; null for any number. */
    link: { files_left: number | null; bytes_left: number | null } | null;
  }

  interface Status {
    requests: { by_status: Record<string, number> };
    transfers: { received_bytes: number; sent_bytes: number };
    uploads: { newest: UnfinishedUpload[] };
    jobs: { next: Job[]; failures: Job[] };
    nodes: Node[];
    errors: Record<string, number>;
  }

  interface UnfinishedUpload {
    id: string;
    filename: string;
    length: number | null;
    received_bytes: number;
  }

  interface Job {
    id: string;
    filename: string;
    step: string;
    argument: string;
    /** Failed jobs have neither state nor progress, but a detail. */
    state?: "queued" | "running";
    progress?: number;
    detail?: string;
  }

  interface Node {
    name: string;
    is_this: boolean;
    address: string;
    version: string;
    state: "ready" | "leaving" | "gone";
    uptime_seconds: number;
    requests_now: number;
    received_bytes_per_second: number;
    sent_bytes_per_second: number;
    free_bytes: number | null;
    problems: string[];
  }
}
