// The playground with an hour-long transcript, by the keyboard alone, in both colours, on a phone and a wide screen; and
// what its first load weighs.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';

import { assertNoProblems, launch, open, shot, signIn, speech, until } from './harness.mjs';

const WORDS = 10_000;
const SECONDS = 3600;
/** The processor's time for one task of the page. Its time by the clock includes that of other programs. */
const TASK_MS = 50;
const FIRST_LOAD_BYTES = 150 << 10;
let browser;

before(async () => {
  browser = await launch();
});

after(() => browser.close());

/** An answer of `/v1/listen` with three speakers and two languages. Runs in the page. */
function made({ count, seconds }) {
  const vocabulary = 'the server hears each of these words and says when it was spoken by whom'.split(' ');
  const step = seconds / count;
  const words = Array.from({ length: count }, (_, index) => {
    const word = vocabulary[(index * 7) % vocabulary.length];
    const isEnd = index % 17 === 16;
    return {
      word, start: index * step, end: (index + 0.8) * step, confidence: 0.4 + ((index * 37) % 60) / 100,
      punctuated_word: isEnd ? `${word}.` : word, speaker: Math.floor(index / 60) % 3,
      language: Math.floor(index / 900) % 2 === 0 ? 'en' : 'de',
    };
  });
  const alternative = { transcript: words.map((word) => word.punctuated_word).join(' '), confidence: 0.8, words, languages: ['en', 'de'] };
  return {
    metadata: { request_id: 'made', duration: seconds, channels: 1, model_info: { made: { name: 'made' } } },
    results: { channels: [{ alternatives: [alternative] }] },
  };
}

/** An hour of sound: mono, 8-bit, 4000 samples a second. Runs in the page. */
function hour(seconds) {
  const rate = 4000;
  const bytes = new Uint8Array(44 + rate * seconds);
  const view = new DataView(bytes.buffer);
  const put = (at, text) => [...text].forEach((sign, index) => { bytes[at + index] = sign.charCodeAt(0); });
  put(0, 'RIFF');
  view.setUint32(4, bytes.length - 8, true);
  put(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate, true);
  view.setUint16(32, 1, true);
  view.setUint16(34, 8, true);
  put(36, 'data');
  view.setUint32(40, rate * seconds, true);
  for (let index = 44; index < bytes.length; index++) bytes[index] = 128 + 90 * Math.sin(index / 9) * Math.sin(index / 9000);
  return new Blob([bytes], { type: 'audio/wav' });
}

/**
 * The most processor time that one task took in the main thread of a page, in milliseconds, since the tracing began, which
 * it ends. Of one task, the browser records the time by the clock (`dur`) and that of the thread (`tdur`).
 */
