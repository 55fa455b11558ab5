#!/usr/bin/env python3
"""Dialogues with known truth, for turns.rs: who speaks when, where a turn pauses, and what is said over the agent.

usage: dialogues.py --server URL --key KEY --clips FOLDER… OUT

Callers are recordings (the clips: folders with a manifest.jsonl) and the server's voice. A recording or a spoken sentence
is cut between two words, and a pause of 0.3 to 1.5 s put there, with «um» before it or not. The server must have a voice,
and a recogniser, whose word times say where to cut. OUT gets WAV files, and dialogues.jsonl:

kind     plain, pause, hesitation, answer, digits: `turns`, each with `start`, `end`, `pauses` and the `digits` that the
         agent has asked for; backchannel, noise, interruption, echo, interruption over echo: `events` while `agent` speaks
         `agent_text`, whose echo, late by `delay` seconds, is a track of its own
source   recording or voice
half     0 or 1 by the clip, so that what is chosen on one half can be measured on the other

With `--fresh` the voice speaks other sentences, in place of those on which rules and thresholds were chosen.

Deterministic for a seed but for the server's voice. Needs numpy and scipy, and what audio.py needs.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import wave
from pathlib import Path

import numpy
from scipy.signal import butter, fftconvolve, resample_poly, sosfilt

from audio import RATE, read, write

SENTENCES = [
    "I'd like to book a table for four people on Friday evening.",
    "Can you tell me what time you open on Sundays?",
    "I'm calling because my parcel was supposed to arrive yesterday morning.",
    "Where can I park if I come by car?",
    "Could you put me through to the doctor on duty, please?",
    "I think there is a mistake on my last electricity bill.",
    "What do I need to bring to my first appointment?",
    "My daughter has had a fever since last night and she won't eat anything.",
    "Is it possible to change my booking to the week after Easter?",
    "I want to know whether you sell gift cards in your shop.",
    "The heating in my flat hasn't worked since we moved in.",
    "How much does it cost to renew my library card?",
    "Please send the invoice to my office and not to my home address.",
    "I forgot the password that I chose when I signed up.",
    "We would like to stay for two nights with our dog.",
    "Do you have any vegetarian dishes on the lunch menu?",
    "Tell me about the history of the clinic.",
    "I bought a jacket last week and the zip is already broken.",
    "When does the next train to the airport leave?",
    "My name is Sandra Miller and I have a question about my contract.",
    "Are the test results from Tuesday ready yet?",
    "I would rather speak with the person who called me this morning.",
    "Can I return the shoes even if I have lost the receipt?",
    "There was a charge of thirty dollars that I don't recognise.",
    "Which documents do you need from me for the application?",
    "I need a taxi from the station to the hospital at half past six.",
    "Does the price include breakfast and the use of the pool?",
    "The screen of my phone stays black when I press the button.",
    "I am looking for a present for somebody who loves gardening.",
    "Could we meet on Wednesday instead of Thursday afternoon?",
]
# Nothing was chosen on these.
FRESH = [
    "Hi, this is Karen from the bakery, I need to order more flour for next week.",
    "Is there any chance that somebody could look at my boiler today?",
    "I was told that my passport would be ready by the end of the month.",
    "What happens if I miss the last bus back to town?",
    "We ordered two pizzas an hour ago and nobody has come.",
    "How do I switch off the automatic renewal of my subscription?",
    "The washing machine that you delivered on Monday makes a terrible noise.",
    "Do I have to pay extra for a window seat?",
    "My husband left his glasses in the waiting room this morning.",
    "I'd like to know whether the museum is open on public holidays.",
    "Can my son bring a friend to the swimming lesson?",
    "Somebody used my card in a shop that I have never been to.",
    "Would it be possible to have the meeting at your office?",
    "The link in the email doesn't work on my computer.",
    "We are planning a birthday party for about twenty children.",
    "I need the address of the pharmacy that is open at night.",
    "Why was my application refused after all this time?",
    "Please tell the manager that I will be ten minutes late.",
    "Are there any seats left for the concert on the ninth?",
    "I have been waiting for a call from your technician since eight.",
    "How far is the hotel from the centre of the city?",
    "It says here that my insurance doesn't cover broken windows.",
    "I'm allergic to nuts, so I want to ask what is in the soup.",
    "Could you repeat the number of the account a bit more slowly?",
    "My neighbour found a black cat with a red collar in her garden.",
    "If I cancel before Thursday, will I get the whole deposit back?",
    "We need somebody who can translate a letter from Portuguese.",
    "Has the doctor already signed the form for my employer?",
    "The lift in our building has been out of order for three days.",
    "I would like to speak to the person in charge of deliveries.",
]
ANSWERS = [
    "Yeah.", "No.", "Yes.", "Yes, please.", "No, thanks.", "Okay.", "Sure.", "That's right.", "Correct.", "Nope.",
    "Yep.", "Exactly.", "No, thank you.", "Of course.", "Alright.",
]
CODES = [["four seven", "nine two"], ["one two", "three four"], ["eight oh", "five six"], ["three three", "one nine"],
         ["six two nine", "four"], ["five", "eight seven one"]]
# The voice has no «mhm».
BACKCHANNELS = ["Yeah.", "Right.", "Okay.", "I see.", "Got it.", "Oh, okay.", "Sure."]
INTERRUPTIONS = ["Wait, I have another question.", "Sorry, what about Saturday?", "Stop, that's not what I asked.",
                 "Can I speak to a person?", "No, I meant the other branch.", "How much would that cost?"]
VOICES = ["af_heart", "am_michael"]
# Of an echo: how late it is, in seconds, and how loud. Speech has 0.06.
DELAYS, LOUDNESSES = (0.12, 0.4, 0.8), (0.01, 0.03)
FILLERS = ["Um,", "Uh,", "Er,"]
SILENCE = 0.4


class Server:
    def __init__(self, address, key, cache):
        self.address, self.key, self.cache = address, key, cache
        cache.mkdir(parents=True, exist_ok=True)

    def post(self, path, body, kind):
        headers = {"Content-Type": kind} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        while True:
            try:
                with urllib.request.urlopen(urllib.request.Request(self.address + path, body, headers), timeout=300) as reply:
                    return reply.read()
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                time.sleep(float(error.headers.get("Retry-After", 1)))

    def speak(self, text, voice):
        path = self.cache / f"{voice}_{urllib.parse.quote(text, safe='')}.wav"
        if not path.exists():
            query = urllib.parse.urlencode({"model": voice, "encoding": "linear16", "sample_rate": RATE})
            path.write_bytes(self.post(f"/v1/speak?{query}", json.dumps({"text": text}).encode(), "application/json"))
        return trimmed(read(path))

    def words(self, name, sound):
        """Each word with its begin and end, in seconds."""
        path = self.cache / f"{name}.words.json"
        if not path.exists():
            wav = self.cache / "words.wav"
            write(wav, sound)
            reply = json.loads(self.post("/v1/listen?language=en&punctuate=true", wav.read_bytes(), "audio/wav"))
            words = reply["results"]["channels"][0]["alternatives"][0]["words"]
            path.write_text(json.dumps([(word["word"], word["start"], word["end"]) for word in words]))
        return json.loads(path.read_text())


def trimmed(sound):
    """Without the silence around it: frames of 10 ms that are 40 dB fainter than the loudest."""
    frame = RATE // 100
    power = numpy.array([float(numpy.mean(sound[at:at + frame] ** 2)) for at in range(0, len(sound) - frame + 1, frame)])
    loud = numpy.flatnonzero(power > power.max() * 1e-4)
    return sound[loud[0] * frame:(loud[-1] + 1) * frame] if len(loud) else sound[:0]


def level(sound, rms=0.06):
    return sound / max(1e-9, numpy.sqrt(numpy.mean(sound ** 2))) * rms


def cuts(server, name, sound, rng, count):
    """Samples between two words, in order, not near the ends: the quietest moment around where the words say."""
    words = server.words(name, sound)
    places = [(a[2] + b[1]) / 2 for a, b in zip(words, words[1:])]
    places = [at for at in places if 0.6 < at < len(sound) / RATE - 0.6]
    rng.shuffle(places)
    chosen = []
    for at in places:
        if len(chosen) < count and all(abs(at - other) > 0.8 for other in chosen):
            chosen.append(at)
    step = RATE // 100
    def quietest(at):
        around = range(int((at - 0.06) * RATE), int((at + 0.06) * RATE), step)
        return min(around, key=lambda sample: float(numpy.mean(sound[sample:sample + step] ** 2)))
    return sorted(quietest(at) for at in chosen)


class Track:
    """One side of a dialogue."""

    def __init__(self):
        self.pieces, self.length = [], 0

    def add(self, sound):
        start = self.length / RATE
        self.pieces.append(sound)
        self.length += len(sound)
        return start, self.length / RATE

    def rest(self, seconds):
        return self.add(numpy.zeros(int(seconds * RATE)))

    def sound(self, rng):
        # A quiet room: 60 dB below speech.
        return numpy.concatenate(self.pieces) + rng.standard_normal(self.length) * 6e-5


class Out:
    def __init__(self, folder, rng):
        self.folder, self.rng, self.rows = folder, rng, []
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, kind, source, half, track, **truth):
        name = f"{len(self.rows):04}_{kind.replace(' ', '_')}.wav"
        sound = track if isinstance(track, numpy.ndarray) else track.sound(self.rng)
        write(self.folder / name, sound)
        self.rows.append({"file": name, "kind": kind, "source": source, "half": half, **truth})

    def turn(self, kind, source, half, parts, pauses, digits=None):
        """A turn of `parts`, with so long `pauses` between them."""
        track = Track()
        track.rest(0.8)
        start, end = track.add(parts[0])
        inner = []
        for part, pause in zip(parts[1:], pauses):
            inner.append(track.rest(pause))
            end = track.add(part)[1]
        track.rest(3.5)
        turn = {"start": start, "end": end, "pauses": inner, "digits": digits}
        self.add(kind, source, half, track, turns=[turn])


def write_24k(path, sound):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(numpy.round(numpy.clip(resample_poly(sound, 3, 2), -1, 1) * 32_767).astype("<i2").tobytes())


def noises(rng):
    """Sounds that are no words: a cough, a door, keys, a breath."""
    def burst(seconds, low, high, decay):
        n = int(seconds * RATE)
        band = butter(2, [low, high], "band", fs=RATE, output="sos")
        return sosfilt(band, rng.standard_normal(n)) * numpy.exp(-numpy.arange(n) / RATE * decay)
    cough = numpy.concatenate([burst(0.25, 300, 3000, 12), numpy.zeros(1500), burst(0.35, 250, 2500, 9)])
    door = burst(0.5, 60, 400, 14)
    keys = numpy.concatenate([numpy.concatenate([burst(0.04, 2000, 6000, 60), numpy.zeros(1800)]) for _ in range(6)])
    breath = burst(0.9, 500, 5000, 2)
    return [("cough", level(cough, 0.08)), ("door", level(door, 0.08)), ("keys", level(keys, 0.03)),
            ("breath", level(breath, 0.03))]


def echo(agent, rng, delay, loudness):
    """The agent's voice as a speakerphone sends it back: coloured, with a room around it, late and faint."""
    n = int(0.25 * RATE)
    room = rng.standard_normal(n) * numpy.exp(-numpy.arange(n) / RATE * 18) * 0.25
    room[0] = 1.0
    band = butter(2, [300, 3400], "band", fs=RATE, output="sos")
    back = sosfilt(band, fftconvolve(agent, room))[:len(agent)]
    return numpy.concatenate([numpy.zeros(int(delay * RATE)), level(back, loudness)])


