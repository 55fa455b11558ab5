// How long the agent takes to answer: from the end of the caller's speech to the first sound of the answer.
//
// All times are seconds of the audio clock, so that microphone and loudspeaker are compared on one clock.

export class AnswerClock {
  // When the last loud sound of the microphone ended.
  #loudUntil = null;
  // When the turn that the agent is to answer ended.
  #asked = null;
  #server = null;

  heard(loudUntil) {
    this.#loudUntil = loudUntil;
  }

  // The server heard the turn end. By now there may be new sounds, but the turn ended with the last before them.
  turnEnded(now) {
    this.#asked ??= this.#loudUntil ?? now;
  }

  // The caller typed their turn.
  typed(now) {
    this.#asked = now;
  }

  // The caller goes on: what the agent says next answers a later end.
  turnBegan() {
    this.#asked = null;
  }

  // The server's own figure, in seconds, for the answer whose sound follows.
  serverSays(seconds) {
    this.#server = seconds;
  }

  // The answer's first sound: {here, server} in seconds; null if the sound answers no turn, such as a greeting's.
  began(now) {
    if (this.#asked === null || this.#server === null) return null;
    const latency = { here: Math.max(0, now - this.#asked), server: this.#server };
    this.#asked = this.#server = null;
    return latency;
  }
}
