// A page that watches itself: whether hostile text ran, became markup, asked for something or broke the layout.

import assert from 'node:assert/strict';

import { open } from './harness.mjs';

/** As `open`, with the traps set. */
export async function guarded(browser, options) {
  const opened = await open(browser, options);
  const { page, problems } = opened;
  await page.addInitScript(() => {
    window.traps = [];
    window.pwned = () => window.traps.push('it ran');
    document.addEventListener('securitypolicyviolation', (event) => {
      window.traps.push(`${event.violatedDirective} was broken by ${event.blockedURI} ${event.sample}`);
    });
  });
  page.on('dialog', async (dialog) => {
    problems.push(`a dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on('framenavigated', (frame) => {
    if (frame !== page.mainFrame()) problems.push(`a frame: ${frame.url()}`);
  });
  return opened;
}

/** Elements and attributes that no page of the console has, and every hostile text asks for. */
const FOREIGN = ['script:not([src])', 'iframe', 'frame', 'object', 'embed', 'base', 'template', 'marquee', 'math', 'image',
  'meta[http-equiv]', 'style', 'link[href*="evil"]', 'img:not([src$="icon.svg"])', 'svg script', 'svg animate', 'svg a',
  '[formaction]', '[srcdoc]', '[style*="evil"]', 'a[href^="javascript:" i]', 'a[href^="data:" i]', 'a[href^="vbscript:" i]'];

/** What the hostile texts did to the page, if anything. */
export async function harm(page) {
  return page.evaluate((foreign) => {
    const found = [...window.traps];
    for (const made of document.querySelectorAll(foreign.join(','))) found.push(`markup: ${made.outerHTML.slice(0, 200)}`);
    for (const made of document.querySelectorAll('*')) {
      for (const { name } of made.attributes) if (/^on/i.test(name)) found.push(`${made.tagName} has ${name}`);
    }
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth > clientWidth + 1) {
      const wide = [...document.querySelectorAll('body *')].filter((made) => made.getBoundingClientRect().right > clientWidth + 1);
      const named = wide.slice(0, 5).map((made) => `${made.localName}.${made.className}`).join(', ');
      found.push(`the page is ${scrollWidth} wide, its window ${clientWidth}: ${named}`);
    }
    return found;
  }, FOREIGN);
}

/** No harm, in a wide window and in a narrow one. */
export async function assertUnharmed(page, where) {
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 900 });
    assert.deepEqual(await harm(page), [], `${where}, ${width} wide`);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
}

/** All that the page shows as text, and the values of its fields. */
export const shown = (page) => page.evaluate(() => {
  const values = [...document.querySelectorAll('input, textarea')].map((field) => field.value);
  return [document.body.textContent, ...values].join('\n');
});
