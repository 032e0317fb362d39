-- Secrets of tenants. hosts: names separated by spaces; NULL: any. The values are encrypted with a key that is not in the database.
CREATE TABLE secrets (
 id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, sealed TEXT NOT NULL,
 hosts TEXT, generation INTEGER NOT NULL DEFAULT 1,
 created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL,
 uses INTEGER NOT NULL, created_by TEXT, UNIQUE (owner, name)) STRICT;
CREATE INDEX secrets_by_owner ON secrets (owner, created_ms, id);
CREATE INDEX secrets_by_time ON secrets (created_ms, id);
