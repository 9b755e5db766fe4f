"""Views for people and dashboards on top of the tables. Each says in its comment what a row is."""

VIEWS: dict[str, str] = {
    # One row a slot revision that was asked for: what came first, whether it was valid, what the calibration said.
    "envs": """
        SELECT r.round, r.slot, r.revision, p.env, r.entry ->> '$.name' AS entry,
               r.entry ->> '$.model' AS model, r.entry ->> '$.arm' AS arm,
               r.assignment ->> '$.direction' AS direction, r.assignment ->> '$.domain' AS domain,
               r.assignment ->> '$.parent' AS parent,
               CASE WHEN p.seq IS NULL THEN a.reason END AS abandoned, v.verdict,
               list_filter(CAST(v.gates AS JSON[]), lambda gate: (gate ->> '$.outcome') = 'failed')[1] ->> '$.gate'
                   AS failed_gate,
               c.outcome AS calibration, c.mean, c.std, c.count AS attempts
        FROM env_requested r
        LEFT JOIN env_abandoned a USING (round, slot, revision)
        LEFT JOIN env_proposed p ON (p.round, p.slot, p.revision) = (r.round, r.slot, r.revision)
             AND (a.seq IS NULL OR p.seq < a.seq)
        LEFT JOIN env_validated v ON (v.round, v.slot, v.revision, v.env) = (r.round, r.slot, r.revision, p.env)
        LEFT JOIN env_calibrated c ON (c.round, c.slot, c.revision, c.env) = (r.round, r.slot, r.revision, p.env)""",
    # One row a rollout, with the request that asked for it.
    "rollouts": """
        SELECT c.seq, c.id, c.round, c.purpose, q.set_name, c.env, c.checkpoint_version, q.slot, q.revision, c.attempt,
               c.outcome, c.reward, c.tests, c.content, c.volatile, c.broken,
               coalesce(CAST(c.usage ->> '$.prompt_tokens' AS BIGINT), 0) AS prompt_tokens,
               coalesce(CAST(c.usage ->> '$.completion_tokens' AS BIGINT), 0) AS completion_tokens,
               coalesce(CAST(c.usage ->> '$.turns' AS BIGINT), 0) AS turns,
               c.cpu_s, c.sandbox_cpu_s, c.wall_s, (c.at_ns - c.started_ns) / 1e9 AS took_s
        FROM rollout_completed c LEFT JOIN rollout_requested q ON q.id = c.request""",
    # One row an answer that counts for the valid rate, by proposer entry; what infrastructure failed is left out.
    "valid_rate": """
        WITH answers AS (
            SELECT round, entry, coalesce(CAST(verdict = 'valid' AS INTEGER), 0) AS valid FROM envs
            WHERE verdict IN ('valid', 'invalid') OR (env IS NULL AND abandoned <> 'infra_failed')),
        sums AS (SELECT round, entry, sum(valid) AS valid, count(*) AS answers, avg(valid) AS rate,
                        1.959963984540054::DOUBLE AS z FROM answers GROUP BY round, entry),
        parts AS (SELECT *, rate + z * z / (2 * answers) AS centre, 1 + z * z / answers AS scale,
                         z * sqrt(rate * (1 - rate) / answers + z * z / (4 * answers * answers)) AS spread FROM sums)
        SELECT round, entry, valid, answers, rate,
               greatest(0, (centre - spread) / scale) AS low, least(1, (centre + spread) / scale) AS high
        FROM parts""",
    # One row a held-out set and checkpoint.
    "heldout_scores": """
        SELECT set_name, checkpoint_version, count(reward) AS rollouts, count(*) - count(reward) AS masked,
               count(DISTINCT env) AS envs, count(*) FILTER (outcome = 'solved') AS solved,
               count(*) FILTER (outcome = 'solved') / nullif(count(reward), 0) AS pass_rate, avg(reward) AS mean_reward
        FROM rollouts WHERE purpose = 'evaluate' GROUP BY set_name, checkpoint_version""",
    # One row a version of the pool.
    "pool_history": """
        SELECT pool_version, round, len(CAST(members AS JSON[])) AS members, len(CAST(added AS JSON[])) AS added,
               len(CAST(retired AS JSON[])) AS retired, retired AS leaving, at_ns
        FROM pool_changed""",
    # One row a message that cost something, and one a try that said nothing: its figures are null, for nobody knows
    # them; while it is `in_flight` it may still say them.
    "costs": """
        SELECT e.*, e.outcome = 'started' AND NOT EXISTS (
                   SELECT 1 FROM cost_events later WHERE later.work_id = e.work_id
                   AND (later.outcome = 'answered' OR later."try" > e."try"))
               AND NOT EXISTS (SELECT 1 FROM work_parked parked WHERE parked.work_id = e.work_id
                               AND parked."try" > e."try") AS in_flight
        FROM cost_events e
        WHERE e.outcome <> 'started' OR NOT EXISTS (
            SELECT 1 FROM cost_events said WHERE said.work_id = e.work_id AND said."try" = e."try"
            AND said.outcome <> 'started')""",
    # One row a round and kind of work: tokens, CPU seconds, money.
    "cost": """
        SELECT round, purpose AS what, sum(prompt_tokens + completion_tokens) AS tokens, sum(cpu_s) AS cpu_s,
               sum(sandbox_cpu_s) AS sandbox_cpu_s, sum(usd) AS usd
        FROM costs GROUP BY round, purpose""",
    # One row a round.
    "rounds": """
        WITH planned AS (SELECT round, count(*) AS waves, sum(len(CAST(slots AS JSON[]))) AS slots, min(at_ns) AS at_ns
                         FROM round_planned GROUP BY round),
        tried AS (SELECT round, count(env) AS proposed, count(*) FILTER (verdict = 'valid') AS valid,
                         count(*) FILTER (calibration = 'admitted') AS admitted,
                         count(*) FILTER (revision > 0) AS revisions FROM envs GROUP BY round),
        rolled AS (SELECT round, count(*) AS rollouts FROM rollout_completed GROUP BY round),
        learnt AS (SELECT round, count(*) FILTER (reason <> 'cold_start') AS updates
                   FROM checkpoint_published WHERE role = 'solver' GROUP BY round)
        SELECT p.round, p.slots, p.waves, t.proposed, t.valid, t.revisions, t.admitted, r.rollouts, l.updates,
               c.digest, c.degraded, (c.at_ns - p.at_ns) / 1e9 AS took_s
        FROM planned p LEFT JOIN tried t USING (round) LEFT JOIN rolled r USING (round)
        LEFT JOIN learnt l USING (round) LEFT JOIN round_closed c USING (round)""",
    # One row: how far the log had been read when this file was written, and how old that is now.
    "freshness": """
        SELECT run, position, last_appended_at_ns, taken_at_ns, (epoch_ns(now()) - taken_at_ns) / 1e9 AS age_s
        FROM pos""",
}


def statements() -> list[str]:
    """Makes or renews all views, each after those that it uses."""
    return [f'CREATE OR REPLACE VIEW "{name}" AS {query}' for name, query in VIEWS.items()]
