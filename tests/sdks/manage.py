"""deepgram-sdk's clients of tokens and of management, with nothing changed but address and key.

Environment: SERVER (http://…), KEY (of the scope `member` and `billing:read`, `members:read`), AUDIO (a file). Prints what came back, as JSON.
"""

import json
import os
from pathlib import Path

from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment

SERVER, KEY = os.environ["SERVER"], os.environ["KEY"]
AUDIO = Path(os.environ["AUDIO"]).read_bytes()
SOCKET = SERVER.replace("http", "ws")
HERE = DeepgramClientEnvironment(base=SERVER, production=SOCKET, agent=SOCKET, agent_rest=SERVER)


def status(call) -> int:
    try:
        call()
    except ApiError as error:
        return error.status_code
    return 200


def heard(client) -> str:
    response = client.listen.v1.media.transcribe_file(request=AUDIO, tag="sdk", smart_format=True)
    return response.results.channels[0].alternatives[0].transcript


client = DeepgramClient(api_key=KEY, environment=HERE)
granted = client.auth.v1.tokens.grant(ttl_seconds=60)
browser = DeepgramClient(access_token=granted.access_token, environment=HERE)

projects = client.manage.v1.projects
project = projects.list().projects[0]
keys = projects.keys
count = lambda: len(keys.list(project.project_id).api_keys)
before = count()
made = keys.create(project.project_id, request={
    "comment": "from Python", "scopes": ["usage:write"], "tags": ["a"], "time_to_live_in_seconds": 3600})
between = count()
other = DeepgramClient(api_key=made.key, environment=HERE)
one = keys.get(project.project_id, made.api_key_id).item.member.api_key
transcripts = [heard(client), heard(browser), heard(other)]
other_lists = status(lambda: other.manage.v1.projects.keys.list(project.project_id))
keys.delete(project.project_id, made.api_key_id)
projects.update(project.project_id, name="renamed")

page = projects.requests.list(project.project_id, limit=10.0, status="succeeded")
logged = projects.requests.get(project.project_id, page.requests[0].request_id).request
breakdown = projects.usage.breakdown.get(project.project_id, grouping="accessor")
models = client.manage.v1.models.list().stt

print(json.dumps({
    "expires_in": granted.expires_in,
    "transcripts": transcripts,
    "keys": [before, between, count()],
    "made": [one.comment, one.scopes, one.tags, one.expiration_date is not None],
    "refused": {
        "other lists": other_lists,
        "token lists": status(browser.manage.v1.projects.list),
        "token grants": status(browser.auth.v1.tokens.grant),
        "deleted key": status(lambda: heard(other)),
        "unknown project": status(lambda: projects.get("00000000-0000-4000-8000-000000000000")),
        "last key": status(lambda: keys.delete(project.project_id, keys.list(project.project_id).api_keys[0].api_key.api_key_id)),
    },
    "name": projects.get(project.project_id).name,
    "requests": [[request.path, request.code] for request in page.requests],
    "logged": logged.request_id == page.requests[0].request_id,
    "usage": sum(result.requests for result in breakdown.results),
    "accessors": sorted({result.grouping.accessor for result in breakdown.results}),
    "hours": sum(result.hours for result in breakdown.results),
    "filtered": sum(result.requests for result in projects.usage.breakdown.get(
        project.project_id, tag="sdk", smart_format=True, method="sync", endpoint="listen").results),
    "fields": projects.usage.fields.list(project.project_id).tags,
    "models": [model.name for model in models],
    "model": client.manage.v1.models.get(models[0].uuid_).name,
    "project models": len(projects.models.list(project.project_id).stt),
    "none": [
        len(projects.members.list(project.project_id).members),
        len(projects.members.invites.list(project.project_id).invites),
        len(projects.billing.balances.list(project.project_id).balances),
        len(projects.billing.purchases.list(project.project_id).orders),
        len(projects.billing.breakdown.list(project.project_id).results),
    ],
}))
