import assert from "node:assert/strict";
import { test } from "node:test";

import { wordsForProblem } from "../../static/js/words.js";
import { connectionLost, Problem, problemOfAnswer, retryAfterDelay } from "../../static/js/uploads/problem.js";

test("a problem document decides by its code and its retryable member", () => {
  const text = JSON.stringify({ code: "writer_superseded", retryable: true, detail: "taken over" });
  const { code, status, retryable, detail } = problemOfAnswer(409, text, null);
  assert.deepEqual({ code, status, retryable, detail }, { code: "writer_superseded", status: 409, retryable: true, detail: "taken over" });
});

test("a document may forbid what the status alone would allow", () => {
  assert.equal(problemOfAnswer(500, '{"code":"broken","retryable":false}', null).retryable, false);
});

test("a proxy's error page means that the server is away", () => {
  const problem = problemOfAnswer(502, "<html>Bad Gateway</html>", "3");
  assert.equal(problem.isConnectionLost, true);
  assert.equal(problem.retryable, true);
  assert.equal(problem.retryAfter, 3000);
});

test("a busy server is no lost connection", () => {
  const problem = problemOfAnswer(503, '{"code":"server_busy","retryable":true}', "2");
  assert.equal(problem.isConnectionLost, false);
});

test("a proxy's refusal of the size is final", () => {
  const { code, retryable } = problemOfAnswer(413, "", null);
  assert.deepEqual({ code, retryable }, { code: "too_large", retryable: false });
});

test("answers that are no documents do no harm", () => {
  for (const text of ["", "null", "[1]", "{", '"text"']) assert.equal(problemOfAnswer(418, text, null).code, "unexpected_answer");
});

test("every problem has words, with the limit in human units", () => {
  assert.match(wordsForProblem(new Problem({ code: "too_large" }), { limit: 2 ** 40 }), /1 TB/);
  const full = new Problem({ code: "quota_exceeded", detail: "The file needs 4 GB, but of 50 GB only 3 GB are left." });
  assert.match(wordsForProblem(full, { limit: 1 }), /only 3 GB are left/);
  assert.match(wordsForProblem(new Problem({ code: "never_seen" }), { limit: 1 }), /try again/i);
  assert.equal(connectionLost().retryable, true);
});

test("Retry-After is read as seconds or as a date", () => {
  assert.equal(retryAfterDelay("7"), 7000);
  assert.equal(retryAfterDelay("Thu, 01 Jan 1970 00:00:10 GMT", 4000), 6000);
  assert.equal(retryAfterDelay("Thu, 01 Jan 1970 00:00:10 GMT", 40_000), 0);
});

test("a Retry-After that is absent, senseless or endless does not stop the upload", () => {
  assert.equal(retryAfterDelay(null), 0);
  assert.equal(retryAfterDelay("soon"), 0);
  assert.equal(retryAfterDelay("86400"), 300_000);
});
