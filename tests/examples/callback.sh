curl --fail-with-body --silent --show-error "$SERVER/v1/listen?callback=$CALLBACK&metadata=order-17" \
  --header "Authorization: Bearer $KEY" \
  --data-binary "@$AUDIO"
