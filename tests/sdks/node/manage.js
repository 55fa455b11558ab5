// @deepgram/sdk's clients of tokens and of management. Environment and output as of ../manage.py.
import { readFileSync } from "node:fs";
import { DeepgramClient } from "@deepgram/sdk";

const { SERVER, KEY, AUDIO } = process.env;
const audio = readFileSync(AUDIO);
const open = (credentials) => new DeepgramClient({ ...credentials, baseUrl: SERVER });

async function status(call) {
  try {
    await call();
    return 200;
  } catch (error) {
    return error.statusCode;
  }
}

async function heard(client) {
  const response = await client.listen.v1.media.transcribeFile(audio, { tag: "sdk", smart_format: true });
  return response.results.channels[0].alternatives[0].transcript;
}

const client = open({ apiKey: KEY });
const granted = await client.auth.v1.tokens.grant({ ttl_seconds: 60 });
const browser = open({ accessToken: granted.access_token });

const { projects } = client.manage.v1;
const id = (await projects.list()).projects[0].project_id;
const { keys } = projects;
const count = async () => (await keys.list(id)).api_keys.length;
const before = await count();
const made = await keys.create(id, {
  comment: "from Node", scopes: ["usage:write"], tags: ["a"], time_to_live_in_seconds: 3600,
});
const between = await count();
const other = open({ apiKey: made.key });
const one = (await keys.get(id, made.api_key_id)).item.member.api_key;
const transcripts = [await heard(client), await heard(browser), await heard(other)];
const otherLists = await status(() => other.manage.v1.projects.keys.list(id));
await keys.delete(id, made.api_key_id);
await projects.update(id, { name: "renamed" });

const page = await projects.requests.list(id, { limit: 10, status: "succeeded" });
const logged = (await projects.requests.get(id, page.requests[0].request_id)).request;
const { results } = await projects.usage.breakdown.get(id, { grouping: "accessor" });
const sum = (results, name) => results.reduce((sum, result) => sum + result[name], 0);
const filtered = await projects.usage.breakdown.get(id, {
  tag: "sdk", smart_format: true, method: "sync", endpoint: "listen",
});
const models = (await client.manage.v1.models.list()).stt;
const last = (await keys.list(id)).api_keys[0].api_key.api_key_id;

console.log(
  JSON.stringify({
    expires_in: granted.expires_in,
    transcripts,
    keys: [before, between, await count()],
    made: [one.comment, one.scopes, one.tags, one.expiration_date !== undefined],
    refused: {
      "other lists": otherLists,
      "token lists": await status(() => browser.manage.v1.projects.list()),
      "token grants": await status(() => browser.auth.v1.tokens.grant()),
      "deleted key": await status(() => heard(other)),
      "unknown project": await status(() => projects.get("00000000-0000-4000-8000-000000000000")),
      "last key": await status(() => keys.delete(id, last)),
    },
    name: (await projects.get(id)).name,
    requests: page.requests.map(({ path, code }) => [path, code]),
    logged: logged.request_id === page.requests[0].request_id,
    usage: sum(results, "requests"),
    accessors: [...new Set(results.map(({ grouping }) => grouping.accessor))].sort(),
    hours: sum(results, "hours"),
    filtered: sum(filtered.results, "requests"),
    fields: (await projects.usage.fields.list(id)).tags,
    models: models.map(({ name }) => name),
    model: (await client.manage.v1.models.get(models[0].uuid)).name,
    "project models": (await projects.models.list(id)).stt.length,
    none: [
      (await projects.members.list(id)).members.length,
      (await projects.members.invites.list(id)).invites.length,
      (await projects.billing.balances.list(id)).balances.length,
      (await projects.billing.purchases.list(id)).orders.length,
      (await projects.billing.breakdown.list(id)).results.length,
    ],
  }),
);
