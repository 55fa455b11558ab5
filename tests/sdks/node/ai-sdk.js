// Vercel's AI SDK against a server, with another base address and key alone: SERVER, KEY, AUDIO. It prints what it heard, and
// what it hears of its own speech, whole and streamed.
import { readFileSync } from "node:fs";
import { createOpenAI } from "@ai-sdk/openai";
import { experimental_streamTranscribe as streamTranscribe, generateSpeech, transcribe } from "ai";
import WebSocket from "ws";

const { SERVER, KEY, AUDIO } = process.env;
// Before Node 22 there is no WebSocket of its own.
const openai = createOpenAI({ baseURL: `${SERVER}/v1`, apiKey: KEY, webSocket: WebSocket });
const hear = async (model, audio, providerOptions) =>
  (await transcribe({ model: openai.transcription(model), audio, providerOptions, maxRetries: 0 })).text;

const audio = readFileSync(AUDIO);
const plain = await hear("whisper-1", audio);
const asked = { openai: { language: "en", prompt: "A novel by Jane Austen.", timestampGranularities: ["segment"] } };
const prompted = await hear("gpt-4o-transcribe", audio, asked);
const { segments } = await transcribe({
  model: openai.transcription("whisper-1"), audio, providerOptions: { openai: { timestampGranularities: ["segment"] } },
});
const speech = await generateSpeech({
  model: openai.speech("gpt-4o-mini-tts"), voice: "alloy", text: process.env.TEXT, maxRetries: 0,
});
const spoken = await hear("whisper-1", speech.audio.uint8Array);
const raw = await generateSpeech({
  model: openai.speech("tts-1"), voice: "nova", text: process.env.TEXT, outputFormat: "pcm", maxRetries: 0,
});
const live = streamTranscribe({
  model: openai.transcription("gpt-realtime-whisper"),
  audio: new Blob([raw.audio.uint8Array]).stream(),
  inputAudioFormat: { type: "audio/pcm", rate: 24000 },
});
let deltas = "";
for await (const part of live.fullStream) deltas += part.type === "transcript-delta" ? part.delta : "";
const streamed = { text: await live.text, deltas };
console.log(JSON.stringify({ streamed, plain, prompted, segments, mediaType: speech.audio.mediaType, spoken }));
