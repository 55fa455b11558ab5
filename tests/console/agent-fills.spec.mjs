// A chat model fills in the visitor's form by a function of the page.

import test from 'node:test';

import { assertNoProblems, launch, open, signIn, until } from './harness.mjs';

test('the agent fills in the form', async () => {
  const browser = await launch();
  const { page, problems } = await open(browser);
  await signIn(page, 'agent');
  // The page knows by then that there is a chat model.
  await page.waitForLoadState('networkidle');
  await page.getByRole('button', { name: 'Start without a microphone' }).click();
  await page.locator('.agent-state[data-state="listening"]').waitFor();
  await page.getByLabel('Type instead of speaking').fill('I live in Bath.');
  await page.keyboard.press('Enter');
  await until(page, () => document.querySelector('#visitor-city').value === 'Bath');
  await page.locator('.agent-lines li', { hasText: 'Your city is filled in.' }).waitFor();
  assertNoProblems(problems);
  await browser.close();
});
