CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE sandboxes (
 id TEXT PRIMARY KEY, owner TEXT NOT NULL,
 state TEXT NOT NULL CHECK (state IN ('creating', 'running', 'paused', 'ended')),
 name TEXT, template TEXT, runtime TEXT, level TEXT, spec_json TEXT,
 metadata_json TEXT,
 created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,
 ended_by TEXT, why_json TEXT, receipt_json TEXT,
 generation INTEGER NOT NULL DEFAULT 1) STRICT;
CREATE INDEX sandboxes_by_owner ON sandboxes (owner, created_ms, id);
CREATE INDEX sandboxes_by_time ON sandboxes (created_ms, id);
CREATE INDEX sandboxes_live ON sandboxes (owner) WHERE state <> 'ended';
CREATE INDEX sandboxes_old ON sandboxes (ended_ms) WHERE state = 'ended';

CREATE TABLE executions (
 id TEXT PRIMARY KEY, sandbox TEXT NOT NULL REFERENCES sandboxes (id), owner TEXT NOT NULL,
 state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'ended', 'failed')),
 request_json TEXT, background INTEGER NOT NULL,
 created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,
 out_bytes1 INTEGER NOT NULL, out_bytes2 INTEGER NOT NULL, dropped1 INTEGER NOT NULL, dropped2 INTEGER NOT NULL,
 exit_code INTEGER, signal INTEGER NOT NULL, ended_by TEXT, receipt_json TEXT, error_json TEXT,
 idempotency TEXT) STRICT;
CREATE INDEX executions_by_owner ON executions (owner, created_ms, id);
CREATE INDEX executions_by_sandbox ON executions (sandbox, created_ms, id);
CREATE INDEX executions_by_time ON executions (created_ms, id);
CREATE INDEX executions_old ON executions (max(ended_ms, created_ms)) WHERE state IN ('ended', 'failed');
CREATE INDEX executions_live ON executions (owner) WHERE state IN ('starting', 'running');

CREATE TABLE keys (
 id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT, prefix TEXT NOT NULL,
 hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32), scopes TEXT,
 created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL,
 revoked_ms INTEGER NOT NULL) STRICT;
CREATE INDEX keys_by_owner ON keys (owner, created_ms, id);

CREATE TABLE templates (
 name TEXT PRIMARY KEY, spec_json TEXT, generation INTEGER NOT NULL DEFAULT 1,
 created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL) STRICT;

CREATE TABLE events (
 seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, owner TEXT NOT NULL,
 sandbox TEXT REFERENCES sandboxes (id) ON DELETE CASCADE, kind TEXT, body_json TEXT) STRICT;
CREATE INDEX events_by_owner ON events (owner, seq);
CREATE INDEX events_by_sandbox ON events (sandbox, seq);
CREATE INDEX events_by_time ON events (at_ms);

CREATE TABLE idempotency (
 owner TEXT NOT NULL, key TEXT NOT NULL, request_hash BLOB NOT NULL, resource TEXT,
 status INTEGER NOT NULL, body TEXT, at_ms INTEGER NOT NULL,
 PRIMARY KEY (owner, key)) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_time ON idempotency (at_ms);
