// All pages in Debian’s Firefox, by WebDriver BiDi, and a talk.

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

test('the agent greets, and answers what is typed', async () => {
  const browser = await launch();
  const { page, problems } = await open(browser);
  await signIn(page, 'agent');
  await page.getByLabel('Greeting', { exact: true }).fill('Hello.');
  // Firefox runs no audio on machines without a loudspeaker: the page then says so, and the talk goes on.
  await page.getByRole('button', { name: 'Start talking' }).click();
  await page.locator('.agent-lines li', { hasText: 'Hello.' }).waitFor();
  await page.getByRole('button', { name: 'Mute' }).click();
  await page.getByLabel('Type instead of speaking').fill('Where can I park?');
  await page.keyboard.press('Enter');
  await page.locator('.agent-lines li', { hasText: 'Parking is free behind the building.' }).waitFor();
  assertNoProblems(problems);
  await browser.close();
});
