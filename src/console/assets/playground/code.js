// A request as lines of a program: what the page itself would send, with the key in the environment variable KEY.

const PATH = "/v1/listen";
export const LANGUAGES = ["curl", "Python", "Node", "Rust"];

/**
 * @typedef {object} Sent
 * @property {string} server its origin
 * @property {[string, string][]} query
 * @property {[string, string][]} headers
 * @property {{ file: string } | { url: string }} source
 */

/** @param {string} language one of `LANGUAGES`  @param {Sent} sent */
export function lines(language, sent) {
  return { curl, Python: python, Node: node, Rust: rust }[language](sent);
}

function address({ server, query }) {
  const text = new URLSearchParams(query).toString();
  return `${server}${PATH}${text && `?${text}`}`;
}

// For a POSIX shell: nothing has a meaning between apostrophes, except an apostrophe.
const shell = (value) => `'${value.replaceAll("'", `'\\''`)}'`;

/** The path in the answer to what a program wants to see: with a callback, the transcript comes later. */
const wanted = ({ query }) => (query.some(([name]) => name === "callback") ? ["request_id"]
  : ["results", "channels", 0, "alternatives", 0, "transcript"]);
const indexed = (sent) => wanted(sent).map((part) => `[${JSON.stringify(part)}]`).join("");

function curl(sent) {
  const { source } = sent;
  const parts = [
    `curl --fail-with-body --silent --show-error ${shell(address(sent))}`,
    `--header "Authorization: Bearer $KEY"`,
    ...sent.headers.map(([name, value]) => `--header ${shell(`${name}: ${value}`)}`),
    "url" in source
      ? `--json ${shell(JSON.stringify({ url: source.url }))}`
      : `--header 'Content-Type: application/octet-stream' --data-binary ${shell(`@${source.file}`)}`,
  ];
  return `${parts.join(" \\\n  ")}\n`;
}

// A literal of JSON is one of Python and of JavaScript as well.
const literal = (value) => JSON.stringify(value).replace(/[\u2028\u2029\u007f]/g, (sign) =>
  `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

function python(sent) {
  const { source, headers } = sent;
  const more = headers.map(([name, value]) => `    ${literal(name)}: ${literal(value)},\n`).join("");
  const [body, type] = "url" in source
    ? [`body = json.dumps({"url": ${literal(source.url)}}).encode()`, "application/json"]
    : [`with open(${literal(source.file)}, "rb") as audio:\n    body = audio.read()`, "application/octet-stream"];
  return `import json
import os
from urllib.request import Request, urlopen

${body}
headers = {
    "Authorization": "Bearer " + os.environ["KEY"],
    "Content-Type": "${type}",
${more}}
with urlopen(Request(${literal(address(sent))}, body, headers)) as response:
    answer = json.load(response)
print(answer${indexed(sent)})
`;
}

function node(sent) {
  const { source, headers } = sent;
  const more = headers.map(([name, value]) => `    ${literal(name)}: ${literal(value)},\n`).join("");
  const [first, body, type] = "url" in source
    ? ["", `JSON.stringify({ url: ${literal(source.url)} })`, "application/json"]
    : [`import { openAsBlob } from "node:fs";\n\n`, `await openAsBlob(${literal(source.file)})`, "application/octet-stream"];
  return `${first}const response = await fetch(${literal(address(sent))}, {
  method: "POST",
  headers: {
    Authorization: \`Bearer \${process.env.KEY}\`,
    "Content-Type": "${type}",
${more}  },
  body: ${body},
});
const answer = await response.json();
if (!response.ok) throw new Error(answer.err_msg);
console.log(answer${wanted(sent).map((part) => (typeof part === "number" ? `[${part}]` : `.${part}`)).join("")});
`;
}

const rustText = (value) => `"${[...value].map((sign) => {
  if (sign === '"' || sign === "\\") return `\\${sign}`;
  return /[\p{Cc}\u2028\u2029]/u.test(sign) ? `\\u{${sign.codePointAt(0).toString(16)}}` : sign;
}).join("")}"`;

function rust(sent) {
  const { source, headers } = sent;
  const more = headers.map(([name, value]) => `\n        .header(${rustText(name)}, ${rustText(value)})`).join("");
  const body = "url" in source
    ? `.send_json(serde_json::json!({"url": ${rustText(source.url)}}))?`
    : `.header("Content-Type", "application/octet-stream")\n        .send(std::fs::File::open(${rustText(source.file)})?)?`;
  return `// [dependencies]
// serde_json = "1"
// ureq = { version = "3", features = ["json"] }

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answer: serde_json::Value = ureq::post(${rustText(address(sent))})
        .header("Authorization", format!("Bearer {}", std::env::var("KEY")?))${more}
        ${body}
        .body_mut()
        .read_json()?;
    println!("{}", answer${indexed(sent)}.as_str().unwrap_or_default());
    Ok(())
}
`;
}
