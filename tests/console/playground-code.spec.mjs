// The lines in curl, Python, Node and Rust: each is run as the page gives it, against the server.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { promisify } from 'node:util';

import { assertNoProblems, key, launch, open, signIn, speech, wordErrors } from './harness.mjs';

const SAID = 'He might even have been made amiable himself.';
const LANGUAGES = ['curl', 'Python', 'Node', 'Rust'];
const PINNED = path.join(import.meta.dirname, 'snippet');
/** Kept from run to run, so that the crates are compiled once. */
const built = path.join(process.env.SCRATCH ?? os.tmpdir(), 'snippet');
const run = promisify(execFile);
let browser;
let folder;
let host;

before(async () => {
  browser = await launch();
  folder = mkdtempSync(path.join(os.tmpdir(), 'lines-'));
  host = http.createServer((request, response) => {
    request.resume();
    response.end(request.method === 'GET' ? readFileSync(speech('austen_0930.wav')) : '');
  });
  await new Promise((listening) => host.listen(0, '127.0.0.1', listening));
});

after(async () => {
  await browser.close();
  host.close();
  rmSync(folder, { recursive: true });
});

const address = (name) => `http://127.0.0.1:${host.address().port}/${name}`;

/** The page with all parameters in view. */
async function playground() {
  const opened = await open(browser);
  await signIn(opened.page, 'playground');
  await opened.page.getByLabel('smart_format', { exact: true }).waitFor();
  await opened.page.evaluate(() => document.querySelectorAll('details').forEach((one) => { one.open = true; }));
  return opened;
}

async function written(page, language) {
  await page.getByRole('button', { name: language, exact: true }).click();
  return page.getByRole('region', { name: 'The same request' }).textContent();
}

/** Writes `lines` to a file of `language`, as people do who copy them, and returns the program that runs it. */
function program(language, lines) {
  if (language === 'curl') return ['sh', ['-c', lines]];
  if (language === 'Rust') {
    const named = lines.split('\n').filter((one) => one.startsWith('// ')).map((one) => one.slice(3)).join('\n');
    assert.ok(readFileSync(path.join(PINNED, 'Cargo.toml'), 'utf8').includes(`${named}\n`), named);
    mkdirSync(path.join(built, 'src'), { recursive: true });
    for (const name of ['Cargo.toml', 'Cargo.lock']) copyFileSync(path.join(PINNED, name), path.join(built, name));
    writeFileSync(path.join(built, 'src/main.rs'), lines);
    return ['cargo', ['run', '--quiet', '--locked', '--manifest-path', path.join(built, 'Cargo.toml')]];
  }
  const [name, by] = { Python: ['request.py', 'python3'], Node: ['request.mjs', process.execPath] }[language];
  writeFileSync(path.join(folder, name), lines);
  return [by, [name]];
}

/** What the lines print: in JSON for curl, otherwise one text. `null` without a compiler of Rust. */
async function printed(page, language) {
  const env = { ...process.env, KEY: key, CARGO_TARGET_DIR: path.join(built, 'target') };
  try {
    const { stdout } = await run(...program(language, await written(page, language)), { cwd: folder, env });
    return language === 'curl' ? JSON.parse(stdout) : stdout.trim();
  } catch (error) {
    if (error.code !== 'ENOENT' || process.env.TEST_ALL_SDKS) throw error;
    console.log(`skipped: there is no ${error.path}`);
    return null;
  }
}

test('they send a file, whatever it is called, with parameters and headers', async () => {
  const { page, problems, context } = await playground();
  const file = path.join(folder, `it's "a" $HOME \\ talk – 1.wav`);
  copyFileSync(speech('austen_0930.wav'), file);
  await page.locator('#audio-file').setInputFiles(file);
  await page.getByLabel('search', { exact: true }).fill(`it's "quoted" $(id) \\ end`);
  await page.getByLabel('tag', { exact: true }).fill('two words\n100 %');
  await page.getByLabel('punctuate', { exact: true }).selectOption('false');
  await page.getByLabel('Idempotency-Key', { exact: true }).fill("it's-once");
  const answer = await printed(page, 'curl');
  const { search, alternatives: [{ transcript }] } = answer.results.channels[0];
  assert.ok(wordErrors(SAID, transcript) <= 1, transcript);
  assert.equal(transcript, transcript.toLowerCase());
  assert.equal(search[0].query, `it's "quoted" $(id) \\ end`);
  for (const language of LANGUAGES.slice(1)) {
    const said = await printed(page, language);
    if (said !== null) assert.equal(said, transcript, language);
  }
  assertNoProblems(problems);
  await context.close();
});

test('they name an address', async () => {
  const { page, problems, context } = await playground();
  await page.getByRole('button', { name: 'Address', exact: true }).click();
  await page.getByLabel('Address of the audio').fill(address(`it's-"a"-$HOME.wav`));
  for (const language of LANGUAGES) {
    const answer = await printed(page, language);
    const said = language === 'curl' ? answer.results.channels[0].alternatives[0].transcript : answer;
    if (said !== null) assert.ok(wordErrors(SAID, said) <= 1, `${language}: ${said}`);
  }
  assertNoProblems(problems);
  await context.close();
});

test('with a callback they print the id of the request', async () => {
  const { page, problems, context } = await playground();
  await page.locator('#audio-file').setInputFiles(speech('austen_0930.wav'));
  copyFileSync(speech('austen_0930.wav'), path.join(folder, 'austen_0930.wav'));
  await page.getByLabel('callback', { exact: true }).fill(address('result'));
  for (const language of LANGUAGES) {
    const answer = await printed(page, language);
    if (answer !== null) assert.match(language === 'curl' ? answer.request_id : answer, /^[0-9a-f-]{36}$/, language);
  }
  assertNoProblems(problems);
  await context.close();
});
