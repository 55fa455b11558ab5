// Every page for everyone: axe-core in light and dark, wide and narrow; the keyboard alone; visible focus; reduced motion.

import assert from 'node:assert/strict';
import test from 'node:test';

import { axe, launch, open, server, shot, signIn, until } from './harness.mjs';

const PAGES = ['playground', 'live', 'agent', 'keys', 'jobs', 'operations'];
const SIZES = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } };

async function withBrowser(use) {
  const browser = await launch();
  try {
    await use(browser);
  } finally {
    await browser.close();
  }
}

/** Opens a page by its address, and waits until it has its heading and is done with what it asks the server for. */
async function visit(page, name) {
  await page.goto(`${server}/#/${name}`);
  await page.locator(`page-${name} h1`).waitFor();
  await page.waitForLoadState('networkidle').catch(() => {});
}

/** What axe-core finds serious or critical, in words. */
async function findings(page) {
  await page.evaluate(axe());
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const bad = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  return bad.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 160)} (${node.failureSummary?.split('\n')[1]?.trim() ?? ''})`));
}

/** A page of a context without the policy that keeps axe-core out: axe is no part of the console. */
const openFor = (browser, scheme, viewport, options = {}) =>
  open(browser, { bypassCSP: true, colorScheme: scheme, viewport, ...options });

for (const scheme of ['light', 'dark']) {
  test(`axe-core finds nothing serious, ${scheme}`, async () => {
    await withBrowser(async (browser) => {
      for (const [size, viewport] of Object.entries(SIZES)) {
        const { page, context } = await openFor(browser, scheme, viewport);
        await page.goto(server);
        await page.getByLabel(/admin key/i).waitFor();
        await shot(page, `sign-in-${size}-${scheme}`);
        assert.deepEqual(await findings(page), [], `sign-in, ${size}`);
        await signIn(page);
        for (const name of PAGES) {
          await visit(page, name);
          await shot(page, `${name}-${size}-${scheme}`, { fullPage: true });
          await page.evaluate(() => document.querySelectorAll('details').forEach((details) => { details.open = true; }));
          assert.deepEqual(await findings(page), [], `${name}, ${size}`);
        }
        await context.close();
      }
    });
  });
}

/** The element with the focus: what it is called, and whether the focus can be seen. */
const focused = (page) => page.evaluate(() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  const isOutlined = style.outlineStyle !== 'none' && Number.parseFloat(style.outlineWidth) >= 2;
  const labels = [...(element.labels ?? [])].map((label) => label.textContent.trim()).join(' ');
  const name = element.getAttribute('aria-label') || labels || element.title || element.textContent.trim();
  return {
    what: `${element.localName}#${element.id} ${name.slice(0, 40)}`,
    name,
    isOutlined,
    isSeen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight,
  };
});

/** All that Tab reaches, from the top until it comes round. */
async function walk(page) {
  const seen = [];
  for (let step = 0; step < 250; step++) {
    await page.keyboard.press('Tab');
    const at = await focused(page);
    if (at === null || (seen.length > 3 && at.what === seen[0].what)) break;
    seen.push(at);
  }
  return seen;
}

/** What a mouse can press, and Tab must reach. */
const pressable = (page) => page.evaluate(() => {
  const selector = 'a[href], button, input, select, textarea, summary, [role="button"], [role="tab"], [tabindex="0"]';
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.disabled
    && element.type !== 'file' && element.tabIndex >= 0 && !(element.type === 'radio' && !element.checked);
  return [...document.querySelectorAll(selector)].filter(isShown).length;
});

test('the keyboard reaches everything, and shows where it is', async () => {
  await withBrowser(async (browser) => {
    const { page } = await open(browser);
    await signIn(page);
    for (const name of PAGES) {
      await visit(page, name);
      // A page that was just loaded: Tab begins at the top.
      await page.reload();
      await visit(page, name);
      const count = await pressable(page);
      const seen = await walk(page);
      assert.ok(seen.length >= count, `${name}: Tab reaches ${seen.length} of ${count}: ${seen.map((at) => at.what).join('; ')}`);
      for (const at of seen) {
        assert.ok(at.isSeen, `${name}: ${at.what} is out of sight`);
        assert.ok(at.isOutlined, `${name}: ${at.what} does not show that it has the focus`);
        assert.ok(at.name, `${name}: ${at.what} has no name`);
      }
      assert.match(seen[0].what, /Skip to the content/, name);
    }
  });
});

test('the keyboard alone signs in, changes pages, leads a talk and signs out', async () => {
  await withBrowser(async (browser) => {
    const { page } = await open(browser);
    await page.goto(server);
    // The field has the focus from the start.
    await until(page, () => document.activeElement?.id === 'admin-key');
    await page.keyboard.type(process.env.ADMIN_KEY);
    await page.keyboard.press('Enter');
    const tabTo = async (name) => {
      for (let step = 0; step < 80; step++) {
        const at = await focused(page);
        // The name of the whole content is all of its text.
        if (at?.name.includes(name) && !at.what.startsWith('main')) return;
        await page.keyboard.press('Tab');
      }
      assert.fail(`Tab does not reach ${name}`);
    };
    await page.getByRole('navigation').waitFor();
    await tabTo('Voice agent');
    await page.keyboard.press('Enter');
    // The new page has the focus, so that a screen reader reads its title.
    await until(page, () => document.activeElement?.localName === 'h1' && document.activeElement.textContent === 'Voice agent');
    await tabTo('Start without a microphone');
    await page.keyboard.press('Enter');
    await page.locator('.agent-state[data-state="listening"]').waitFor();
    await until(page, () => document.activeElement?.id === 'agent-say');
    await page.keyboard.type('Where can I park?');
    await page.keyboard.press('Enter');
    await page.locator('.agent-lines li', { hasText: 'Parking is free behind the building.' }).waitFor();
    await tabTo('Skip');
    await page.keyboard.press('Enter');
    await tabTo('End');
    await page.keyboard.press('Enter');
    await until(page, () => document.activeElement?.textContent === 'Start another talk');
    await tabTo('Sign out');
    await page.keyboard.press('Enter');
    await page.getByLabel(/admin key/i).waitFor();
  });
});

test('who wants less motion gets none', async () => {
  await withBrowser(async (browser) => {
    const { page } = await open(browser, { reducedMotion: 'reduce' });
    await signIn(page);
    for (const name of PAGES) {
      await visit(page, name);
      const moving = await page.evaluate(() => [...document.querySelectorAll('*')].filter((element) => {
        const { transitionDuration, animationName } = getComputedStyle(element);
        return transitionDuration.split(', ').some((time) => Number.parseFloat(time) > 0.01) || animationName !== 'none';
      }).map((element) => element.outerHTML.slice(0, 120)));
      assert.deepEqual(moving, [], name);
    }
  });
});
