-- Memory and storage of a sandbox, which its usage is computed from. Older rows have them in
-- spec_json only.
ALTER TABLE sandboxes ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN storage_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE sandboxes SET
 memory_bytes = CASE WHEN json_type(spec_json, '$.spec.resources.memoryBytes') IS 'integer'
 THEN json_extract(spec_json, '$.spec.resources.memoryBytes') ELSE 0 END,
 storage_bytes = CASE WHEN json_type(spec_json, '$.spec.resources.storageBytes') IS 'integer'
 THEN json_extract(spec_json, '$.spec.resources.storageBytes') ELSE 0 END
 WHERE json_valid(spec_json);
