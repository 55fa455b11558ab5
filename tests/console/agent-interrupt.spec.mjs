// Barge-in on the page Voice agent: the visitor speaks while the agent speaks, and the agent falls silent at once.

import assert from 'node:assert/strict';
import test from 'node:test';

import { assertNoProblems, giveVoice, hasSound, launch, open, shot, signIn, until, wordErrors } from './harness.mjs';

const SAID = 'The quick brown fox jumps over the lazy dog.';
const CLIP = 'en_quick_brown_fox.wav';
/** So long that its end is far when the visitor speaks. */
const ANSWER = Array.from({ length: 8 }, (_, index) =>
  `Parking place number ${index + 1} is behind the building, and free for all visitors on each day of the week.`).join(' ');

/** Whether the agent is heard, by the bar of the page. Runs in the page. */
const loud = () => {
  const bar = document.querySelector('.agent-level:last-child .agent-bar > span');
  return Number(/scaleX\((.*)\)/.exec(bar.style.transform)?.[1] ?? 0) > 0.4;
};

test('the visitor speaks while the agent speaks: it falls silent, listens and answers', { skip: !hasSound }, async () => {
  const browser = await launch();
  const { page, problems } = await open(browser);
  const speak = await giveVoice(page);
  await signIn(page, 'agent');
  await page.getByText('Website, verification and messages').click();
  await page.getByLabel('The agent comments on the visitor’s page').uncheck();
  await page.getByLabel('Greeting', { exact: true }).fill('Hello.');
  await page.getByLabel('What it knows', { exact: true }).fill(ANSWER);
  await page.getByRole('button', { name: 'Start talking' }).click();
  const says = (role) => page.locator(`.agent-lines li[data-role="${role}"]`);
  await says('assistant').filter({ hasText: 'Hello.' }).waitFor();
  await page.getByLabel('Type instead of speaking').fill('Where can I park?');
  await page.keyboard.press('Enter');
  const answer = says('assistant').filter({ hasText: 'Parking place' }).first();
  await answer.waitFor();
  await until(page, loud);
  // The state and the loudness at each frame from here on.
  await page.evaluate(`window.isLoud = ${loud};`);
  await page.evaluate(() => {
    window.seen = [];
    const look = () => {
      const { state } = document.querySelector('.agent-state').dataset;
      window.seen.push({ at: performance.now(), state, isLoud: window.isLoud() });
      requestAnimationFrame(look);
    };
    look();
  });
  await speak(CLIP);
  await answer.locator('.badge', { hasText: 'interrupted' }).waitFor();
  const told = await answer.locator('p').textContent();
  assert.ok(told.length > 0 && told.length < ANSWER.length / 2, `what was heard of it: ${told}`);
  await shot(page, 'agent-interrupted');
  const said = await says('user').locator('p').last().textContent();
  assert.ok(wordErrors(SAID, said) <= 3, said);
  // Once the agent listens, nothing is heard of what it had left to say. The bar is some frames late.
  const seen = await page.evaluate(() => window.seen);
  const cut = seen.findIndex(({ state }) => state !== 'speaking');
  assert.ok(cut > 0, 'it spoke, and stopped');
  const after = seen.slice(cut).filter(({ at, state }) => at > seen[cut].at + 300 && state !== 'speaking');
  assert.ok(after.length > 0 && after.every(({ isLoud }) => !isLoud), 'it is silent after it was cut short');
  // It answers what the visitor said.
  await says('assistant').nth(2).waitFor();
  assertNoProblems(problems);
  await browser.close();
});
