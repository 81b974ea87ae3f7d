#!/usr/bin/env bash
# The toy's evaluation runner: a stand-in model server, and stand-in trials that only print lines.
# Like the real one it prints the environment with NOTHING redacted, and has no preflight and no ruled block.
#
# Knobs, in the config or the environment:
#   TOY_BRINGUP_SEC=1    before the server is asked for its model
#   TOY_TRIALS=3         how many trials, TOY_TRIAL_SEC=0.5 seconds each
set -euo pipefail

DRY_RUN=0
if [ "${1:-}" = --dry-run ]; then
    DRY_RUN=1
    shift
fi
if [ $# -ne 1 ]; then
    echo "Usage: scripts/eval/eval.sh [--dry-run] CONFIG" >&2
    exit 2
fi
REPO_ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
TEMPLATE_ROOT=$REPO_ROOT/scripts/templates
case "$1" in
    /*) CONFIG_PATH=$1 ;;
    *) CONFIG_PATH=$(readlink -f "$1") ;;
esac
export REPO_ROOT TEMPLATE_ROOT CONFIG_PATH DRY_RUN
# shellcheck source=../lib/runner.sh
. "$REPO_ROOT/scripts/lib/runner.sh"
# shellcheck source=../lib/serving.sh
. "$REPO_ROOT/scripts/lib/serving.sh"
[ -f "$CONFIG_PATH" ] || die "config not found: $CONFIG_PATH"

print_summary() {
    echo "=== Launching Harbor eval ==="
    echo "project:       $PROJECT_NAME"
    echo "experiment:    $EXP_NAME"
    echo "templates:     ${TEMPLATE_MODULES[*]}"
    echo "model:         $MODEL_PATH"
    echo "dataset:       ${DATASET_PATH:-$DATASET_NAME}"
    echo "n_tasks:       ${N_TASKS:-<all>}"
    echo "concurrent:    $N_CONCURRENT"
    echo "max retries:   $MAX_RETRIES"
    echo "temperature:   $EVAL_TEMPERATURE"
    echo "context:       in=$MAX_INPUT_TOKENS out=$MAX_OUTPUT_TOKENS model_len=$MAX_MODEL_LEN"
    echo "tool parser:   $TOOL_CALL_PARSER"
    echo "vLLM topo:     tp=$GEN_TP expert_parallel=$EVAL_ENABLE_EXPERT_PARALLEL"
    echo "vLLM serve:    bind=$VLLM_BIND_HOST:$VLLM_PORT api=$API_BASE"
    echo "eval log:      $EVAL_LOG"
    echo "vLLM log:      $VLLM_LOG"
    echo "job config:    $JOB_CFG"
}

load_config
need PROJECT_NAME EXP_NAME MODEL_PATH VENV_PATH EVAL_LOG VLLM_LOG VLLM_PORT
find_python
echo "[config] $CONFIG_PATH"
echo "[python] $PYTHON_BIN (Python $PYTHON_VERSION)"
echo "[vllm]   $REPO_ROOT/stubs/model_server.py"
echo "[harbor] $REPO_ROOT/stubs/bin/harbor"
print_summary
list_environment no

serve=(env -u MODELING_BACKEND vllm serve "$MODEL_PATH" --served-model-name "$SERVED_MODEL_NAME"
    --tensor-parallel-size "$GEN_TP" --port "$VLLM_PORT" --host "$VLLM_BIND_HOST" --max-model-len "$MAX_MODEL_LEN"
    --gpu-memory-utilization "$GPU_MEM_UTIL" --enable-auto-tool-choice --tool-call-parser "$TOOL_CALL_PARSER")
trials=(run --config "$JOB_CFG" --job-name "$EXP_NAME" --jobs-dir "$EVAL_JOBS_DIR"
    --n-concurrent "$N_CONCURRENT" --max-retries "$MAX_RETRIES")
echo "=== vLLM Command ==="
quote_line "${serve[@]}"
echo "=== Harbor Command ==="
quote_line harbor "${trials[@]}"
if [ "$DRY_RUN" = 1 ]; then
    echo "[dry-run] not launching"
    exit 0
fi

mkdir -p "$EVAL_LOG_DIR"
echo '{"toy": true}' >"$JOB_CFG"
refuse_taken_port
start_server
"$PYTHON_BIN" "$REPO_ROOT/stubs/bin/harbor" "${trials[@]}" 2>&1 | tee "$EVAL_LOG"
echo "=== Evaluation complete ==="
