// A session's room over its WebSocket: audio in both directions as binary frames, messages as JSON.

const KEEP_ALIVE_MS = 5000;
// Audio that waits to be sent is dropped beyond this: a late word is worse than a lost one.
const UNSENT_BYTES_MAX = 64_000;

// Events: `message` with each message, `audio` with an ArrayBuffer of 16-bit samples, and once `over` with {code, isClean}.
export class Room extends EventTarget {
  #socket;
  #timer;

  // `invitation`: the `websocket_url` and `token` of a start.
  constructor({ websocket_url, token }) {
    super();
    // A proxy may give the server another name than this page has; the policy of the page allows its own alone.
    const { pathname } = new URL(websocket_url);
    const address = new URL(pathname, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    // As a subprotocol, the token is in no log of addresses.
    this.#socket = new WebSocket(address, ["token", token]);
    this.#socket.binaryType = "arraybuffer";
    this.#socket.addEventListener("message", ({ data }) => this.#take(data));
    this.#socket.addEventListener("close", ({ code, wasClean }) => this.#close(code, wasClean));
    this.#timer = setInterval(() => this.send({ type: "KeepAlive" }), KEEP_ALIVE_MS);
  }

  send(message) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  sendAudio(samples) {
    const isReady = this.#socket.readyState === WebSocket.OPEN && this.#socket.bufferedAmount < UNSENT_BYTES_MAX;
    if (isReady) this.#socket.send(samples);
  }

  // Leaves the room. No event follows.
  leave() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.send({ type: "Close" });
    this.#socket.close();
  }

  #take(data) {
    if (this.#timer === null) return;
    if (typeof data !== "string") this.#tell("audio", data);
    else this.#tell("message", JSON.parse(data));
  }

  #close(code, isClean) {
    if (this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
    this.#tell("over", { code, isClean });
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

// Whether the address of a start leads to a room of this server, and not to a LiveKit server.
export function isRoomHere({ websocket_url }) {
  return new URL(websocket_url).pathname.startsWith("/STS/rooms/");
}
