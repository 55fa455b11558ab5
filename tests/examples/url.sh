curl --fail-with-body --silent --show-error "$SERVER/v1/listen" \
  --header "Authorization: Bearer $KEY" \
  --json "{\"url\": \"$URL\"}"
