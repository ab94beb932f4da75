#!/usr/bin/env bash
# Writes the sample records anew: tests/plots/samples.sh PROGRAM (a built `moetune`, planning verbs).
# microbench.jsonl is made up (times of testbed-b's rows with 1 % of noise): measuring needs LibTorch and time.
# verified.jsonl, training.jsonl and served.jsonl are left as they are: nine runs of a `moetune tune`, two of a `moetune
# modelbench`, and a `moetune layerbench --serve`, with what the pictures read.
set -euo pipefail
PATH=$(dirname "$(readlink -f "$1")"):$PATH
cd "$(dirname "$0")/data"
find . -name "*.jsonl" ! -name verified.jsonl ! -name training.jsonl ! -name served.jsonl -delete
rm -f fitted.toml memory.json
{
  python3 -B ../made_up_microbench.py >microbench.jsonl
  moetune fit --records microbench.jsonl --name testbed-b-made-up --out fitted.toml
  moetune simulate --batch 1 --seq 64 --model-dim 4096 --hidden 16384 --schedule ds-moe,tutel,fsmoe \
    --out layer.jsonl --sweep-degrees
  moetune simulate --serve --layers 6 --batch 8 --model-dim 2048 --hidden 2048 --batches 20 --skew 1 --out serving.jsonl
  moetune tune --no-verify --grid ../grid.toml --schedule ds-moe,tutel,fsmoe --out plan.jsonl
  moetune tune --no-verify --grid ../grid_parm.toml --schedule ds-moe-replicated,parm --out parm.jsonl
  for table in monta-fig13 monta-fig14 fsmoe-fig6 fsmoe-fig7 fsmoe-fig8 lina-training; do
    moetune reproduce "$table" --out "$table.jsonl"
  done
  moetune memory --model mixtral-7b --zero 1 --json >memory.json
  moetune reproduce parm-table4 --assume parm-fsmoe --out parm-table4.jsonl
} >/dev/null
sed -i '/"comparison":""/d' parm-table4.jsonl # Table IV itself, which no script draws
sed -i 's/"machine":{[^}]*}/"machine":{}/' ./*.jsonl # the machine that ran this
