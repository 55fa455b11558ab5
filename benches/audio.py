"""Audio of the benchmarks: files in as samples at 16 kHz on one channel, samples out as WAV. Needs av and numpy."""

import wave
from pathlib import Path

import av
import numpy

RATE = 16_000


def samples(path: Path) -> bytes:
    """Of a file in any format, as 16-bit little-endian samples."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(str(path)) as container:
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
    frames += resampler.resample(None)
    return numpy.concatenate([frame.to_ndarray().ravel() for frame in frames]).astype("<i2").tobytes()


def read(path: Path) -> numpy.ndarray:
    """Samples between -1 and 1."""
    return numpy.frombuffer(samples(path), "<i2") / 32_768


def write(path: Path, sound: numpy.ndarray) -> None:
    """As 16-bit WAV; louder than full scale is made quieter, not clipped."""
    peak = numpy.abs(sound).max(initial=0.0)
    scaled = sound * (0.7 / peak if peak > 0.99 else 1.0)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(numpy.round(scaled * 32_767).astype("<i2").tobytes())
