// Finds where speech ended in a microphone's signal, by its loudness against the room's noise.

const FRAME_SECONDS = 0.01;
// The noise is believed to rise so much per frame: 6 dB in about 2 seconds.
const RISE = 1.0035;
// Speech is so many times louder than the noise, and never softer than this.
const ABOVE_NOISE = 3;
const FAINTEST = 0.004;

export class Loudness {
  // Loudness of the last frame, 0 to 1.
  level = 0;
  // Seconds of the stream at which the last loud frame ended; none yet: null.
  loudUntil = null;

  #frame;
  #sum = 0;
  #count = 0;
  #seconds;
  #noise = FAINTEST;

  // `begins`: the time of the first sample, in seconds.
  constructor(rate, begins = 0) {
    this.#frame = Math.round(rate * FRAME_SECONDS);
    this.#seconds = begins;
  }

  take(samples) {
    for (const sample of samples) {
      this.#sum += sample * sample;
      if (++this.#count === this.#frame) this.#judge();
    }
  }

  #judge() {
    this.level = Math.sqrt(this.#sum / this.#count);
    this.#sum = this.#count = 0;
    this.#seconds += FRAME_SECONDS;
    if (this.level > Math.max(FAINTEST, this.#noise * ABOVE_NOISE)) this.loudUntil = this.#seconds;
    this.#noise = Math.max(1e-5, Math.min(this.level, this.#noise * RISE));
  }
}
