/** How long to wait before the next attempt. All durations are milliseconds. */

const FIRST_DELAY = 1_000;
const LONGEST_DELAY = 30_000;
/** A server that asks for more than this is asked again anyway: it may have come back long before. */
const LONGEST_RETRY_AFTER = 5 * 60_000;

/**
 * Exponential backoff with full jitter: a random time up to 1, 2, 4 ... 30 s, so that many waiting chunks do not
 * return at once.
 */
export function jitteredDelay(attempt, random = Math.random) {
  const ceiling = Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** Math.max(0, attempt));
  return Math.round(random() * ceiling);
}

/** The delay a `Retry-After` header asks for (seconds or an HTTP date), or 0 where it asks for none. */
export function retryAfterDelay(header, now = Date.now()) {
  if (!header) return 0;
  const seconds = /^\s*\d+\s*$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - now;
  return Number.isFinite(seconds) ? Math.min(Math.max(0, seconds), LONGEST_RETRY_AFTER) : 0;
}

/** Resolves after `milliseconds`; rejects at once with the signal's reason when it is aborted. */
export function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
