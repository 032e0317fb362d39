ALTER TABLE sandboxes ADD COLUMN cpu_us INTEGER NOT NULL DEFAULT 0;
CREATE TABLE usage (
 owner TEXT NOT NULL, hour_ms INTEGER NOT NULL, created_by TEXT NOT NULL, sandbox TEXT NOT NULL,
 executions INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, cpu_us INTEGER NOT NULL DEFAULT 0,
 execution_ms INTEGER NOT NULL DEFAULT 0, output_bytes INTEGER NOT NULL DEFAULT 0,
 sandbox_ms INTEGER NOT NULL DEFAULT 0, memory_mib_ms INTEGER NOT NULL DEFAULT 0,
 storage_mib_ms INTEGER NOT NULL DEFAULT 0, memory_peak INTEGER NOT NULL DEFAULT 0,
 PRIMARY KEY (owner, hour_ms, created_by, sandbox)) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_hour ON usage (hour_ms);
CREATE INDEX usage_of_sandboxes ON usage (hour_ms) WHERE sandbox <> '';
CREATE TABLE budgets (
 owner TEXT PRIMARY KEY, day_cpu_ms INTEGER NOT NULL, day_sandbox_ms INTEGER NOT NULL,
 day_executions INTEGER NOT NULL, month_cpu_ms INTEGER NOT NULL, month_sandbox_ms INTEGER NOT NULL,
 month_executions INTEGER NOT NULL, updated_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;
