// The playground: from a file to words that light up, and everything that can be taken from there.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { promisify } from 'node:util';

import { assertNoProblems, key, launch, open, server, shot, signIn, speech, until, wordErrors } from './harness.mjs';
import { Relay } from './relay.mjs';

const SAID = 'He might even have been made amiable himself.';
const run = promisify(execFile);
let browser;
let folder;

before(async () => {
  browser = await launch({ microphone: speech('austen_0930.wav') });
  folder = mkdtempSync(path.join(os.tmpdir(), 'playground-'));
});

after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

async function playground(options) {
  const opened = await open(browser, options);
  await signIn(opened.page, 'playground');
  await opened.page.getByLabel('smart_format', { exact: true }).waitFor();
  return opened;
}

/** Opens all groups of parameters. */
const openGroups = (page) =>
  page.evaluate(() => document.querySelectorAll('details').forEach((one) => { one.open = true; }));
const chooseFile = (page, file) => page.locator('#audio-file').setInputFiles(file);
const runButton = (page) => page.getByRole('button', { name: 'Transcribe', exact: true });
const words = (page) => page.locator('.transcript .word');

async function transcribe(page, file = speech('austen_0930.wav')) {
  await chooseFile(page, file);
  await runButton(page).click();
  await words(page).first().waitFor();
}

const transcript = async (page) => (await words(page).allTextContents()).join(' ');

test('words of a file light up in time, and jump', async () => {
  const { page, problems, context } = await playground();
  await transcribe(page);
  assert.ok(wordErrors(SAID, await transcript(page)) <= 1, await transcript(page));
  await page.getByRole('slider', { name: 'Position in the audio' }).waitFor();
  const answer = await page.evaluate(() => {
    const times = [...document.querySelectorAll('.word')].map((word) => parseFloat(word.title));
    const audio = document.querySelector('audio');
    // At each frame: the word that is lit, and the one that should be.
    window.seen = [];
    const look = () => {
      const lit = document.querySelector('.word[data-lit]');
      const now = audio.currentTime;
      window.seen.push({ now, lit: lit ? Number(lit.dataset.word) : -1, due: times.findLastIndex((start) => start <= now) });
      if (!audio.ended) requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
    return times;
  });
  await page.getByRole('button', { name: 'Play', exact: true }).click();
  await until(page, () => document.querySelector('audio').ended);
  const seen = await page.evaluate(() => window.seen);
  const lit = new Set(seen.map((one) => one.lit));
  assert.ok(lit.size >= answer.length - 1, `${lit.size} of ${answer.length} words were lit`);
  const late = seen.filter((one) => one.lit !== one.due).length;
  assert.ok(late <= seen.length * 0.2, `${late} of ${seen.length} frames showed another word`);

  const third = words(page).nth(3);
  await third.click();
  const start = parseFloat(await third.getAttribute('title'));
  await until(page, (wanted) => Math.abs(document.querySelector('audio').currentTime - wanted) < 0.02, start);
  await third.press('ArrowRight');
  await page.keyboard.press('Enter');
  const next = parseFloat(await words(page).nth(4).getAttribute('title'));
  await until(page, (wanted) => Math.abs(document.querySelector('audio').currentTime - wanted) < 0.02, next);
  await shot(page, 'playground-wide-light');
  assertNoProblems(problems);
  await context.close();
});

test('every parameter of the API is a control; what was changed is sent, shared and reset', async () => {
  const { page, problems, context } = await playground();
  const document = await (await fetch(`${server}/openapi.json`)).json();
  const listed = document.paths['/v1/listen'].post.parameters;
  await openGroups(page);
  for (const { name } of listed) await page.getByLabel(name, { exact: true }).waitFor();

  await page.getByLabel('smart_format', { exact: true }).check();
  await page.getByLabel('utt_split', { exact: true }).fill('1.5');
  await page.getByLabel('search', { exact: true }).fill("amiable\nit's & more");
  await page.getByLabel('language', { exact: true }).fill('en');
  await page.getByLabel('language', { exact: true }).press('Tab');
  const request = page.waitForRequest((one) => one.url().includes('/v1/listen'));
  await transcribe(page);
  const sent = new URL((await request).url()).searchParams;
  assert.deepEqual([...sent].sort(), [['language', 'en'], ['search', 'amiable'], ['search', "it's & more"],
    ['smart_format', 'true'], ['utt_split', '1.5']]);
  assert.equal((await request).headers().timestamps, 'true');

  const address = page.url();
  assert.ok(!/org_|bearer|token/i.test(address), address);
  const other = await context.newPage();
  await other.goto(address);
  await other.getByLabel('smart_format', { exact: true }).waitFor();
  assert.equal(await other.getByLabel('smart_format', { exact: true }).isChecked(), true);
  assert.equal(await other.getByLabel('search', { exact: true }).inputValue(), "amiable\nit's & more");
  await other.getByRole('button', { name: 'Reset utt_split' }).click();
  assert.ok(!other.url().includes('utt_split'));
  await other.getByRole('button', { name: 'Reset all' }).click();
  assert.equal(await other.getByLabel('smart_format', { exact: true }).isChecked(), false);
  assert.equal(new URL(other.url()).hash, '#/playground');
  assertNoProblems(problems);
  await context.close();
});

test('downloads are what the server itself would write', async () => {
  const { page, problems, context } = await playground();
  await transcribe(page, speech('austen_0870.wav'));
  const kept = async (name) => {
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name, exact: true }).last().click();
    const file = await download;
    return [file.suggestedFilename(), readFileSync(await file.path(), 'utf8')];
  };
  for (const [name, format] of [['SRT', 'srt'], ['VTT', 'vtt']]) {
    const fields = [`file=@${speech('austen_0870.wav')}`, 'model=whisper-1', `response_format=${format}`];
    const { stdout: own } = await run('curl', ['--fail', '--silent', `${server}/v1/audio/transcriptions`,
      '--header', `Authorization: Bearer ${key}`, ...fields.flatMap((field) => ['--form', field])]);
    assert.deepEqual(await kept(name), [`austen_0870.${format}`, own]);
  }
  const [, json] = await kept('JSON');
  const [, text] = await kept('Text');
  assert.equal(text.trim(), JSON.parse(json).results.channels[0].alternatives[0].transcript);
  await page.getByRole('button', { name: 'Tree' }).click();
  await page.locator('summary', { hasText: 'results' }).click();
  await page.locator('summary', { hasText: 'channels' }).waitFor();
  assertNoProblems(problems);
  await context.close();
});

