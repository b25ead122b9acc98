/** Files in one request: which are still wanted, how far each has come, and what happened to it. */

import { connectionLost, problemOfDocument } from "./problem.js";

export class Bundle {
  parcels = [];
  bytes = 0;
  #control = new AbortController();
  #underWay = [];
  #shownTo = 0;

  get count() {
    return this.parcels.length;
  }

  /** Aborted once no file needs the request. */
  get signal() {
    return this.#control.signal;
  }

  get isWanted() {
    return this.count > 0;
  }

  /** Adds a parcel; its receipt is settled by this bundle or by a half of it. */
  add(parcel) {
    parcel.leave();
    this.#hold(parcel);
    parcel.depart(new Promise((resolve, reject) => Object.assign(parcel, { resolve, reject })));
  }

  #hold(parcel) {
    this.parcels.push(parcel);
    this.bytes += parcel.size;
    parcel.leave = () => parcel.signal.removeEventListener("abort", lose);
    const lose = () => this.#lose(parcel);
    parcel.signal.addEventListener("abort", lose, { once: true });
  }

  /** The parcels of one request, in order; the bundle may lose some of them while it is being sent. */
  begin() {
    this.#underWay = [...this.parcels];
    this.#shownTo = 0;
    return this.#underWay;
  }

  /** Assigns the bytes that have left, a share from 0 to 1, to the files in order. */
  showSent(share) {
    const total = this.#underWay.reduce((sum, { size }) => sum + size, 0);
    const position = share * total;
    let start = 0;
    for (const parcel of this.#underWay) {
      const end = start + parcel.size;
      if (end > this.#shownTo && this.#has(parcel)) parcel.onSent(Math.min(parcel.size, Math.floor(position - start)));
      if (end > position) break;
      start = end;
    }
    this.#shownTo = position;
  }

  /** Nothing of a broken request counts as sent. */
  takeBack() {
    for (const parcel of this.#underWay) parcel.onSent(0);
    this.#underWay = [];
  }

  /**
   * Ends each parcel as its receipt says; a cancelled one gets its receipt through `onUnwanted`. Returns the problem of
   * the parcels that stay because they are worth sending again, or null.
   */
  settle(receipts) {
    if (receipts.length !== this.#underWay.length) throw connectionLost();
    const problems = this.#underWay.map((parcel, index) => this.#settleOne(parcel, receipts[index]));
    this.#underWay = [];
    return problems.find(Boolean) ?? null;
  }

  #settleOne(parcel, receipt) {
    if (!this.#has(parcel)) {
      if (receipt.id && parcel.isUnwanted()) parcel.onUnwanted(receipt);
      return null;
    }
    if (receipt.error) return this.#refuse(parcel, problemOfDocument(receipt.error));
    this.#release(parcel);
    parcel.resolve(receipt);
    return null;
  }

  #refuse(parcel, problem) {
    parcel.onSent(0);
    if (problem.retryable) return problem;
    this.failOne(parcel, problem);
    return null;
  }

  failOne(parcel, error) {
    if (!this.#has(parcel)) return;
    this.#release(parcel);
    parcel.reject(error);
  }

  fail(error) {
    for (const parcel of [...this.parcels]) this.failOne(parcel, error);
  }

  eachWanted(call) {
    this.parcels.forEach(call);
  }

  /** Splits this bundle into two, and leaves it empty. */
  halves() {
    const all = [...this.parcels];
    const middle = Math.ceil(all.length / 2);
    return [all.slice(0, middle), all.slice(middle)].map((part) => {
      const half = new Bundle();
      for (const parcel of part) {
        this.#release(parcel);
        half.#hold(parcel);
      }
      return half;
    });
  }

  #has(parcel) {
    return this.parcels.includes(parcel);
  }

  #release(parcel) {
    parcel.leave();
    this.parcels.splice(this.parcels.indexOf(parcel), 1);
    this.bytes -= parcel.size;
  }

  /**
   * A file was paused or cancelled. The request continues for the others, and runs to its end if a file was cancelled:
   * only the receipt tells what to delete on the server.
   */
  #lose(parcel) {
    this.failOne(parcel, parcel.signal.reason);
    parcel.onSent(0);
    const isAwaited = this.#underWay.some((other) => other.isUnwanted());
    if (!this.isWanted && !isAwaited) this.#control.abort(parcel.signal.reason);
  }
}
