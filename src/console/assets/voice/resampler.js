// Changes the sample rate of a stream of audio: a windowed sinc in as many phases as the two rates need.

// Zero crossings of the sinc on either side: more is a steeper filter.
const CROSSINGS = 12;
// The part of the lower rate's band that is kept.
const PASSED = 0.92;

export class Resampler {
  #phases;
  #step;
  #half;
  #kernels;
  #held;
  // The position of the next sample in `held`, in parts of an input sample.
  #at = 0;

  constructor(from, to) {
    const divisor = greatestCommonDivisor(from, to);
    this.#phases = to / divisor;
    this.#step = from / divisor;
    const cutoff = Math.min(1, to / from) * PASSED;
    this.#half = Math.ceil(CROSSINGS / cutoff);
    this.#kernels = Array.from({ length: this.#phases }, (_, phase) => kernel(phase / this.#phases, this.#half, cutoff));
    this.#held = new Float32Array(this.#half - 1);
  }

  // The samples at the new rate that `input` completes. The filter holds back the last few.
  process(input) {
    if (this.#phases === 1 && this.#step === 1) return input;
    const held = new Float32Array(this.#held.length + input.length);
    held.set(this.#held);
    held.set(input, this.#held.length);
    const taps = 2 * this.#half;
    const ready = held.length - taps;
    const last = ready * this.#phases;
    const count = last < this.#at ? 0 : Math.floor((last - this.#at) / this.#step) + 1;
    const output = new Float32Array(count);
    for (let index = 0; index < count; index++) {
      const first = Math.floor(this.#at / this.#phases);
      const weights = this.#kernels[this.#at % this.#phases];
      let sum = 0;
      for (let tap = 0; tap < taps; tap++) sum += weights[tap] * held[first + tap];
      output[index] = sum;
      this.#at += this.#step;
    }
    const used = Math.min(Math.floor(this.#at / this.#phases), held.length);
    this.#at -= used * this.#phases;
    this.#held = held.slice(used);
    return output;
  }
}

// Weights of the samples around a point that lies `fraction` of a sample after the middle one; their sum is 1.
function kernel(fraction, half, cutoff) {
  const weights = new Float32Array(2 * half);
  let sum = 0;
  for (let tap = 0; tap < weights.length; tap++) {
    const distance = tap - (half - 1) - fraction;
    const window = 0.5 + 0.5 * Math.cos((Math.PI * distance) / half);
    weights[tap] = Math.abs(distance) >= half ? 0 : sinc(cutoff * distance) * window;
    sum += weights[tap];
  }
  return weights.map((weight) => weight / sum);
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function greatestCommonDivisor(a, b) {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
