// A talk with the agent: the session, its room, microphone and loudspeaker, joined again where the connection broke.

import { AnswerClock } from "./latency.js";
import { Room, isRoomHere } from "./room.js";
import * as service from "./service.js";
import { Sound } from "./sound.js";

// Close codes of the room's socket.
const ENDED = 4000;
// The last word is still on its way to the loudspeaker when a session ends.
const LAST_WORD_MS = 500;
// Pauses before the room is joined again; the server keeps a session without participants for a minute.
const REJOIN_MS = [500, 1000, 2000, 4000, 8000, 8000, 8000, 8000];

// Why a talk did not begin: `livekit`, or an error of the sound or the request.
export class TalkError extends Error {
  constructor(reason) {
    super(reason);
    this.reason = reason;
  }
}

// Events:
//   `state`    connecting, listening, thinking, speaking, reconnecting or over
//   `message`  each message of the room
//   `latency`  {here, server} in seconds, at the answer's first sound
//   `level`    {caller} or {agent}, 0 to 1
//   `notice`   microphone-lost or silent
//   `over`     {reason}: that of the session, or `lost`
export class Talk extends EventTarget {
  state = "connecting";
  session = null;

  #sound;
  #room = null;
  #clock = new AnswerClock();
  #isOver = false;

  // `fields` of the start; `hasMicrophone`: otherwise the caller types.
  async begin(fields, { hasMicrophone }) {
    this.#sound = new Sound();
    try {
      await this.#openSound(hasMicrophone);
      this.session = await service.start(fields);
      if (!isRoomHere(this.session)) throw new TalkError("livekit");
      if (!this.#isOver) this.#join(this.session);
    } catch (error) {
      this.#close(0);
      throw error;
    }
  }

  get id() {
    return this.session?.session_id ?? null;
  }

  set isMuted(isMuted) {
    this.#sound.isMuted = isMuted;
  }

  say(content) {
    this.#clock.typed(this.#sound.now);
    this.#room?.send({ type: "InjectUserMessage", content });
  }

  press(digit) {
    this.#room?.send({ type: "Dtmf", digit });
  }

  // What a function of the page gave, which the chat model called.
  answer(id, name, content) {
    this.#room?.send({ type: "FunctionCallResponse", id, name, content });
  }

  end() {
    this.#finish("you");
  }

  async #openSound(hasMicrophone) {
    const sound = this.#sound;
    sound.addEventListener("piece", ({ detail }) => this.#hear(detail));
    sound.addEventListener("mark", ({ detail }) => this.#room?.send({ type: "PlaybackMark", name: detail }));
    sound.addEventListener("began", ({ detail }) => this.#began(detail));
    sound.addEventListener("level", ({ detail }) => this.#tell("level", { agent: detail.level, gaps: detail.gaps }));
    sound.addEventListener("silent", () => this.#tell("notice", "silent"));
    sound.addEventListener("lost", () => this.#tell("notice", "microphone-lost"));
    await sound.open({ hasMicrophone });
  }

  #hear({ samples, level, loudUntil }) {
    this.#clock.heard(loudUntil);
    this.#room?.sendAudio(samples);
    this.#tell("level", { caller: level });
  }

  #began(at) {
    const latency = this.#clock.began(at + this.#sound.outputSeconds);
    if (latency !== null) this.#tell("latency", latency);
  }

  #join(invitation) {
    const room = new Room(invitation);
    this.#room = room;
    room.addEventListener("audio", ({ detail }) => this.#sound.play(detail));
    room.addEventListener("message", ({ detail }) => this.#take(detail));
    room.addEventListener("over", ({ detail }) => this.#lost(detail));
  }

  #take(message) {
    switch (message.type) {
      case "AgentState":
        this.#become(message.state);
        break;
      case "UserStartedSpeaking":
        // Barge-in: nothing that waits to be played is heard any more.
        this.#clock.turnBegan();
        this.#sound.clear();
        break;
      case "UserStoppedSpeaking":
        this.#clock.turnEnded(this.#sound.now);
        break;
      case "ConversationText":
        if (message.role === "user") this.#clock.turnEnded(this.#sound.now);
        break;
      case "LatencyReport":
        this.#clock.serverSays(message.total_latency);
        break;
      case "Mark":
        this.#sound.mark(message.name);
        break;
      case "Clear":
        this.#sound.clear();
        break;
      case "SessionEnded":
        this.#finish(message.reason, LAST_WORD_MS);
        break;
    }
    this.#tell("message", message);
  }

  async #lost({ code }) {
    this.#room = null;
    if (this.#isOver) return;
    if (code === ENDED) return this.#finish("ended", LAST_WORD_MS);
    this.#sound.clear();
    this.#become("reconnecting");
    for (const pause of REJOIN_MS) {
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (this.#isOver) return;
      try {
        const now = await service.status(this.id);
        if (this.#isOver) return;
        if (now.status === "ended") return this.#finish(now.end_reason);
        const address = new URL(now.websocket_url);
        return this.#join({ websocket_url: now.websocket_url, token: address.searchParams.get("access_token") });
      } catch (error) {
        // The server is not there yet, or it forgot the session.
        if (error.status === 404 || error.status === 401) return this.#finish("lost");
      }
    }
    this.#finish("lost");
  }

  #become(state) {
    this.state = state;
    this.#tell("state", state);
  }

  #finish(reason, after = 0) {
    if (this.#isOver) return;
    this.#close(after);
    this.#tell("over", { reason });
  }

  #close(after) {
    this.#isOver = true;
    this.#room?.leave();
    this.#room = null;
    setTimeout(() => this.#sound.close(), after);
    this.#become("over");
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
