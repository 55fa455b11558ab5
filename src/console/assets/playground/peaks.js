// The shape of a recording: decoded by the browser, then read in slices so that the page answers meanwhile.

import { slices } from "./slices.js";

/**
 * Samples per second that are enough for a picture. The lower, the less a browser copies when it hands over an hour of
 * sound, which is one task; every browser has the second one (Web Audio API, section 1.6).
 */
const SAMPLE_RATES = [3000, 8000];
/** Samples between two looks at the clock. */
const STEP = 1 << 16;
/** The loudness is kept for spans of this length. */
export const SPAN_SECONDS = 0.05;
const PEAK_SECONDS = 0.01;
const COUNT_MAX = 6000;

/**
 * @typedef {object} Peaks
 * @property {number} duration in seconds
 * @property {Float32Array} peaks from 0 to 1, evenly spread over the duration
 * @property {Float32Array} loudness the root of the mean square, for each `SPAN_SECONDS`
 *
 * @param {Blob} blob
 * @param {AbortSignal} signal
 * @returns {Promise<Peaks | null>} `null` if the browser knows no such format
 */
export async function peaksOf(blob, signal) {
  const bytes = await blob.arrayBuffer();
  let audio;
  try {
    audio = await decoder().decodeAudioData(bytes);
  } catch {
    return null;
  }
  signal.throwIfAborted();
  const channels = Array.from({ length: audio.numberOfChannels }, (_, index) => audio.getChannelData(index));
  const { length, duration } = audio;
  const span = Math.round(SPAN_SECONDS * audio.sampleRate);
  const loudness = new Float32Array(Math.ceil(length / span));
  const peaks = new Float32Array(Math.max(1, Math.min(COUNT_MAX, Math.ceil(duration / PEAK_SECONDS))));
  const perPeak = length / peaks.length;
  const breathe = slices(signal);
  for (let from = 0; from < length; from += STEP) {
    await breathe();
    const to = Math.min(length, from + STEP);
    for (const channel of channels) {
      for (let index = from; index < to; index++) {
        const sample = channel[index];
        const size = sample < 0 ? -sample : sample;
        const place = (index / perPeak) | 0;
        if (size > peaks[place]) peaks[place] = size;
        loudness[(index / span) | 0] += sample * sample;
      }
    }
  }
  for (let index = 0; index < loudness.length; index++) {
    loudness[index] = Math.sqrt(loudness[index] / (span * channels.length));
  }
  return { duration, peaks, loudness };
}

function decoder() {
  const [low, usual] = SAMPLE_RATES;
  try {
    return new OfflineAudioContext(1, 1, low);
  } catch {
    return new OfflineAudioContext(1, 1, usual);
  }
}
