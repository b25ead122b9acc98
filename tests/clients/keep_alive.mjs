/* Sends requests that fail and then a POST over the same keep-alive agent, again and again, as its
   first argument says (JSON); tells which statuses came, and how the POSTs ended. */

import http from "node:http";

const { url, rounds, failing, posted } = JSON.parse(process.argv[2]);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const outcome = { statuses: [], failures: [], reused: 0 };

/* What is sent of a body at first; the rest goes out once the answer has come. */
function send({ method, path, headers = {}, length = 0, at_first = length }) {
  return new Promise((resolve, reject) => {
    const options = { agent, method, headers: { ...headers, "Content-Length": length } };
    const request = http.request(url + path, options, (response) => {
      if (at_first < length) {
        request.end(Buffer.alloc(length - at_first));
      }
      response.resume();
      response.on("end", () => resolve({ status: response.statusCode, reused: request.reusedSocket }));
      response.on("error", reject);
    });
    request.on("error", reject);
    request.flushHeaders();
    const body = Buffer.alloc(at_first);
    if (at_first === length) {
      request.end(body);
    } else {
      request.write(body);
    }
  });
}

for (let round = 0; round < rounds; round += 1) {
  for (const one of failing) {
    try {
      outcome.statuses.push((await send(one)).status);
    } catch (error) {
      outcome.statuses.push(String(error));
    }
    try {
      const { status, reused } = await send(posted);
      outcome.reused += reused;
      if (status !== 201) {
        outcome.failures.push(`${status} after ${one.path}`);
      }
    } catch (error) {
      outcome.failures.push(`${error} after ${one.method} ${one.path}`);
    }
  }
}
console.log(JSON.stringify(outcome));
process.exit(0);