test('the audio at an address is played too', async () => {
  const host = http.createServer((_, response) => response.end(readFileSync(speech('austen_0930.wav'))));
  await new Promise((listening) => host.listen(0, '127.0.0.1', listening));
  const { page, problems, context } = await playground();
  await page.getByRole('button', { name: 'Address', exact: true }).click();
  await page.getByLabel('Address of the audio').fill(`http://127.0.0.1:${host.address().port}/talk.wav`);
  await runButton(page).click();
  await words(page).first().waitFor();
  await until(page, () => Number(document.querySelector('[role=slider]').getAttribute('aria-valuemax')) > 3);
  await words(page).nth(3).click();
  const start = parseFloat(await words(page).nth(3).getAttribute('title'));
  await until(page, (wanted) => Math.abs(document.querySelector('audio').currentTime - wanted) < 0.02, start);
  await page.getByRole('button', { name: 'Play', exact: true }).click();
  await until(page, () => document.querySelector('audio').ended);
  assertNoProblems(problems);
  host.close();
  await context.close();
});

test('a recording is transcribed', async () => {
  const { page, problems, context } = await playground({ permissions: ['microphone'] });
  await page.getByRole('button', { name: 'Record', exact: true }).click();
  await page.getByRole('button', { name: 'Start recording' }).click();
  await until(page, () => /0:0[5-9]/.test(document.querySelector('[role=timer]').textContent));
  await page.getByRole('button', { name: 'Stop recording' }).click();
  await page.getByText(/recording\.webm/).first().waitFor();
  await runButton(page).click();
  await words(page).first().waitFor();
  // The clip plays in a loop and may begin anywhere.
  assert.match((await transcript(page)).toLowerCase(), /amiable|might|himself|made|even/);
  assertNoProblems(problems);
  await context.close();
});

test('what the server refuses is said, with what to do', async () => {
  const { page, context } = await playground();
  const file = path.join(folder, 'noise.bin');
  writeFileSync(file, Buffer.alloc(5000, 7));
  await chooseFile(page, file);
  await runButton(page).click();
  await page.getByText(/encoding and sample_rate/).waitFor();
  await page.getByRole('button', { name: 'Address', exact: true }).click();
  await page.getByLabel('Address of the audio').fill('http://127.0.0.1:9/none.wav');
  await runButton(page).click();
  await page.getByRole('alert').waitFor();
  assert.match(await page.getByRole('alert').textContent(), /Request [0-9a-f-]{36}/);
  await context.close();
});

test('an upload shows how far it is, is cancelled, and outlives a stopped server', async () => {
  const relay = new Relay();
  const base = await relay.start();
  const { page, context } = await open(browser);
  await signIn(page, 'playground', { base });
  await page.getByLabel('smart_format', { exact: true }).waitFor();
  const file = path.join(folder, 'long.raw');
  writeFileSync(file, Buffer.alloc(48 << 20));
  await chooseFile(page, file);
  // New connections stand still, so that the upload does.
  relay.hold(true);
  await relay.stop();
  await relay.start();
  await runButton(page).click();
  await page.getByText(/Uploading, \d+ %/).waitFor();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByText('Cancelled.').waitFor();
  relay.hold(false);
  await relay.stop();
  await chooseFile(page, speech('austen_0930.wav'));
  await runButton(page).click();
  await page.getByRole('alert').getByText('does not answer').waitFor();
  await page.locator('.banner').getByText('does not answer').waitFor();
  await shot(page, 'playground-stopped');
  await relay.start();
  await page.locator('.banner').waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: 'Try again' }).click();
  await words(page).first().waitFor();
  await context.close();
  await relay.stop();
});