async function longestTask() {
  const { traceEvents } = JSON.parse(String(await browser.stopTracing()));
  const named = traceEvents.filter(({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain');
  const mains = new Set(named.map(({ pid, tid }) => `${pid} ${tid}`));
  // One that was cut off at either end of the tracing has no time.
  const tasks = traceEvents.filter(({ name, pid, tid, tdur }) =>
    name === 'ThreadControllerImpl::RunTask' && mains.has(`${pid} ${tid}`) && tdur !== undefined);
  assert.ok(tasks.length > 0, 'the tasks are in the trace');
  return Math.max(...tasks.map(({ tdur }) => tdur)) / 1000;
}

async function playground(options) {
  const opened = await open(browser, options);
  await signIn(opened.page, 'playground');
  await opened.page.getByLabel('smart_format', { exact: true }).waitFor();
  return opened;
}

test('an hour of 10,000 words is shown, scrolled, played and saved in short tasks', async () => {
  const { page, problems, context } = await playground();
  await page.evaluate(`window.made = ${made}; window.hour = ${hour};`);
  await page.evaluate((seconds) => { window.blob = window.hour(seconds); }, SECONDS);
  await page.evaluate(({ count, seconds }) => { window.answer = window.made({ count, seconds }); }, { count: WORDS, seconds: SECONDS });
  const trace = () => browser.startTracing(page, { categories: ['toplevel'] });
  await trace();
  /** Checks the tasks since the last call. */
  const longest = async (what) => {
    const most = await longestTask();
    console.log(`${what}: the longest task took ${most.toFixed(1)} ms`);
    assert.ok(most <= TASK_MS, `${what}: ${most} ms`);
    await trace();
  };
  await page.evaluate(() => setTimeout(() => {
    document.querySelector('page-playground').show(window.answer, 'hour.wav', { blob: window.blob });
  }));
  await page.locator('.word').first().waitFor();
  await until(page, () => Number(document.querySelector('[role=slider]').getAttribute('aria-valuemax')) > 3599);
  const elements = await page.locator('.word').count();
  assert.ok(elements < WORDS / 5, `${elements} words are elements`);
  await longest('showing it');
  assert.equal(await page.getByText('10000 words').count(), 1);
  await until(page, (count) => document.querySelectorAll('.block').length === count, Math.ceil(WORDS / 60));

  // To its end by the scroll bar, in steps, as fast as frames come.
  const lit = await page.evaluate(async () => {
    const list = document.querySelector('.transcript');
    while (list.scrollTop + list.clientHeight < list.scrollHeight - 2) {
      list.scrollTop += 3000;
      await new Promise(requestAnimationFrame);
    }
    return list.scrollTop;
  });
  assert.ok(lit > 10_000);
  await page.locator('.word[data-word="9999"]').waitFor();
  await longest('scrolling');

  await page.locator('.word[data-word="9999"]').click();
  await until(page, () => document.querySelector('.word[data-lit]')?.dataset.word === '9999');
  await page.getByRole('slider').press('Home');
  await until(page, () => document.querySelector('.word[data-lit]')?.dataset.word === '0');
  await page.getByRole('button', { name: 'Play', exact: true }).click();
  await until(page, () => Number(document.querySelector('.word[data-lit]')?.dataset.word) >= 4);
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await longest('jumping and playing');

  for (const view of ['Utterances', 'Tree', 'JSON']) {
    await page.getByRole('group', { name: 'View' }).getByRole('button', { name: view }).click();
    await longest(view);
  }
  for (const name of ['JSON', 'Text', 'SRT', 'VTT']) {
    const download = page.waitForEvent('download');
    await page.getByRole('group', { name: 'Download' }).getByRole('button', { name }).click();
    await download;
    await longest(`downloading ${name}`);
  }
  await browser.stopTracing();
  assertNoProblems(problems);
  await context.close();
});

test('the first load is small', async () => {
  const { page, context } = await playground();
  const bytes = await page.evaluate(() => performance.getEntries()
    .filter((entry) => entry.entryType === 'navigation' || /\/console\/[0-9a-z]+\//.test(entry.name))
    .reduce((sum, entry) => sum + entry.encodedBodySize, 0));
  console.log(`${bytes} bytes`);
  assert.ok(bytes > 10_000 && bytes <= FIRST_LOAD_BYTES, `${bytes} bytes`);
  await context.close();
});

test('everything is reached by the keyboard', async () => {
  const { page, problems, context } = await playground();
  const focused = () => page.evaluate(() => {
    const at = document.activeElement;
    if (at === document.body) return '';
    return at.getAttribute('aria-label') ?? at.labels?.[0]?.textContent ?? at.textContent;
  });
  const tabTo = async (wanted) => {
    for (let step = 0; step < 120; step++) {
      if (wanted.test(await focused())) return;
      await page.keyboard.press('Tab');
    }
    assert.fail(`${wanted} has no focus after 120 steps: ${await focused()}`);
  };
  await tabTo(/Drop a file/);
  const chooser = page.waitForEvent('filechooser');
  await page.keyboard.press('Space');
  await (await chooser).setFiles(speech('austen_0930.wav'));
  await tabTo(/^Transcribe$/);
  await page.keyboard.press('Enter');
  await page.locator('.word').first().waitFor();
  await tabTo(/Position in the audio/);
  await page.keyboard.press('End');
  await until(page, () => document.querySelector('audio').currentTime > 3);
  await tabTo(/^Play$/);
  await tabTo(/^He$/i);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  const third = parseFloat(await page.locator('.word').nth(2).getAttribute('title'));
  await until(page, (start) => Math.abs(document.querySelector('audio').currentTime - start) < 0.02, third);
  await tabTo(/^SRT$/);
  const download = page.waitForEvent('download');
  await page.keyboard.press('Enter');
  assert.equal((await download).suggestedFilename(), 'austen_0930.srt');
  await tabTo(/^diarize$/);
  await page.keyboard.press('Space');
  await until(page, () => location.hash.includes('diarize=true'));
  assertNoProblems(problems);
  await context.close();
});

test('it fits phones and wide screens, light and dark', async () => {
  for (const [name, width, height] of [['narrow', 390, 844], ['wide', 1600, 1000]]) {
    for (const colorScheme of ['light', 'dark']) {
      const { page, problems, context } = await playground({ viewport: { width, height }, colorScheme });
      await page.evaluate(`window.made = ${made}; window.hour = ${hour};`);
      await page.evaluate(() => {
        const answer = window.made({ count: 600, seconds: 300 });
        answer.metadata.voice_without_words = 2.5;
        const { words } = answer.results.channels[0].alternatives[0];
        for (const word of words.slice(200)) Object.assign(word, { start: word.start + 6, end: word.end + 6, language: 'de' });
        document.querySelector('page-playground').show(answer, 'five-minutes.wav', { blob: window.hour(306) });
      });
      await page.locator('.wave-mark').waitFor();
      await page.locator('.word').nth(30).click();
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${name}: ${overflow} pixels wider than the window`);
      await page.locator('.result').scrollIntoViewIfNeeded();
      await shot(page, `playground-result-${name}-${colorScheme}`);
      assertNoProblems(problems);
      await context.close();
    }
  }
});
