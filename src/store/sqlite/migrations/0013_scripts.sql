-- Code that ran successfully, once for each tenant. The last use decides which script is evicted.
CREATE TABLE scripts (
 id TEXT PRIMARY KEY, owner TEXT NOT NULL, digest BLOB NOT NULL CHECK (length(digest) = 32),
 language TEXT NOT NULL, description TEXT, code TEXT NOT NULL, size_bytes INTEGER NOT NULL, uses INTEGER NOT NULL,
 created_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL, last_execution TEXT, created_by TEXT,
 UNIQUE (owner, digest)) STRICT;
CREATE INDEX scripts_by_owner ON scripts (owner, created_ms, id);
CREATE INDEX scripts_by_time ON scripts (created_ms, id);
CREATE INDEX scripts_by_use ON scripts (owner, last_used_ms, size_bytes);
CREATE INDEX scripts_old ON scripts (last_used_ms);
