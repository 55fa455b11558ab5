// OpenAI's SDK against another address, with nothing changed but that address and the key. Environment of
// ../openai_audio.py; prints a part of what that prints.
import { createReadStream } from "node:fs";
import OpenAI from "openai";

const { SERVER, KEY, AUDIO, CONVERSATION, FOREIGN } = process.env;
const client = new OpenAI({ baseURL: `${SERVER}/v1`, apiKey: KEY, maxRetries: 0 });
const transcribe = (more = {}, audio = AUDIO) =>
  client.audio.transcriptions.create({ file: createReadStream(audio), model: "whisper-1", ...more });

async function refused(call) {
  try {
    await call();
    return { kind: "none" };
  } catch (error) {
    return { kind: error.constructor.name, param: error.param, code: error.code, type: error.type };
  }
}

const events = [];
for await (const event of await transcribe({ stream: true })) events.push(event);
const verbose = await transcribe({ response_format: "verbose_json", timestamp_granularities: ["word", "segment"] });
const turns = await transcribe({ response_format: "diarized_json", language: "en" }, CONVERSATION);
const models = [];
for await (const model of client.models.list()) models.push(model.id);
console.log(
  JSON.stringify({
    text: (await transcribe()).text,
    plain: await transcribe({ response_format: "text" }),
    srt: await transcribe({ response_format: "srt" }),
    vtt: await transcribe({ response_format: "vtt" }),
    verbose: {
      text: verbose.text,
      language: verbose.language,
      duration: verbose.duration,
      words: verbose.words.map(({ word, start, end }) => [word, start, end]),
      segments: verbose.segments,
    },
    turns: turns.segments.map(({ speaker, start, end, text }) => [speaker, start, end, text]),
    events: {
      types: events.map(({ type }) => type),
      deltas: events.map(({ delta }) => delta ?? "").join(""),
      text: events.at(-1).text,
    },
    translation: (await client.audio.translations.create({ file: createReadStream(FOREIGN), model: "whisper-1" })).text,
    models,
    model: (await client.models.retrieve("Systran/whisper")).id,
    refused: {
      language: await refused(() => transcribe({ language: "klingon" })),
      key: await refused(() => new OpenAI({ baseURL: `${SERVER}/v1`, apiKey: "none", maxRetries: 0 }).models.list()),
    },
  }),
);
