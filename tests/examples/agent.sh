curl --fail-with-body --silent --show-error "$SERVER/STS/interactiveAgent" \
  --header "Authorization: Bearer $KEY" \
  --json '{
    "action": "start",
    "greeting": "Welcome to Acme.",
    "documents": [{"title": "Hours", "type": "text", "content": "We are open from nine to five."}]
  }'
