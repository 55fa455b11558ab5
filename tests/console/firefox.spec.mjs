// The pages in Debian's Firefox, by WebDriver BiDi: what differs between browsers is decoding, scheduling and sockets.

import assert from 'node:assert/strict';
import test from 'node:test';

import { assertNoProblems, launch, open, signIn } from './harness.mjs';

test('the pages open after sign-in', async () => {
  const browser = await launch();
  const { page, problems } = await open(browser);
  await signIn(page, 'playground');
  assert.equal(await page.getByRole('heading', { level: 1 }).textContent(), 'Playground');
  assertNoProblems(problems);
  await browser.close();
});
