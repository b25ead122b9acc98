/** <connection-notice>: shown while the server cannot be reached, or waits for the person to sign in. */

export class ConnectionNotice extends HTMLElement {
  /** Follows `connection`; `isBusy()` tells whether anything waits for it. Where people sign in is in `data-sign-in`. */
  connect({ connection, isBusy }) {
    const link = this.#signInLink();
    const draw = () => {
      const { isReachable, isSignedOut } = connection;
      const isNeeded = isSignedOut || (!isReachable && isBusy());
      const text = isNeeded ? words(connection, isBusy()) : "";
      if (this.dataset.text === text) return; // What has not changed is not read out again.
      this.dataset.text = text;
      this.replaceChildren(text, ...(isSignedOut ? [" ", link] : []));
      this.hidden = !isNeeded;
    };
    connection.addEventListener("change", draw);
  }

  /** Opens another tab: the files that were chosen here would not survive leaving the page. */
  #signInLink() {
    const link = document.createElement("a");
    Object.assign(link, { className: "button", textContent: "Sign in", target: "_blank" });
    link.href = this.dataset.signIn ?? "";
    return link;
  }
}

function words({ isOffline, isSignedOut }, isBusy) {
  if (isSignedOut) return isBusy ? "You are no longer signed in. Your uploads wait and lose nothing." : "You are no longer signed in.";
  const reason = isOffline ? "You are offline." : "The server cannot be reached.";
  return `${reason} Your uploads will resume when the connection is back.`;
}

customElements.define("connection-notice", ConnectionNotice);
