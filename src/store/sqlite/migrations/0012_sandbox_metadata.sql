-- The metadata of a sandbox, one pair in a row, so that a list can be filtered by an index. Owner and
-- creation time are copies: a page of a filtered list is then one range of the index.
CREATE TABLE sandbox_metadata (
 sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE, key TEXT NOT NULL, value TEXT NOT NULL,
 sandbox_owner TEXT NOT NULL, sandbox_created_ms INTEGER NOT NULL, PRIMARY KEY (sandbox, key)) STRICT, WITHOUT ROWID;
CREATE INDEX sandbox_metadata_by_value ON sandbox_metadata (sandbox_owner, key, value, sandbox_created_ms, sandbox);
INSERT OR REPLACE INTO sandbox_metadata SELECT s.id, m.key, m.value, s.owner, s.created_ms FROM sandboxes AS s,
 json_each(CASE WHEN json_valid(s.metadata_json) THEN s.metadata_json ELSE '{}' END) AS m WHERE m.type = 'text';
