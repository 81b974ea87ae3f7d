"""What Slurm says of the launches that were handed to it: asked by its own programs, all at once."""
import os
from typing import Any, Dict, List

from ..host.files import read_head

_LOG_BYTES = 1 << 20


def ask_slurm(records: List[Dict[str, Any]]) -> str:
    """Puts into each record what Slurm says of its jobs: one question for all. Returns in words what it can't say.

    The jobs are those that the launch log names too: rlrun may have been gone when sbatch answered.
    """
    for one in records:
        one["is_asked"] = True
    submissions = [one for one in records if one["jobs"] or one.get("is_submission")]
    if not submissions:
        return ""
    from ..host import slurm
    for one in submissions:
        text = read_head(one["launch_log"], _LOG_BYTES).decode("utf-8", "replace") if one["launch_log"] else ""
        one["jobs"] = list(dict.fromkeys(one["jobs"] + list(slurm.parse_submitted(text))))
    found, reason = slurm.read_jobs([job for one in submissions for job in one["jobs"]], dict(os.environ))
    for one in submissions:
        one["job_states"] = {job: found[job].state for job in one["jobs"] if job in found}
        one["live_jobs"] = [job for job in one["jobs"] if job not in found or not slurm.is_over(found[job].state)]
    return reason
