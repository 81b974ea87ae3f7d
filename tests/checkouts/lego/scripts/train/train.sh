#!/usr/bin/env bash
# The toy's training runner. It prints what a real one prints, and starts a stand-in trainer that only writes step lines.
#
# Knobs, in the config or the environment:
#   TOY_BRINGUP_SEC=1    between "[HEAD] starting ray head" (or "[WORKER] waiting") and what comes next
#   TOY_STEPS=3          how many step lines (12 of a sick run), TOY_STEP_SEC=0.5 seconds each
#   TOY_TEST_FREQ=       a validation at step 0 and every so many steps; else every TRAINER_TEST_FREQ, and at 0 only where
#                        TRAINER_VAL_BEFORE_TRAIN=True
#   TOY_SICK=            how the run falls sick, a comma list. In its numbers: pearson, lr, reward (no reward, no turns), val (its
#                        validations are all zero), starve (tiny gradients, long responses), avalanche (env_setup_failed climbs),
#                        collapse (turns fall toward 1), nan, slow (the seconds it tells; it does not sleep longer). Before a
#                        step: stall (silent for ever), restart (the steps fall back, once), oom, nccl, trace (exit 1, as their
#                        words have it), kill (SIGKILL in the middle of a line), early (exit 0)
#   TOY_SICK_AT=         the step from which it is so: else 0 for val, 1 for pearson, lr and reward, 4 for the rest
#   TOY_BAD=             the same words as TOY_SICK, always from step 1
#   TOY_FAIL_AT=0        a traceback after that step; TOY_FAIL_EXIT=1 is the status then
#   TOY_SAVE_EVERY=0     writes a checkpoint folder every so many steps
#   TOY_SILENT_SEC=0     the launch prints nothing, lives that long and ends 0
#   TOY_SILENT_EXIT=0    the launch ends 2 without a word after "[shm] after cleanup:"
#   TOY_RAY=0            of several nodes: starts a real Ray, as the real one does, with the `ray` of the virtual environment or on PATH
#   TOY_JOIN_SEC=300     how long the head then waits for the others, with a look every TOY_LOOK_SEC=5; a worker tries the head's
#                        port 30 times, TOY_TRY_SEC=2 apart
#   TOY_NOTE=            any text; becomes one more argument of the launch command
set -euo pipefail

DRY_RUN=0
PREFLIGHT_ONLY=${PREFLIGHT_ONLY:-0}
PF_STRUCTURE_ONLY=${PF_STRUCTURE_ONLY:-0}
while [ $# -gt 0 ]; do
    case "$1" in
        --dry-run) DRY_RUN=1 ;;
        --preflight-only) PREFLIGHT_ONLY=1 ;;
        --structure-only) PF_STRUCTURE_ONLY=1 ;;
        *) break ;;
    esac
    shift
