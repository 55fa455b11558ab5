#!/usr/bin/env python3
"""deepgram-sdk's agent client against a server: agent.py ADDRESS KEY. The client owns its session: it changes the agent
while it talks."""

import sys

from deepgram import DeepgramClient
from deepgram.agent.v1.types import (
    AgentV1ForceEndTurn, AgentV1InjectAgentMessage, AgentV1InjectUserMessage, AgentV1KeepAlive, AgentV1Settings,
    AgentV1UpdateListen, AgentV1UpdatePrompt, AgentV1UpdateSpeak, AgentV1UpdateThink)
from deepgram.environment import DeepgramClientEnvironment

ADDRESS, KEY = sys.argv[1], sys.argv[2]
sockets = ADDRESS.replace("http", "ws", 1)
here = DeepgramClientEnvironment(base=ADDRESS, production=sockets, agent=sockets, agent_rest=ADDRESS)
client = DeepgramClient(api_key=KEY, environment=here)

SETTINGS = {
    "type": "Settings",
    "audio": {
        "input": {"encoding": "linear16", "sample_rate": 16000},
        "output": {"encoding": "linear16", "sample_rate": 24000, "container": "none"},
    },
    "agent": {
        "greeting": "Hello there.",
        "context": {"messages": [{"type": "History", "role": "user", "content": "I came by car."}]},
        "listen": {"provider": {"type": "deepgram", "version": "v2", "model": "flux-general-en", "eot_timeout_ms": 2000}},
        "think": {"provider": {"type": "open_ai", "model": "gpt-4o-mini"}, "prompt": "Parking is free behind the house."},
        "speak": {"provider": {"type": "deepgram", "model": "aura-2-thalia-en", "speed": 1.1}},
    },
}
PROVIDER = {"type": "deepgram", "model": "aura-2-zeus-en"}

kinds = []
with client.agent.v1.connect() as agent:
    messages = iter(agent)

    def until(kind, holds=lambda message: True):
        for message in messages:
            if isinstance(message, bytes):
                continue
            # What fits no class comes as a mere dictionary.
            name = message["type"] if isinstance(message, dict) else message.type
            kinds.append(name)
            if name == kind and holds(message):
                return message
        sys.exit(f"no {kind}; came: {kinds}")

    def said(text):
        until("ConversationText", lambda message: message.role == "assistant" and message.content == text)

    until("Welcome")
    agent.send_settings(AgentV1Settings.model_validate(SETTINGS))
    until("SettingsApplied")
    said("Hello there.")
    until("AgentAudioDone")
    agent.send_keep_alive(AgentV1KeepAlive())
    agent.send_inject_user_message(AgentV1InjectUserMessage(type="InjectUserMessage", content="Where can I park?"))
    said("Parking is free behind the house.")
    until("AgentAudioDone")
    agent.send_update_prompt(AgentV1UpdatePrompt(type="UpdatePrompt", prompt="Parking costs two dollars an hour."))
    until("PromptUpdated")
    agent.send_update_speak(AgentV1UpdateSpeak.model_validate({"type": "UpdateSpeak", "speak": {"provider": PROVIDER}}))
    until("SpeakUpdated")
    agent.send_update_think(AgentV1UpdateThink.model_validate(
        {"type": "UpdateThink", "think": {"provider": {"type": "open_ai", "model": "gpt-4o-mini"}}}))
    until("ThinkUpdated")
    agent.send_update_listen(AgentV1UpdateListen.model_validate({"type": "UpdateListen", "listen": {
        "provider": {"type": "deepgram", "version": "v2", "model": "flux-general-en", "eot_timeout_ms": 3000}}}))
    until("ListenUpdated")
    agent.send_inject_user_message(AgentV1InjectUserMessage(type="InjectUserMessage", content="What does parking cost?"))
    said("Parking costs two dollars an hour.")
    agent.send_inject_agent_message(AgentV1InjectAgentMessage(
        type="InjectAgentMessage", message="And thank you.", behavior="queue"))
    said("And thank you.")
    until("AgentAudioDone")
    agent.send_force_end_turn(AgentV1ForceEndTurn())
assert {"History", "LatencyReport"} <= set(kinds), kinds
assert client.agent.v1.settings.think.models.list().models == []
