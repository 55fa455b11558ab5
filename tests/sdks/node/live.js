// @deepgram/sdk 5's live client against a server: live.js ADDRESS KEY FILE.wav
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import assert from "node:assert/strict";
import { DeepgramClient } from "@deepgram/sdk";

// Three arguments, whether this is run as a file or by --eval.
const [address, apiKey, file] = process.argv.slice(-3);
const sockets = address.replace(/^http/, "ws");
const environment = { base: address, production: sockets, agent: sockets, agentRest: address };
const client = new DeepgramClient({ apiKey, environment });
const connection = await client.listen.v1.connect({
  model: "nova-3", interim_results: "true", punctuate: "true", vad_events: "true", language: "en",
});

const seen = [];
let changed = () => {};
const add = (message) => { seen.push(message); changed(); };
connection.on("message", add);
connection.on("error", (error) => add({ type: "Error", error }));
connection.on("close", (event) => add({ type: "Close", code: event.code }));
const late = setTimeout(() => { console.error("too late; came:", seen); process.exit(1); }, 120_000);
async function until(wanted) {
  while (!seen.some(wanted)) await new Promise((resolve) => { changed = resolve; });
}
const isResults = (message) => message.type === "Results";
const transcript = (message) => message.channel.alternatives[0].transcript;

connection.connect();
await connection.waitForOpen();
const audio = readFileSync(file);
const piece = 3200, middle = Math.floor(audio.length / 2 / piece) * piece;
for (let at = 0; at < middle; at += piece) {
  connection.sendMedia(audio.subarray(at, at + piece));
  await sleep(50);
}
await until((message) => isResults(message) && !message.is_final && transcript(message));
connection.sendFinalize({ type: "Finalize" });
await until((message) => isResults(message) && message.from_finalize);
connection.sendKeepAlive({ type: "KeepAlive" });
connection.sendMedia(audio.subarray(middle));
connection.sendCloseStream({ type: "CloseStream" });
await until((message) => message.type === "Close");
clearTimeout(late);

const kinds = seen.map((message) => message.type);
assert.ok(!kinds.includes("Error"), JSON.stringify(seen));
assert.ok(kinds.includes("SpeechStarted"));
// Any other code would make the client connect again.
assert.equal(seen.at(-1).code, 1000);
assert.deepEqual(kinds.slice(kinds.lastIndexOf("Results") + 1), ["Metadata", "Close"]);
console.log(seen.filter((message) => isResults(message) && message.is_final).map(transcript).filter(Boolean).join(" "));
connection.close();
