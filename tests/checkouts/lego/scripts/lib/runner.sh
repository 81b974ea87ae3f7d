# Shared by the three runners; sourced, never run. Owns: config and templates, the interpreter, the environment listing.

die() {
    local line
    for line in "$@"; do printf '[FATAL] %s\n' "$line" >&2; done
    exit 1
}

# A config is code: it runs here, with every assignment exported, before the templates fill in what it left open.
load_config() {
    local module file
    set -a
    # shellcheck disable=SC1090
    . "$CONFIG_PATH"
    set +a
    declare -p TEMPLATE_MODULES >/dev/null 2>&1 || die "config must define TEMPLATE_MODULES"
    for module in "${TEMPLATE_MODULES[@]}"; do
        case "$module" in
            /*) file=$module ;;
            *) file=$TEMPLATE_ROOT/$module ;;
        esac
        [ -f "$file" ] || die "template module not found: $file"
        set -a
        # shellcheck disable=SC1090
        . "$file"
        set +a
    done
}

need() {
    local name
    for name in "$@"; do
        [ -n "${!name:-}" ] || die "$name is required after sourcing config/templates"
    done
}

# One call tells path, version and where verl is: three calls would triple the time of a dry run.
find_python() {
    local candidate found
    # The operator's entries stay in front, as with the real runner.
    export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$REPO_ROOT/src:$REPO_ROOT/stubs"
    if [ -f "$VENV_PATH/bin/activate" ]; then
        # shellcheck disable=SC1091
        . "$VENV_PATH/bin/activate"
    fi
    for candidate in "$VENV_PATH/bin/python3" python3 /usr/bin/python3; do
        found=$("$candidate" -c '
import sys, importlib.util
spec = importlib.util.find_spec("verl")
print("\n".join((sys.executable, sys.version.split()[0], (spec.origin or "") if spec else "")))
' 2>/dev/null) || continue
        { IFS= read -r PYTHON_BIN; IFS= read -r PYTHON_VERSION; IFS= read -r VERL_ORIGIN || true; } <<<"$found"
        export PYTHON_BIN VENV_PATH
        export -n PYTHON_VERSION VERL_ORIGIN
        return 0
    done
    die "no usable python3 found"
}

# Lines are sorted one by one, so a value with a newline falls apart here. So it does in the real listing.
list_environment() {
    local redact=$1 row name value
    echo "=== Final Environment ==="
    env | LC_ALL=C sort | while IFS= read -r row; do
        name=${row%%=*}
        value=${row#*=}
        if [ "$redact" = yes ] && [ -n "$value" ] && [[ $name =~ API_KEY|SECRET|PASSW(OR)?D|CREDENTIAL ]]; then
            value='<redacted>'
        fi
        printf '%s=%s\n' "$name" "$value"
    done
}

quote_line() {
    printf '%q ' "$@"
    echo
}

# moe, dense or unknown, from the checkpoint's own config.json.
model_family() {
    if [ ! -f "$1/config.json" ]; then
        echo unknown
    elif grep -qE '"num_experts"|_moe"' "$1/config.json"; then
        echo moe
    else
        echo dense
    fi
}

is_port_taken() {
    ! "$PYTHON_BIN" -c '
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", int(sys.argv[1])))' "$1" 2>/dev/null
}
