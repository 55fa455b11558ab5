#!/usr/bin/env bash
# The hour on a GPU, step by step: each measure under its own time limit, and in FOLDER/day.json as soon as it ends.
#
#     benches/gpu/day.sh [--out FOLDER] [--part 1|2] [--steps '4 5'] [--device cuda:0|cpu] [--seconds 580]
#                        [--binary VERBATIM] [--tests TEST_BINARY] [--rehearse]
#
# Run again, it goes on with what is not done. A measure that fails is recorded with the end of its output, and the next
# one follows. --seconds: no measure is begun that could end later; the steps of each part fit. --rehearse goes through all
# steps on a machine without a GPU, with tiny shapes: it fails where a measure fails, and where one is absent that need
# not be. The exit status is 0 if no measure failed.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
benches=$(dirname "$here")
out=gpu-day parts='1 2' steps='' device=cuda:0 seconds=580 rehearse='' binary='' tests=''
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit "$1"; }
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=${2:?}; shift ;;
    --part) parts=${2:?}; shift ;;
    --steps) steps=${2:?}; shift ;;
    --device) device=${2:?}; shift ;;
    --seconds) seconds=${2:?}; shift ;;
    --binary) binary=${2:?}; shift ;;
    --tests) tests=${2:?}; shift ;;
    --rehearse) rehearse=1 device=cpu ;;
    --help) usage 0 ;;
    *) usage 2 >&2 ;;
  esac
  shift
done
if [ -z "$steps" ]; then
  case $parts in *1*) steps='1 2 3' ;; esac
  case $parts in *2*) steps="$steps 4 5 6 7" ;; esac
fi

mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
day=$out/day.json log=$out/last.log result=$out/last.json
python=${PYTHON:-python3}
export PYTHONPATH=$benches${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Of 400 streams and a thousand requests, each holds a file on either side.
ulimit -Sn "$(ulimit -Hn)"
export LC_ALL=C.UTF-8
# No proxy stands between the server and the clients here.
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

# A program out of the pack, unless one is named.
program() {
  local packed=$here/../../bin/$1
  if [ ! -x "$packed" ] && [ -f "$packed.xz" ]; then
    "$python" -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' \
      "$packed.xz" "$packed.part" && chmod +x "$packed.part" && mv "$packed.part" "$packed"
  fi
  echo "$packed"
}
[ -n "$binary" ] || binary=$(program verbatim)
[ -n "$tests" ] || tests=$(program verbatim-tests)
for file in "$binary" "$tests"; do
  [ -x "$file" ] || { echo "day.sh: $file is no program: pack makes it, or name one" >&2; exit 2; }
done
[ -d "$here/../../models" ] && export VERBATIM_MODEL_DIR=${VERBATIM_MODEL_DIR:-$here/../../models}

# The libraries of Python's torch, in the loader's search path: libtorch's folder, and CUDA's.
libraries=$("$python" - <<'PYTHON'
import importlib.util
from pathlib import Path

found = importlib.util.find_spec("torch")
if found and found.submodule_search_locations:
    torch = Path(found.submodule_search_locations[0])
    folders = [torch / "lib", torch.parent / "nvidia/cu13/lib", *torch.parent.glob("nvidia/cud*/lib")]
    print(":".join(str(folder) for folder in folders if folder.is_dir()))
PYTHON
)
if [ -z "$rehearse" ] && [ -z "$libraries" ]; then
  echo "day.sh: $python has no torch, whose libraries are needed" >&2
  exit 2
fi
# The program asks the loader for these two by names without a version first, and Python's torch has none: a toolkit for
# CUDA 12 in the loader's cache would answer. Links that the loader finds before it lead to the right ones.
links=$out/links
mkdir -p "$links" || exit 2
IFS=: read -ra folders <<<"$libraries"
for name in libnvrtc.so libcublasLt.so; do
  for folder in "${folders[@]}"; do
    [ -e "$folder/$name.13" ] && ln -sfn "$folder/$name.13" "$links/$name" && break
  done
done
# A rehearsal uses the libraries that the program was linked with, or those of the environment.
[ -n "$rehearse" ] || export LD_LIBRARY_PATH=$links:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

index=0
case $device in cuda:*) index=${device#cuda:} ;; esac
case $device in cuda*) torch_device=cuda ;; *) torch_device=cpu ;; esac
begun=$SECONDS planned=() unbegun=0

