import os

from openai import OpenAI

client = OpenAI(base_url=os.environ["SERVER"] + "/v1", api_key=os.environ["KEY"])
with open(os.environ["AUDIO"], "rb") as audio:
    transcription = client.audio.transcriptions.create(file=audio, model="whisper-1")
print(transcription.text)
