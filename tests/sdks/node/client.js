// @deepgram/sdk against another address, with nothing changed but that address and the key. Environment and output
// as of ../client.py.
import { readFileSync } from "node:fs";
import { DeepgramClient } from "@deepgram/sdk";

const { SERVER, KEY, AUDIO, URL: url, CALLBACK } = process.env;
const audio = () => readFileSync(AUDIO);
const media = new DeepgramClient({ apiKey: KEY, baseUrl: SERVER }).listen.v1.media;

function heard(response) {
  const alternative = response.results.channels[0].alternatives[0];
  return {
    transcript: alternative.transcript,
    words: alternative.words.map(({ word, start, end }) => [word, start, end]),
    utterances: (response.results.utterances ?? []).map(({ transcript }) => transcript),
    request_id: response.metadata.request_id,
  };
}

console.log(
  JSON.stringify({
    bytes: heard(await media.transcribeFile(audio(), { model: "nova-3", smart_format: true })),
    url: heard(await media.transcribeUrl({ url, model: "nova-3" })),
    utterances: heard(await media.transcribeFile(audio(), { utterances: true })),
    callback: (await media.transcribeFile(audio(), { callback: CALLBACK })).request_id,
  }),
);
