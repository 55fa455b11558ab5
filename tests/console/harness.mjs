// A browser at the console of a running server, as the specs beside this file use it.
//
// tests/integration/browser.rs starts the server and sets:
//   SERVER      its address, http://127.0.0.1:PORT
//   ADMIN_KEY   a key that signs in to the console; KEY, one that only transcribes
//   SPEECH      the folder with the clips of ./setup
//   PACKAGES    the folder in which ./setup has installed package-lock.json
//   CHROMIUM or FIREFOX   the browser's program
//   SCRATCH     a folder for what specs keep from run to run
//   SHOTS       optional: a folder for screenshots

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';

const packages = createRequire(path.join(required('PACKAGES'), 'package.json'));
const playwright = packages('playwright-core');

export const server = required('SERVER');
export const adminKey = required('ADMIN_KEY');
export const key = required('KEY');
export const isFirefox = Boolean(process.env.FIREFOX);

/** The source of axe-core, to be run in a page. */
export const axe = () => packages('axe-core').source;

/** A clip of ./setup. */
export const speech = (name) => path.join(required('SPEECH'), name);

/** Generous, for a busy machine: each step ends as soon as what it waits for is seen. */
export const PATIENCE_MS = 120_000;

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; tests/integration/browser.rs sets it`);
  return value;
}

/**
 * A browser. `microphone`: a WAV file that plays in a loop as the microphone; Firefox hears a tone instead.
 * Close it with `close`.
 */
export async function launch({ microphone } = {}) {
  if (isFirefox) {
    const card = soundCard();
    // Debian's Firefox, by WebDriver BiDi: Playwright's own build is not needed.
    const browser = await playwright.firefox.launch({
      channel: 'moz-firefox',
      executablePath: process.env.FIREFOX,
      env: { ...process.env, ...card?.env },
      firefoxUserPrefs: {
        'media.navigator.streams.fake': true, 'media.navigator.permission.disabled': true, 'media.autoplay.default': 0,
      },
    });
    browser.on('disconnected', () => card?.remove());
    return browser;
  }
  const args = ['--use-fake-ui-for-media-stream', '--use-fake-device-for-media-stream',
    '--autoplay-policy=no-user-gesture-required'];
  if (microphone) args.push(`--use-file-for-fake-audio-capture=${microphone}`);
  // Chromium refuses to run as root, as CI does, inside its sandbox.
  if (process.getuid() === 0) args.push('--no-sandbox');
  return playwright.chromium.launch({ executablePath: required('CHROMIUM'), args });
}

/** Whether sound runs in the browser: in Firefox, only where PulseAudio is installed. */
export const hasSound = !isFirefox || spawnSync('pulseaudio', ['--version']).status === 0;

/** PulseAudio with a card that swallows everything at the speed of hearing: without a card, Firefox runs no sound. */
function soundCard() {
  if (!hasSound) return null;
  const folder = mkdtempSync(path.join(os.tmpdir(), 'sound-'));
  const socket = path.join(folder, 'native');
  const env = { ...process.env, PULSE_RUNTIME_PATH: folder, PULSE_STATE_PATH: folder, PULSE_SERVER: '' };
  const modules = ['module-null-sink', `module-native-protocol-unix socket=${socket} auth-anonymous=1`];
  // It returns once the card is there.
  execFileSync('pulseaudio', ['-n', '--daemonize=yes', '--use-pid-file=yes', '--exit-idle-time=-1', '--disable-shm=yes',
    ...modules.map((module) => `--load=${module}`)], { env, stdio: 'ignore' });
  return {
    env: { PULSE_SERVER: `unix:${socket}` },
    remove() {
      execFileSync('pulseaudio', ['--kill'], { env, stdio: 'ignore' });
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/**
 * A page of a context of its own. `problems` collects what the page should never have: exceptions, errors on its
 * console, breaches of its content security policy, requests to other hosts.
 */
export async function open(browser, options = {}) {
  const bare = isFirefox ? { colorScheme: null, reducedMotion: null, forcedColors: null, contrast: null } : {};
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...bare, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const problems = [];
  page.on('pageerror', (error) => problems.push(`exception: ${error.stack ?? error}`));
  page.on('console', (message) => {
    // A browser reports each refusal; this one says that there is no session yet.
    const { url } = message.location();
    if (message.type() !== 'error' || new URL(url, server).pathname === '/console/session') return;
    problems.push(`console: ${message.text()} (${url})`);
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (['http:', 'https:', 'ws:', 'wss:'].includes(url.protocol) && url.hostname !== '127.0.0.1') {
      problems.push(`a request to ${url.host}`);
    }
  });
  return { context, page, problems };
}

/** Signs in with `secret` on the page that asks for a key, and goes to the page `name` (`playground`, `live`, …). */
export async function signIn(page, name = '', { secret = adminKey, base = server } = {}) {
  await page.goto(`${base}/#/${name}`);
  const field = page.getByLabel(/admin key/i);
  await field.fill(secret);
  await field.press('Enter');
  await field.waitFor({ state: 'detached' });
}

/** Waits until `check` gives something true, and returns it. `check` runs in the page at each frame. */
export const until = (page, check, argument) =>
  page.waitForFunction(check, argument, { polling: 'raf', timeout: PATIENCE_MS }).then((handle) => handle.jsonValue());

/**
 * Gives a page a microphone that is silent until the spec speaks, unlike a file, which plays from the start. To be called
 * before the page opens its microphone.
 *
 * @returns {Promise<(clip: string) => Promise<void>>} plays a clip of ./setup into the microphone, to its end
 */
export async function giveVoice(page) {
  await page.addInitScript(() => {
    // The empty page before the first one has no devices.
    if (!navigator.mediaDevices) return;
    let context;
    let mouth;
    navigator.mediaDevices.getUserMedia = async () => {
      context ??= new AudioContext();
      mouth ??= context.createMediaStreamDestination();
      await context.resume();
      return mouth.stream.clone();
    };
    window.speak = async (encoded) => {
      const bytes = Uint8Array.from(atob(encoded), (sign) => sign.charCodeAt(0));
      const source = context.createBufferSource();
      source.buffer = await context.decodeAudioData(bytes.buffer);
      source.connect(mouth);
      const ended = new Promise((done) => { source.onended = done; });
      source.start();
      await ended;
    };
  });
  return (clip) => page.evaluate((encoded) => window.speak(encoded), readFileSync(speech(clip)).toString('base64'));
}

/** A picture in SHOTS, if that is set. */
export async function shot(page, name, options = {}) {
  if (!process.env.SHOTS) return;
  mkdirSync(process.env.SHOTS, { recursive: true });
  await page.screenshot({ path: path.join(process.env.SHOTS, `${name}.png`), ...options });
}

export function assertNoProblems(problems) {
  assert.deepEqual(problems, [], 'the page had problems');
}

const bare = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}']+/gu, ' ').trim().split(' ').filter(Boolean);

/** Substitutions, insertions and deletions between two texts (Levenshtein, over words). */
export function wordErrors(said, heard) {
  const [a, b] = [bare(said), bare(heard)];
  let row = b.map((_, j) => j + 1);
  row.unshift(0);
  a.forEach((word, i) => {
    const next = [i + 1];
    b.forEach((other, j) => next.push(Math.min(row[j] + (word === other ? 0 : 1), row[j + 1] + 1, next[j] + 1)));
    row = next;
  });
  return row[b.length];
}
