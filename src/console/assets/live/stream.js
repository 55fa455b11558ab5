// A stream to a live socket: audio out, messages in. It knows when each moment of the audio was sent, and opens the
// socket again when it is lost.

import { fetchPublic, openSocket, watch } from "../api.js";

/** Audio that waits while the socket is closed; older audio is dropped. */
const HELD_SECONDS = 30;
/** What is remembered of when audio was sent. */
const SENT_SECONDS = 120;
const DELAYS_MS = [500, 1000, 2000, 4000, 8000];
const BYTES_PER_SAMPLE = 2;
/** Closed on purpose, or for a reason that another try would meet again. */
const FINAL_CODES = [1000, 1002, 1003, 1007, 1008, 1009];

/**
 * Events: `state` (detail: `{ state, code, reason }`, the state being "opening", "open", "lost", "refused" or "closed") and
 * `message` (detail: the message; `latency` in milliseconds where it tells of audio; `offset`, the seconds before this
 * socket's audio).
 */
export class LiveStream extends EventTarget {
  #path;
  #rate;
  #socket = null;
  #state = "opening";
  #isLeaving = false;
  #wasOpen = false;
  #tries = 0;
  #timer = 0;
  #held = [];
  #heldSamples = 0;
  #sent = [];
  #samples = 0;
  #offset = 0;
  #dropped = 0;

  /** Nothing is sent on purpose: a server that ends the stream for that is right. */
  isQuiet = false;

  /** @param {string} path with its query  @param {number} rate samples per second */
  constructor(path, rate) {
    super();
    this.#path = path;
    this.#rate = rate;
  }

  get state() {
    return this.#state;
  }

  /** Seconds of audio, those of earlier sockets and those that wait included. */
  get seconds() {
    return this.#offset + (this.#samples + this.#heldSamples) / this.#rate;
  }

  /** Seconds of audio that were given up while there was no socket. */
  get dropped() {
    return this.#dropped / this.#rate;
  }

  async open() {
    this.#tell("opening");
    let socket;
    try {
      socket = await openSocket(this.#path);
    } catch (error) {
      if (error.status === 401 || this.#isLeaving) return this.#tell("closed");
      return this.#again({ reason: error.message });
    }
    if (this.#isLeaving) {
      socket.close();
      return this.#tell("closed");
    }
    this.#socket = socket;
    socket.onopen = () => this.#opened();
    socket.onmessage = ({ data }) => this.#heard(data);
    socket.onclose = (event) => this.#closed(event);
  }

  /** @param {Int16Array} samples */
  send(samples) {
    if (this.#isLeaving) return;
    if (this.#socket?.readyState === WebSocket.OPEN) return this.#put(samples);
    this.#held.push(samples);
    this.#heldSamples += samples.length;
    while (this.#heldSamples > HELD_SECONDS * this.#rate) {
      const lost = this.#held.shift().length;
      this.#heldSamples -= lost;
      this.#dropped += lost;
    }
  }

  /** Sends a message of this type; `CloseStream` ends the stream once everything is transcribed. */
  control(type) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type }));
    if (type !== "CloseStream") return;
    this.#isLeaving = true;
    clearTimeout(this.#timer);
    if (this.#socket?.readyState !== WebSocket.OPEN) this.stop();
  }

  /** Ends at once. */
  stop() {
    this.#isLeaving = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
    if (this.#state === "lost" || !this.#socket) this.#tell("closed");
  }

  #opened() {
    this.#offset += this.#samples / this.#rate;
    this.#samples = 0;
    this.#sent = [];
    this.#tries = 0;
    this.#wasOpen = true;
    this.#tell("open");
    const waiting = this.#held;
    this.#held = [];
    this.#heldSamples = 0;
    for (const samples of waiting) this.#put(samples);
  }

  #put(samples) {
    this.#socket.send(samples);
    this.#samples += samples.length;
    this.#sent.push({ seconds: this.#samples / this.#rate, at: performance.now() });
    const forgotten = this.#samples / this.#rate - SENT_SECONDS;
    if (this.#sent[0].seconds < forgotten - SENT_SECONDS) {
      this.#sent = this.#sent.slice(this.#sent.findIndex(({ seconds }) => seconds >= forgotten));
    }
  }

  #heard(data) {
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    const end = message.type === "Results" ? message.start + message.duration
      : message.type === "TurnInfo" ? message.audio_window_end : null;
    const latency = end === null ? null : this.#since(end);
    this.dispatchEvent(new CustomEvent("message", { detail: { message, latency, offset: this.#offset } }));
  }

  /** Milliseconds since the audio up to `seconds` was sent. */
  #since(seconds) {
    let [low, high] = [0, this.#sent.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#sent[middle].seconds < seconds - 1e-3) low = middle + 1;
      else high = middle;
    }
    const moment = this.#sent[low] ?? this.#sent.at(-1);
    return moment ? performance.now() - moment.at : null;
  }

  async #closed({ code, reason }) {
    this.#socket = null;
    if (this.#isLeaving || code === 1000) return this.#tell("closed", { code, reason });
    if (!this.#wasOpen) {
      const refusal = await this.#refusal();
      if (refusal) return this.#tell("refused", { code, reason: refusal });
    }
    if (FINAL_CODES.includes(code) || this.isQuiet) return this.#tell("refused", { code, reason });
    watch(0);
    this.#again({ code, reason });
  }

  /** A browser does not say why a handshake failed; the same request without an upgrade does. */
  async #refusal() {
    try {
      await fetchPublic(this.#path);
      return null;
    } catch (error) {
      const isPassing = error.status === 0 || error.status === 426 || error.status >= 500 || error.status === 429;
      return isPassing ? null : error.message;
    }
  }

  #again(why) {
    if (this.#isLeaving) return this.#tell("closed", why);
    this.#tell("lost", why);
    this.#timer = setTimeout(() => this.open(), DELAYS_MS[Math.min(this.#tries++, DELAYS_MS.length - 1)]);
  }

  #tell(state, { code = 0, reason = "" } = {}) {
    this.#state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: { state, code, reason } }));
  }
}
