// An AudioWorklet: sound as 16-bit samples, in messages that are short beside the delay of hearing.

const MESSAGE_SAMPLES = 2048;

class Capture extends AudioWorkletProcessor {
  #held = new Int16Array(MESSAGE_SAMPLES);
  #count = 0;

  process([input]) {
    const [channel] = input;
    // Without a channel, the source has ended or has not begun.
    if (!channel) return true;
    for (const sample of channel) {
      this.#held[this.#count++] = Math.max(-1, Math.min(1, sample)) * 0x7fff;
      if (this.#count === MESSAGE_SAMPLES) this.#post();
    }
    return true;
  }

  #post() {
    this.port.postMessage(this.#held, [this.#held.buffer]);
    this.#held = new Int16Array(MESSAGE_SAMPLES);
    this.#count = 0;
  }
}

registerProcessor("capture", Capture);
