// Live: a microphone, or a file in real time, to the live sockets.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after, before } from 'node:test';

import { assertNoProblems, launch, open, server, shot, signIn, speech, until, wordErrors } from './harness.mjs';
import { Relay } from './relay.mjs';

const SAID = 'He might even have been made amiable himself.';
let browser;

before(async () => {
  browser = await launch({ microphone: speech('austen_0930.wav') });
});

after(() => browser.close());

async function live({ base, ...options } = {}) {
  const opened = await open(browser, { permissions: ['microphone'], ...options });
  await signIn(opened.page, 'live', { base });
  await opened.page.getByLabel('interim_results', { exact: true }).waitFor();
  return opened;
}

const state = (page, name) => page.locator('.live-state', { hasText: name }).waitFor();
const heard = (page) => page.locator('.utterance-text').allTextContents();
/** Messages that the page sends as text, in order. */
function sentTexts(page) {
  const sent = [];
  page.on('websocket', (socket) => socket.on('framesent', ({ payload }) => {
    if (typeof payload === 'string') sent.push(JSON.parse(payload).type);
  }));
  return sent;
}

test('the microphone is heard: grey first, then black, with latencies', async () => {
  const { page, problems, context } = await live();
  const sockets = [];
  page.on('websocket', (socket) => sockets.push(new URL(socket.url())));
  // Each state that the page shows, in order.
  await page.evaluate(() => {
    window.colours = new Set();
    new MutationObserver(() => {
      for (const one of document.querySelectorAll('.interim, .final')) {
        window.colours.add(`${one.className} ${getComputedStyle(one).color}`);
      }
    }).observe(document.querySelector('.speech'), { childList: true, subtree: true });
  });
  // Pauses end nothing, so that the results stay interim until they are asked for.
  await page.getByLabel('endpointing', { exact: true }).fill('false');
  await page.getByRole('button', { name: 'Use the microphone' }).click();
  await state(page, 'Streaming');
  await page.locator('.interim').first().waitFor();
  await page.getByRole('button', { name: 'Finalize' }).click();
  await page.locator('.final').first().waitFor();
  const colours = await page.evaluate(() => [...window.colours]);
  assert.equal(new Set(colours.map((one) => one.split(' ').slice(1).join(' '))).size, 2, `${colours}`);
  const [socket] = sockets;
  assert.equal(socket.pathname, '/v1/listen');
  assert.equal(socket.searchParams.get('encoding'), 'linear16');
  assert.ok(Number(socket.searchParams.get('sample_rate')) >= 16_000);
  assert.ok(!/org_/.test(socket.href));
  await until(page, () => /\d+ ms/.test(document.querySelector('tbody .badge[data-kind="good"]')?.closest('tr').textContent ?? ''));
  await until(page, () => document.querySelector('.live-stats').textContent.includes('Final, median'));
  await shot(page, 'live-microphone');
  await page.getByRole('button', { name: 'Stop' }).click();
  await state(page, 'Ended');
  assert.match((await heard(page)).join(' ').toLowerCase(), /amiable|himself|might|made/);
  assertNoProblems(problems);
  await context.close();
});

test('a file is streamed in real time, and its end is the end of the stream', async () => {
  const { page, problems, context } = await live();
  const began = Date.now();
  await page.locator('#live-file').setInputFiles(speech('austen_0930.wav'));
  await state(page, 'Streaming');
  await state(page, 'Ended');
  // The clip has 3.3 seconds: in real time, it takes as long.
  assert.ok(Date.now() - began >= 3200, `${Date.now() - began} ms`);
  const said = (await heard(page)).join(' ');
  assert.ok(wordErrors(SAID, said) <= 1, said);
  assert.equal(await page.locator('.interim').count(), 0);
  assertNoProblems(problems);
  await context.close();
});

/** Two clips of one rate as the two channels of a file. */
function stereo(left, right) {
  const [a, b] = [left, right].map((name) => {
    const wav = readFileSync(speech(name));
    const at = wav.indexOf('data') + 8;
    return { rate: wav.readUInt32LE(24), samples: new Int16Array(wav.buffer.slice(wav.byteOffset + at, wav.byteOffset + wav.length - ((wav.length - at) % 2))) };
  });
  assert.equal(a.rate, b.rate);
  const count = Math.max(a.samples.length, b.samples.length);
  const wav = Buffer.alloc(44 + 4 * count);
  wav.write('RIFF', 0);
  wav.writeUInt32LE(wav.length - 8, 4);
  wav.write('WAVEfmt ', 8);
  for (const [at, size, value] of [[16, 4, 16], [20, 2, 1], [22, 2, 2], [24, 4, a.rate], [28, 4, 4 * a.rate], [32, 2, 4], [34, 2, 16]]) {
    wav.writeUIntLE(value, at, size);
  }
  wav.write('data', 36);
  wav.writeUInt32LE(4 * count, 40);
  for (let index = 0; index < count; index++) {
    wav.writeInt16LE(a.samples[index] ?? 0, 44 + 4 * index);
    wav.writeInt16LE(b.samples[index] ?? 0, 46 + 4 * index);
  }
  return wav;
}

