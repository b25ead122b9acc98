/* Uploads a file with tus-js-client, as its first argument says (JSON), and tells how it ended. */

import { createReadStream } from "node:fs";
import { PassThrough } from "node:stream";
import tus from "tus-js-client";

const { path, url, options = {}, stream = false, terminate = false } =
  JSON.parse(process.argv[2]);
const outcome = { methods: [], retries: 0 };

function inputOf() {
  const file = createReadStream(path);
  // Behind a pipe nobody knows where it ends.
  return stream ? file.pipe(new PassThrough({ highWaterMark: 2 * options.chunkSize })) : file;
}

const upload = new tus.Upload(inputOf(), {
  endpoint: `${url}/tus/`,
  retryDelays: [50, 100, 200, 400, 800, 1600],
  metadata: { filename: "film.mp4", filetype: "video/mp4" },
  ...options,
  onBeforeRequest: (request) => {
    const offset = request.getHeader("Upload-Offset");
    outcome.methods.push(offset === undefined ? request.getMethod() : `${request.getMethod()} ${offset}`);
  },
  onShouldRetry: (error) => {
    const status = error.originalResponse?.getStatus() ?? 0;
    const mayHelp = status < 400 || status === 409 || status >= 500;
    outcome.retries += mayHelp ? 1 : 0;
    return mayHelp;
  },
  onError: (error) => tell({ error: String(error) }),
  onSuccess: async () => {
    if (terminate) {
      await tus.Upload.terminate(upload.url);
    }
    tell({ url: upload.url });
  },
});

function tell(more) {
  console.log(JSON.stringify({ ...outcome, ...more }));
  process.exit(0);
}

upload.start();
