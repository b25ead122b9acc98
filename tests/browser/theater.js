// Plays films of tests/video/films.py in a bare <video> and reports what is shown.
// Each frame carries its number as ten squares along its upper edge, lowest bit on the left.

const WIDTH = 160;
const HEIGHT = 96;
const SQUARE = 16;
const BITS = 10;
const BUFFERED_SECONDS = 15; // less than hls.js fetches ahead of play
const GAP_SECONDS = 0.3;
const PATIENCE_MS = 120_000;
const POLL_MS = 50;
const NEAR_SECONDS = 0.5; // more than any frame lasts

const canvas = document.createElement("canvas");
canvas.width = WIDTH;
canvas.height = HEIGHT;
const context = canvas.getContext("2d", { willReadFrequently: true });

let video;
let hls;
let events;

function numberShown(quarterTurns) {
    context.setTransform(1, 0, 0, 1, WIDTH / 2, HEIGHT / 2);
    context.rotate((-quarterTurns * Math.PI) / 2);
    const [width, height] = quarterTurns % 2 ? [HEIGHT, WIDTH] : [WIDTH, HEIGHT];
    context.drawImage(video, -width / 2, -height / 2, width, height);
    const { data } = context.getImageData(0, SQUARE / 2, WIDTH, 1);
    let number = 0;
    for (let bit = 0; bit < BITS; bit += 1) {
        if (data[4 * (bit * SQUARE + SQUARE / 2)] > 127) number += 1 << bit;
    }
    return number;
}

function once(target, name) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`no ${name}: ${describe()}`)), PATIENCE_MS);
        target.addEventListener(name, () => (clearTimeout(timer), resolve()), { once: true });
        video.addEventListener("error", () => reject(new Error(describe())), { once: true });
    });
}

function describe() {
    const { error, readyState, currentTime, duration } = video;
    const state = { error: error?.message, readyState, currentTime, duration, ranges: ranges() };
    return JSON.stringify({ ...state, events });
}

function ranges() {
    const { buffered } = video;
    return Array.from({ length: buffered.length }, (_, n) => [buffered.start(n), buffered.end(n)]);
}

async function load(source, hlsModule) {
    video = document.createElement("video");
    video.muted = true;
    video.preload = "auto";
    events = [];
    for (const name of ["waiting", "stalled", "error"]) {
        video.addEventListener(name, () => note(name));
    }
    document.body.replaceChildren(video);
    const playable = once(video, "canplay");
    if (hlsModule) await attachHls(source, hlsModule);
    else video.src = source;
    await playable;
    // Otherwise a server on a busy machine could be late with the rest.
    const isLoading = () => hlsModule || video.networkState === HTMLMediaElement.NETWORK_LOADING;
    while (!isBuffered() && isLoading()) await new Promise((done) => setTimeout(done, POLL_MS));
    return { duration: video.duration, width: video.videoWidth, height: video.videoHeight };
}

// A browser on a busy machine also waits for its decoder: that is no gap in the film.
function note(name) {
    if (name !== "waiting" || !hasMore()) events.push([name, video.currentTime]);
}

function hasMore() {
    const now = video.currentTime;
    return ranges().some(([start, end]) => start <= now && now + GAP_SECONDS < end);
}

function isBuffered() {
    const [range] = ranges();
    return range !== undefined && range[1] > Math.min(video.duration, BUFFERED_SECONDS) - 0.2;
}

async function attachHls(source, hlsModule) {
    const { default: Hls } = await import(hlsModule);
    hls?.destroy();
    hls = new Hls({ enableWorker: false });
    hls.on(Hls.Events.ERROR, (_, { type, details, fatal }) => {
        const isLate = details === Hls.ErrorDetails.BUFFER_STALLED_ERROR && !fatal && hasMore();
        if (!isLate) events.push([`hls ${type} ${details}`, video.currentTime]);
        if (fatal) video.dispatchEvent(new Event("error"));
    });
    hls.loadSource(source);
    hls.attachMedia(video);
}

async function playToEnd({ rate, quarterTurns }) {
    const watching = watch({ quarterTurns });
    video.playbackRate = rate;
    await video.play();
    return await watching;
}

async function watch({ quarterTurns }) {
    const shown = [];
    const see = (_, { mediaTime }) => {
        shown.push([mediaTime, numberShown(quarterTurns), performance.now() / 1000]);
        video.requestVideoFrameCallback(see);
    };
    video.requestVideoFrameCallback(see);
    events = [];
    await once(video, "ended");
    return { shown, events, ranges: ranges(), end: video.currentTime };
}

// Watches the film of another page from its beginning, which may take another source meanwhile.
function attend(element, rate) {
    video = element;
    video.muted = true;
    video.defaultPlaybackRate = video.playbackRate = rate;
    globalThis.attended = watch({ quarterTurns: 0 });
}

async function seek({ time, quarterTurns }) {
    video.pause();
    const frame = frameNear(time);
    const seeked = once(video, "seeked");
    video.currentTime = time;
    await seeked;
    const mediaTime = await frame;
    return { mediaTime, number: numberShown(quarterTurns) };
}

// One from before the seek may still be on its way to the screen.
function frameNear(time) {
    return new Promise((resolve, reject) => {
        setTimeout(() => reject(new Error(`no frame near ${time}: ${describe()}`)), PATIENCE_MS);
        const see = (_, { mediaTime }) => {
            if (Math.abs(mediaTime - time) < NEAR_SECONDS) resolve(mediaTime);
            else video.requestVideoFrameCallback(see);
        };
        video.requestVideoFrameCallback(see);
    });
}

async function subtitles() {
    hls.subtitleTrack = 0;
    const cues = () => [...video.textTracks].flatMap((track) => [...(track.cues ?? [])]);
    for (let waited = 0; cues().length === 0; waited += POLL_MS) {
        if (waited > PATIENCE_MS) throw new Error(`no subtitles: ${describe()}`);
        await new Promise((done) => setTimeout(done, POLL_MS));
    }
    return cues().map(({ text, startTime, endTime }) => [text, startTime, endTime]);
}

globalThis.theater = { load, playToEnd, seek, attend, subtitles };
