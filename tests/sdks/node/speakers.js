// Speakers as @deepgram/sdk's objects have them. Environment and output as of ../speakers.py.
import { readFileSync } from "node:fs";
import { DeepgramClient } from "@deepgram/sdk";

const { SERVER, KEY, AUDIO } = process.env;
const media = new DeepgramClient({ apiKey: KEY, baseUrl: SERVER }).listen.v1.media;
const response = await media.transcribeFile(readFileSync(AUDIO), { diarize: true, language: "en" });
const words = response.results.channels[0].alternatives[0].words;
console.log(JSON.stringify(words.map(({ word, speaker, speaker_confidence }) => [word, speaker, speaker_confidence])));
