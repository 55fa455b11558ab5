// All pages in Debian’s Firefox, by WebDriver BiDi.

import assert from 'node:assert/strict';
import test from 'node:test';

import { assertNoProblems, launch, open, server, signIn } from './harness.mjs';

const PAGES = { playground: 'Playground', live: 'Live', agent: 'Voice agent', keys: 'Keys', jobs: 'Jobs', operations: 'Operations' };

test('the pages open after sign-in', async () => {
  const browser = await launch();
  const { page, problems } = await open(browser);
  await signIn(page);
  for (const [name, title] of Object.entries(PAGES)) {
    await page.goto(`${server}/#/${name}`);
    const heading = page.locator(`page-${name} h1`);
    await heading.waitFor();
    assert.equal(await heading.textContent(), title);
  }
  assertNoProblems(problems);
  await browser.close();
});