# measure STEP NAME SECONDS COMMAND …   The command writes its JSON to $result.
measure() {
  local step=$1 name=$2 limit=$3 at=$EPOCHREALTIME status=0
  shift 3
  planned+=("$step $name")
  case " $steps " in *" $step "*) ;; *) return ;; esac
  if "$python" "$here/record.py" "$day" 'done' "$name"; then
    echo "$step. $name: done before"
    return
  fi
  if [ $((SECONDS - begun + limit)) -gt "$seconds" ]; then
    echo "$step. $name: not begun, as it may take $limit s"
    unbegun=$((unbegun + 1))
    return
  fi
  echo "$step. $name (at most $limit s)"
  rm -f "$result"
  timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
  "$python" "$here/record.py" "$day" add "$name" --step "$step" --exit "$status" --limit "$limit" --log "$log" \
    --seconds "$("$python" -c 'import sys; print(float(sys.argv[2]) - float(sys.argv[1]))' "$at" "$EPOCHREALTIME")" \
    --result "$result" --command="$*"
}

# ours MODEL TOKENS SLOTS SECONDS [KIND]   Random weights. TOKENS may be mlperf; KIND is one of words, stages, alone, fp8.
ours() {
  local model=$1 tokens=$2 slots=$3 limit=$4 kind=${5:-} settings=() arguments=(--tokens "$2")
  case $kind in
    words) arguments+=(--word-times) ;;
    stages) arguments+=(--stages) ;;
    alone) arguments+=(--windows "$alone" --concurrency 1) ;;
    fp8) settings+=(VERBATIM_MODELS__AUDIO_CACHE=fp8) ;;
  esac
  [ "$tokens" = mlperf ] && arguments=(--protocol mlperf)
  [ "$kind" = alone ] || arguments+=("${few[@]}")
  measure 3 "$model, $tokens tokens, $slots slots${kind:+, $kind}" "$limit" env "${settings[@]}" \
    "$binary" bench --synthetic "$model" --slots "$slots" --device "$device" --json "$result" "${arguments[@]}"
}

# peer KIND MODEL TOKENS SECONDS   Batches grow for as long as they gain and the time lasts.
peer() {
  measure 4 "$1, $2, $3 tokens" "$4" "$python" "$benches/peers/synthetic.py" --kinds "$1" --model "$2" --tokens "$3" \
    --batches "$batches" --device "$torch_device" --rounds "$rounds" --seconds $(($4 - 10)) --json "$result"
}

# sanitized TOOL WHAT SECONDS ARGUMENT …   The arguments choose tests.
sanitized() {
  local tool=$1 what=$2 limit=$3
  shift 3
  measure 5 "$tool, $what" "$limit" env VERBATIM_TEST_GPU=only "$python" "$here/sanitizer.py" "$tool" --json "$result" \
    -- "$tests" --test-threads=1 "$@"
}

# load MODEL SECONDS ARGUMENT …
load() {
  local model=$1 limit=$2
  shift 2
  measure 6 "load, $model" "$limit" "$python" "$here/load.py" --binary "$binary" --json "$result" "$@" \
    -- --model "synthetic:$model" --tokens 64 --device "$device"
}

# soak MODEL SECONDS CALLERS STREAMS   Shorter where less time is left; the server may take half a minute to start.
soak() {
  local long=$2 left=$((seconds - (SECONDS - begun) - 42)) gpu=()
  [ "$left" -lt "$long" ] && [ "$left" -ge 60 ] && long=$left
  [ "$torch_device" = cuda ] && gpu=(--gpu "$index")
  measure 7 "soak, $1" $((long + 40)) "$python" "$here/soak.py" --binary "$binary" --json "$result" --seconds "$long" \
    --callers "$3" --streams "$4" "${gpu[@]}" -- --model "synthetic:$1" --tokens 64 --device "$device"
}

note() { "$python" "$here/record.py" "$day" note "$1" "$2"; }
# Figures of two commits or two GPUs do not belong in one record.
same() {
  local noted
  noted=$("$python" "$here/record.py" "$day" noted "$1")
  if [ -n "$noted" ] && [ "$noted" != "$2" ]; then
    echo "day.sh: $out is of $1 $noted, and this is $2: name another --out" >&2
    exit 2
  fi
  note "$1" "$2"
}
same commit "$(cat "$here/../../commit" 2>/dev/null || git -C "$here" rev-parse HEAD 2>/dev/null || echo unknown)"
same gpu "$(nvidia-smi --id="$index" --query-gpu=name --format=csv,noheader 2>/dev/null || echo none)"
same device "$device"
note rehearsal "${rehearse:+yes}"

