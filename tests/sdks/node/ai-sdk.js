// Vercel's AI SDK against a server, with another base address and key alone: SERVER, KEY, AUDIO. It prints what it heard, and
// what it hears of its own speech.
import { readFileSync } from "node:fs";
import { createOpenAI } from "@ai-sdk/openai";
import { experimental_generateSpeech as generateSpeech, experimental_transcribe as transcribe } from "ai";

const { SERVER, KEY, AUDIO } = process.env;
const openai = createOpenAI({ baseURL: `${SERVER}/v1`, apiKey: KEY });
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
console.log(JSON.stringify({ plain, prompted, segments, mediaType: speech.audio.mediaType, spoken }));
