// The playground: from a file to words that light up, and everything that can be taken from there.

import assert from 'node:assert/strict';
import test from 'node:test';

import { assertNoProblems, launch, open, signIn } from './harness.mjs';

test('the page opens after sign-in', async () => {
  const browser = await launch();
  const { page, problems } = await open(browser);
  await signIn(page, 'playground');
  assert.equal(await page.getByRole('heading', { level: 1 }).textContent(), 'Playground');
  assertNoProblems(problems);
  await browser.close();
});