if [ -n "$rehearse" ]; then
  few=(--windows 3) alone=2 batches=1 rounds=1
  measure 1 'fake driver' 30 "$python" "$here/fake_driver.py" --binary "$binary" --json "$result" --keep "$out/driver"
  measure 1 preflight 20 env LD_LIBRARY_PATH="$out/driver" "$python" "$here/preflight.py" --rehearse --json "$result"
  measure 2 'kernels' 60 "$python" "$here/tests.py" "$tests" --json "$result" cuda::tests:: features::device:: \
    --skip kernels_compile_for_every_architecture --skip compiled_kernels_are_kept
  ours tiny mlperf 2 30
  ours tiny 8 2 30
  for kind in words stages alone fp8; do ours tiny 8 2 30 "$kind"; done
  peer loop tiny 4 30
  peer transformers tiny 4 30
  sanitized memcheck kernels 30 cuda::tests::embeddings
  load tiny 60 --seconds 2 --callers 2 --streams 2
  soak tiny 2 1 1
else
  few=() alone=30
  # Part 1, of ten minutes: 40 s.
  measure 1 preflight 60 "$python" "$here/preflight.py" --device "$index" --json "$result"
  # The first start compiles the kernels.
  measure 1 'first start' 60 "$binary" bench --synthetic tiny --device "$device" --tokens 20 --windows 64 --json "$result"
  # 100 s. Tests with a GPU and an emulation beside each other take the GPU alone.
  measure 2 kernels 60 "$python" "$here/tests.py" "$tests" --json "$result" --only-on-gpu cuda:: features::device::
  measure 2 decoder 120 "$python" "$here/tests.py" "$tests" --json "$result" --only-on-gpu whisper::backend:: \
    whisper::decoder:: whisper::encoder::
  # 430 s: 15 to 20 s each, of which half is loading, and 40 s of MLPerf's 1,633 windows; the goals first.
  ours large-v3 mlperf 64 90
  ours large-v3-turbo 100 64 45
  ours large-v3 100 64 60
  for kind in stages words; do
    ours large-v3-turbo 100 64 45 "$kind"
    ours large-v3 100 64 60 "$kind"
  done
  ours large-v3-turbo 100 64 45 alone
  ours large-v3 100 64 45 alone
  ours large-v3 mlperf 128 90
  ours large-v3 100 128 60
  ours large-v3-turbo 100 128 45
  ours large-v3-turbo 100 64 45 fp8
  ours large-v3 100 64 60 fp8
  for tokens in 64 150 20-220; do
    ours large-v3-turbo "$tokens" 64 45
    ours large-v3 "$tokens" 64 60
  done
  ours large-v3-turbo mlperf 64 45
  ours large-v3-turbo 100 32 45
  ours large-v3 100 32 60
  # Part 2, of ten minutes: 120 s. transformers launches kernels one by one: some seconds for each batch, of any size.
  batches=32,64,128,256 rounds=2
  peer loop large-v3 100 30
  peer loop large-v3-turbo 100 30
  batches=64,128,256 rounds=1
  peer transformers large-v3-turbo 100 50
  peer transformers large-v3 100 50
  # 80 s. Products are cuBLASLt's kernels.
  sanitized memcheck kernels 45 cuda::tests:: --skip compile
  sanitized racecheck kernels 45 cuda::tests:: --skip compile --skip products
  sanitized synccheck kernels 30 cuda::tests:: --skip compile --skip products
  sanitized initcheck kernels 30 cuda::tests:: --skip compile --skip products
  sanitized memcheck choices 60 choice_tests::tokens_are_chosen features::device::
  # 90 s.
  load large-v3-turbo 120 --seconds 8
  # The rest: five minutes.
  soak large-v3-turbo 300 32 100
fi

note plan "$(printf '%s\n' "${planned[@]}")"
rm -f "$log" "$result"
"$python" "$here/report.py" "$out" >"$out/report.md" || { echo "day.sh: report.py failed" >&2; exit 1; }
echo "$out/day.json, $out/report.md"
"$python" "$here/record.py" "$day" summary || exit 1
[ -z "$rehearse" ] || [ "$unbegun" = 0 ] || { echo "day.sh: $unbegun measures did not fit in $seconds s" >&2; exit 1; }