def over_agent(out, server, agents, texts, rng):
    def place(track, sound, at):
        begin = int(at * RATE)
        track[begin:begin + len(sound)] += sound
        return {"start": at, "end": at + len(sound) / RATE}

    def made(kind, agent, index, sounds, loudness=None, delay=0.0, text=None):
        name = f"agent_{index:02}.wav"
        write_24k(out.folder / name, agent)
        track = rng.standard_normal(len(agent) + 4 * RATE) * 6e-5
        back = None
        if loudness:
            # A track of its own, which falls silent when the agent does.
            back = f"echo_{kind.replace(' ', '_')}_{index:02}.wav"
            write(out.folder / back, echo(agent, rng, delay, loudness))
        events, at = [], 2.0
        for sound in sounds:
            if at + len(sound) / RATE > len(agent) / RATE - 1.0:
                break
            events.append(place(track, sound, at))
            at += len(sound) / RATE + 3.0
        row = {"agent": name, "agent_text": texts[index], "events": events, "text": text, "echo": back, "delay": delay}
        out.add(kind, "voice", index % 2, track, **row)

    for index, agent in enumerate(agents):
        voice = VOICES[index % 2]
        soft = [level(server.speak(text, voice), 0.05) for text in BACKCHANNELS[index % 7:] + BACKCHANNELS[:index % 7]]
        made("backchannel", agent, index, soft[:3])
        sounds = [sound for _, sound in noises(rng)]
        made("noise", agent, index, [sounds[index % 4], sounds[(index + 1) % 4]])
        text = INTERRUPTIONS[index % len(INTERRUPTIONS)]
        spoken = level(server.speak(text, voice))
        made("interruption", agent, index, [spoken], text=text)
        delay, loudness = DELAYS[index % 3] + float(rng.uniform(0, 0.05)), LOUDNESSES[index // 3 % 2]
        made("echo", agent, index, [], loudness, delay)
        made("interruption over echo", agent, index, [spoken], loudness, delay, text=text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--server", default="http://127.0.0.1:8000", metavar="URL")
    parser.add_argument("--key")
    parser.add_argument("--clips", type=Path, nargs="+", default=[Path(".verbatim/speech")])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="other sentences")
    options = parser.parse_args()
    rng = numpy.random.default_rng(options.seed)
    server = Server(options.server, options.key, options.out / "made")
    out = Out(options.out, rng)

    recordings, agents, texts = [], [], []
    for folder in options.clips:
        for line in (folder / "manifest.jsonl").read_text().splitlines():
            clip = json.loads(line)
            text = clip.get("text") or clip.get("peer") or ""
            name = Path(clip["file"]).stem
            if clip["language"] != "en" or clip.get("kind") in ("empty", "diarization", "truth-long"):
                continue
            sound = level(trimmed(read(folder / clip["file"])))
            if name.startswith("voice_"):
                agents.append(sound)
                texts.append(text)
            # One whole sentence: within more, some pauses are ends of turns. Neither do some begin in the middle.
            inner = text.strip().rstrip(".?!\"").replace("Mr.", "Mr").replace("Mrs.", "Mrs")
            whole = not any(mark in inner for mark in ".?!") and 1.5 < len(sound) / RATE < 12
            if whole and not name.startswith("voice_") and "8000" not in name:
                recordings.append((name, sound))
    sentences, mark = (FRESH, "f") if options.fresh else (SENTENCES, "s")
    spoken = [(f"{mark}{at:02}_{VOICES[at // 2 % 2]}", level(server.speak(text, VOICES[at // 2 % 2])))
              for at, text in enumerate(sentences)]
    for source, clips in (("recording", recordings), ("voice", spoken)):
        for index, (name, sound) in enumerate(clips):
            half = index % 2
            out.turn("plain", source, half, [sound], [])
            places = cuts(server, name, sound, rng, 1 + index % 2)
            if not places:
                continue
            parts = [trimmed(part) for part in numpy.split(sound, places)]
            out.turn("pause", source, half, parts, [float(rng.uniform(0.3, 1.5)) for _ in places])
            voice = VOICES[index % 2] if source == "recording" else name.split("_", 1)[1]
            um = level(server.speak(FILLERS[index % 3], voice), 0.04)
            first, rest = numpy.split(sound, places[:1])
            hesitant = numpy.concatenate([trimmed(first), numpy.zeros(int(0.12 * RATE)), um])
            out.turn("hesitation", source, half, [hesitant, trimmed(rest)], [float(rng.uniform(0.3, 1.2))])
    for index, text in enumerate(ANSWERS):
        for voice in VOICES:
            out.turn("answer", "voice", index % 2, [level(server.speak(text, voice))], [])
    for index, groups in enumerate(CODES):
        for voice in VOICES:
            parts = [level(server.speak(group + ",", voice)) for group in groups[:-1]]
            parts.append(level(server.speak(groups[-1] + ".", voice)))
            out.turn("digits", "voice", index % 2, parts, [float(rng.uniform(0.4, 1.0))], digits=4)
    over_agent(out, server, agents, texts, rng)
    (options.out / "dialogues.jsonl").write_text("".join(json.dumps(row) + "\n" for row in out.rows))
    kinds = {row["kind"] for row in out.rows}
    print(f"{len(out.rows)} dialogues:", ", ".join(f"{sum(r['kind'] == k for r in out.rows)} {k}" for k in sorted(kinds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
