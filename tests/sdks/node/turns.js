// @deepgram/sdk 5's client of turns against a server: turns.js ADDRESS KEY FILE.wav, 16 kHz. Prints a line for each turn.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import assert from "node:assert/strict";
import { DeepgramClient } from "@deepgram/sdk";

// Three arguments, whether this is run as a file or by --eval.
const [address, apiKey, file] = process.argv.slice(-3);
const sockets = address.replace(/^http/, "ws");
const environment = { base: address, production: sockets, agent: sockets, agentRest: address };
const client = new DeepgramClient({ apiKey, environment });
const connection = await client.listen.v2.connect({
  model: "flux-general-en", encoding: "linear16", sample_rate: 16000, eager_eot_threshold: 0.4, eot_threshold: 0.7,
  eot_timeout_ms: 5000, keyterm: ["one", "two words"],
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

connection.connect();
await connection.waitForOpen();
await until((message) => message.type === "Connected");
connection.sendConfigure({ type: "Configure", thresholds: { eot_threshold: 0.6 } });
await until((message) => message.type === "ConfigureSuccess");
const header = 44, piece = 3200;
const audio = readFileSync(file).subarray(header);
for (let at = 0; at < audio.length; at += piece) {
  connection.sendMedia(audio.subarray(at, at + piece));
  await sleep(20);
}
connection.sendCloseStream({ type: "CloseStream" });
await until((message) => message.type === "Close");
clearTimeout(late);

const kinds = seen.map((message) => message.type);
assert.ok(!kinds.includes("Error"), JSON.stringify(seen));
assert.equal(kinds[0], "Connected");
// Any other code would make the client connect again.
assert.equal(seen.at(-1).code, 1000);
const ends = seen.filter((message) => message.event === "EndOfTurn");
for (const { turn_index: index, transcript } of ends) console.log(index, transcript);
connection.close();
