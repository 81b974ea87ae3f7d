#!/usr/bin/env bash
# make demo: unpacks the toy checkout, checks its demo config, launches it by digest, waits for its end and shows the record.
# Ends with 0 only if every step went as it should. RLRUN=PATH takes another rlrun.pyz, PYTHON=PATH another Python.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
rlrun=$(readlink -f "${RLRUN:-$here/../dist/rlrun.pyz}")
python=${PYTHON:-python3}

# Where it can be had, a process table of its own: a real run on this machine would, rightly, block the toy's launch.
box=(unshare --pid --fork --kill-child --mount --mount-proc)
if [ -z "${DEMO_IN_BOX:-}" ] && "${box[@]}" true 2>/dev/null; then
    DEMO_IN_BOX=1 exec "${box[@]}" bash "$here/demo.sh"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work

say() { printf '\n\033[1m$ rlrun %s\033[0m\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }
# field EXPRESSION < JSON: prints what the expression gives for the object `o`
field() { "$python" -I -c "import json, sys; o = json.load(sys.stdin); print($1)"; }
run() { "$python" "$rlrun" "$@" </dev/null; }

say demo toy
run demo "$work/toy"
cd "$work/toy"

say check demo
run check demo || fail "the check ended $?"
digest=$(run check demo --json | field 'o["digest"]')
[[ $digest =~ ^[0-9a-f]{8}$ ]] || fail "no digest: $digest"

say run demo --confirm 00000000
code=0
run run demo --confirm 00000000 --background --board leave >/dev/null 2>"$work/refused" || code=$?
[ "$code" = 3 ] || fail "another digest was not refused (exit $code): $(cat "$work/refused")"
echo "refused, as it should be (exit 3)"

say run demo --confirm "$digest" --background --board leave
run run demo --confirm "$digest" --background --board leave || fail "the launch ended $?"

say gate --timeout 40s
run gate --timeout 40s || fail "the gate ended $?"

say runs --json
for ((second = 0; second < 45; second++)); do
    state=$(run runs --json | field 'o["runs"][0]["state"]')
    [ "$state" = running ] || break
    sleep 1
done
[ "$state" != running ] || fail "still running after 45 s"
run runs
id=$(run runs --json | field 'o["runs"][0]["id"]')
record=$(run runs --json | field 'o["runs"][0]["record"]')

say status "$id"
run status "$id" || fail "status ended $?"

say runs "$id"
run runs "$id"
printf '\nexit.json\n'
cat "$record/exit.json"
status=$(field 'o["status"]' <"$record/exit.json")
[ "$status" = 0 ] || fail "the run ended $status"
log=$(run runs --json | field 'o["runs"][0]["train_log"] or ""')
[ -s "$log" ] || fail "no train log: $log"
steps=$(grep -c 'step:' "$log" || true)
[ "$steps" -ge 6 ] || fail "$steps step lines in $log"

say run demo --confirm "$digest"
code=0
run run demo --confirm "$digest" --background --board leave >/dev/null 2>"$work/refused" || code=$?
[ "$code" = 3 ] || fail "a plan that was launched already was not refused (exit $code): $(cat "$work/refused")"
echo "refused, as it should be: it was launched already (exit 3)"
printf '\ndemo: all as it should be: %s, exit %s, %s steps\n' "$id" "$status" "$steps"
