#!/bin/bash
# A quarter of an hour on a borrowed GPU, in a bare checkout: bash benchmarks/borrowed.sh WORK OUT [RUN ...]
#
# WORK has raw/, and RUN.partition.json, RUN.train.json and RUN.evaluate.json of each run, as `python -m fedlib spec`
# prints them. OUT gets the log, each run's history.h5 and evaluation.h5, and what benchmarks.gpu writes. Runs go one after
# the other, so that some are finished when time is up: two at once do half as much again, but neither may end. Every result is
# in OUT as soon as there is one. The same command goes on with runs that were not finished, and with benchmarks.gpu, while the
# machine keeps SCRATCH; an empty SCRATCH begins again. DEVICE=cpu rehearses.
work=$1 out=$2
shift 2
device=${DEVICE:-cuda} scratch=${SCRATCH:-/tmp/borrowed} python=${PYTHON:-python3}
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore CUDA_VISIBLE_DEVICES=0
export XDG_CACHE_HOME=$scratch/cache
mkdir -p "$out" "$scratch/rates"

say() { echo "== $SECONDS s: $*"; }

run() {
  local shards=("$scratch/$1.h5" --manifest "$scratch/$1.json")
  local history=$scratch/$1.history.h5 evaluation=$scratch/$1.evaluation.h5
  [ -e "$scratch/$1.json" ] ||
    "$python" scripts/partition.py --spec "@$work/$1.partition.json" --raw "$work/raw" --shards "${shards[@]}"
  [ -e "$history" ] || # the last that a training writes
    timeout "${TRAIN_SECONDS:-170}" "$python" scripts/train.py --spec "@$work/$1.train.json" --shards "${shards[@]}" \
      --state "$scratch/$1.pt" --history "$history" --checkpoints "$scratch/$1.checkpoints" --device "$device"
  [ -e "$history" ] && cp "$history" "$out"
  [ ! -e "$history" ] || [ -e "$evaluation" ] ||
    timeout "${EVALUATE_SECONDS:-120}" "$python" scripts/evaluate.py --spec "@$work/$1.evaluate.json" \
      --shards "${shards[@]}" --state "$scratch/$1.pt" --history "$history" \
      --checkpoints "$scratch/$1.checkpoints" --device "$device" --out "$evaluation"
  [ -e "$evaluation" ] && cp "$evaluation" "$out"
  say "$1"
}

{
  "$python" -c 'import torch; print(torch.__version__, torch.cuda.is_available(), *map(torch.cuda.get_device_name, range(torch.cuda.device_count())))'
  "$python" -c 'import xdist' 2>/dev/null && side_by_side=(-n 6) # pytest alone runs one test at a time
  REAL_DEVICE=$device timeout "${TEST_SECONDS:-110}" "$python" -m pytest -v "${side_by_side[@]}" -p no:cacheprovider tests/device 2>&1 |
    grep --line-buffered -E "PASSED|FAILED|ERROR|passed|failed|No module" # at once, as there may be no time for a summary
  say "tests, which ended with ${PIPESTATUS[0]}" # 124: some were not made, for want of time
  for name in "$@"; do run "$name"; done
  cp -u "$scratch"/rates/* "$out" 2>/dev/null # answers of an earlier call
  OMP_NUM_THREADS=8 timeout 260 "$python" -m benchmarks.gpu --device "$device" --minutes "${MINUTES:-4}" --seconds 1 \
    --out "$out" $ITEMS
  cp "$out"/*.gpu.* "$scratch/rates"
  say rates
} 2>&1 | tee -a "$out/log"
