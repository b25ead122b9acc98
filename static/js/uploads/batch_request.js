/** The request that carries a bundle. */

import { connectionLost, problemOfAnswer } from "./problem.js";
import { StallWatch } from "./stall_watch.js";

const stalls = new StallWatch();

/** Makes the `post` of a BundleSender; `slots` bounds it together with the page's other requests. */
export function batchPost({ url, slots }) {
  return async (parcels, { signal, onProgress }) => {
    const release = await slots.take(signal);
    try {
      return await send(url, formOf(parcels), { signal, onProgress });
    } finally {
      release();
    }
  };
}

function formOf(parcels) {
  const form = new FormData();
  for (const { file, name, fingerprint } of parcels) {
    form.append("fingerprint", fingerprint);
    form.append("length", file.size);
    form.append("file", file, name);
  }
  return form;
}

/** XMLHttpRequest, as fetch does not tell how much of a body has left. */
function send(url, form, { signal, onProgress }) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    const abort = () => {
      xhr.abort();
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    xhr.open("POST", url);
    xhr.setRequestHeader("Accept", "application/json");
    xhr.upload.addEventListener("progress", ({ loaded, total }) => {
      stalls.sawProgress(xhr);
      onProgress(loaded / total);
    });
    xhr.addEventListener("load", () => settle(xhr, resolve, reject));
    xhr.addEventListener("error", () => reject(connectionLost()));
    xhr.addEventListener("loadend", () => signal.removeEventListener("abort", abort));
    stalls.watch(xhr, () => reject(connectionLost()));
    xhr.send(form);
  });
}

function settle(xhr, resolve, reject) {
  const { status, responseText } = xhr;
  if (status < 200 || status >= 300) {
    return reject(problemOfAnswer(status, responseText, xhr.getResponseHeader("Retry-After")));
  }
  const receipts = receiptsOf(responseText);
  return receipts ? resolve(receipts) : reject(connectionLost());
}

/** Null for a text that is no answer of ours, such as the login page of some network in between. */
function receiptsOf(text) {
  try {
    const { files } = JSON.parse(text);
    return Array.isArray(files) ? files : null;
  } catch {
    return null;
  }
}
