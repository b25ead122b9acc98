/** Events whose names and details the type checker knows; they are the interface between model and page. */

/**
 * `Details` maps the name of each event to its `detail`.
 * @template {object} Details
 */
export class Emitter extends EventTarget {
  /**
   * @override
   * @template {keyof Details & string} Type
   * @param {Type} type
   * @param {((event: CustomEvent<Details[Type]>) => void) | EventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   */
  addEventListener(type, listener, options) {
    super.addEventListener(type, /** @type {EventListenerOrEventListenerObject | null} */ (listener), options);
  }

  /**
   * @template {keyof Details & string} Type
   * @param {Type} type
   * @param {Details[Type]} detail
   */
  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
