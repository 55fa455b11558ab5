// Live: a microphone, or a file in real time, to the live sockets.

import assert from 'node:assert/strict';
import test from 'node:test';

import { assertNoProblems, launch, open, signIn, speech } from './harness.mjs';

test('the page opens after sign-in', async () => {
  const browser = await launch({ microphone: speech('austen_0930.wav') });
  const { page, problems } = await open(browser);
  await signIn(page, 'live');
  assert.equal(await page.getByRole('heading', { level: 1 }).textContent(), 'Live');
  assertNoProblems(problems);
  await browser.close();
});
