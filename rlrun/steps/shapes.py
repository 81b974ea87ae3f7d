"""Schema 1: the same facts as the text, as objects with stable keys. No secret is in them."""
import math
from typing import Any, Dict, List, Tuple

from ..text.redact import redact, redact_words
from ..values import Board, Check, Plan, RunRow, Sweep
from . import jobs
from .survey import Survey

SCHEMA = 1


def shape_check(found: Survey, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    """The object of `check --json`."""
    plan = found.plan
    return {"schema": SCHEMA, "command": "check", "verdict": "NO" if found.verdict.blocking else "YES",
            "digest": found.fingerprint.digest, "stack": plan.stack, "kind": plan.kind, "config": plan.config_shown,
            "configs": [plan.config_shown] + list(plan.more_configs), "overrides": list(redact_words(plan.overrides, secrets)),
            "root": plan.root, "blocking": list(found.verdict.blocking), "warnings": list(found.verdict.warnings),
            "checks": [_shape_one(check) for check in found.verdict.checks],
            "plan": shape_plan(plan, found.sweep, secrets), "board": shape_board(found.board, found.is_visible),
            "configuration": redact(plan.block, secrets),
            "git": {"commit": found.git.commit or None, "branch": found.git.branch or None, "dirty": list(found.git.dirty),
                    "reason": redact(found.git.reason, secrets) or None},
            "last_words": redact(found.preflight.last_words, secrets) if found.preflight.died else None}


def _shape_one(check: Check) -> Dict[str, Any]:
    return {"layer": check.layer, "name": check.name, "status": check.status, "detail": check.detail, "fix": check.fix or None}


def shape_plan(plan: Plan, sweep: Sweep, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    """The plan; what the runner did not tell is null."""
    from .judge_machine import show_command  # loaded by now: the survey does so while the runner checks its config
    return {"experiment": plan.experiment or None, "project": plan.project or None,
            "name_is_volatile": plan.name_is_volatile, "train_log": plan.train_log or None,
            "vllm_log": plan.vllm_log or None, "trials": plan.trials or None,
            "launch_command": redact(plan.launch_command, secrets) or None, "argv": list(redact_words(plan.argv, secrets)),
            "nodes": plan.topology.nodes if plan.block else None, "gpus": plan.gpu_count, "python": plan.python or None,
            "run_dir": plan.run_dir or None, "server": plan.server_url or None, "submission": plan.is_submission,
            "ports": [port.number for port in plan.ports], "sources": list(plan.sources),
            "inherited": list(plan.inherited), "dropped_env": sorted(plan.dropped),
            "sweep": {"processes": [{"pid": one.process.pid, "user": one.user, "foreign": one.is_foreign,
                                     "elapsed_seconds": int(one.process.elapsed_seconds),
                                     "command": show_command(one.process, secrets)} for one in sweep.processes],
                      "paths": [{"path": path.path, "bytes": path.size_bytes, "user": path.user, "exact": path.is_exact}
                                for path in sweep.paths], "rule": plan.sweep.words}}


def shape_board(board: Board, is_visible: bool) -> Dict[str, Any]:
    """The board that concerns a plan; nulls where none runs."""
    return {"pid": board.pid or None, "port": board.port, "served": list(board.served), "visible": is_visible}


def shape_row(row: RunRow) -> Dict[str, Any]:
    """One launch of `runs --json`."""
    data = row.data
    return {"id": row.id, "state": row.state, "exit": row.exit,
            "age_seconds": int(row.age_seconds) if math.isfinite(row.age_seconds) else None, "kind": row.kind,
            "config": row.config, "experiment": row.experiment or None, "user": row.user, "record": row.record,
            "digest": data["digest"] or None, "launch_log": data["launch_log"] or None, "train_log": data["train_log"] or None,
            "runner": data["runner"] or data["keeper"], "run_dir": data["run_dir"] or None, "left": data.get("left") or [],
            "jobs": {job: data["job_states"].get(job) for job in data["jobs"]}, "host": data["host"] or None,
            "job_details": data.get("job_told") or {}, "nodes": jobs.shape_nodes(data), "time": data["time"] or None}


def shape_facts(facts: List[Any]) -> Dict[str, Any]:
    """The object of `probe --json`."""
    return {"schema": SCHEMA, "command": "probe", "facts": [{"level": fact.level, "name": fact.name, "detail": fact.detail}
                                                            for fact in facts]}
