// The page Voice agent: a talk by voice and by text, with the visitor's form beside it.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';

import { assertNoProblems, launch, open, shot, signIn, speech, until, wordErrors } from './harness.mjs';
import { Relay } from './relay.mjs';

const SAID = 'The quick brown fox jumps over the lazy dog.';
const CLIP = 'en_quick_brown_fox.wav';

/** A clip with silence before it, in which the agent greets, and silence after it, in which it answers. */
function microphone(folder, { before = 8, after = 120 } = {}) {
  const wav = readFileSync(speech(CLIP));
  const data = wav.indexOf('data');
  const rate = wav.readUInt32LE(24);
  const block = wav.readUInt16LE(32);
  const silence = (seconds) => Buffer.alloc(seconds * rate * block);
  const sound = Buffer.concat([silence(before), wav.subarray(data + 8), silence(after)]);
  const head = Buffer.from(wav.subarray(0, data + 8));
  head.writeUInt32LE(sound.length, data + 4);
  head.writeUInt32LE(data + sound.length, 4);
  const file = path.join(folder, 'microphone.wav');
  writeFileSync(file, Buffer.concat([head, sound]));
  return file;
}

/** Opens the page and fills in the form before the talk: fields by their labels. */
async function prepare(page, fields = {}) {
  await signIn(page, 'agent');
  await page.getByText('Website, verification and messages').click();
  for (const [label, value] of Object.entries({ Greeting: 'Hello.', ...fields })) {
    await page.getByLabel(label, { exact: true }).fill(value);
  }
}

const start = (page, name = 'Start without a microphone') => page.getByRole('button', { name }).click();
const line = (page, role) => page.locator(`.agent-lines li[data-role="${role}"] p`);
const event = (page, said) => page.locator('.agent-lines li[data-role="event"]', { hasText: said }).first().waitFor();
const agentSays = (page, said) => line(page, 'assistant').filter({ hasText: said }).first().waitFor();
const state = (page, name) => page.locator(`.agent-state[data-state="${name}"]`).waitFor();

async function say(page, said) {
  await page.getByLabel('Type instead of speaking').fill(said);
  await page.getByRole('button', { name: 'Send', exact: true }).click();
}

async function withPage(use, options = {}) {
  const browser = await launch(options);
  try {
    const opened = await open(browser);
    await use(opened);
  } finally {
    await browser.close();
  }
}

test('speech is heard, answered and timed, and the talk ends by a word', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'verbatim-'));
  const file = microphone(folder);
  await withPage(async ({ page, problems }) => {
    await prepare(page, { 'What it knows': `${SAID}\n\nParking is free behind the building.` });
    await start(page, 'Start talking');
    await agentSays(page, 'Hello.');
    // The agent's voice leaves the jitter buffer: it is as loud as a voice.
    await until(page, () => {
      const bar = document.querySelector('.agent-level:last-child .agent-bar > span');
      return Number(/scaleX\((.*)\)/.exec(bar.style.transform)?.[1] ?? 0) > 0.4;
    });
    const heard = line(page, 'user');
    await heard.first().waitFor();
    assert.ok(wordErrors(SAID, await heard.first().textContent()) <= 3, await heard.first().textContent());
    const latency = page.locator('.agent-latency');
    await latency.first().waitFor();
    const [, here, server] = /^([\d.]+) s .* ([\d.]+) s$/.exec(await latency.first().textContent());
    assert.ok(Number(here) >= Number(server) - 0.05, `${here} s here, ${server} s by the server`);
    await shot(page, 'agent-talk');
    await say(page, 'Goodbye!');
    await page.getByText('The agent has said goodbye.').waitFor();
    await page.getByRole('button', { name: 'Start another talk' }).click();
    await page.getByRole('button', { name: 'Start talking' }).waitFor();
    assertNoProblems(problems);
  }, { microphone: `${file}%noloop` });
  rmSync(folder, { recursive: true });
});

test('a caller is verified, and a text message is shown', async () => {
  await withPage(async ({ page, problems }) => {
    await prepare(page, { 'Caller’s number': '+12025550143' });
    await start(page);
    await agentSays(page, 'Hello.');
    await say(page, 'What are my test results?');
    await event(page, 'The agent asks for a proof.');
    await page.getByText('Keypad').click();
    for (const key of '9999') await page.getByRole('button', { name: `Key ${key}` }).click();
    await event(page, 'The proof did not match.');
    assert.deepEqual(await line(page, 'user').last().textContent(), '••••');
    await page.getByRole('button', { name: 'Confirm' }).click();
    await event(page, 'The caller is verified.');
    await event(page, 'A text message to +12025550143 is queued.');
    await page.getByText('verified by the backend').waitFor();
    await page.getByText('No provider is configured').waitFor();
    await agentSays(page, 'Test results are ready after three days.');
    await shot(page, 'agent-verified');
    assertNoProblems(problems);
  });
});

