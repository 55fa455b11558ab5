import { readFileSync } from "node:fs";
import { DeepgramClient } from "@deepgram/sdk";

const { SERVER, KEY, AUDIO } = process.env;
const client = new DeepgramClient({ apiKey: KEY, baseUrl: SERVER });
const response = await client.listen.v1.media.transcribeFile(readFileSync(AUDIO), { smart_format: true });
console.log(response.results.channels[0].alternatives[0].transcript);
