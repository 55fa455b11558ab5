"""Sounds in which nobody speaks, and the music and noise that lie under speech. numpy alone.

A sound of SOUNDS takes the generator of chance and gives LENGTH samples.
"""

from collections.abc import Callable, Iterator

import numpy as np

from audio import RATE

LENGTH = 45 * RATE
TIME = np.arange(LENGTH) / RATE


def level(sound: np.ndarray, rms: float) -> np.ndarray:
    return sound * (rms / max(1e-9, float(np.sqrt((sound**2).mean()))))


def repeated(sound: np.ndarray, length: int) -> np.ndarray:
    return np.resize(sound, length)


def filtered(sound: np.ndarray, gain: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """`gain`: of frequencies in hertz. Without phase, so nothing moves in time."""
    return np.fft.irfft(np.fft.rfft(sound) * gain(np.fft.rfftfreq(len(sound), 1 / RATE)), len(sound))


def coloured(chance: np.random.Generator, length: int, power: float) -> np.ndarray:
    """Noise of level 1: `power` 0 is white, 0.5 pink, 1 brown."""
    noise = filtered(chance.standard_normal(length), lambda hertz: np.maximum(hertz, 20.0) ** -power)
    return level(noise, 1.0)


def telephone(chance: np.random.Generator, sound: np.ndarray) -> np.ndarray:
    """Over a line: 300 to 3400 Hz, mu-law in 8 bits (ITU-T G.711), and the line's noise."""
    near = filtered(sound, lambda hertz: 1 / (1 + (300 / np.maximum(hertz, 1)) ** 8 + (hertz / 3400) ** 16))
    loudness = np.log1p(255 * np.minimum(1, np.abs(near))) / np.log(256)
    coded = np.round(loudness * 127) / 127
    return np.sign(near) * (256**coded - 1) / 255 + 8e-4 * chance.standard_normal(len(sound))


def resonant(sound: np.ndarray, *peaks: tuple[float, float]) -> np.ndarray:
    """With formants: frequency and width of each in hertz."""
    return filtered(sound, lambda hertz: sum(1 / (1 + ((hertz - peak) / width) ** 2) for peak, width in peaks))


def note(hertz: float, length: int, decay: float = 1.5) -> np.ndarray:
    time = np.arange(length) / RATE
    return sum(np.sin(2 * np.pi * hertz * k * time) / k**1.5 for k in range(1, 9)) * np.exp(-time * decay)


def scattered(chance, count: int, length: int, make: Callable, floor: float = 0.0) -> np.ndarray:
    """Many short sounds, anywhere."""
    sound = floor * coloured(chance, LENGTH, 0.5)
    for start in chance.integers(0, LENGTH - length, count):
        sound[start:start + length] += make()
    return sound


def burst(chance, length: int, decay: float) -> np.ndarray:
    return chance.standard_normal(length) * np.exp(-np.arange(length) / decay)


def band(chance: np.random.Generator, length: int) -> np.ndarray:
    """Chords, bass drum and snare, of level 1."""
    chords = [(220, 277, 330), (196, 247, 294), (174, 220, 262), (165, 208, 247)]
    sound = np.zeros(length + 2 * RATE)
    for number, start in enumerate(range(0, length, 2 * RATE)):
        wobble = 1 + 0.3 * np.sin(2 * np.pi * 5 * np.arange(2 * RATE) / RATE)
        for hertz in chords[(number + int(chance.integers(4))) % 4]:
            sound[start:start + 2 * RATE] += note(hertz, 2 * RATE, 0.5) * wobble
    drum = 3 * np.sin(2 * np.pi * 60 * np.arange(2000) / RATE) * np.exp(-np.arange(2000) / 500)
    for start in range(0, length, RATE // 2):
        sound[start:start + 2000] += drum
        sound[start + 4000:start + 5500] += burst(chance, 1500, 300)
    return level(sound[:length], 1.0)


def piano(chance: np.random.Generator) -> np.ndarray:
    scale = [261.6, 293.7, 329.6, 349.2, 392.0, 440.0, 493.9, 523.3]
    sound = np.zeros(LENGTH + 2 * RATE)
    for start in range(0, LENGTH, int(0.4 * RATE)):
        sound[start:start + int(1.2 * RATE)] += note(scale[chance.integers(8)], int(1.2 * RATE))
    return sound[:LENGTH]


def tones(*hertz: float) -> np.ndarray:
    return sum(np.sin(2 * np.pi * one * TIME) for one in hertz)


def swept(hertz: np.ndarray) -> np.ndarray:
    return np.cumsum(2 * np.pi * hertz) / RATE


def keypad(chance: np.random.Generator) -> np.ndarray:
    """DTMF: twice a second one of sixteen pairs."""
    low, high = [697, 770, 852, 941], [1209, 1336, 1477, 1633]
    sound = np.zeros(LENGTH)
    for start in range(0, LENGTH, RATE // 2):
        time = np.arange(RATE // 5) / RATE
        pair = low[chance.integers(4)], high[chance.integers(4)]
        sound[start:start + len(time)] = sum(np.sin(2 * np.pi * one * time) for one in pair)
    return sound


def hummed(_chance) -> np.ndarray:
    """A melody with a mouth closed."""
    phase = swept(300 + 10 * np.sin(2 * np.pi * 5.5 * TIME) + 80 * np.sin(2 * np.pi * 0.1 * TIME))
    return resonant(sum(np.sin(k * phase) / k for k in range(1, 20)), (700, 80), (1200, 90), (2600, 120))


def engine(chance: np.random.Generator) -> np.ndarray:
    phase = swept(40 + 15 * np.sin(2 * np.pi * 0.15 * TIME))
    return sum(np.sin(k * phase + k * k) / k for k in range(1, 30)) + 0.3 * coloured(chance, LENGTH, 1)


def birds(chance: np.random.Generator) -> np.ndarray:
    time = np.arange(5000) / RATE

    def chirp():
        return np.sin(2 * np.pi * (2500 * time + chance.uniform(-3000, 3000) * time**2)) * np.hanning(5000)

    return scattered(chance, 60, 5000, chirp)


def bark(chance: np.random.Generator) -> np.ndarray:
    def one():
        return resonant(chance.standard_normal(3500), (500, 200), (1500, 300)) * np.hanning(3500)

    return scattered(chance, 30, 3500, one, 0.01)


def cough(chance: np.random.Generator) -> np.ndarray:
    def one():
        return resonant(burst(chance, 6000, 1500), (800, 300), (1800, 400))

    return scattered(chance, 20, 6000, one, 0.02)


def modem(chance: np.random.Generator) -> np.ndarray:
    bits = np.repeat(chance.integers(0, 2, LENGTH // 53 + 1), 53)[:LENGTH]
    return np.sin(swept(np.where(bits, 1270.0, 1070.0))) + np.sin(swept(np.where(bits[::-1], 2225.0, 2025.0)))


SOUNDS: dict[str, Callable] = {
    "nothing": lambda chance: np.zeros(LENGTH),
    "dither": lambda chance: 1e-4 * chance.standard_normal(LENGTH),
    "white": lambda chance: coloured(chance, LENGTH, 0),
    "pink": lambda chance: coloured(chance, LENGTH, 0.5),
    "brown": lambda chance: coloured(chance, LENGTH, 1),
    "mains": lambda chance: sum(np.sin(2 * np.pi * 50 * k * TIME) / k for k in range(1, 8)),
    "dial": lambda chance: tones(350, 440),
    "ringing": lambda chance: tones(440, 480) * (TIME % 6 < 2),
    "busy": lambda chance: tones(480, 620) * (TIME % 1 < 0.5),
    "keypad": keypad,
    "keyboard": lambda chance: scattered(chance, 300, 400, lambda: burst(chance, 400, 60)),
    "doors": lambda chance: scattered(chance, 40, 8000, lambda: burst(chance, 8000, 1500), 0.02),
    "piano": piano,
    "band": lambda chance: band(chance, LENGTH),
    "hummed": hummed,
    "siren": lambda chance: np.sin(swept(900 + 400 * np.sin(2 * np.pi * 0.3 * TIME))),
    "engine": engine,
    "wind": lambda chance: coloured(chance, LENGTH, 1) * (1 + np.sin(2 * np.pi * 0.2 * TIME)),
    "birds": birds,
    "bark": bark,
    "cough": cough,
    "applause": lambda chance: scattered(chance, 4000, 600, lambda: burst(chance, 600, 120)),
    "modem": modem,
    "clock": lambda chance: np.where(np.arange(LENGTH) % RATE < 60, 1.0, 5e-4) * chance.standard_normal(LENGTH),
}


def without_speech(chance: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Every sound by its name, as loud as speech is but for the two that are hardly there."""
    for name, make in SOUNDS.items():
        sound = make(chance)
        yield name, sound if name in ("nothing", "dither") else sound * (0.5 / np.abs(sound).max())
