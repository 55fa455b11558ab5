// The pages in Debian's Firefox, by WebDriver BiDi: what differs between browsers is decoding, layout and sockets.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';

import { assertNoProblems, launch, open, shot, signIn, speech, until, wordErrors } from './harness.mjs';

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
  assertNoProblems(problems);
  // Playwright sets a style for it, which Firefox reports as blocked by the policy of the page.
  await shot(page, 'playground-firefox');
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
