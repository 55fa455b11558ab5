// All words of the console, so that it can be translated: this file is the only one that holds any.
// Texts with a value in them are functions.

export const text = {
  name: "Verbatim",
  skip: "Skip to the content",
  navigation: "Pages",
  theme: { toDark: "Use dark colours", toLight: "Use light colours" },
  signOut: "Sign out",
  signedInAs: (label) => `Signed in with the key “${label}”`,
  close: "Close",
  cancel: "Cancel",
  copy: "Copy",
  copied: "Copied",
  retry: "Try again",
  loading: "Loading…",
  failed: "That did not work.",
  refused: (seconds) => `Please wait ${seconds} ${seconds === 1 ? "second" : "seconds"} and try again.`,
  requestId: (id) => `Request ${id}`,
  pageMissing: "This page cannot be loaded.",
  pages: {
    playground: "Playground",
    live: "Live",
    agent: "Voice agent",
    keys: "Keys",
    jobs: "Jobs",
    operations: "Operations",
  },
  connection: {
    ready: "Connected",
    starting: "The server is starting or stopping. This page goes on when it is ready.",
    stopped: "The server does not answer. This page goes on when it is back.",
    back: "The server is back.",
  },
  signIn: {
    title: "Sign in",
    key: "Admin key",
    show: "Show the key",
    hide: "Hide the key",
    submit: "Sign in",
    busy: "Signing in…",
    wrong: "This is not a valid admin key.",
    linkUsed: "This link was used before, or is too old. Sign in with an admin key instead.",
    ended: "Your session has ended. Please sign in again.",
    help: "An operator makes an admin key on the server:",
    command: "verbatim keys create --admin --label NAME",
    plain: "This connection is not encrypted: others in your network can read the key. Use HTTPS.",
  },

  // Playground
  clock: (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, String(whole % 60).padStart(2, "0")];
    return hours > 0 ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
  },
  language: (code) => {
    try {
      return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
    } catch {
      return code;
    }
  },
  microphone: {
    refused: "The browser did not allow the microphone. Allow it in the address bar, and try again.",
    missing: "There is no microphone that the browser can use.",
  },
  parameters: {
    title: "Parameters",
    reset: "Reset all",
    changed: (count) => `${count} changed`,
    undo: (name) => `Reset ${name}`,
    undoShort: "Reset",
    notSent: "not set",
    onEachLine: "one on each line",
    range: (minimum, maximum) => {
      if (minimum === undefined && maximum === undefined) return "";
      if (maximum === undefined) return `At least ${minimum}.`;
      return minimum === undefined ? `At most ${maximum}.` : `${minimum} to ${maximum}.`;
    },
    groups: {
      live: "Results",
      turns: "Turns",
      recognition: "Model and language",
      format: "Text",
      speakers: "Speakers",
      terms: "Terms",
      audio: "Raw audio",
      delivery: "Request and delivery",
      others: "Other names, and accepted without effect",
    },
  },
  playground: {
    about: "Transcribe a file, an address or a recording, and see each word in its place.",
    source: {
      title: "Audio",
      file: "File",
      address: "Address",
      record: "Record",
      drop: "Drop a file here, or choose one",
      formats: "Any audio or video format; it goes to this server only.",
      another: "drop or choose another",
      addressLabel: "Address of the audio",
      addressHint: "The server fetches it, from public addresses only.",
      start: "Start recording",
      end: "Stop recording",
      recordHint: "The recording stays in this page until you transcribe it.",
    },
    size: (bytes) => (bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`),
    run: "Transcribe",
    progress: "Progress of the upload",
    uploading: (share) => `Uploading, ${Math.floor(share * 100)} %`,
    working: "Transcribing…",
    done: (seconds) => `Done in ${seconds.toFixed(1)} s.`,
    cancelled: "Cancelled.",
    unreachable: "The server does not answer.",
    advice: ({ status, code }) => ({
      0: "Check that the server runs and that this computer reaches it. Nothing was lost: try again when it is back.",
      400: "One of the parameters, or the audio, is not as the server needs it. Change what the message names.",
      401: "Your session has ended. Sign in again.",
      403: "Your key does not allow this.",
      404: "This server does not have what was asked for.",
      408: "The upload took too long. Try again over a faster connection, or let the server fetch an address.",
      413: "The file is too large or too long for this server. Cut it, or ask the operator to raise the limit.",
      415: "The server does not know this format. For audio without a container, set encoding and sample_rate under “Raw audio”.",
      429: "Your organisation uses its whole share of the server. Wait, or let other requests end.",
      502: "The address could not be fetched. Check that it is public and that it answers.",
      503: "The server is full at the moment.",
      504: "The address took too long to answer.",
    })[status] ?? (code && status >= 500 ? "The server failed. Its log has more under the id of the request." : ""),
    result: "Transcript",
    transcript: "Transcript. Arrow keys go from word to word, Enter plays from there.",
    nothingSaid: "No speech was found.",
    viewsLabel: "View",
    views: { paragraphs: "Paragraphs", utterances: "Utterances", tree: "Tree", json: "JSON" },
    jsonText: "The answer as text",
    downloads: "Download",
    follow: "Follow the audio",
    play: "Play",
    pause: "Pause",
    rate: "Speed",
    position: "Position in the audio",
    positionOf: (seconds, duration) => `${text.clock(seconds)} of ${text.clock(duration)}`,
    noAudio: "The audio was fetched by the server: this page cannot play it.",
    noWaveform: "This browser cannot decode the audio, so there is no waveform. The server could.",
    later: "The server sends the result to the callback once it is ready.",
    withoutWords: (seconds) => `voice without words, ${seconds.toFixed(1)} s`,
    speaker: (number) => `Speaker ${number}`,
    channel: (number) => `Channel ${number}`,
    wordTitle: ({ start, confidence }) => `${start.toFixed(2)} s · confidence ${confidence.toFixed(2)}`,
    facts: ({ metadata = {} }, { words, duration, languages, withoutWords }, took) => [
      text.clock(duration),
      `${words.length} ${words.length === 1 ? "word" : "words"}`,
      ...languages.map((code) => text.language(code)),
      ...Object.values(metadata.model_info ?? {}).map((model) => model.name),
      took > 0 && duration > 0 && `${(duration / took).toFixed(1)}× real time`,
      withoutWords > 0 && text.playground.withoutWords(withoutWords),
    ].filter(Boolean),
    code: {
      title: "The same request",
      language: "Language",
      file: "audio.wav",
      hint: "The environment variable KEY has the key.",
    },
  },

  // Live
  milliseconds: (value) => `${Math.round(value)} ms`,
  live: {
    about: "Speak, or let a file speak, and see what the server hears and when.",
    audio: "Audio",
    microphone: "Use the microphone",
    file: "Stream a file in real time",
    end: "Stop",
    hold: "Hold the audio",
    messages: "Send",
    controls: {
      Finalize: "Asks for the final result of everything sent so far",
      ForceEndTurn: "Ends the turn with the audio sent so far",
      KeepAlive: "Keeps a stream without audio open",
      CloseStream: "Ends the stream once everything is transcribed",
    },
    socket: "Socket",
    sockets: { "/v1/listen": "v1: results", "/v2/listen": "v2: turns" },
    nextStream: "Changes hold from the next stream on.",
    undecodable: "This browser cannot decode the file, so it cannot be streamed in real time. The playground can transcribe it.",
    speech: "Speech",
    nothingYet: "What is said appears here: grey while it may change, black once it is final.",
    interrupted: "The connection was lost here.",
    lost: (code, reason) => `The connection was lost${code ? ` (${code})` : ""}${reason ? `: ${reason}` : ""}. `
      + "It is opened again; up to 30 seconds of audio wait for it.",
    refused: (code, reason) => `The server ended the stream${code && code !== 1006 ? ` (${code})` : ""}${reason ? `: ${reason}` : "."}`,
    states: {
      idle: "Not streaming",
      opening: "Connecting…",
      open: "Streaming",
      lost: "Connection lost",
      refused: "Refused",
      closed: "Ended",
    },
    plotTitle: "The last 30 seconds",
    plot: "Plot of loudness, endpoints, end-of-turn confidence and latency; the table below has the figures.",
    legend: {
      level: "loudness",
      confidence: "end-of-turn confidence",
      endpoint: "endpoint",
      latency: "latency, 1 s at the top",
    },
    marks: {
      SpeechStarted: "speech",
      UtteranceEnd: "utterance end",
      speech_final: "endpoint",
      StartOfTurn: "turn",
      EagerEndOfTurn: "eager end",
      TurnResumed: "resumed",
      EndOfTurn: "end of turn",
    },
    stats: ({ seconds, last, interim, final, confidence, dropped }) => [
      ["Audio", `${seconds.toFixed(1)} s`],
      last !== null && ["Last latency", text.milliseconds(last)],
      interim !== null && ["Interim, median", text.milliseconds(interim)],
      final !== null && ["Final, median", text.milliseconds(final)],
      confidence !== null && ["End of turn", confidence.toFixed(2)],
      dropped > 0 && ["Not sent", `${dropped.toFixed(1)} s`],
    ].filter(Boolean),
    results: {
      title: "Results",
      columns: ["Kind", "Seconds", "Text", "End of turn", "Latency"],
      kinds: { interim: "interim", final: "final", turn: "turn" },
      none: "No results yet.",
    },
  },

  // Voice agent

  // Keys

  // Jobs

  // Operations
};
