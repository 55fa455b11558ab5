// The pages in Debian's Firefox, by WebDriver BiDi: what differs between browsers is decoding, layout and sockets.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';

import { assertNoProblems, giveVoice, hasSound, launch, open, server, shot, signIn, speech, until, wordErrors } from './harness.mjs';

const SAID = 'He might even have been made amiable himself.';
let browser;

before(async () => {
  browser = await launch();
});

after(() => browser.close());

test('the playground transcribes, draws, plays and jumps', async () => {
  const { page, problems, context } = await open(browser);
  await signIn(page, 'playground');
  await page.getByLabel('smart_format', { exact: true }).waitFor();
  await page.locator('#audio-file').setInputFiles(speech('austen_0930.wav'));
  await page.getByRole('button', { name: 'Transcribe', exact: true }).click();
  const words = page.locator('.transcript .word');
  await words.first().waitFor();
  const said = (await words.allTextContents()).join(' ');
  assert.ok(wordErrors(SAID, said) <= 1, said);
  await until(page, () => Number(document.querySelector('[role=slider]').getAttribute('aria-valuemax')) > 3);
  await words.nth(3).click();
  const start = parseFloat(await words.nth(3).getAttribute('title'));
  await until(page, (wanted) => Math.abs(document.querySelector('audio').currentTime - wanted) < 0.05, start);
  await until(page, () => document.querySelector('.word[data-lit]')?.dataset.word === '3');
  if (hasSound) {
    await page.getByRole('button', { name: 'Play', exact: true }).click();
    await until(page, () => document.querySelector('audio').ended);
    const last = await words.count() - 1;
    await until(page, (last) => document.querySelector('.word[data-lit]')?.dataset.word === String(last), last);
  } else {
    console.log('skipped: without PulseAudio, Firefox plays nothing');
  }
  assertNoProblems(problems);
  // Playwright sets a style for it, which Firefox reports as blocked by the policy of the page.
  await shot(page, 'playground-firefox');
  await context.close();
});

test('the microphone is heard, and recorded', { skip: !hasSound }, async () => {
  const { page, problems, context } = await open(browser);
  const speak = await giveVoice(page);
  await signIn(page, 'live');
  await page.getByLabel('interim_results', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Use the microphone' }).click();
  await page.locator('.live-state', { hasText: 'Streaming' }).waitFor();
  await speak('austen_0930.wav');
  await page.locator('.utterance[data-ended="true"]').first().waitFor();
  const said = (await page.locator('.utterance-text').allTextContents()).join(' ');
  assert.ok(wordErrors(SAID, said) <= 2, said);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.live-state', { hasText: 'Ended' }).waitFor();

  await page.goto(`${server}/#/playground`);
  await page.getByRole('button', { name: 'Record', exact: true }).click();
  await page.getByRole('button', { name: 'Start recording' }).click();
  await page.getByRole('button', { name: 'Stop recording' }).waitFor();
  await speak('austen_0930.wav');
  await page.getByRole('button', { name: 'Stop recording' }).click();
  await page.getByText(/recording\.ogg|recording\.webm/).first().waitFor();
  await page.getByRole('button', { name: 'Transcribe', exact: true }).click();
  const words = page.locator('.transcript .word');
  await words.first().waitFor();
  const again = (await words.allTextContents()).join(' ');
  assert.ok(wordErrors(SAID, again) <= 2, again);
  assertNoProblems(problems);
  await context.close();
});

test('Firefox’s own device opens, whose tone is no speech', { skip: !hasSound }, async () => {
  const { page, problems, context } = await open(browser);
  await signIn(page, 'live');
  await page.getByLabel('interim_results', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Use the microphone' }).click();
  await until(page, () => /[3-9]\.\d s/.test(document.querySelector('.live-stats').textContent));
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.live-state', { hasText: 'Ended' }).waitFor();
  assertNoProblems(problems);
  await context.close();
});

test('a file is streamed in real time', async () => {
  const { page, problems, context } = await open(browser);
  await signIn(page, 'live');
  await page.getByLabel('interim_results', { exact: true }).waitFor();
  await page.locator('#live-file').setInputFiles(speech('austen_0930.wav'));
  await page.locator('.live-state', { hasText: 'Ended' }).waitFor();
  const said = (await page.locator('.utterance-text').allTextContents()).join(' ');
  assert.ok(wordErrors(SAID, said) <= 1, said);
  assertNoProblems(problems);
  await shot(page, 'live-firefox');
  await context.close();
});
