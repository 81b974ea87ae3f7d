#!/usr/bin/env bash
# The toy's inference runner: a stand-in model server, and stand-in trials that only print lines.
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
    echo "Usage: scripts/infer/infer.sh [--dry-run] CONFIG" >&2
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
    echo "=== Launching Harbor infer ==="
    echo "project:       $PROJECT_NAME"
    echo "experiment:    $EXP_NAME"
    echo "templates:     ${TEMPLATE_MODULES[*]}"
    echo "model:         $MODEL_PATH"
    echo "index:         $INDEX_FILE"
    echo "instances:     ${INSTANCES_FILE:-<all>}"
    echo "results:       $RESULTS_DIR"
    echo "output index:  $OUTPUT_INDEX"
    echo "trials:        $N_TRIALS"
    echo "concurrent:    $N_CONCURRENT"
    echo "temperature:   $TEMPERATURE"
    echo "tool parser:   $TOOL_CALL_PARSER"
    echo "vLLM topo:     tp=$GEN_TP"
    echo "vLLM serve:    bind=$VLLM_BIND_HOST:$VLLM_PORT api=$API_BASE"
    echo "infer log:     $INFER_LOG"
    echo "vLLM log:      $VLLM_LOG"
}

load_config
need PROJECT_NAME EXP_NAME MODEL_PATH VENV_PATH INDEX_FILE RESULTS_DIR OUTPUT_INDEX INFER_LOG VLLM_LOG VLLM_PORT
find_python
echo "[config] $CONFIG_PATH"
echo "[python] $PYTHON_BIN (Python $PYTHON_VERSION)"
echo "[vllm]   $REPO_ROOT/stubs/model_server.py"
print_summary
list_environment no

serve=(vllm serve "$MODEL_PATH" --served-model-name "$SERVED_MODEL_NAME" --tensor-parallel-size "$GEN_TP"
    --max-model-len "$VLLM_MAX_MODEL_LEN" --gpu-memory-utilization "$GPU_MEM_UTIL" --port "$VLLM_PORT"
    --host "$VLLM_BIND_HOST" --enable-auto-tool-choice --tool-call-parser "$TOOL_CALL_PARSER")
infer=("$PYTHON_BIN" "$REPO_ROOT/utils/eval_swerebench_filtered.py" --index "$INDEX_FILE" --results-dir "$RESULTS_DIR"
    --output-index "$OUTPUT_INDEX" --api-base "$API_BASE" --model-name "hosted_vllm/$SERVED_MODEL_NAME"
    --temperature "$TEMPERATURE" --n-trials "$N_TRIALS" --n-concurrent "$N_CONCURRENT")
[ -z "${INSTANCES_FILE:-}" ] || infer+=(--instances "$INSTANCES_FILE")
echo "=== vLLM Command ==="
quote_line "${serve[@]}"
echo "=== Infer Command ==="
quote_line "${infer[@]}"
if [ "$DRY_RUN" = 1 ]; then
    echo "[dry-run] not launching"
    exit 0
fi

mkdir -p "$INFER_LOG_DIR"
refuse_taken_port
start_server
echo "[Infer] starting rollout..."
"${infer[@]}" 2>&1 | tee "$INFER_LOG"
echo "=== Inference complete ==="
