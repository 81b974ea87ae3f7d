# Judges a config by its values before anything is started. Sourced by train.sh; run_preflight returns 1 on any FATAL.
# OK and SKIP go to stdout, WARN and FATAL to stderr, as in the checkout that this one imitates.

pf_fatals=0
pf_warns=0
pf_ok() { printf '  \033[32m✓ OK   \033[0m  %s\n' "$1"; }
pf_skip() { printf '  \033[36m⊘ SKIP \033[0m  %s\n' "$1"; }
pf_warn() { printf '  \033[33m⚠ WARN \033[0m  %s\n' "$1" >&2; pf_warns=$((pf_warns + 1)); }
pf_fatal() { printf '  \033[31m✗ FATAL\033[0m  %s\n' "$1" >&2; pf_fatals=$((pf_fatals + 1)); }

pf_parser() {
    case "${MODEL_PATH##*/}" in
        *[Qq]wen3.[56]*)
            if [ "$TOOL_CALL_PARSER" = qwen3_coder ]; then
                pf_ok "tool_parser=qwen3_coder fits the chat template of ${MODEL_PATH##*/}"
            else
                pf_fatal "tool_parser=$TOOL_CALL_PARSER can't read the tool calls of ${MODEL_PATH##*/}; it needs qwen3_coder"
            fi ;;
        *) pf_warn "no rule for the model '$MODEL_PATH': is tool_parser=$TOOL_CALL_PARSER the right one?" ;;
    esac
}

pf_topology() {
    local roles=$((N_NODES_TRAIN + N_NODES_ROLLOUT)) world=$((N_NODES_TRAIN * NGPUS_PER_NODE))
    if [ "$NNODES" -eq "$roles" ]; then
        pf_ok "topology adds up: NNODES=$NNODES, train $N_NODES_TRAIN and rollout $N_NODES_ROLLOUT"
    else
        pf_fatal "topology: NNODES=$NNODES, but train $N_NODES_TRAIN and rollout $N_NODES_ROLLOUT make $roles"
    fi
    if [ "$SP_SIZE" -gt 0 ] && [ $((world % SP_SIZE)) -eq 0 ]; then
        pf_ok "SP_SIZE=$SP_SIZE divides the $world training GPUs"
    else
        pf_fatal "SP_SIZE=$SP_SIZE does not divide the $world training GPUs"
    fi
}

pf_engine() {
    case "$MODEL_ENGINE:$FUSED_KERNELS" in
        veomni:[Ff]alse) pf_ok "veomni without fused kernels" ;;
        veomni:*) pf_fatal "veomni can't train with FUSED_KERNELS=$FUSED_KERNELS; set False" ;;
        *) pf_ok "engine $MODEL_ENGINE takes FUSED_KERNELS=$FUSED_KERNELS" ;;
    esac
}

pf_replay() {
    local family
    if [ "$PF_STRUCTURE_ONLY" = 1 ]; then
        pf_skip "R3 and the model: needs the checkpoint's config.json"
        return
    fi
    family=$(model_family "$MODEL_PATH")
    case "$family:$ENABLE_R3" in
        moe:True) pf_ok "R3 on, the model is a MoE" ;;
        dense:False) pf_ok "R3 off, the model is dense" ;;
        dense:True) pf_fatal "ENABLE_R3=True, but $MODEL_PATH is dense and has no routing to replay" ;;
        moe:False) pf_warn "ENABLE_R3=False on a MoE: the rollout's routing will not be replayed" ;;
        *) pf_warn "is $MODEL_PATH a MoE? ENABLE_R3=$ENABLE_R3 could not be compared with it" ;;
    esac
}

pf_rest() {
    if [ -n "$HARBOR_NYDUS_MIRROR" ]; then
        pf_ok "image mirror: $HARBOR_NYDUS_MIRROR"
    else
        pf_warn "NYDUS_MIRROR empty: a pod without egress can't pull the validation images"
    fi
    if [ "$LR_SCHEDULER" = constant ]; then
        pf_ok "lr_scheduler=constant"
    else
        pf_warn "LR_SCHEDULER=$LR_SCHEDULER with an unknown number of steps may decay to 0"
    fi
}

pf_paths() {
    local name
    if [ "$PF_STRUCTURE_ONLY" = 1 ]; then
        pf_skip "do the paths exist: structure only"
        return
    fi
    for name in MODEL_PATH TRAIN_FILES VAL_FILES K8S_KUBECONFIG; do
        if [ -e "${!name}" ]; then
            pf_ok "$name exists: ${!name}"
        else
            pf_fatal "$name path does not exist: ${!name}"
        fi
    done
}

run_preflight() {
    echo "───────────────────────── preflight config check ─────────────────────────"
    pf_parser
    pf_topology
    pf_engine
    pf_replay
    pf_rest
    pf_paths
    echo "──────────────────────────────────────────────────────────────────────"
    if [ "$pf_fatals" -gt 0 ]; then
        printf '\033[31m[preflight] %d FATAL, %d WARN — this config will not be launched.\033[0m\n' "$pf_fatals" "$pf_warns" >&2
        return 1
    fi
    printf '\033[32m[preflight] nothing fatal (%d WARN).\033[0m\n' "$pf_warns"
}
