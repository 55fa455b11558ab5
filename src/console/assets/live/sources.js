// Where live audio comes from: the microphone, or a file at the speed at which it would be spoken. Both give samples of 16
// bits, mono but for files whose channels are to be kept apart.

/**
 * @typedef {{ rate: number, channels: number, stop: () => void }} LiveSource `rate`: samples per second of a channel
 */

/**
 * @param {(samples: Int16Array) => void} onaudio
 * @returns {Promise<LiveSource>}
 */
export async function microphone(onaudio) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  // At its own rate: the server resamples better than most browsers do.
  const context = new AudioContext();
  let isStopped = false;
  try {
    await context.audioWorklet.addModule(new URL("../voice/capture-worklet.js", import.meta.url));
    const capture = new AudioWorkletNode(context, "voice-capture", { processorOptions: { rate: context.sampleRate } });
    capture.port.onmessage = ({ data }) => onaudio(new Int16Array(data.samples));
    // Its output is silent, but only what is connected runs.
    context.createMediaStreamSource(stream).connect(capture).connect(context.destination);
    await context.resume();
  } catch (error) {
    stop();
    throw error;
  }

  function stop() {
    if (isStopped) return;
    isStopped = true;
    for (const track of stream.getTracks()) track.stop();
    context.close();
  }

  return { rate: context.sampleRate, channels: 1, stop };
}

const FILE_RATE = 16_000;
const FILE_MESSAGE_SECONDS = 0.1;

/**
 * @param {Blob} blob
 * @param {{ isMultichannel: boolean, onaudio: (samples: Int16Array) => void, onend: () => void }} options
 *   `isMultichannel`: its channels take turns, sample by sample, instead of being mixed
 * @returns {Promise<LiveSource>} it sends nothing until `start` is called
 * @throws {DOMException} `EncodingError` if the browser cannot decode it
 */
export async function fileInRealTime(blob, { isMultichannel, onaudio, onend }) {
  const audio = await new OfflineAudioContext(1, 1, FILE_RATE).decodeAudioData(await blob.arrayBuffer());
  const tracks = Array.from({ length: audio.numberOfChannels }, (_, index) => audio.getChannelData(index));
  const channels = isMultichannel ? tracks.length : 1;
  let timer = 0;
  let sent = 0;
  let began = 0;

  function samples(from, to) {
    const made = new Int16Array((to - from) * channels);
    const put = (place, value) => { made[place] = Math.max(-1, Math.min(1, value)) * 0x7fff; };
    for (let index = from; index < to; index++) {
      if (isMultichannel) tracks.forEach((track, place) => put((index - from) * channels + place, track[index]));
      else put(index - from, tracks.reduce((sum, track) => sum + track[index], 0) / tracks.length);
    }
    return made;
  }

  /** Sends what is due by the clock: a timer alone would fall behind. */
  function tick() {
    const due = Math.min(audio.length, Math.floor(((performance.now() - began) / 1000) * FILE_RATE));
    const size = FILE_MESSAGE_SECONDS * FILE_RATE;
    while (sent < due && (due - sent >= size || due === audio.length)) {
      const to = Math.min(audio.length, sent + size);
      onaudio(samples(sent, to));
      sent = to;
    }
    if (sent < audio.length) timer = setTimeout(tick, FILE_MESSAGE_SECONDS * 500);
    else onend();
  }

  return {
    rate: FILE_RATE,
    channels,
    start() {
      began = performance.now();
      tick();
    },
    stop: () => clearTimeout(timer),
  };
}
