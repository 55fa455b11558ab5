// @deepgram/sdk 5's speech clients against a server: speak.js ADDRESS KEY FOLDER. Writes rest.wav and stream.raw there, and
// by turns turn.wav and turns.raw.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import assert from "node:assert/strict";
import { DeepgramClient } from "@deepgram/sdk";

const TEXT = "The quick brown fox jumps over the lazy dog.";
// Three arguments, whether this is run as a file or by --eval.
const [address, apiKey, folder] = process.argv.slice(-3);
const sockets = address.replace(/^http/, "ws");
const environment = { base: address, production: sockets, agent: sockets, agentRest: address };
const client = new DeepgramClient({ apiKey, environment });

const answer = await client.speak.v1.audio.generate({
  text: TEXT, model: "aura-2-thalia-en", encoding: "linear16", container: "wav", sample_rate: 24000,
});
writeFileSync(join(folder, "rest.wav"), Buffer.from(await answer.arrayBuffer()));

const connection = await client.speak.v1.connect({
  model: "aura-2-thalia-en", encoding: "linear16", sample_rate: "24000",
});
const audio = [], kinds = [];
const closed = new Promise((resolve, reject) => {
  connection.on("message", async (message) => {
    if (message instanceof Blob) audio.push(Buffer.from(await message.arrayBuffer()));
    else if (message instanceof ArrayBuffer || ArrayBuffer.isView(message)) audio.push(Buffer.from(message));
    else if (typeof message === "object") {
      kinds.push(message.type);
      if (message.type === "Flushed") connection.sendClose({ type: "Close" });
    }
  });
  connection.on("error", reject);
  connection.on("close", resolve);
  setTimeout(() => reject(new Error(`too late; came: ${kinds}`)), 200_000).unref();
});
connection.connect();
await connection.waitForOpen();
for (const word of TEXT.split(" ")) connection.sendText({ type: "Speak", text: `${word} ` });
connection.sendFlush({ type: "Flush" });
await closed;
assert.deepEqual(kinds, ["Metadata", "Flushed"]);
writeFileSync(join(folder, "stream.raw"), Buffer.concat(audio));

const turn = await client.speak.v2.audio.generate({
  text: TEXT, model: "flux-alexis-en", encoding: "linear16", container: "wav", sample_rate: 24000,
});
writeFileSync(join(folder, "turn.wav"), Buffer.from(await turn.arrayBuffer()));

const session = await client.speak.v2.connect({
  model: "flux-alexis-en", encoding: "linear16", sample_rate: "24000",
});
const spoken = [], messages = [];
const ended = new Promise((resolve, reject) => {
  session.on("message", async (message) => {
    if (message instanceof Blob) spoken.push(Buffer.from(await message.arrayBuffer()));
    else if (message instanceof ArrayBuffer || ArrayBuffer.isView(message)) spoken.push(Buffer.from(message));
    else if (typeof message === "object") {
      messages.push(message.type);
      if (message.type === "SpeechMetadata") session.sendClose({ type: "Close" });
    }
  });
  session.on("error", reject);
  session.on("close", resolve);
  setTimeout(() => reject(new Error(`too late; came: ${messages}`)), 200_000).unref();
});
session.connect();
await session.waitForOpen();
for (const word of TEXT.split(" ")) session.sendSpeak({ type: "Speak", text: `${word} ` });
session.sendFlush({ type: "Flush" });
await ended;
assert.deepEqual(messages, ["Connected", "SpeechStarted", "Flushed", "SpeechMetadata", "SessionMetadata"]);
writeFileSync(join(folder, "turns.raw"), Buffer.concat(spoken));
process.exit(0);
