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

  // Live

  // Voice agent

  // Keys

  // Jobs

  // Operations
};
