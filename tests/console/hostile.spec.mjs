// Hostile texts in every place where a page shows what came from elsewhere: names of files, transcripts, labels of keys,
// addresses of jobs, errors, fields of forms, instructions. None runs, none becomes markup, none breaks the layout.

import assert from 'node:assert/strict';
import test from 'node:test';

import { CORPUS } from './corpus.mjs';
import { assertUnharmed, guarded, shown } from './guarded.mjs';
import { assertNoProblems, launch, signIn, until } from './harness.mjs';

/** As a page has it: browsers leave out what is no character. */
const plain = (said) => said.replaceAll('\u0000', '').replaceAll('\ufffd', '');

async function assertShown(page, texts, where) {
  const all = plain(await shown(page));
  for (const said of texts) assert.ok(all.includes(plain(said)), `${where} does not show ${said.slice(0, 80)}`);
}

async function withPage(use) {
  const browser = await launch();
  try {
    await use(await guarded(browser));
  } finally {
    await browser.close();
  }
}

test('there are fifty texts, each another', () => {
  assert.equal(new Set(CORPUS).size, 50);
});

test('sign-in: what is typed, and what the server refuses', async () => {
  await withPage(async ({ page }) => {
    await page.goto(process.env.SERVER);
    for (const said of CORPUS) {
      await page.route('**/console/session', (route) => route.fulfill({ status: 400, json: { err_code: said, err_msg: said } }));
      await page.getByLabel(/admin key/i).fill(said.replaceAll('\n', ' '));
      await page.keyboard.press('Enter');
      await until(page, (said) => document.querySelector('[role="alert"]').textContent.includes(said), plain(said).slice(0, 20));
      await page.unroute('**/console/session');
    }
    await assertUnharmed(page, 'sign-in');
  });
});

test('the address of the page', async () => {
  await withPage(async ({ page, problems }) => {
    await signIn(page, 'agent');
    for (const said of CORPUS) {
      await page.goto(`${process.env.SERVER}/?${encodeURIComponent(said)}#/agent/${said}`);
      await page.evaluate((said) => { location.hash = `#/${said}`; }, said);
      await page.evaluate((said) => { location.hash = `#sign-in=${said}`; }, said);
    }
    await page.getByRole('heading', { level: 1 }).waitFor();
    await assertUnharmed(page, 'addresses');
    assertNoProblems(problems);
  });
});

/** A room that sends every text in every message that has one. */
function hostileRoom(socket) {
  const send = (message) => socket.send(JSON.stringify(message));
  send({ type: 'Welcome', session_id: 'sess_1', room_name: 'sts-1', request_id: '1' });
  for (const said of CORPUS) {
    send({ type: 'AgentState', state: said });
    send({ type: 'ConversationText', role: 'user', content: said });
    send({ type: 'AgentStartedSpeaking', total_latency: 1, tts_latency: 1, ttt_latency: 0 });
    send({ type: 'ConversationText', role: 'assistant', content: said });
    send({ type: 'ConversationText', role: 'assistant', content: `cut short: ${said}`, interrupted: true });
    send({ type: 'Warning', code: said, description: said });
    send({ type: 'Error', code: said, description: said });
    send({ type: 'VerificationRequested', category: said });
    send({ type: 'SmsUpdated', id: said, category: said, sms_catalog_key: said, status: 'sent', to: said, error: said });
    send({ type: 'CompletionNotice', status: said, message: said, updated_fields: { city: said, [said]: said } });
    send({ type: 'PageContextUpdated', version: 1, page_context: { page: said, sections: [{ title: said, fields: [{ name: 'street', value: said }] }] } });
    send({ type: 'FunctionCallRequest', functions: [{ id: said, name: said, arguments: said, client_side: true }] });
  }
  send({ type: 'AgentState', state: 'listening' });
}

/** The snapshot of a session all of whose texts are hostile. */
function hostileStatus() {
  const said = CORPUS.join(' ');
  const messages = CORPUS.map((text, id) => ({ id: `${id}`, category: text, sms_catalog_key: text, status: 'failed', to: text, error: text }));
  return {
    ok: true, session_id: said, status: said, caller_number: said, page_context_version: 1,
    verification: Object.fromEntries(CORPUS.map((text) => [text, { verified: true, source: text, attempts: 1, locked: false }])),
    pending_verification: said, sms: { provider: 'none', pending: [], sent: [], failed: messages },
    knowledge: { passages: 1, ready: true }, completion: { status: said, message: said },
    agent: { state: said, engine: { ears: said, end_of_turn: said, brain: said, voice: said } }, warnings: CORPUS,
  };
}

test('voice agent: talk, form, session and voices', async () => {
  await withPage(async ({ page, problems }) => {
    const started = { ok: true, session_id: 'sess_1', token: 't', warnings: CORPUS, websocket_url: 'ws://127.0.0.1/STS/rooms/sts-1' };
    await page.route('**/STS/interactiveAgent', (route) => {
      const { action } = route.request().postDataJSON();
      return route.fulfill({ json: action === 'start' ? started : hostileStatus() });
    });
    await page.route('**/v1/models', (route) => route.fulfill({ json: { tts: CORPUS.map((name) => ({ name })) } }));
    await page.routeWebSocket('**/STS/rooms/**', hostileRoom);
    await signIn(page, 'agent');
    await page.locator('#agent-voice option').nth(CORPUS.length).waitFor({ state: 'attached' });
    for (const label of ['Instructions', 'Greeting', 'What it knows']) await page.getByLabel(label, { exact: true }).fill(CORPUS.join(' '));
    await assertUnharmed(page, 'the form before a talk');
    await page.getByRole('button', { name: 'Start without a microphone' }).click();
    await page.locator('.agent-state[data-state="listening"]').waitFor();
    await until(page, () => document.querySelectorAll('page-agent .agent-fact').length > 50);
    await assertShown(page, CORPUS, 'the talk');
    assert.equal(await page.locator('.agent-lines li[data-role="user"]').count(), CORPUS.length);
    await assertUnharmed(page, 'the talk');
    assertNoProblems(problems);
  });
});

test('voice agent: errors of a start', async () => {
  await withPage(async ({ page }) => {
    await signIn(page, 'agent');
    for (const said of CORPUS) {
      await page.route('**/STS/interactiveAgent', (route) =>
        route.fulfill({ status: 400, headers: { 'x-request-id': encodeURIComponent(said) }, json: { err_code: said, err_msg: said } }));
      await page.getByRole('button', { name: 'Start without a microphone' }).click();
      await until(page, (said) => document.querySelector('page-agent [role="alert"]')?.textContent.includes(said), plain(said).slice(0, 20));
      await page.unroute('**/STS/interactiveAgent');
    }
    await assertUnharmed(page, 'errors');
  });
});
