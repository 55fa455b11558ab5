// Pages of other origins, opened in the browser that is signed in to the console: none reads or changes anything, none
// frames it. One is on another port of the same host, which for cookies is the same site; one is on another site.

import assert from 'node:assert/strict';
import http from 'node:http';
import test from 'node:test';

import { launch, open, server, signIn } from './harness.mjs';

const PAGES = ['playground', 'live', 'agent', 'keys', 'jobs', 'operations'];
const STATE = { 'x-verbatim-console': '1', 'content-type': 'application/json' };
const KEY = JSON.stringify({ label: 'stolen', scopes: ['usage:write'] });
const HOST = new URL(server).host;

/** A server of empty pages, at any name of this machine. */
async function elsewhere() {
  const pages = http.createServer((_, answer) => answer.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>x</title>'));
  await new Promise((listening) => pages.listen(0, '127.0.0.1', listening));
  const { port } = pages.address();
  return { pages, origins: [`http://127.0.0.1:${port}`, `http://evil.localhost:${port}`] };
}

/** Opens a page of each other origin beside the console, signed in. `use` gets it, and a check that nothing has changed. */
async function fromElsewhere(use) {
  const browser = await launch();
  const { pages, origins } = await elsewhere();
  try {
    const { page: own, context } = await open(browser);
    await signIn(own, 'keys');
    const labels = () => own.evaluate(async (headers) => {
      const answer = await fetch('/console/api/keys', { headers });
      return [answer.status, JSON.stringify(await answer.json()).includes('stolen')];
    }, STATE);
    for (const origin of origins) {
      const page = await context.newPage();
      await page.goto(origin);
      await use({ page, origin, context, own });
      assert.deepEqual(await labels(), [200, false], `after ${origin}`);
      await page.close();
    }
  } finally {
    pages.close();
    await browser.close();
  }
}

test('no script of another origin reads or changes anything', async () => {
  await fromElsewhere(async ({ page, origin }) => {
    const heard = await page.evaluate(async ({ server, STATE, KEY }) => {
      const ways = {
        'reads who is signed in': ['/console/session', { credentials: 'include' }],
        'reads as the pages do': ['/console/session', { credentials: 'include', headers: STATE }],
        'reads keys': ['/console/api/keys', { credentials: 'include', headers: STATE }],
        'makes a key': ['/console/api/keys', { method: 'POST', credentials: 'include', headers: STATE, body: KEY }],
        'takes a token': ['/console/api/token', { method: 'POST', credentials: 'include', headers: STATE }],
        'signs out': ['/console/session', { method: 'DELETE', credentials: 'include', headers: STATE }],
        'makes a key without asking': ['/console/api/keys', { method: 'POST', mode: 'no-cors', credentials: 'include', body: KEY }],
        'takes a token without asking': ['/console/api/token', { method: 'POST', mode: 'no-cors', credentials: 'include' }],
        'signs in without asking': ['/console/session', { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"key":"x"}' }],
      };
      const heard = {};
      for (const [way, [path, init]] of Object.entries(ways)) {
        heard[way] = await fetch(server + path, init).then(async (answer) => `${answer.status} ${await answer.text()}`, () => 'nothing');
      }
      return heard;
    }, { server, STATE, KEY });
    for (const [way, answer] of Object.entries(heard)) {
      // An answer that a script may not see has status 0 and no text.
      assert.ok(['nothing', '0 '].includes(answer), `${origin} ${way}: ${answer}`);
    }
  });
});

test('no form of another origin changes anything', async () => {
  await fromElsewhere(async ({ page, origin, context }) => {
    for (const [path, type] of [['/console/api/keys', 'text/plain'], ['/console/api/keys', 'application/x-www-form-urlencoded'],
      ['/console/api/token', 'text/plain'], ['/console/session', 'text/plain']]) {
      const opened = context.waitForEvent('page');
      const answer = context.waitForEvent('response', (response) => response.url() === server + path && response.request().method() === 'POST');
      await page.evaluate(({ action, type, KEY }) => {
        const form = Object.assign(document.createElement('form'), { action, method: 'post', enctype: type, target: '_blank' });
        // As text, the name, a sign and the value are one JSON object.
        form.append(Object.assign(document.createElement('input'), { name: `${KEY.slice(0, -1)},"x":"`, value: '"}' }));
        document.body.append(form);
        form.submit();
      }, { action: server + path, type, KEY });
      const status = (await answer).status();
      assert.equal(status, 403, `${origin}: a form of ${type} to ${path} gets ${status}`);
      await (await opened).close();
    }
  });
});

test('a socket of another origin is not opened by the cookie', async () => {
  await fromElsewhere(async ({ page, origin }) => {
    for (const path of ['/v1/listen', '/v2/listen', '/v1/speak', '/v1/agent/converse', '/v1/realtime', '/STS/rooms/sts-1', '/console/session']) {
      const end = await page.evaluate((url) => new Promise((done) => {
        const socket = new WebSocket(url);
        socket.onopen = () => done('open');
        socket.onerror = () => done('refused');
      }), `ws://${HOST}${path}`);
      assert.equal(end, 'refused', `${origin} ${path}`);
    }
  });
});

test('images, scripts and frames of another origin get nothing', async () => {
  await fromElsewhere(async ({ page, origin, own }) => {
    const app = await own.evaluate(() => document.querySelector('script[src$="app.js"]').src);
    const load = (tag, properties) => page.evaluate(({ tag, properties }) => new Promise((done) => {
      const made = Object.assign(document.createElement(tag), properties);
      made.onload = () => done('loaded');
      made.onerror = () => done('refused');
      document.body.append(made);
    }), { tag, properties });
    for (const path of ['/console/session', '/console/api/keys', '/console/api/operations']) {
      assert.equal(await load('img', { src: server + path }), 'refused', `${origin}: an image of ${path}`);
      assert.equal(await load('script', { src: server + path }), 'refused', `${origin}: a script of ${path}`);
    }
    // Not even what anyone may read: a page of another origin shows nothing of the console.
    assert.equal(await load('script', { src: app }), 'refused', `${origin}: the console's script`);
    assert.equal(await load('script', { src: app, type: 'module' }), 'refused', `${origin}: the console's module`);
    assert.equal(await load('img', { src: app.replace('app.js', 'icon.svg') }), 'refused', `${origin}: the console's icon`);
    await page.evaluate((src) => new Promise((done) => {
      const frame = Object.assign(document.createElement('iframe'), { src, onload: () => done() });
      document.body.append(frame);
    }), `${server}/`);
    const framed = page.frames().filter((frame) => frame !== page.mainFrame());
    const seen = await Promise.all(framed.map(async (frame) => [frame.url(), await frame.locator('main').count().catch(() => 0)]));
    assert.ok(seen.every(([, count]) => count === 0), `${origin}: ${JSON.stringify(seen)}`);
  });
});

test('a window that another origin opens is out of its reach', async () => {
  await fromElsewhere(async ({ page, context, origin }) => {
    const opened = context.waitForEvent('page');
    await page.evaluate((url) => { window.console_ = window.open(url); }, `${server}/#/keys`);
    const popup = await opened;
    await popup.locator('h1').waitFor();
    // Cross-Origin-Opener-Policy parts the two: to the one, the other seems closed.
    assert.ok(await page.evaluate(() => window.console_.closed), origin);
    assert.equal(await popup.evaluate(() => window.opener), null, origin);
    await popup.close();
  });
});

/** A request as a program sends it, with all headers as they are given. */
function request(method, path, headers, body) {
  const { hostname, port } = new URL(server);
  return new Promise((done, fail) => {
    const sent = http.request({ hostname, port, method, path, headers: { ...headers, 'content-length': Buffer.byteLength(body) } }, (answer) => {
      answer.resume();
      answer.on('end', () => done(answer.statusCode));
    });
    sent.on('error', fail);
    sent.end(body);
  });
}

test('the cookie is out of the reach of scripts, and of no use to other origins', async () => {
  const browser = await launch();
  const { page, context } = await open(browser);
  await signIn(page, 'keys');
  assert.equal(await page.evaluate(() => document.cookie), '');
  const [cookie] = await context.cookies(server);
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Strict', '/']);
  const own = { ...STATE, cookie: `${cookie.name}=${cookie.value}`, origin: server, 'sec-fetch-site': 'same-origin' };
  assert.equal(await request('POST', '/console/api/token', own, ''), 200);
  for (const stolen of [
    { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
    { origin: 'https://evil.example' },
    { origin: `http://127.0.0.1:1` },
    { origin: 'null' },
    { origin: undefined, 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
    { 'x-verbatim-console': undefined },
    { origin: undefined, 'sec-fetch-site': undefined },
  ]) {
    const headers = Object.fromEntries(Object.entries({ ...own, ...stolen }).filter(([, value]) => value !== undefined));
    for (const [method, path, body] of [['POST', '/console/api/token', ''], ['POST', '/console/api/keys', KEY], ['DELETE', '/console/session', '']]) {
      assert.equal(await request(method, path, headers, body), 403, `${method} ${path} ${JSON.stringify(stolen)}`);
    }
  }
  // Under another name of this machine it is another cookie's place, and the public API takes none at all.
  assert.equal(await request('POST', '/v1/auth/grant', own, ''), 401);
  assert.equal(await request('POST', '/STS/interactiveAgent', own, '{"action":"start"}'), 401);
  // After the sign-out it opens nothing.
  assert.equal(await request('DELETE', '/console/session', own, ''), 204);
  assert.equal(await request('POST', '/console/api/token', own, ''), 401);
  await browser.close();
});

test('no page asks any other server, so all work offline', async () => {
  const browser = await launch();
  const { page, context } = await open(browser);
  const asked = new Set();
  // As without a network: only this server can be reached.
  await context.route((url) => url.origin !== server, (route) => {
    asked.add(route.request().url());
    return route.abort('internetdisconnected');
  });
  await page.goto(server);
  await page.getByLabel(/admin key/i).waitFor();
  await signIn(page);
  for (const name of PAGES) {
    await page.goto(`${server}/#/${name}`);
    await page.locator(`page-${name} h1`).waitFor();
    await page.waitForLoadState('networkidle');
  }
  const own = ([...asked]).filter((url) => !url.startsWith('data:') && !url.startsWith('blob:'));
  assert.deepEqual(own, []);
  const named = await page.evaluate(async () => {
    const names = performance.getEntriesByType('resource').map((entry) => entry.name);
    const texts = await Promise.all(names.filter((name) => /\.(js|css)$/.test(name)).map((name) => fetch(name).then((answer) => answer.text())));
    return texts.flatMap((text) => text.match(/(?:src|href|import|url)\s*[=(:]\s*["'(]?https?:\/\/[^"')\s]+/g) ?? []);
  });
  assert.deepEqual(named, []);
  await browser.close();
});
