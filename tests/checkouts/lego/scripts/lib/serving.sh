# Shared by eval.sh and infer.sh; sourced, never run. Owns: the stand-in model server, started and ended with the run.

refuse_taken_port() {
    if is_port_taken "$VLLM_PORT"; then
        die "vLLM port already in use on this host: $VLLM_PORT" "set another VLLM_PORT, or end what listens there"
    fi
    echo "[Preflight] vLLM port free: $VLLM_PORT"
}

# Ends the one process that this run started, by its pid. The real one ends every server on the host, by name.
stop_server() {
    if [ -n "${server_pid:-}" ]; then
        kill "$server_pid" 2>/dev/null || true
        wait "$server_pid" 2>/dev/null || true
        echo "[vLLM] stopped"
    fi
}

start_server() {
    trap stop_server EXIT
    echo "[vLLM] starting the stand-in model server..."
    "$PYTHON_BIN" "$REPO_ROOT/stubs/model_server.py" "$VLLM_PORT" "$SERVED_MODEL_NAME" >"$VLLM_LOG" 2>&1 &
    server_pid=$!
    echo "[vLLM] PID=$server_pid"
    sleep "$TOY_BRINGUP_SEC"
    "$PYTHON_BIN" "$REPO_ROOT/stubs/model_server.py" --wait "$VLLM_PORT" "$SERVED_MODEL_NAME" "$server_pid" || {
        echo "[vLLM] process died. Its last lines:" >&2
        tail -5 "$VLLM_LOG" >&2 || true
        exit 1
    }
    echo "[vLLM] ready"
}
