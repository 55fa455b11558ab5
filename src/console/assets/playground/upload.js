// A request with a large body, whose progress is seen: `fetch` tells nothing of it.

import { ApiError, token, watch } from "../api.js";
import { text } from "../text.js";

/**
 * @param {string} path
 * @param {Blob | string} body
 * @param {{ headers: [string, string][], signal: AbortSignal, onsent: (share: number) => void }} options `onsent`: how
 *   much of the body has been sent, up to 1
 * @returns {Promise<any>} the answer's JSON
 */
export async function upload(path, body, { headers, signal, onsent }) {
  const bearer = await token();
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    const aborted = () => fail(new DOMException("", "AbortError"));
    if (signal.aborted) return aborted();
    signal.addEventListener("abort", () => request.abort());
    request.open("POST", path);
    request.setRequestHeader("Authorization", `Bearer ${bearer}`);
    for (const [name, value] of headers) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded, total }) => onsent(total > 0 ? loaded / total : 1);
    request.upload.onload = () => onsent(1);
    request.onabort = aborted;
    request.onerror = () => {
      watch(0);
      fail(new ApiError(text.playground.unreachable, { code: "UNREACHABLE" }));
    };
    request.onload = () => {
      const answer = parsed(request.responseText);
      if (request.status >= 200 && request.status < 300 && answer) return done(answer);
      fail(new ApiError(answer?.err_msg ?? `${request.status} ${request.statusText}`, {
        status: request.status,
        code: answer?.err_code ?? "",
        retryAfter: Number(request.getResponseHeader("retry-after") ?? 0),
        requestId: request.getResponseHeader("x-request-id") ?? "",
      }));
    };
    request.send(body);
  });
}

function parsed(content) {
  try {
    return JSON.parse(content);
  } catch {
    return null;
  }
}
