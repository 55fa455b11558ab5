// Signing in and out, keys, jobs, operations, and a server that stops and comes back.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import test, { after, before } from 'node:test';

import {
  PATIENCE_MS, adminKey, assertNoProblems, axe, key, launch, open, server, shot, signIn, speech, until,
} from './harness.mjs';
import { Relay } from './relay.mjs';

let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

/** Without serious findings of axe-core. */
async function assertAccessible(page) {
  // The policy of the page lets no script be added, so axe is evaluated in it, where the policy does not reach.
  await page.evaluate(axe());
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const serious = found.violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
  assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`), []);
}

test('a wrong key is refused, a right one opens the console until sign-out', async () => {
  const { page, problems, context } = await open(browser);
  await page.goto(`${server}/#/keys`);
  const field = page.getByLabel('Admin key');
  await assertAccessible(page);
  await shot(page, 'sign-in');
  for (const wrong of ['org_wrong', key]) {
    await field.fill(wrong);
    await field.press('Enter');
    await page.getByText('This is not a valid admin key.').waitFor();
    assert.equal(await field.getAttribute('aria-invalid'), 'true');
  }
  await field.fill(adminKey);
  await field.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
  const cookies = await context.cookies();
  assert.deepEqual(cookies.map(({ httpOnly, sameSite, path }) => [httpOnly, sameSite, path]), [[true, 'Strict', '/']]);
  assert.equal(await page.evaluate(() => document.cookie), '', 'no script reads it');
  assert.ok(!JSON.stringify(await page.evaluate(() => ({ ...localStorage, ...sessionStorage }))).includes('org_'));

  // A reload finds the session.
  await page.reload();
  await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await field.waitFor();
  assert.deepEqual(await context.cookies(), []);
  assertNoProblems(problems);
  await context.close();
});

