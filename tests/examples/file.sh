curl --fail-with-body --silent --show-error "$SERVER/v1/listen?smart_format=true" \
  --header "Authorization: Bearer $KEY" \
  --data-binary "@$AUDIO"
