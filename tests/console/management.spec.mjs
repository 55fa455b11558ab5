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
    // The message of the first attempt stays until the answer to the second.
    const answered = page.waitForResponse((response) => response.url().endsWith('/console/session'));
    await field.press('Enter');
    assert.equal((await answered).status(), 401);
    await page.getByText('This is not a valid admin key.').waitFor();
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
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

test('a key that could not be revoked can be revoked again', async () => {
  const { page, context } = await open(browser);
  await signIn(page, 'keys');
  const { key: secret } = await page.evaluate(async () => {
    const { call } = await import(new URL('api.js', document.querySelector('script[src$="app.js"]').src));
    return call('POST', '/console/api/keys', { label: 'Twice' });
  });
  assert.match(secret, /^org_/);
  await page.reload();
  await page.getByRole('row', { name: /Twice/ }).getByRole('button', { name: /Revoke/ }).click();
  const sure = page.getByRole('dialog').getByRole('button', { name: 'Revoke', exact: true });
  await page.route('**/console/api/keys/*', (route) => route.fulfill({ status: 503, json: { err_msg: 'Later.' } }));
  await sure.click();
  await page.getByRole('alert').getByText('Later.').waitFor();
  await page.unroute('**/console/api/keys/*');
  await sure.click();
  await page.getByText(/is revoked/).waitFor();
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
  await plot.getByRole('row').nth(1).waitFor();
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

test('operations show GPUs where there are some, and say where there are none', async () => {
  const { page, problems, context } = await open(browser);
  await signIn(page, 'operations');
  const gpu = (name) => page.locator('.stat', { has: page.getByText(name, { exact: true }) });
  await gpu('GPU').getByText('Models run on the CPU').waitFor();
  assert.equal(await page.getByRole('region', { name: 'GPU memory' }).isVisible(), false);
  // The server's own answer, as it would be on a machine with two.
  await page.route('**/console/api/operations?*', async (route) => {
    const response = await route.fetch();
    const figures = await response.json();
    const one = { name: 'NVIDIA H200', used: 0.37, memory_free: 100 * 2 ** 30, memory_total: 140 * 2 ** 30 };
    figures.gpus = [{ index: 0, ...one }, { index: 1, ...one, used: null }];
    const { series } = figures.samples;
    series.gpu_used = series.slots.map(() => 0.37);
    series.gpu_memory_bytes = series.slots.map(() => 280 * 2 ** 30);
    series.gpu_memory_free_bytes = series.slots.map(() => 200 * 2 ** 30);
    await route.fulfill({ response, json: figures });
  });
  await page.reload();
  await gpu('GPU 0').getByText('37 %').waitFor();
  await gpu('GPU 0').getByText('100 GiB of 140 GiB free').waitFor();
  await gpu('GPU 1').getByText('–').waitFor();
  const plot = page.getByRole('region', { name: 'GPU memory', exact: true });
  await plot.getByText('200 GiB').first().waitFor();
  await assertAccessible(page);
  await plot.scrollIntoViewIfNeeded();
  await shot(page, 'operations-gpu', { fullPage: true });
  // A driver that does not answer is not a machine without GPUs.
  await page.unroute('**/console/api/operations?*');
  await page.route('**/console/api/operations?*', async (route) => {
    const response = await route.fetch();
    const figures = await response.json();
    figures.models[0].device = 'NVIDIA H200, 140 GiB';
    await route.fulfill({ response, json: { ...figures, gpus: null } });
  });
  await page.reload();
  await gpu('GPU').getByText('Its driver gives no figures').waitFor();
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
