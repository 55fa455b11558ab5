// Where live audio comes from: the microphone, or a file at the speed at which it would be spoken. Both give mono samples
// of 16 bits.

/**
 * @typedef {{ rate: number, stop: () => void }} LiveSource `rate`: samples per second
 */

/**
 * @param {(samples: Int16Array) => void} onaudio
 * @returns {Promise<LiveSource>}
 */
export async function microphone(onaudio) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  // At its own rate: the server resamples better than most browsers do.
  const context = new AudioContext();
  try {
    await context.audioWorklet.addModule(new URL("./capture.js", import.meta.url));
    const options = { channelCount: 1, channelCountMode: "explicit" };
    const capture = new AudioWorkletNode(context, "capture", options);
    capture.port.onmessage = ({ data }) => onaudio(data);
    // Its output is silent, but only what is connected runs.
    context.createMediaStreamSource(stream).connect(capture).connect(context.destination);
    await context.resume();
  } catch (error) {
    stop();
    throw error;
  }

  function stop() {
    for (const track of stream.getTracks()) track.stop();
    if (context.state !== "closed") context.close();
  }

  return { rate: context.sampleRate, stop };
}

const FILE_RATE = 16_000;
const FILE_MESSAGE_SECONDS = 0.1;

/**
 * @param {Blob} blob
 * @param {(samples: Int16Array) => void} onaudio
 * @param {() => void} onend
 * @returns {Promise<LiveSource>} it sends nothing until `start` is called
 * @throws {DOMException} `EncodingError` if the browser cannot decode it
 */
export async function fileInRealTime(blob, onaudio, onend) {
  const audio = await new OfflineAudioContext(1, 1, FILE_RATE).decodeAudioData(await blob.arrayBuffer());
  const channels = Array.from({ length: audio.numberOfChannels }, (_, index) => audio.getChannelData(index));
  let timer = 0;
  let sent = 0;
  let began = 0;

  function samples(from, to) {
    const mixed = new Int16Array(to - from);
    for (let index = from; index < to; index++) {
      let sum = 0;
      for (const channel of channels) sum += channel[index];
      mixed[index - from] = Math.max(-1, Math.min(1, sum / channels.length)) * 0x7fff;
    }
    return mixed;
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
    start() {
      began = performance.now();
      tick();
    },
    stop: () => clearTimeout(timer),
  };
}
