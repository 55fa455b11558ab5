import base64
import os
import wave

from openai import OpenAI

base = os.environ["SERVER"] + "/v1"
sockets = base.replace("http", "ws", 1)
client = OpenAI(base_url=base, websocket_base_url=sockets, api_key=os.environ["KEY"])

with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
    heard = {"transcription": {"model": "whisper-1"}, "turn_detection": None}
    connection.session.update(session={"type": "transcription", "audio": {"input": heard}})
    with wave.open(os.environ["AUDIO_24KHZ"]) as audio:
        while piece := audio.readframes(2400):
            connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
    connection.input_audio_buffer.commit()
    for event in connection:
        if event.type == "conversation.item.input_audio_transcription.completed":
            print(event.transcript)
            break