test('the agent sees which fields of the form are filled in, and is told when it is sent', async () => {
  await withPage(async ({ page, problems }) => {
    await prepare(page);
    await start(page);
    await agentSays(page, 'Hello.');
    const form = page.getByRole('region', { name: 'The visitor’s page' });
    await form.getByLabel('Full name').fill('Ada Lovelace');
    await form.getByLabel('E-mail').focus();
    await form.getByText('What the agent sees').click();
    const seen = JSON.parse(await until(page, () => {
      const json = document.querySelector('page-agent pre').textContent;
      return json.includes('"filled": true') && json;
    }));
    assert.deepEqual(seen.sections[0].fields[0], { name: 'full_name', label: 'Full name', filled: true });
    assert.ok(!JSON.stringify(seen).includes('Lovelace'));
    // The agent says where the visitor is, as the guidance asks.
    await agentSays(page, 'You are at step 1 of 3');
    // The backend fills in a field, as after a look into its records.
    await page.evaluate(async () => {
      const { complete } = await import(new URL('voice/service.js', document.querySelector('script[src$="app.js"]').src));
      const id = document.querySelector('page-agent .facts code').textContent;
      await complete(id, 'I have filled in your city.', { toString: 'x', city: 'London', unknown: 'x', street: 7 });
    });
    await until(page, () => document.querySelector('#visitor-city').value === 'London');
    assert.equal(await form.getByLabel('Street').inputValue(), '');
    await agentSays(page, 'I have filled in your city.');
    await form.getByRole('button', { name: 'Send the form' }).click();
    await agentSays(page, 'Your form has arrived.');
    assertNoProblems(problems);
  });
});

test('a broken connection is shown, and the talk goes on', async () => {
  const relay = new Relay();
  const base = await relay.start();
  await withPage(async ({ page }) => {
    await signIn(page, 'agent', { base });
    await page.getByLabel('Greeting', { exact: true }).fill('Hello.');
    await start(page);
    await agentSays(page, 'Hello.');
    await relay.stop();
    await state(page, 'reconnecting');
    await relay.start();
    await state(page, 'listening');
    await say(page, 'Where can I park?');
    await agentSays(page, 'Parking is free behind the building.');
    await page.getByRole('button', { name: 'End', exact: true }).click();
    await page.getByText('You have left.').waitFor();
  });
  await relay.stop();
});

/** What `navigator.mediaDevices.getUserMedia` does instead. */
const DEVICES = {
  NotAllowedError: 'does not let this page use the microphone',
  NotFoundError: 'There is no microphone',
  NotReadableError: 'Another program uses the microphone',
  OverconstrainedError: 'The microphone does not work',
};

test('what keeps a talk from beginning is said, and typing is left', async () => {
  for (const [name, said] of Object.entries(DEVICES)) {
    await withPage(async ({ page }) => {
      await page.addInitScript((name) => {
        navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', name));
      }, name);
      await signIn(page, 'agent');
      await start(page, 'Start talking');
      await page.getByRole('alert').filter({ hasText: said }).waitFor();
      await start(page);
      await state(page, 'listening');
    });
  }
  await withPage(async ({ page }) => {
    await page.addInitScript(() => Object.defineProperty(navigator, 'mediaDevices', { value: undefined }));
    await signIn(page, 'agent');
    await start(page, 'Start talking');
    await page.getByRole('alert').filter({ hasText: 'over HTTPS' }).waitFor();
  });
});

test('refusals of the server are shown with what they say', async () => {
  const refusals = [
    [{ status: 503, headers: { 'retry-after': '7' }, json: { err_code: 'BUSY', err_msg: 'The server is full.' } }, 'wait 7 seconds'],
    [{ status: 400, json: { err_code: 'INVALID_FIELD', err_msg: '`greeting` is too long.' } }, '`greeting` is too long.'],
    [{ status: 404, json: { err_code: 'NOT_FOUND', err_msg: 'There is nothing at this path.' } }, 'sts.enabled = true'],
    [{ json: { ok: true, session_id: 'sess_1', websocket_url: 'wss://media.example/rtc', token: 't' } }, 'sts.livekit.url'],
  ];
  await withPage(async ({ page }) => {
    await signIn(page, 'agent');
    for (const [answer, said] of refusals) {
      await page.route('**/STS/interactiveAgent', (route) => route.fulfill(answer));
      await start(page);
      await page.getByRole('alert').filter({ hasText: said }).waitFor();
      await page.unroute('**/STS/interactiveAgent');
    }
  });
});
