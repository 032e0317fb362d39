-- Owners were free text before tenants existed: each becomes a tenant.
CREATE TABLE tenants (
 name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, suspended_ms INTEGER NOT NULL, removed_ms INTEGER NOT NULL,
 max_sandboxes INTEGER NOT NULL, max_cpu_millis INTEGER NOT NULL, max_memory_bytes INTEGER NOT NULL,
 max_storage_bytes INTEGER NOT NULL, max_executions INTEGER NOT NULL) STRICT;
INSERT INTO tenants SELECT owner, min(created_ms), 0, 0, 0, 0, 0, 0, 0 FROM (
 SELECT 'local' AS owner, CAST(unixepoch() AS INTEGER) * 1000 AS created_ms
 UNION ALL SELECT owner, created_ms FROM keys UNION ALL SELECT owner, created_ms FROM sandboxes
 UNION ALL SELECT owner, created_ms FROM executions) GROUP BY owner;
CREATE TABLE users (
 id TEXT PRIMARY KEY, owner TEXT NOT NULL REFERENCES tenants (name), name TEXT NOT NULL, role TEXT NOT NULL,
 disabled INTEGER NOT NULL, created_ms INTEGER NOT NULL, UNIQUE (owner, name)) STRICT;
CREATE INDEX users_by_owner ON users (owner, created_ms, id);
CREATE TABLE roles (
 owner TEXT NOT NULL REFERENCES tenants (name), name TEXT NOT NULL, permissions TEXT NOT NULL,
 created_ms INTEGER NOT NULL, PRIMARY KEY (owner, name)) STRICT, WITHOUT ROWID;
ALTER TABLE keys ADD COLUMN user TEXT;
CREATE INDEX keys_by_user ON keys (user) WHERE user IS NOT NULL;
ALTER TABLE sandboxes ADD COLUMN created_by TEXT;
ALTER TABLE executions ADD COLUMN created_by TEXT;
