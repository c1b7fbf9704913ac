#!/usr/bin/env bash
# Make the embedded model again: private environment, training, export. Usage: tools/demo_model/reproduce.sh [DIR]
# DIR (default: build/demo_model) holds the environment, the checkpoints and the result; an interrupted run goes on.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "${1:-$ROOT/build/demo_model}"
DIR=$(cd "${1:-$ROOT/build/demo_model}" && pwd)
PYTHON=${PYTHON:-python3}
STEPS=${STEPS:-9200}

# A machine that does other things besides must not make the trainer's threads wait for each other in busy loops.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export TORCHINDUCTOR_CACHE_DIR=$DIR/inductor TOKENIZERS_PARALLELISM=false

if [ ! -x "$DIR/venv/bin/python" ]; then
    "$PYTHON" -m venv "$DIR/venv"
fi
"$DIR/venv/bin/python" -m pip install --quiet --requirement "$ROOT/tools/demo_model/requirements.txt"

cd "$ROOT"
"$DIR/venv/bin/python" -m tools.demo_model.train --out "$DIR/run" --steps "$STEPS"
"$DIR/venv/bin/python" -m tools.demo_model.export --run "$DIR/run" --out "$DIR/llmd-demo.gguf"

if [ -x "$ROOT/.venv/bin/llmd" ]; then
    "$ROOT/.venv/bin/python" -m tools.demo_model.evaluate --model "$DIR/llmd-demo.gguf" --temperature 0 0.7
else
    echo "to measure it: ./build.sh setup, then" \
        ".venv/bin/python -m tools.demo_model.evaluate --model $DIR/llmd-demo.gguf"
fi
