// Plays the agent's audio, 16-bit samples as they arrive, through a jitter buffer.
//
// It takes {samples}, {mark} and {clear}; it gives {began: seconds of the audio clock}, {mark} when one is passed, and
// {level, gaps} some times a second.

import { JitterBuffer } from "./jitter.js";
import { Resampler } from "./resampler.js";

// Blocks of 128 samples between two reports.
const REPORTED = 24;

class Playback extends AudioWorkletProcessor {
  #resampler;
  #buffer = new JitterBuffer(sampleRate);
  #blocks = 0;
  #peak = 0;

  constructor({ processorOptions: { rate } }) {
    super();
    this.#resampler = new Resampler(rate, sampleRate);
    this.port.onmessage = ({ data }) => this.#take(data);
  }

  #take({ samples, mark, clear }) {
    if (samples !== undefined) {
      const heard = Float32Array.from(new Int16Array(samples), (sample) => sample / 32_768);
      this.#buffer.push(this.#resampler.process(heard));
    }
    if (mark !== undefined) this.#buffer.end(mark);
    if (clear) this.#report(this.#buffer.clear());
  }

  process(_, [channels]) {
    const output = channels[0];
    const { marks, began } = this.#buffer.pull(output);
    for (const channel of channels.slice(1)) channel.set(output);
    if (began !== null) this.port.postMessage({ began: currentTime + began / sampleRate });
    this.#report(marks);
    for (const sample of output) this.#peak = Math.max(this.#peak, Math.abs(sample));
    if (++this.#blocks % REPORTED === 0) {
      this.port.postMessage({ level: this.#peak, gaps: this.#buffer.gaps });
      this.#peak = 0;
    }
    return true;
  }

  #report(marks) {
    for (const mark of marks) this.port.postMessage({ mark });
  }
}

registerProcessor("voice-playback", Playback);
