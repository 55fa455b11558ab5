// The page Voice agent of a server that serves no agents.

import test from 'node:test';

import { launch, open, signIn } from './harness.mjs';

test('the page says which setting is missing', async () => {
  const browser = await launch();
  const { page } = await open(browser);
  await signIn(page, 'agent');
  await page.getByRole('button', { name: 'Start without a microphone' }).click();
  await page.getByRole('alert').filter({ hasText: 'sts.enabled = true' }).waitFor();
  await browser.close();
});
