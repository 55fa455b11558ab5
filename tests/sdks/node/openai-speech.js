// OpenAI's SDK speaks against a server: openai-speech.js ADDRESS KEY FOLDER. Writes speech.mp3 there.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import assert from "node:assert/strict";
import OpenAI from "openai";

const TEXT = "The quick brown fox jumps over the lazy dog.";
// Three arguments, whether this is run as a file or by --eval.
const [address, apiKey, folder] = process.argv.slice(-3);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey, maxRetries: 0 });

const speech = await client.audio.speech.create({ model: "tts-1", voice: "alloy", input: TEXT });
writeFileSync(join(folder, "speech.mp3"), Buffer.from(await speech.arrayBuffer()));
const failure = await client.audio.speech.create({ model: "tts-1", voice: "nobody", input: TEXT }).catch((error) => error);
assert.equal(failure.status, 400);
assert.equal(failure.param, "voice");
