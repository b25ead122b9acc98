/** <connection-notice>: shown while the server cannot be reached. */

export class ConnectionNotice extends HTMLElement {
  /** Follows `connection`; `isBusy()` tells whether anything waits for it. */
  connect({ connection, isBusy }) {
    const draw = () => {
      const isNeeded = !connection.isReachable && isBusy();
      this.textContent = isNeeded ? words(connection) : "";
      this.hidden = !isNeeded;
    };
    connection.addEventListener("change", draw);
  }
}

function words({ isOffline }) {
  const reason = isOffline ? "You are offline." : "The server cannot be reached.";
  return `${reason} Your uploads will resume when the connection is back.`;
}

customElements.define("connection-notice", ConnectionNotice);
