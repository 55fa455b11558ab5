// The shell: sign-in, navigation, the state of the connection, and the page that the address names.
//
// A page is a module `pages/NAME.js` that defines the element `page-NAME`. The router makes one when its address is
// opened (`#/NAME`, further parts in the attribute `path`) and removes it when another page is opened: its
// `disconnectedCallback` ends what it began. A page's first element should be an `h1`, which gets the focus.

import { currentSession, events, resume, signInByLink, signOut, watch } from "./api.js";
import { element, icon, replace } from "./elements.js";
import { signInView } from "./sign-in.js";
import { text } from "./text.js";
import { notify, themeSwitch } from "./controls.js";

const PAGES = ["playground", "live", "agent", "keys", "jobs", "operations"];
const LINK = "#sign-in=";
const build = new URL(".", import.meta.url).pathname;

const main = element("main", { id: "content", tabindex: "-1" });
const banner = element("div", { class: "banner", role: "status" });
let isSignedIn = null;
let opened = null;

function frame() {
  const links = PAGES.map((name) =>
    element("li", {}, element("a", { href: `#/${name}`, dataset: { page: name } }, icon(name),
      element("span", {}, text.pages[name]))));
  const leave = element("button", { type: "button", class: "plain", onclick: leaveConsole },
    icon("leave"), element("span", {}, text.signOut));
  return [
    element("a", { class: "skip", href: "#content", onclick: skip }, text.skip),
    element("header", { class: "shell" },
      element("a", { class: "brand", href: "#/playground" },
        element("img", { src: `${build}icon.svg`, alt: "", width: 28, height: 28 }), element("span", {}, text.name)),
      element("nav", { "aria-label": text.navigation }, element("ul", {}, links)),
      element("div", { class: "shell-end" },
        element("p", { class: "who", title: text.signedInAs(currentSession()?.label ?? "") },
          currentSession()?.label ?? ""),
        themeSwitch(), leave)),
    banner,
    main,
  ];
}

function skip(event) {
  event.preventDefault();
  main.focus();
}

async function leaveConsole() {
  try {
    await signOut();
  } catch (error) {
    notify(error.message, "bad");
  }
}

function wanted() {
  const [, name = "", ...rest] = location.hash.split("/");
  return PAGES.includes(name) ? { name, path: rest.join("/") } : { name: PAGES[0], path: "" };
}

async function open() {
  if (!isSignedIn) return;
  const { name, path } = wanted();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${text.pages[name]} – ${text.name}`;
  // The same page with another part of its address: it hears of that by itself.
  if (opened?.name === name) {
    opened.page.setAttribute("path", path);
    return;
  }
  const mine = { name, page: element(`page-${name}`, { path }) };
  const isFirst = opened === null;
  opened = mine;
  try {
    await import(`./pages/${name}.js`);
  } catch (error) {
    console.error(error);
    if (opened === mine) replace(main, missing());
    return;
  }
  if (opened !== mine) return;
  replace(main, mine.page);
  scrollTo(0, 0);
  if (isFirst) return;
  const title = main.querySelector("h1") ?? main;
  title.tabIndex = -1;
  title.focus({ preventScroll: true });
}

function missing() {
  return element("div", { class: "empty" }, icon("warning"), element("p", {}, text.pageMissing),
    element("button", { type: "button", onclick: () => location.reload() }, text.retry));
}

function show(session) {
  if (session && !build.includes(session.assets)) {
    // Another version of the program answers: its pages belong to it.
    location.reload();
    return;
  }
  if (!session && isSignedIn === false) return;
  const hadSession = isSignedIn;
  isSignedIn = session !== null;
  opened = null;
  // They say why the view changes.
  const notes = document.querySelector(".notes");
  replace(main);
  if (isSignedIn) {
    replace(document.body, frame(), notes);
    open();
  } else {
    document.title = `${text.signIn.title} – ${text.name}`;
    replace(document.body, banner, signInView({ hasEnded: hadSession === true }), notes);
  }
}

function showConnection(state) {
  banner.dataset.state = state;
  banner.hidden = state === "ready";
  replace(banner, state === "ready" ? [] : [icon("warning"), element("span", {}, text.connection[state])]);
}

async function start() {
  banner.hidden = true;
  let link = location.hash.startsWith(LINK) ? location.hash.slice(LINK.length) : null;
  if (link !== null) history.replaceState(null, "", location.pathname);
  /** The link as soon as the server can take it: while it starts, its answer is 503. */
  const enterByLink = async () => {
    if (link === null) return;
    try {
      await signInByLink(link);
      link = null;
    } catch (error) {
      if (error.status === 0 || error.status === 503) return;
      link = null;
      notify(error.status === 401 ? text.signIn.linkUsed : error.message, "bad");
    }
  };
  events.addEventListener("session", (event) => show(event.detail));
  events.addEventListener("connection", (event) => {
    showConnection(event.detail);
    if (event.detail === "ready") comeBack();
  });
  addEventListener("hashchange", open);
  watch();
  /** The server may be another process by now, in which the session has ended. */
  const comeBack = async () => {
    notify(text.connection.back);
    await enterByLink();
    if (link === null) await resume().catch(() => watch(0));
  };
  await enterByLink();
  if (currentSession()) return;
  try {
    await resume();
  } catch {
    // While the model is loading, the answer is 503. Its health says when that is over.
    show(null);
    watch(0);
  }
}

start();
