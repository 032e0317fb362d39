-- The CASE is outcome_of() of policy/outcome.c.
ALTER TABLE executions ADD COLUMN outcome TEXT
 CHECK (outcome IN ('success', 'error', 'timeout', 'out_of_memory', 'killed', 'lost'));
UPDATE executions SET outcome = CASE
 WHEN ended_by = 'exit' AND exit_code = 0 AND error_json IS NULL THEN 'success'
 WHEN ended_by IN ('lifetime', 'idle', 'timeout', 'cpu') THEN 'timeout'
 WHEN ended_by = 'memory' THEN 'out_of_memory'
 WHEN ended_by IN ('killed', 'budget') THEN 'killed'
 WHEN ended_by = 'lost' THEN 'lost' ELSE 'error' END WHERE state IN ('ended', 'failed');
CREATE INDEX executions_by_phase ON executions (owner, coalesce(outcome, state), created_ms, id);
CREATE INDEX executions_by_phase_of_all ON executions (coalesce(outcome, state), created_ms, id);
