// Files to POST /v1/listen, at one rate after another, by k6 1.x (https://k6.io):
//
//   k6 run -e SERVER=http://127.0.0.1:8000 -e KEY=org_… -e AUDIO=speech.wav benches/k6/listen.js
//
// RATES: requests per second, 1,2,4 by default; SECONDS of each, 20; QUERY, smart_format=true. The arrival rate does not
// fall when the server slows down, as it would not with clients either. Refusals (429, 503) must say when to come back and
// are counted apart; anything else but 200 fails the run.
import http from 'k6/http';
import { check } from 'k6';
import { Counter, Rate, Trend } from 'k6/metrics';

const { SERVER = 'http://127.0.0.1:8000', KEY = '', AUDIO, QUERY = 'smart_format=true' } = __ENV;
const SECONDS = Number(__ENV.SECONDS || 20);
const RATES = (__ENV.RATES || '1,2,4').split(',').map(Number);
if (!AUDIO) throw new Error('set AUDIO to a file');
const audio = open(AUDIO, 'b');

const latency = new Trend('answer_ms', true);
const heard = new Counter('audio_seconds');
const refused = new Rate('refused');
const unexpected = new Rate('unexpected');

const stages = RATES.map((rate) => [`rate_${String(rate).replace('.', '_')}`, rate]);
export const options = {
  summaryTrendStats: ['min', 'med', 'p(95)', 'p(99)', 'max'],
  scenarios: Object.fromEntries(
    stages.map(([name, rate], n) => [
      name,
      {
        executor: 'constant-arrival-rate',
        // k6 takes whole numbers: half a request per second is one in two.
        rate: Math.max(1, Math.round(rate * 10)),
        timeUnit: '10s',
        duration: `${SECONDS}s`,
        startTime: `${n * (SECONDS + 10)}s`,
        preAllocatedVUs: 10,
        maxVUs: Math.ceil(rate * 60),
        gracefulStop: '60s',
      },
    ]),
  ),
  thresholds: {
    unexpected: ['rate==0'],
    dropped_iterations: ['count==0'],
    // A threshold makes k6 print a rate's figures by themselves.
    ...Object.fromEntries(stages.flatMap(([name]) => [
      [`answer_ms{scenario:${name}}`, ['max>=0']],
      [`refused{scenario:${name}}`, ['rate>=0']],
      [`audio_seconds{scenario:${name}}`, ['count>=0']],
    ])),
  },
};

export default function () {
  const response = http.post(`${SERVER}/v1/listen?${QUERY}`, audio, {
    headers: { Authorization: `Token ${KEY}`, 'Content-Type': 'application/octet-stream' },
    timeout: '120s',
  });
  const isRefused = response.status === 429 || response.status === 503;
  refused.add(isRefused);
  if (isRefused) {
    unexpected.add(!check(response, { 'a refusal says when to come back': (r) => Number(r.headers['Retry-After']) > 0 }));
    return;
  }
  const isAnswer = check(response, {
    'it is 200': (r) => r.status === 200,
    'it has words': (r) => r.status === 200 && r.json('results.channels.0.alternatives.0.transcript') !== '',
  });
  unexpected.add(!isAnswer);
  if (isAnswer) {
    latency.add(response.timings.duration);
    heard.add(response.json('metadata.duration'));
  }
}
