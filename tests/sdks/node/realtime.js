// OpenAI's SDK's realtime clients, for Node and for browsers, against a server with TLS: realtime.js ADDRESS KEY FILE.wav
// The file has 16-bit samples at 24 kHz, and ends with a pause. NODE_EXTRA_CA_CERTS names the server's certificate.
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import { WebSocket } from "ws";

// Three arguments, whether this is run as a file or by --eval.
const [address, apiKey, file] = process.argv.slice(-3);
const client = new OpenAI({ apiKey, baseURL: `${address}/v1`, dangerouslyAllowBrowser: true });
setTimeout(() => { console.error("too late"); process.exit(1); }, 120_000).unref();
// Behind the header of a WAVE file.
const audio = readFileSync(file).subarray(44);
const transcription = "conversation.item.input_audio_transcription.";

function transcribed(connection) {
  return new Promise((resolve, reject) => {
    const seen = [];
    let deltas = "";
    connection.on("error", reject);
    connection.on("event", (event) => seen.push(event.type));
    connection.on("session.created", () => connection.send({
      type: "session.update",
      session: { type: "transcription", audio: { input: {
        format: { type: "audio/pcm", rate: 24000 }, transcription: { model: "gpt-4o-transcribe" },
        turn_detection: { type: "server_vad", silence_duration_ms: 600 },
      } } },
    }));
    connection.on("session.updated", () => {
      for (let at = 0; at < audio.length; at += 4800) {
        const piece = audio.subarray(at, at + 4800).toString("base64");
        connection.send({ type: "input_audio_buffer.append", audio: piece });
      }
    });
    connection.on(`${transcription}delta`, (event) => { deltas += event.delta; });
    connection.on(`${transcription}completed`, (event) => {
      assert.equal(deltas, event.transcript);
      assert.ok(seen.indexOf("input_audio_buffer.speech_stopped") > seen.indexOf("input_audio_buffer.speech_started"), seen);
      connection.close();
      resolve(event.transcript);
    });
  });
}

// Browsers have a WebSocket of their own, which Node 20 lacks.
globalThis.WebSocket ??= WebSocket;
const heard = await transcribed(new OpenAIRealtimeWS({ intent: "transcription" }, client));
assert.equal(await transcribed(new OpenAIRealtimeWebSocket({ intent: "transcription" }, client)), heard);
console.log(heard);
