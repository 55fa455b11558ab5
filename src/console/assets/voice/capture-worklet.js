// The microphone's audio as 16-bit samples at the `rate` that is asked for, in pieces of 20 ms.

import { Loudness } from "./loudness.js";
import { Resampler } from "./resampler.js";

const PIECES_PER_SECOND = 50;

class Capture extends AudioWorkletProcessor {
  #resampler;
  #loudness;
  #piece;
  #filled = 0;

  constructor({ processorOptions: { rate } }) {
    super();
    this.#resampler = new Resampler(sampleRate, rate);
    this.#loudness = new Loudness(sampleRate, currentTime);
    this.#piece = new Int16Array(Math.round(rate / PIECES_PER_SECOND));
  }

  process([channels]) {
    if (channels.length === 0) return true;
    const mono = mixed(channels);
    this.#loudness.take(mono);
    for (const sample of this.#resampler.process(mono)) {
      this.#piece[this.#filled++] = Math.max(-1, Math.min(1, sample)) * 32_767;
      if (this.#filled === this.#piece.length) this.#give();
    }
    return true;
  }

  #give() {
    const { level, loudUntil } = this.#loudness;
    const samples = this.#piece.slice().buffer;
    this.#filled = 0;
    this.port.postMessage({ samples, level, loudUntil }, [samples]);
  }
}

function mixed(channels) {
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, at) => channels.reduce((sum, channel) => sum + channel[at], 0) / channels.length);
}

registerProcessor("voice-capture", Capture);
