// Hostile texts on the pages that show what callers send: files and transcripts, live speech, keys, jobs, the server itself.
// The server's answers are the real ones, with a hostile text in the place of each text that is no part of their form.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';

import { CORPUS } from './corpus.mjs';
import { assertUnharmed, guarded, shown } from './guarded.mjs';
import { assertNoProblems, key, launch, server, signIn, speech, until } from './harness.mjs';

const WORDS = CORPUS.flatMap((said, index) => [
  { word: said, punctuated_word: said, start: index, end: index + 0.5, confidence: 0.1 + index / 100, speaker: index % 3, language: said },
]);
const ALL = CORPUS.join(' ');

async function withPage(use, options) {
  const browser = await launch(options);
  try {
    await use(await guarded(browser));
  } finally {
    await browser.close();
  }
}

/** As text, without what a browser leaves out or draws otherwise. */
const plain = (said) => said.replaceAll(/[\u0000\ufffd\s\u2028]/g, '');

async function assertShows(page, texts, where) {
  const all = plain(await shown(page));
  for (const said of texts) assert.ok(all.includes(plain(said)), `${where} does not show ${said.slice(0, 80)}`);
}

/** An answer of `/v1/listen` all of whose texts are hostile. */
const transcript = {
  metadata: { request_id: ALL, created: ALL, duration: CORPUS.length, channels: 1, models: [ALL], model_info: { [ALL]: { name: ALL } }, warnings: [{ parameter: ALL, type: ALL, message: ALL }] },
  results: {
    channels: [{ detected_language: ALL, alternatives: [{ transcript: ALL, confidence: 0.5, words: WORDS,
      paragraphs: { transcript: ALL, paragraphs: [{ start: 0, end: 50, num_words: 50, speaker: 0, sentences: CORPUS.map((text, index) => ({ text, start: index, end: index + 0.5 })) }] } }] }],
    utterances: WORDS.map((word, index) => ({ ...word, transcript: word.word, id: `${index}`, channel: 0, words: [word] })),
  },
};

test('playground: names of files, transcripts, errors, addresses', async () => {
  await withPage(async ({ page, problems }) => {
    await page.route('**/v1/listen?**', (route) => route.fulfill({ json: transcript }));
    await page.route('**/v1/listen', (route) => route.fulfill({ json: transcript }));
    await signIn(page, 'playground');
    const buffer = readFileSync(speech('en_hello_world.wav'));
    const run = page.getByRole('button', { name: 'Transcribe', exact: true });
    for (const name of CORPUS.map((said) => said.replaceAll('/', '∕').replaceAll('\u0000', ''))) {
      await page.locator('#audio-file').setInputFiles({ name, mimeType: 'audio/wav', buffer });
      await assertShows(page, [name], 'the chooser');
    }
    await run.click();
    // Words are drawn when they come into sight.
    await page.locator('.transcript').waitFor();
    await page.locator('.transcript').evaluate((transcript) => transcript.scrollIntoView());
    await page.locator('.transcript .word').first().waitFor();
    await assertShows(page, CORPUS, 'the transcript');
    await page.evaluate(() => document.querySelectorAll('details').forEach((details) => { details.open = true; }));
    await assertUnharmed(page, 'the transcript');
    assertNoProblems(problems);
  });
  await withPage(async ({ page }) => {
    await signIn(page, 'playground');
    await page.locator('#audio-file').setInputFiles(speech('en_hello_world.wav'));
    for (const said of CORPUS) {
      await page.route(/\/v1\/listen/, (route) => route.fulfill({ status: 400, json: { err_code: said, err_msg: said } }));
      await page.getByRole('button', { name: 'Transcribe', exact: true }).click();
      await until(page, (said) => document.querySelector('main').textContent.includes(said), said.replaceAll('\u0000', '').slice(0, 20));
      await page.unroute(/\/v1\/listen/);
    }
    await assertUnharmed(page, 'errors');
  });
});

