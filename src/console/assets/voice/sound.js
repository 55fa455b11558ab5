// The microphone and the loudspeaker of a talk, on one audio clock.

export const HEARD_RATE = 16_000;
export const SPOKEN_RATE = 24_000;
const RESUME_MS = 2000;

// Why there is no microphone: `insecure`, `refused`, `missing`, `busy` or `failed`.
export class MicrophoneError extends Error {
  constructor(reason, cause) {
    super(reason, { cause });
    this.reason = reason;
  }
}

// Events: `piece` with {samples, level, loudUntil} of the microphone; `began` with the time at which the agent's sound begins;
// `mark` with a name; `level` with {level, gaps} of the agent's sound; `lost` when the microphone is unplugged; `silent`
// where nothing can be heard or recorded.
export class Sound extends EventTarget {
  #context = new AudioContext({ latencyHint: "interactive" });
  #player;
  #stream;
  #isClosed = false;

  // To be called by a click: browsers let no page make sounds by itself.
  async open({ hasMicrophone }) {
    const stream = hasMicrophone ? microphone() : null;
    // Its failure is met below, after the player is there.
    stream?.catch(() => {});
    if (this.#context.audioWorklet === undefined) throw new MicrophoneError("insecure");
    await Promise.all(
      ["playback", "capture"].map((name) => this.#context.audioWorklet.addModule(new URL(`${name}-worklet.js`, import.meta.url))),
    );
    // It stays suspended where there is no loudspeaker, or the browser lets the page make no sound.
    await Promise.race([this.#context.resume(), new Promise((late) => setTimeout(late, RESUME_MS))]);
    if (this.#context.state !== "running") this.#tell("silent");
    this.#player = new AudioWorkletNode(this.#context, "voice-playback", {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { rate: SPOKEN_RATE },
    });
    this.#player.port.onmessage = ({ data }) => this.#heard(data);
    this.#player.connect(this.#context.destination);
    if (stream !== null) this.#listen(await stream);
  }

  // Seconds of the audio clock.
  get now() {
    return this.#context.currentTime;
  }

  // Between a sample's time on the clock and its sound, in seconds, as far as the browser knows.
  get outputSeconds() {
    return this.#context.outputLatency || this.#context.baseLatency || 0;
  }

  set isMuted(isMuted) {
    for (const track of this.#stream?.getAudioTracks() ?? []) track.enabled = !isMuted;
  }

  play(samples) {
    this.#player.port.postMessage({ samples }, [samples]);
  }

  mark(name) {
    this.#player.port.postMessage({ mark: name });
  }

  clear() {
    this.#player.port.postMessage({ clear: true });
  }

  async close() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#context.close();
  }

  #listen(stream) {
    this.#stream = stream;
    stream.getAudioTracks()[0].addEventListener("ended", () => this.#tell("lost"));
    const capture = new AudioWorkletNode(this.#context, "voice-capture", { processorOptions: { rate: HEARD_RATE } });
    capture.port.onmessage = ({ data }) => this.#tell("piece", data);
    // It gives no sound, but without a way to the loudspeaker some browsers don't run it.
    this.#context.createMediaStreamSource(stream).connect(capture).connect(this.#context.destination);
  }

  #heard(message) {
    if ("began" in message) this.#tell("began", message.began);
    else if ("mark" in message) this.#tell("mark", message.mark);
    else this.#tell("level", message);
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

async function microphone() {
  if (!navigator.mediaDevices?.getUserMedia) throw new MicrophoneError("insecure");
  try {
    const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    const reasons = { NotAllowedError: "refused", SecurityError: "refused", NotFoundError: "missing", NotReadableError: "busy" };
    throw new MicrophoneError(reasons[error.name] ?? "failed", error);
  }
}
