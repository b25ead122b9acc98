/** What can go wrong with a request. Decisions rest on `code` and `retryable`, never on the text. */

/** Statuses that a proxy in front of the server returns while the server is down or restarting. */
const AWAY_STATUSES = new Set([502, 503, 504]);
const RETRYABLE_STATUSES = new Set([408, 425, 429, 500, ...AWAY_STATUSES]);
/** Codes for answers without a problem document, such as those of proxies. */
/** @type {Record<number, string>} */
const CODE_OF_STATUS = {
  404: "upload_not_found",
  410: "upload_gone",
  413: "too_large",
  415: "type_not_allowed",
  507: "no_room",
};

const NOT_SIGNED_IN = "not_signed_in";

/** Longest Retry-After that is honoured: the server may be back long before, milliseconds. */
const LONGEST_RETRY_AFTER = 5 * 60_000;

/**
 * A refused or failed request; `retryAfter` is in milliseconds.
 */
export class Problem extends Error {
  /** @param {{ code: string, status?: number, retryable?: boolean, retryAfter?: number, detail?: string }} problem */
  constructor({ code, status = 0, retryable = false, retryAfter = 0, detail = "" }) {
    super(detail || code);
    this.name = "Problem";
    this.code = code;
    this.status = status;
    this.retryable = retryable;
    this.retryAfter = retryAfter;
    this.detail = detail;
  }

  /** Whether there was no answer, as opposed to a refusal. */
  get isConnectionLost() {
    return this.code === "connection_lost" || this.code === "server_away";
  }

  /** Whether the session has ended; retryable, once the person has signed in again. */
  get isSignedOut() {
    return this.code === NOT_SIGNED_IN;
  }

  /** Whether there is no such thing on the server, or no longer. */
  get isAbsence() {
    return this.status === 404 || this.status === 410;
  }

  /** Whether the server no longer has the upload. */
  get isUploadGone() {
    return this.code === "upload_gone" || this.code === "upload_not_found";
  }
}

/**
 * What was thrown, as a problem; anything else than one is a bug of the page.
 * @param {unknown} error
 */
export function problemOfError(error) {
  return error instanceof Problem ? error : new Problem({ code: "page_error", detail: String(error) });
}

/** The problem of a request that got no answer at all. */
export function connectionLost() {
  return new Problem({ code: "connection_lost", retryable: true });
}

/** The problem of a file that the browser can no longer read: changed, moved or removed since it was chosen. */
export function fileUnreadable() {
  return new Problem({ code: "file_unreadable" });
}

/**
 * @param {string} text
 * @returns {Api.Problem}
 */
function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? value : {};
  } catch {
    return {};
  }
}

/**
 * The delay in milliseconds that a `Retry-After` header asks for (seconds or an HTTP date); 0 if it asks for none.
 * @param {string | null | undefined} header
 */
export function retryAfterDelay(header, now = Date.now()) {
  if (!header) return 0;
  const seconds = /^\s*\d+\s*$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - now;
  return Number.isFinite(seconds) ? Math.min(Math.max(0, seconds), LONGEST_RETRY_AFTER) : 0;
}

/**
 * The problem in a problem document, as in the receipts of single files.
 * @param {Api.Problem} document
 */
export function problemOfDocument({ code = "unexpected_answer", status, detail, retryable = false }) {
  return new Problem({ code, status, detail, retryable });
}

/**
 * The problem in an HTTP answer that is not a success.
 * @param {number} status
 * @param {string} text
 * @param {string | null} [retryAfterHeader]
 */
export function problemOfAnswer(status, text, retryAfterHeader) {
  const { code, detail, retryable } = parsed(text);
  const away = !code && AWAY_STATUSES.has(status);
  return new Problem({
    code: code ?? (away ? "server_away" : (CODE_OF_STATUS[status] ?? "unexpected_answer")),
    status,
    detail,
    retryable: code === NOT_SIGNED_IN || (retryable ?? RETRYABLE_STATUSES.has(status)),
    retryAfter: retryAfterDelay(retryAfterHeader),
  });
}