test('every parameter of either socket is a control, but for those that describe the page’s own audio', async () => {
  const { page, problems, context } = await live();
  const { paths } = await (await fetch(`${server}/openapi.json`)).json();
  for (const [socket, button] of [['/v1/listen', 'v1: results'], ['/v2/listen', 'v2: turns']]) {
    await page.getByRole('button', { name: button }).click();
    await page.evaluate(() => document.querySelectorAll('details').forEach((one) => { one.open = true; }));
    const listed = paths[socket].get.parameters.filter((one) => ['query', 'header'].includes(one.in)).map(({ name }) => name);
    assert.ok(listed.length > 5);
    for (const name of listed.filter((name) => !['encoding', 'sample_rate', 'channels'].includes(name))) {
      await page.getByLabel(name, { exact: true }).waitFor();
    }
  }
  assertNoProblems(problems);
  await context.close();
});

test('the channels of a file are heard apart', async () => {
  const { page, problems, context } = await live();
  await page.getByLabel('multichannel', { exact: true }).check();
  const buffer = stereo('austen_0930.wav', 'austen_0870.wav');
  await page.locator('#live-file').setInputFiles({ name: 'two.wav', mimeType: 'audio/wav', buffer });
  await state(page, 'Streaming');
  await state(page, 'Ended');
  const first = page.locator('.utterance', { hasText: 'Channel 1' }).locator('.final');
  const said = (await first.allTextContents()).join(' ').replace('Channel 1', '');
  assert.ok(wordErrors(SAID, said) <= 2, said);
  await page.locator('.utterance', { hasText: 'Channel 2' }).first().waitFor();
  assertNoProblems(problems);
  await context.close();
});

test('turns have an end-of-turn confidence, and end when asked', async () => {
  const { page, problems, context } = await live();
  const sent = sentTexts(page);
  await page.getByRole('button', { name: 'v2: turns' }).click();
  await page.getByLabel('eot_threshold', { exact: true }).fill('1');
  await until(page, () => location.hash === '#/live/v2?eot_threshold=1');
  await page.getByRole('button', { name: 'Use the microphone' }).click();
  await page.locator('.interim').first().waitFor();
  await page.getByRole('button', { name: 'ForceEndTurn' }).click();
  await page.locator('tbody tr', { hasText: 'turn' }).first().waitFor();
  await until(page, () => /End of turn\s*\d\.\d\d/.test(document.querySelector('.live-stats').textContent));
  await page.getByRole('button', { name: 'KeepAlive' }).click();
  await shot(page, 'live-turns');
  await page.getByRole('button', { name: 'CloseStream' }).click();
  await state(page, 'Ended');
  assert.deepEqual(sent, ['ForceEndTurn', 'KeepAlive', 'CloseStream']);
  assertNoProblems(problems);
  await context.close();
});

test('a lost connection is shown, and the stream goes on when the server is back', async () => {
  const relay = new Relay();
  const base = await relay.start();
  const { page, context } = await live({ base });
  await page.getByRole('button', { name: 'Use the microphone' }).click();
  await page.locator('.final').first().waitFor();
  const before = (await heard(page)).length;
  await relay.stop();
  await state(page, 'Connection lost');
  await page.getByRole('alert').getByText('The connection was lost').waitFor();
  await page.locator('.banner').getByText('does not answer').waitFor();
  await shot(page, 'live-lost');
  await relay.start();
  await state(page, 'Streaming');
  await page.getByText('The connection was lost here.').waitFor();
  await until(page, (count) => document.querySelectorAll('.utterance[data-ended] .final').length > count, before);
  await page.getByRole('button', { name: 'Stop' }).click();
  await state(page, 'Ended');
  await context.close();
  await relay.stop();
});

test('what the server refuses is said in its words', async () => {
  const { page, context } = await live();
  await page.getByLabel('endpointing', { exact: true }).fill('soon');
  await page.locator('#live-file').setInputFiles(speech('austen_0930.wav'));
  await state(page, 'Refused');
  await page.getByRole('alert').getByText(/invalid value `soon` for `endpointing`/).waitFor();
  await page.getByRole('button', { name: 'Use the microphone' }).waitFor();
  await context.close();
});

test('it fits phones and wide screens, light and dark', async () => {
  for (const [name, width, height] of [['narrow', 390, 844], ['wide', 1600, 1000]]) {
    for (const colorScheme of ['light', 'dark']) {
      const { page, problems, context } = await live({ viewport: { width, height }, colorScheme });
      await page.getByRole('button', { name: 'v2: turns' }).click();
      await page.locator('#live-file').setInputFiles(speech('jfk.wav'));
      await state(page, 'Streaming');
      await state(page, 'Ended');
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${name}: ${overflow} pixels wider than the window`);
      await shot(page, `live-${name}-${colorScheme}`);
      assertNoProblems(problems);
      await context.close();
    }
  }
});
