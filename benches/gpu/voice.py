"""Sound that a voice detector takes for speech, made without a recording: vowels through formants, with pauses.

The synthetic model answers with the same number of tokens whatever it hears. What counts is that the server finds
speech, pauses and ends of utterances where this module puts them.
"""

import array
import io
import math
import random
import wave

RATE = 16_000
# The first three formants of some vowels, in Hz, and their bandwidths.
VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
BANDWIDTHS = (80, 90, 120)
WORD_SECONDS, GAP_SECONDS, PAUSE_SECONDS, WORDS_OF_A_SENTENCE = 0.32, 0.06, 0.9, 10


def resonator(frequency: float, bandwidth: float) -> tuple[float, float, float]:
    """The coefficients of a filter with two poles."""
    radius = math.exp(-math.pi * bandwidth / RATE)
    first, second = 2 * radius * math.cos(2 * math.pi * frequency / RATE), -radius * radius
    return 1 - first - second, first, second


def word(chance: random.Random) -> list[float]:
    """A syllable: a glide from one vowel to another, after a breath of noise."""
    count = int(WORD_SECONDS * RATE)
    vowels, pitch = chance.sample(VOWELS, 2), chance.uniform(105, 140)
    states, phase, samples, filters = [[0.0, 0.0] for _ in BANDWIDTHS], 0.0, [], []
    for n in range(count):
        part = n / count
        if n % 80 == 0:
            glide = [a + (b - a) * part for a, b in zip(*vowels)]
            filters = [resonator(*pair) for pair in zip(glide, BANDWIDTHS)]
        phase += pitch * (1.1 - 0.2 * part) / RATE
        phase -= int(phase)
        # A pulse of the glottis that opens slowly and closes fast.
        source = (phase / 0.6) ** 2 * (1 - phase / 0.6) * 4 if phase < 0.6 else 0.0
        source += chance.gauss(0, 0.3 if part < 0.15 else 0.02)
        for state, (gain, first, second) in zip(states, filters):
            source = gain * source + first * state[0] + second * state[1]
            state[1], state[0] = state[0], source
        samples.append(source * math.sin(math.pi * part) ** 0.5)
    loudest = max(map(abs, samples))
    return [sample / loudest for sample in samples]


def clip(sentences: int = 2, seed: int = 1) -> tuple[bytes, list[float]]:
    """16-bit samples of `sentences`, a pause after each; and the seconds at which the words end."""
    chance = random.Random(seed)
    samples, ends = [0.0] * int(0.3 * RATE), []
    for _ in range(sentences):
        for _ in range(WORDS_OF_A_SENTENCE):
            samples += word(chance)
            ends.append(len(samples) / RATE)
            samples += [0.0] * int(GAP_SECONDS * RATE)
        samples += [0.0] * int((PAUSE_SECONDS - GAP_SECONDS) * RATE)
    sound = (int(9000 * sample + chance.gauss(0, 8)) for sample in samples)
    return array.array("h", sound).tobytes(), ends


def as_wave(samples: bytes) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(samples)
    return file.getvalue()
