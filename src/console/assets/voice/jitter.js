// A jitter buffer: audio arrives in pieces and unevenly, and leaves without gaps.
//
// It lets some audio gather before it begins to play. If it runs dry in the middle of a sentence, it lets more gather the
// next time; each sentence without a gap takes some of that back. Marks lie between samples, and are passed in order.

const LEAST_SECONDS = 0.06;
const MOST_SECONDS = 0.4;
const GROWTH = 1.6;
const RELIEF = 0.9;
// What is dropped ends softly: a cut is heard as a click.
const FADE_SECONDS = 0.005;

export class JitterBuffer {
  // How often audio was missing in the middle of a sentence.
  gaps = 0;

  #rate;
  #queue = [];
  // Samples in the queue, and samples of its first piece that have been played.
  #held = 0;
  #played = 0;
  #target;
  #isPlaying = false;
  #waited = 0;
  #last = 0;
  #fade = 0;

  constructor(rate) {
    this.#rate = rate;
    this.#target = LEAST_SECONDS * rate;
  }

  // Audio that has not been played, in seconds.
  get seconds() {
    return this.#held / this.#rate;
  }

  get isPlaying() {
    return this.#isPlaying;
  }

  push(samples) {
    if (samples.length === 0) return;
    this.#queue.push(samples);
    this.#held += samples.length;
  }

  // The sentence ends here: its rest is played without waiting for more, and `mark` is passed when it was.
  end(mark) {
    this.#queue.push({ mark });
  }

  // Drops everything. Returns the marks that are passed by that.
  clear() {
    const marks = this.#queue.filter((piece) => "mark" in piece).map((piece) => piece.mark);
    this.#queue = [];
    this.#held = this.#played = 0;
    if (this.#isPlaying) this.#fade = Math.round(FADE_SECONDS * this.#rate);
    this.#isPlaying = false;
    this.#waited = 0;
    return marks;
  }

  // Fills `output`. Returns the marks that were passed, and the index of the sample with which the sound began, if it did.
  pull(output) {
    const marks = [];
    let began = null;
    if (!this.#isPlaying && this.#mayBegin(output.length)) {
      this.#isPlaying = true;
      this.#waited = 0;
      if (this.#held > 0) began = 0;
    }
    let at = 0;
    while (this.#isPlaying && at < output.length) {
      const piece = this.#queue[0];
      if (piece === undefined) {
        this.#ranDry();
      } else if ("mark" in piece) {
        marks.push(piece.mark);
        this.#queue.shift();
        if (this.#queue.length === 0) {
          this.#isPlaying = false;
          this.#target = Math.max(LEAST_SECONDS * this.#rate, this.#target * RELIEF);
        }
      } else {
        const count = Math.min(output.length - at, piece.length - this.#played);
        output.set(piece.subarray(this.#played, this.#played + count), at);
        at += count;
        this.#held -= count;
        this.#played += count;
        this.#last = output[at - 1];
        if (this.#played === piece.length) {
          this.#queue.shift();
          this.#played = 0;
        }
      }
    }
    this.#silence(output, at);
    return { marks, began };
  }

  #mayBegin(count) {
    if (this.#queue.length === 0) return false;
    this.#waited += count;
    const isWhole = this.#queue.some((piece) => "mark" in piece);
    return isWhole || this.#held >= this.#target || this.#waited > 3 * this.#target;
  }

  #ranDry() {
    this.gaps++;
    this.#isPlaying = false;
    this.#fade = Math.round(FADE_SECONDS * this.#rate);
    this.#target = Math.min(MOST_SECONDS * this.#rate, this.#target * GROWTH);
  }

  #silence(output, from) {
    const fading = Math.round(FADE_SECONDS * this.#rate);
    for (let at = from; at < output.length; at++) {
      output[at] = this.#fade > 0 ? (this.#last * this.#fade--) / fading : 0;
    }
    if (this.#fade === 0 && !this.#isPlaying) this.#last = 0;
  }
}