done
[ "$PF_STRUCTURE_ONLY" != 1 ] || PREFLIGHT_ONLY=1
if [ $# -ne 1 ]; then
    echo "Usage: scripts/train/train.sh [--dry-run|--preflight-only|--structure-only] CONFIG" >&2
    exit 2
fi

REPO_ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
TEMPLATE_ROOT=$REPO_ROOT/scripts/templates
case "$1" in
    /*) CONFIG_PATH=$1 ;;
    *) CONFIG_PATH=$(readlink -f "$1") ;;
esac
export REPO_ROOT TEMPLATE_ROOT CONFIG_PATH DRY_RUN PREFLIGHT_ONLY PF_STRUCTURE_ONLY
# shellcheck source=../lib/runner.sh
. "$REPO_ROOT/scripts/lib/runner.sh"
# shellcheck source=../lib/preflight.sh
. "$REPO_ROOT/scripts/lib/preflight.sh"
[ -f "$CONFIG_PATH" ] || die "config not found: $CONFIG_PATH"

is_launch() { [ "$DRY_RUN" != 1 ] && [ "$PREFLIGHT_ONLY" != 1 ]; }

print_head() {
    echo "[config] $CONFIG_PATH"
    echo "[python] $PYTHON_BIN (Python $PYTHON_VERSION)"
    echo "[verl]   ${VERL_ORIGIN:-<not found>}"
}

print_summary() {
    echo "=== Launching Harbor verl training ==="
    echo "project:       $project_name"
    echo "experiment:    $exp_name"
    echo "mode/engine:   $TRAINING_MODE/$MODEL_ENGINE"
    echo "templates:     ${TEMPLATE_MODULES[*]}"
    echo "train log:     $TRAIN_LOG"
    echo "vLLM log:      $VLLM_LOG"
}

row() { printf '  %-12s %s\n' "$1" "$2"; }

print_block() {
    local family nodes shape
    family=$(model_family "$MODEL_PATH")
    if [ "$TRAINING_MODE" = sync ]; then
        nodes=$NNODES
        shape="(colocated)"
    else
        nodes=$N_NODES_TRAIN
        shape="= train $N_NODES_TRAIN / rollout $N_NODES_ROLLOUT"
    fi
    printf '\n═════════════════════ run configuration (train) ═════════════════════\n'
    row config "$CONFIG_PATH"
    row experiment "project=$project_name  exp=$exp_name"
    row axes "mode=$TRAINING_MODE engine=$MODEL_ENGINE scaffold=$SCAFFOLD backend=$BACKEND"
    row model "$MODEL_PATH  [$family]"
    row "" "served=$SERVED_MODEL_NAME  tool_parser=$TOOL_CALL_PARSER"
    row data "train=$TRAIN_FILES"
    row "" "val  =$VAL_FILES"
    row topology "$NNODES nodes × $NGPUS_PER_NODE gpu $shape  SP=$SP_SIZE → dp=$((nodes * NGPUS_PER_NODE / SP_SIZE))  vllm_TP=$GEN_TP"
    row batch "$TRAIN_BSZ prompts × $N_RESP resp = $((TRAIN_BSZ * N_RESP)) trials/step  mini=$TRAIN_MINI_BSZ  dynamic_bsz=$USE_DYNAMIC_BSZ"
    row context "prompt=$MAX_PROMPT + resp=$MAX_RESP = $((MAX_PROMPT + MAX_RESP))"
    row algorithm "$ADV_ESTIMATOR  lr=$ACTOR_LR  lr_sched=$LR_SCHEDULER  kl_loss_coef=$KL_LOSS_COEF"
    row rollout "temp=$TEMPERATURE top_p=$TOP_P  val_temp=$VAL_TEMPERATURE  val_n=$VAL_N"
    row "" "R3=$ENABLE_R3 (model is $family)  rollout_is=$ROLLOUT_IS  max_num_seqs=${ROLLOUT_MAX_NUM_SEQS:-<verl default>}"
    row schedule "save_freq=$TRAINER_SAVE_FREQ  test_freq=$TRAINER_TEST_FREQ  val_before_train=$TRAINER_VAL_BEFORE_TRAIN  epochs=$TOTAL_EPOCHS"
    row logs "train=$TRAIN_LOG"
    row "" "trials=$HARBOR_TRIALS_DIR"
    printf '══════════════════════════════════════════════════════════════════════\n\n'
}

build_command() {
    launch=(
        "$PYTHON_BIN" -m "$VERL_ENTRY_MODULE"
        "--config-name=$VERL_CONFIG_NAME" "--config-path=$REPO_ROOT/src/verl_patch/config"
        "model_engine=$MODEL_ENGINE"
        "actor_rollout_ref.actor.optim.lr=$ACTOR_LR"
        "actor_rollout_ref.actor.kl_loss_coef=$KL_LOSS_COEF"
        "actor_rollout_ref.model.path=$MODEL_PATH"
        "actor_rollout_ref.rollout.n=$N_RESP"
        "actor_rollout_ref.rollout.tensor_model_parallel_size=$GEN_TP"
        "algorithm.adv_estimator=$ADV_ESTIMATOR"
        "data.max_prompt_length=$MAX_PROMPT"
        "data.max_response_length=$MAX_RESP"
        "data.train_files=$TRAIN_FILES"
        "data.val_files=$VAL_FILES"
        "trainer.experiment_name=$exp_name"
        "trainer.logger=$TRAINER_LOGGER"
        "trainer.n_gpus_per_node=$NGPUS_PER_NODE"
        "trainer.nnodes=$NNODES"
        "trainer.project_name=$project_name"
        "trainer.save_freq=$TRAINER_SAVE_FREQ"
        "trainer.total_epochs=$TOTAL_EPOCHS"
    )
    [ -z "$TOY_NOTE" ] || launch+=("+trainer.note=$TOY_NOTE")
}

# The real one ends processes and clears shared memory here. This one only says the lines around it.
say_cleanup() {
    echo "[shm] before cleanup:"
    df -h /dev/shm 2>/dev/null || true
    echo "[shm] after cleanup:"
    df -h /dev/shm 2>/dev/null || true
    # The real one dies here where getent does not know the host's address: pipefail, status 2, not a word.
    [ "$TOY_SILENT_EXIT" != 1 ] || exit 2
}

# A name is looked up, an address is not: that would ask a name server.
find_head() {
    IP_LOCAL=""
    read -r IP_LOCAL _ < <(hostname -I 2>/dev/null) || true
    : "${IP_LOCAL:=127.0.0.1}"
    : "${MASTER_ADDR:=$IP_LOCAL}"
    IP_HEAD=$MASTER_ADDR
    case "$MASTER_ADDR" in
        *:*) ;;
        *[!0-9.]*) read -r IP_HEAD _ < <(getent hosts "$MASTER_ADDR" 2>/dev/null) || IP_HEAD=$MASTER_ADDR ;;
    esac
    export IP_LOCAL MASTER_ADDR IP_HEAD
    echo "HEAD=$IP_HEAD  MASTER_ADDR=$MASTER_ADDR  LOCAL=$IP_LOCAL  NNODES=$NNODES"
}

# A small one: it is to be joined, not to be worked with. The stand-ins would hide its package.
call_ray() {
    env -u PYTHONPATH RAY_enable_metrics_collection=0 RAY_num_prestart_python_workers=0 RAY_prestart_worker_first_driver=0 ray "$@"
}

start_ray() {
    local up=0 looked=0
    local small=(--object-store-memory=80000000 --num-cpus=1 --num-gpus="$NGPUS_PER_NODE" --disable-usage-stats)
    if [ "$IP_LOCAL" = "$IP_HEAD" ]; then
        echo "[HEAD] starting ray head"
        call_ray start --head --node-ip-address="$IP_HEAD" --port="$RAY_PORT" --include-dashboard=false "${small[@]}"
        while :; do
            up=$(call_ray status 2>/dev/null | grep -c "node_" || true)
            [ "$up" -lt "$NNODES" ] && [ "$looked" -lt "${TOY_JOIN_SEC:-300}" ] || break
            sleep "${TOY_LOOK_SEC:-5}"
            looked=$((looked + ${TOY_LOOK_SEC:-5}))
        done
        if [ "$up" -lt "$NNODES" ]; then
            echo "[FATAL] only ${up}/${NNODES} nodes joined the ray cluster after ${TOY_JOIN_SEC:-300}s." >&2
            echo "[FATAL] every node must run this script with MASTER_ADDR=${IP_HEAD};" >&2
            echo "[FATAL] check that missing nodes can reach ${IP_HEAD}:${RAY_PORT}." >&2
            call_ray status || true
            # It ends every Ray that it sees: only where that is a test's own table of processes.
            ! grep -qa e2e /proc/1/cmdline || call_ray stop --force >/dev/null 2>&1 || true
            exit 1
        fi
        call_ray status || true
        return 0
    fi
    echo "[WORKER] waiting for head $IP_HEAD:$RAY_PORT"
    for _ in $(seq 1 30); do
        "$PYTHON_BIN" -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)' "$IP_HEAD" "$RAY_PORT" \
            >/dev/null 2>&1 && break
        sleep "${TOY_TRY_SEC:-2}"
    done
    call_ray start --address="$IP_HEAD:$RAY_PORT" "${small[@]}"
    echo "[WORKER] joined; head drives training. exiting worker script."
    exit 0
}

bring_up() {
    say_cleanup
    find_head
    if [ "${TOY_RAY:-0}" = 1 ] && [ "$NNODES" -gt 1 ]; then
        start_ray
        return 0
    fi
    if [ "$IP_LOCAL" != "$IP_HEAD" ]; then
        echo "[WORKER] waiting for head $IP_HEAD:$RAY_PORT"
        sleep "$TOY_BRINGUP_SEC"
        echo "[WORKER] joined; head drives training. exiting worker script."
        exit 0
    fi
    echo "[HEAD] starting ray head"
    sleep "$TOY_BRINGUP_SEC"
}

load_config
if is_launch && [ "${TOY_SILENT_SEC:-0}" != 0 ]; then
    sleep "$TOY_SILENT_SEC"
    exit 0
fi
need PROJECT_NAME EXP_NAME MODEL_PATH TRAIN_FILES VAL_FILES VENV_PATH HARBOR_LOG_DIR NNODES NGPUS_PER_NODE \
    RAY_PORT RAY_DASHBOARD_PORT SERVED_MODEL_NAME TOOL_CALL_PARSER TRAIN_LOG VLLM_LOG
project_name=$PROJECT_NAME
exp_name=$EXP_NAME
export project_name exp_name LEGO_RL_ROOT="$REPO_ROOT"

find_python
print_head
if [ "$DRY_RUN" != 1 ]; then
    "$PYTHON_BIN" -c 'import veomni' 2>/dev/null || die "'veomni' not importable under $PYTHON_BIN"
    mkdir -p "$HARBOR_LOG_DIR"
fi
print_summary
list_environment yes
print_block
run_preflight || die "preflight failed — not launching."
if [ "$PREFLIGHT_ONLY" = 1 ]; then
    if [ "$PF_STRUCTURE_ONLY" = 1 ]; then
        echo "[structure-only] the config holds together; not launching."
    else
        echo "[preflight-only] the checks passed; not launching."
    fi
    exit 0
fi

build_command
echo "=== Launch Command ==="
quote_line "${launch[@]}"
if [ "$DRY_RUN" = 1 ]; then
    echo "[dry-run] not launching"
    exit 0
fi

# An operator's PYTHONPATH may hold the real verl. The toy must never start that one.
case "$VERL_ORIGIN" in
    "$REPO_ROOT"/*) ;;
    *) die "verl is ${VERL_ORIGIN:-missing}, not this checkout's stand-in" ;;
esac
case "$VLLM_LOG" in
    "$HARBOR_LOG_DIR"/*) rm -f "$VLLM_LOG" ;;
esac
bring_up

{
    "${launch[@]}"
} 2>&1 | tee "$TRAIN_LOG" >(grep --line-buffered -E "tokens/s" >>"$VLLM_LOG")