test('a key is made, shown once, found, used and revoked', async () => {
  const { page, problems, context } = await open(browser);
  await signIn(page, 'keys');
  await page.getByRole('button', { name: 'Create key' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Label').fill('Field team <b>one</b>');
  await dialog.getByLabel('Expires').selectOption('7');
  await assertAccessible(page);
  await dialog.getByRole('button', { name: 'Create key' }).click();
  const secret = await page.locator('.keys-secret').textContent();
  assert.match(secret, /^org_[a-z2-7]{48}$/);
  const listen = () => fetch(`${server}/v1/auth/token`, { headers: { authorization: `Bearer ${secret}` } });
  assert.equal((await listen()).status, 200);
  await page.getByRole('button', { name: 'I have stored it' }).click();
  const row = page.getByRole('row', { name: /Field team/ });
  await row.getByText('Field team <b>one</b>', { exact: true }).first().waitFor();
  assert.match(await row.textContent(), /in 7 days/);
  assert.ok(!(await page.content()).includes(secret), 'it is shown once');
  await page.getByRole('searchbox', { name: 'Search keys' }).fill('no such key');
  await page.getByText('There are no such keys.').waitFor();
  await page.getByRole('searchbox', { name: 'Search keys' }).fill('field');
  await assertAccessible(page);
  await shot(page, 'keys');
  await row.getByRole('button', { name: /Revoke/ }).click();
  await dialog.getByRole('button', { name: 'Revoke', exact: true }).click();
  await page.getByText(/is revoked/).waitFor();
  await row.waitFor({ state: 'detached' });
  assert.equal((await listen()).status, 401);
  await page.getByRole('button', { name: 'Revoked and expired' }).click();
  await page.getByRole('row', { name: /Field team.*Revoked/ }).waitFor();
  assertNoProblems(problems);
  await context.close();
});

test('a job shows its attempts with their answers, is delivered again and downloaded', async () => {
  let status = 500;
  const received = [];
  const receiver = http.createServer((request, response) => {
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => {
      received.push(Buffer.concat(pieces).toString());
      response.writeHead(status).end();
    });
  });
  await new Promise((listening) => receiver.listen(0, '127.0.0.1', listening));
  const callback = encodeURIComponent(`http://127.0.0.1:${receiver.address().port}/result`);
  const submitted = await fetch(`${server}/v1/listen?callback=${callback}`, {
    method: 'POST', headers: { authorization: `Token ${key}` }, body: readFileSync(speech('austen_0930.wav')),
  });
  const { request_id: id } = await submitted.json();

  const { page, problems, context } = await open(browser);
  await signIn(page, 'jobs');
  const row = page.getByRole('row', { name: new RegExp(id.slice(0, 8)) });
  await row.getByText('Not delivered').waitFor();
  await row.getByRole('link').click();
  const detail = page.getByRole('region', { name: 'One job' });
  await detail.getByText('Attempt 2').waitFor();
  assert.equal(await detail.getByText('Status 500', { exact: true }).count(), 2);
  await assertAccessible(page);
  await shot(page, 'jobs');
  const [download] = await Promise.all([
    page.waitForEvent('download'), detail.getByRole('button', { name: 'Download the result' }).click(),
  ]);
  assert.equal(download.suggestedFilename(), `${id}.json`);
  assert.equal(readFileSync(await download.path(), 'utf8'), received[0]);
  status = 200;
  await detail.getByRole('button', { name: 'Deliver again' }).click();
  await row.getByText('Delivered', { exact: true }).waitFor();
  await detail.getByText('Attempt 3').waitFor();
  await detail.getByText('Accepted', { exact: true }).first().waitFor();
  assert.equal(received.length, 3);
  assertNoProblems(problems);
  receiver.close();
  await context.close();
});

test('operations show figures, models, errors and settings', async () => {
  const { page, problems, context } = await open(browser);
  await signIn(page, 'operations');
  await page.getByText('Working', { exact: true }).waitFor();
  await page.getByRole('row', { name: /tiny\.en/ }).getByText('Loaded').waitFor();
  const plot = page.getByRole('region', { name: 'Slots' });
  // The second sample comes after five seconds.
  await until(page, () => /L/.test(document.querySelector('[aria-label="Slots"] .plot-area .plot-path')?.getAttribute('d') ?? ''));
  assert.match(await plot.getByRole('img').getAttribute('aria-label'), /In use: now .*, between/);
  await plot.getByText('Figures').click();
  assert.ok(await plot.getByRole('row').count() > 1);
  await assertAccessible(page);
  await shot(page, 'operations');
  await page.getByRole('tab', { name: 'Overview' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.getByText(/The last 200 warnings/).waitFor();
  await assertAccessible(page);
  await page.keyboard.press('ArrowRight');
  await page.getByRole('searchbox', { name: 'Search settings' }).fill('models.model');
  await page.getByRole('row', { name: /models\.model/ }).getByText(/^the (flag|environment variable) /).waitFor();
  await assertAccessible(page);
  assertNoProblems(problems);
  await context.close();
});

test('a stopped server is shown as such, and its return noticed', async () => {
  const relay = new Relay();
  const base = await relay.start();
  const { page, context } = await open(browser);
  await signIn(page, 'operations', { base });
  await page.getByText('Working', { exact: true }).waitFor();
  await relay.stop();
  await page.getByText('The server does not answer. This page goes on when it is back.').waitFor();
  await shot(page, 'stopped');
  await relay.start();
  await page.getByText('The server is back.').waitFor({ timeout: PATIENCE_MS });
  await page.getByText('The server does not answer.').waitFor({ state: 'hidden' });
  // The session was not lost, and neither was the page.
  await page.getByRole('heading', { level: 1, name: 'Operations' }).waitFor();
  await relay.stop();
  await context.close();
});

test('pages are used by keyboard, in both colours, on a phone', async () => {
  const { page, problems, context } = await open(browser, { viewport: { width: 390, height: 844 }, colorScheme: 'dark' });
  await signIn(page, 'keys');
  for (const name of ['keys', 'jobs', 'operations']) {
    await page.goto(`${server}/#/${name}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await assertAccessible(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${name} is ${wide} px wider than the window`);
    await shot(page, `${name}-phone-dark`);
  }
  await page.goto(`${server}/#/keys`);
  await page.reload();
  await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'content');
  assertNoProblems(problems);
  await context.close();
});
