// Live streams to /v1/listen, each in real time, by k6 1.x (https://k6.io):
//
//   k6 run -e SERVER=ws://127.0.0.1:8000 -e KEY=org_… -e AUDIO=speech.wav -e STREAMS=10 benches/k6/stream.js
//
// AUDIO is a WAVE file of 16-bit mono PCM, sent in pieces of 20 ms. STREAMS open evenly over RAMP seconds (10), and each is
// followed by another until SECONDS (60) are over. Measured: how far the words of an interim or final result are behind the
// sound that has been sent; and the time from the end of the audio to the last result. Refused handshakes (429, 503) are
// counted, and tried again after five seconds, as k6 does not tell their Retry-After. Any other failure fails the run.
import { WebSocket } from 'k6/websockets';
import { Counter, Rate, Trend } from 'k6/metrics';

const { SERVER = 'ws://127.0.0.1:8000', KEY = '', AUDIO, QUERY = 'interim_results=true' } = __ENV;
const STREAMS = Number(__ENV.STREAMS || 10);
const SECONDS = Number(__ENV.SECONDS || 60);
const RAMP = Number(__ENV.RAMP || 10);
if (!AUDIO) throw new Error('set AUDIO to a WAVE file');

/** The samples of a WAVE file, and their rate in Hz. */
function samples(file) {
  const view = new DataView(file);
  const tag = (at) => String.fromCharCode(...new Uint8Array(file, at, 4));
  if (tag(0) !== 'RIFF' || tag(8) !== 'WAVE') throw new Error('AUDIO is no WAVE file');
  let rate = 0;
  for (let at = 12; at + 8 <= file.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    if (tag(at) === 'fmt ') {
      const [format, channels, bits] = [view.getUint16(at + 8, true), view.getUint16(at + 10, true), view.getUint16(at + 22, true)];
      if (format !== 1 || channels !== 1 || bits !== 16) throw new Error('AUDIO is not 16-bit mono PCM');
      rate = view.getUint32(at + 12, true);
    } else if (tag(at) === 'data') {
      return { data: file.slice(at + 8, Math.min(at + 8 + size, file.byteLength)), rate };
    }
    // Chunks begin at even places.
    at += 8 + size + (size % 2);
  }
  throw new Error('AUDIO has no samples');
}

const { data, rate } = samples(open(AUDIO, 'b'));
const PIECE_MS = 20;
const piece = Math.round((rate * PIECE_MS) / 1000) * 2;

const interim = new Trend('interim_behind_ms', true);
const final = new Trend('final_behind_ms', true);
const tail = new Trend('end_to_last_result_ms', true);
const finished = new Counter('streams_finished');
const words = new Counter('words');
const refused = new Rate('refused');
const unexpected = new Rate('unexpected');

const REFUSED = [429, 503];
const FAULTS = [400, 401, 403, 404, 500, 502, 504];
const PAUSE_MS = 5000;

export const options = {
  summaryTrendStats: ['min', 'med', 'p(95)', 'p(99)', 'max'],
  scenarios: {
    streams: {
      executor: 'ramping-vus',
      startVUs: 0,
      stages: [{ target: STREAMS, duration: `${RAMP}s` }, { target: STREAMS, duration: `${SECONDS}s` }],
      // Those that are open finish.
      gracefulStop: `${Math.ceil(data.byteLength / 2 / rate) + 30}s`,
      gracefulRampDown: '30s',
    },
  },
  thresholds: {
    unexpected: ['rate==0'],
    streams_finished: ['count>0'],
    // Only the tags of this metric have the status of a handshake.
    ...Object.fromEntries(REFUSED.map((status) => [`ws_sessions{status:${status}}`, ['count>=0']])),
    ...Object.fromEntries(FAULTS.map((status) => [`ws_sessions{status:${status}}`, ['count==0']])),
  },
};

export default function () {
  const url = `${SERVER}/v1/listen?encoding=linear16&sample_rate=${rate}&${QUERY}`;
  const socket = new WebSocket(url, null, { headers: { Authorization: `Token ${KEY}` } });
  socket.binaryType = 'arraybuffer';
  let [sent, timer, ended, last, complete] = [0, null, 0, 0, false];
  const heardSeconds = () => sent / 2 / rate;

  socket.onopen = () => {
    const began = Date.now();
    timer = setInterval(() => {
      // By the clock, because timers are late on a busy machine.
      const due = Math.min(data.byteLength, Math.floor((Date.now() - began) / PIECE_MS + 1) * piece);
      for (; sent < due; sent = Math.min(sent + piece, data.byteLength)) socket.send(data.slice(sent, Math.min(sent + piece, due)));
      if (sent === data.byteLength && !ended) {
        clearInterval(timer);
        ended = Date.now();
        socket.send(JSON.stringify({ type: 'CloseStream' }));
      }
    }, PIECE_MS);
  };
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.type === 'Results') {
      const behind = (heardSeconds() - message.start - message.duration) * 1000;
      if (!ended) (message.is_final ? final : interim).add(Math.max(0, behind));
      last = Date.now();
      if (message.is_final) words.add(message.channel.alternatives[0].words.length);
    } else if (message.type === 'Metadata') {
      complete = true;
      finished.add(1);
      if (last > ended) tail.add(last - ended);
    }
  };
  socket.onerror = (event) => {
    clearInterval(timer);
    const isRefused = !sent && String(event.error).includes('bad handshake');
    refused.add(isRefused);
    unexpected.add(!isRefused);
    if (isRefused) setTimeout(() => {}, PAUSE_MS);
    else console.error(event.error);
  };
  socket.onclose = () => {
    clearInterval(timer);
    if (!sent) return;
    refused.add(false);
    unexpected.add(!complete);
  };
}