test('live: what is heard', async () => {
  await withPage(async ({ page, problems }) => {
    await page.routeWebSocket(/\/v1\/listen/, (socket) => {
      const send = (message) => socket.send(JSON.stringify(message));
      send({ type: 'Metadata', request_id: ALL });
      WORDS.forEach((word, index) => {
        const alternatives = [{ transcript: word.word, confidence: 0.5, words: [word] }];
        for (const is_final of [false, true]) {
          send({ type: 'Results', channel_index: [0, 1], duration: 1, start: index, is_final, speech_final: is_final, channel: { alternatives }, metadata: { request_id: ALL } });
        }
      });
    });
    await signIn(page, 'live');
    await page.getByText('nterim').first().waitFor({ state: 'attached' });
    await page.locator('#live-file').setInputFiles(speech('jfk.wav'));
    await until(page, (said) => document.querySelector('main').textContent.includes(said), CORPUS[0]);
    await assertUnharmed(page, 'live');
    assertNoProblems(problems);
  }, { microphone: speech('jfk.wav') });
});

/** Members whose values decide how an answer is shown: a page may trust the server with these. */
const FORM = /^(id|.*_id|state|status|kind|type|class|level|scope|scopes|at|.*_at|created|expires.*|last_.*|time|.*time|method|source|device|reason|code)$/;

/** The same answer with hostile texts in the place of its own, one after another. */
function poisoned(value, next, name = '') {
  if (typeof value === 'string') return FORM.test(name) ? value : next();
  if (Array.isArray(value)) return value.map((item) => poisoned(item, next, name));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, poisoned(item, next, key)]));
}

/** A job whose result can be delivered nowhere. */
async function makeJob() {
  const answer = await fetch(`${server}/v1/listen?callback=${encodeURIComponent('http://127.0.0.1:1/done')}`, {
    method: 'POST', headers: { authorization: `Bearer ${key}` }, body: readFileSync(speech('en_hello_world.wav')),
  });
  assert.equal(answer.status, 200, await answer.text());
}

test('keys, jobs and operations: every text of the server', async () => {
  await makeJob();
  await withPage(async ({ page, problems }) => {
    await signIn(page, 'keys');
    const goTo = async (name) => {
      await page.evaluate((name) => { location.hash = `#/${name}`; }, name);
      await page.locator(`page-${name} h1`).waitFor();
    };
    for (const name of ['keys', 'jobs', 'operations']) {
      let asked = 0;
      let at = 0;
      for (const texts of [CORPUS, [...CORPUS].reverse(), [ALL]]) {
        await page.route(/\/console\/api\/(?!token)/, async (route) => {
          const answer = await route.fetch();
          asked += 1;
          await route.fulfill({ response: answer, json: poisoned(await answer.json(), () => texts[at++ % texts.length]) });
        });
        await goTo('agent');
        await goTo(name);
        await page.waitForLoadState('networkidle');
        await assertUnharmed(page, name);
        await page.unrouteAll({ behavior: 'wait' });
      }
      assert.ok(asked >= 3 && at > 0, `${name} asked ${asked} times for ${at} texts`);
    }
    assertNoProblems(problems);
  });
});

test('keys: a label that the page itself sends', async () => {
  await withPage(async ({ page, problems }) => {
    await signIn(page, 'keys');
    // The server refuses labels with characters that cannot be seen.
    const labels = CORPUS.map((said) => said.replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, '').slice(0, 60));
    const statuses = await page.evaluate(async (labels) => {
      const make = (label) => fetch('/console/api/keys', {
        method: 'POST', headers: { 'x-verbatim-console': '1', 'content-type': 'application/json' }, body: JSON.stringify({ label }),
      }).then((answer) => answer.status);
      return Promise.all(labels.map(make));
    }, labels);
    const kept = labels.filter((_, index) => statuses[index] < 300);
    assert.ok(kept.length > 30, `${kept.length} labels are taken: ${statuses}`);
    await page.reload();
    await page.locator('page-keys h1').waitFor();
    await until(page, (said) => document.querySelector('main').textContent.includes(said), kept.at(-1));
    await assertShows(page, kept, 'the keys');
    await assertUnharmed(page, 'keys');
    assertNoProblems(problems);
  });
});
