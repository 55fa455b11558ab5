// The voice-agent service, as an integrator's backend calls it: `POST /STS/interactiveAgent`.

import { fetchPublic } from "../api.js";

async function act(body) {
  const response = await fetchPublic("/STS/interactiveAgent", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return response.json();
}

export const start = (fields) => act({ action: "start", channel: "web", ...fields });

export const status = (session_id) => act({ action: "status", session_id });

export const bindCaller = (session_id, caller_number) => act({ action: "bind_caller", session_id, caller_number });

export const showPage = (session_id, page_context) => act({ action: "page_context", session_id, page_context });

export const verify = (session_id, category, verified) =>
  act({ action: "verification", session_id, category, verified });

export const complete = (session_id, message, updated_fields) =>
  act({ action: "completion", session_id, message, updated_fields });

// Whether a chat model answers, which may call functions.
export async function hasChat() {
  const response = await fetchPublic("/v1/agent/settings/think/models");
  return (await response.json()).models.length > 0;
}

// The names of the voices, the server's own first; none if it has none.
export async function voices() {
  const response = await fetchPublic("/v1/models", { scheme: "Token" });
  const { tts } = await response.json();
  return (tts ?? []).map((voice) => voice.name);
}
