#!/usr/bin/env bash
# Builds the CPU image twice without Docker and without a registry, compares the two, starts one, and transcribes with it.
#
#   tests/image.sh target/release/verbatim [FOLDER]
#
# Needs root, Buildah, mmdebstrap, curl and some 4 GB in FOLDER (default: a temporary one). The base is made of Debian's packages,
# the program is the given one: so this tests the last stage of docker/Dockerfile.cpu, not its compiler's. BASE=NAME takes
# an image that Buildah has instead.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:?the built program}
folder=${2:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(realpath "$folder")
for tool in buildah mmdebstrap curl; do
  command -v "$tool" >/dev/null || { echo "image: needs $tool" >&2; exit 1; }
done
# Storage of its own, so that the machine's images are left alone.
export CONTAINERS_STORAGE_CONF=$folder/storage.conf BUILDAH_ISOLATION=chroot
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/images"\nrunroot = "%s/run"\n' "$folder" "$folder" >"$folder/storage.conf"

base=${BASE:-localhost/base}
if [ -z "${BASE:-}" ]; then
  [ -s "$folder/base.tar" ] || SOURCE_DATE_EPOCH=0 mmdebstrap --quiet --variant=minbase bookworm "$folder/base.tar"
  made=$(buildah from scratch)
  buildah add --quiet "$made" "$folder/base.tar" / >/dev/null
  buildah commit --quiet --timestamp 0 --rm "$made" "$base" >/dev/null
fi

rm -rf "$folder/tree"
mkdir "$folder/tree"
.ci/dist "$program" --tree "$folder/tree/out"
cp /etc/ssl/certs/ca-certificates.crt "$folder/tree/out/certificates.crt"

for n in 1 2; do
  # What a second checkout would have: other times.
  find "$folder/tree" -exec touch --no-dereference --date="2026-01-0$n" {} +
  docker/build cpu --build-arg "BASE=$base" --build-arg "COMPILER=$base" --build-context "build=$folder/tree" \
    --iidfile "$folder/image$n" --quiet >/dev/null
done
cmp "$folder/image1" "$folder/image2" || { echo "image: two builds differ" >&2; exit 1; }
echo "image: two builds are $(cat "$folder/image1")"

container=$(buildah from localhost/verbatim)
buildah run --user 10001:10001 --env VERBATIM_LISTEN=127.0.0.1:0 --env VERBATIM_LOG__FORMAT=json "$container" -- \
  verbatim serve 2>"$folder/log" &
server=$!
cleanup() {
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  buildah rm "$container" >/dev/null || true
}
trap cleanup EXIT
address=
until [ -n "$address" ]; do
  kill -0 "$server" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
  address=$(sed -n 's/.*"message":"listening","address":"\([^"]*\)".*/\1/p' "$folder/log")
  [ -n "$address" ] || sleep 0.2
done
curl --silent --fail --retry 120 --retry-delay 1 --retry-all-errors "http://$address/readyz" >/dev/null
key=$(buildah run --user 10001:10001 "$container" -- verbatim keys create --label test 2>/dev/null)
clip=.verbatim/speech/austen_0880.wav
heard=$(curl --silent --fail-with-body --header "Authorization: Token $key" --data-binary "@$clip" "http://$address/v1/listen" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["results"]["channels"][0]["alternatives"][0]["transcript"])')
echo "image: it hears: $heard"
[ -n "$heard" ]
