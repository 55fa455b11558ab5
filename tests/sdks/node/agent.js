// @deepgram/sdk 5's agent client against a server: agent.js ADDRESS KEY. The client owns its session: it changes the agent
// while it talks.
import assert from "node:assert/strict";
import { DeepgramClient } from "@deepgram/sdk";

// Two arguments, whether this is run as a file or by --eval.
const [address, apiKey] = process.argv.slice(-2);
const sockets = address.replace(/^http/, "ws");
const environment = { base: address, production: sockets, agent: sockets, agentRest: address };
const client = new DeepgramClient({ apiKey, environment });

const SETTINGS = {
  type: "Settings",
  audio: {
    input: { encoding: "linear16", sample_rate: 16000 },
    output: { encoding: "linear16", sample_rate: 24000, container: "none" },
  },
  agent: {
    greeting: "Hello there.",
    listen: { provider: { type: "deepgram", version: "v2", model: "flux-general-en", eot_timeout_ms: 2000 } },
    think: { provider: { type: "open_ai", model: "gpt-4o-mini" }, prompt: "Parking is free behind the house." },
    speak: { provider: { type: "deepgram", model: "aura-2-thalia-en" } },
  },
};

const connection = await client.agent.v1.connect();
const came = [], kinds = [];
let wake = () => {};
connection.on("message", (message) => {
  // Audio comes as bytes.
  if (typeof message !== "object" || !message.type || message instanceof Blob) return;
  came.push(message);
  kinds.push(message.type);
  wake();
});
connection.on("error", (error) => { console.error(error); process.exit(1); });
setTimeout(() => { console.error(`too late; came: ${kinds}`); process.exit(1); }, 200_000).unref();

async function until(type, holds = () => true) {
  for (;;) {
    while (came.length) {
      const message = came.shift();
      if (message.type === type && holds(message)) return message;
    }
    await new Promise((resolve) => { wake = resolve; });
  }
}
const said = (text) =>
  until("ConversationText", (message) => message.role === "assistant" && message.content === text);

connection.connect();
await connection.waitForOpen();
await until("Welcome");
connection.sendSettings(SETTINGS);
await until("SettingsApplied");
await said("Hello there.");
await until("AgentAudioDone");
connection.sendKeepAlive({ type: "KeepAlive" });
connection.sendMedia(new Uint8Array(3200).buffer);
connection.sendInjectUserMessage({ type: "InjectUserMessage", content: "Where can I park?" });
await said("Parking is free behind the house.");
await until("AgentAudioDone");
connection.sendUpdatePrompt({ type: "UpdatePrompt", prompt: "Parking costs two dollars an hour." });
await until("PromptUpdated");
connection.sendUpdateSpeak({ type: "UpdateSpeak", speak: { provider: { type: "deepgram", model: "aura-2-zeus-en" } } });
await until("SpeakUpdated");
connection.sendUpdateThink({ type: "UpdateThink", think: { provider: { type: "open_ai", model: "gpt-4o-mini" } } });
await until("ThinkUpdated");
connection.sendUpdateListen({
  type: "UpdateListen",
  listen: { provider: {
    type: "deepgram", version: "v2", model: "flux-general-en", eot_threshold: 0.8, keyterms: ["Verbatim"],
  } },
});
await until("ListenUpdated");
connection.sendInjectUserMessage({ type: "InjectUserMessage", content: "What does parking cost?" });
await said("Parking costs two dollars an hour.");
connection.sendInjectAgentMessage({ type: "InjectAgentMessage", message: "And thank you.", behavior: "queue" });
await said("And thank you.");
await until("AgentAudioDone");
connection.sendForceEndTurn({ type: "ForceEndTurn" });
for (const kind of ["History", "LatencyReport"]) assert(kinds.includes(kind), `no ${kind}: ${kinds}`);
// By itself, this call sends no key.
const headers = { Authorization: `Token ${apiKey}` };
const { models } = await client.agent.v1.settings.think.models.list({ headers });
assert.deepEqual(models, []);
connection.close();
process.exit(0);
