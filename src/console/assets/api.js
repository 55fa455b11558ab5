// How the pages talk to the server: the console's own routes by the cookie of the session, the public API by a
// short-lived token, as any client would. Only here requests are made.

const HEADERS = { "x-verbatim-console": "1" };
const HEALTH_INTERVAL_MS = 5000;
const RETRY_INTERVAL_MS = 1000;
/** A token is renewed this long before it ends. */
const TOKEN_MARGIN_MS = 60_000;

/** An answer other than success, or none. `status` is 0 without an answer. */
export class ApiError extends Error {
  constructor(message, { status = 0, code = "", retryAfter = 0, requestId = "" } = {}) {
    super(message);
    this.name = "ApiError";
    Object.assign(this, { status, code, retryAfter, requestId });
  }
}

/**
 * What the shell and the pages watch. Events: `session` (detail: the session, or null after its end) and `connection`
 * (detail: "ready", "starting" or "stopped").
 */
export const events = new EventTarget();
const announce = (type, detail) => events.dispatchEvent(new CustomEvent(type, { detail }));

let session = null;
let connection = "ready";
let granted = null;

export const currentSession = () => session;
export const currentConnection = () => connection;

function setSession(next) {
  const isSame = session?.key_id === next?.key_id && session?.assets === next?.assets;
  session = next;
  if (isSame && next) return;
  granted = null;
  announce("session", next);
}

function setConnection(next) {
  if (next === connection) return;
  connection = next;
  announce("connection", next);
}

/**
 * One request. An abort is thrown as it is; every other failure as an `ApiError`.
 *
 * @returns {Promise<Response>} a successful answer, its body unread
 */
async function request(path, init = {}) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "same-origin", redirect: "error", ...init });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    setConnection("stopped");
    watch(RETRY_INTERVAL_MS);
    throw new ApiError("The server does not answer.", { code: "UNREACHABLE" });
  }
  if (response.ok) return response;
  throw await errorOf(response);
}

async function errorOf(response) {
  let body = {};
  try { body = await response.json(); } catch { /* Not every answer has a body in JSON. */ }
  // The wire format's form, and that of OpenAI's clients.
  const message = body.err_msg ?? body.error?.message ?? `${response.status} ${response.statusText}`;
  return new ApiError(message, {
    status: response.status,
    code: body.err_code ?? body.error?.code ?? "",
    retryAfter: Number(response.headers.get("retry-after") ?? 0),
    requestId: response.headers.get("x-request-id") ?? "",
  });
}

/**
 * A request to one of the console's routes.
 *
 * @param {string} method
 * @param {string} path as `/console/api/keys`
 * @param {unknown} [body] sent as JSON
 * @param {{ signal?: AbortSignal }} [options]
 * @returns {Promise<any>} the answer's JSON; `null` if it has no body
 */
export async function call(method, path, body, { signal } = {}) {
  const response = await callRaw(method, path, body, { signal });
  return response.status === 204 ? null : response.json();
}

/** As `call`, with the answer unread: for downloads. */
export async function callRaw(method, path, body, { signal } = {}) {
  const headers = { ...HEADERS };
  if (body !== undefined) headers["content-type"] = "application/json";
  try {
    return await request(path, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.status === 401 && path !== "/console/session") setSession(null);
    throw error;
  }
}

/** Looks for a session that the browser still has. */
export async function resume() {
  try {
    setSession(await call("GET", "/console/session"));
  } catch (error) {
    if (error.status !== 401) throw error;
    setSession(null);
  }
  return session;
}

export async function signIn(key) {
  setSession(await call("POST", "/console/session", { key }));
}

/** Signs in by the one-time link that the server printed. */
export async function signInByLink(link) {
  setSession(await call("POST", "/console/session", { link }));
}

export async function signOut() {
  await call("DELETE", "/console/session");
  setSession(null);
}

/**
 * A token for the public API: `Authorization: Bearer …`, or the subprotocols `bearer` and the token. It renews itself.
 *
 * @returns {Promise<string>}
 */
export async function token() {
  if (!granted || granted.ends - TOKEN_MARGIN_MS < Date.now()) {
    const asked = call("POST", "/console/api/token").then((answer) => ({
      text: answer.access_token, ends: Date.now() + answer.expires_in * 1000,
    }));
    granted = await asked;
  }
  return granted.text;
}

/**
 * A request to the public API.
 *
 * @param {string} path as `/v1/listen?model=base`
 * @param {RequestInit & { scheme?: string }} [init] `scheme`: "Token" for answers in the wire format, where clients of
 *   OpenAI get another
 * @returns {Promise<Response>} a successful answer, its body unread
 */
export async function fetchPublic(path, { scheme = "Bearer", ...init } = {}) {
  const headers = new Headers(init.headers);
  headers.set("authorization", `${scheme} ${await token()}`);
  return request(path, { ...init, headers, credentials: "omit" });
}

/** A WebSocket to the public API, not yet open. */
export async function openSocket(path) {
  const address = new URL(path, location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  return new WebSocket(address, ["bearer", await token()]);
}

/** Saves `content` as a file. */
export function save(name, content, type = "application/octet-stream") {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

let timer = 0;

/** Asks for the server's health after a while, and from then on. */
export function watch(after = HEALTH_INTERVAL_MS) {
  clearTimeout(timer);
  timer = setTimeout(check, after);
}

async function check() {
  if (document.hidden) return watch();
  try {
    const response = await fetch("/health", { cache: "no-store", credentials: "omit" });
    const health = await response.json();
    setConnection(health.ready ? "ready" : "starting");
    watch(health.ready ? HEALTH_INTERVAL_MS : RETRY_INTERVAL_MS);
  } catch {
    setConnection("stopped");
    watch(RETRY_INTERVAL_MS);
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) watch(0); });
