-- Hint of an execution, and whether it lost the state of its context. Older rows have them in
-- receipt_json only.
ALTER TABLE executions ADD COLUMN hint TEXT;
ALTER TABLE executions ADD COLUMN context_reset INTEGER NOT NULL DEFAULT 0;
UPDATE executions SET
 hint = CASE WHEN json_type(receipt_json, '$.hint') IS 'text' THEN json_extract(receipt_json, '$.hint') END,
 context_reset = json_type(receipt_json, '$.contextReset') IS 'true'
 WHERE CASE WHEN json_valid(receipt_json) THEN json_type(receipt_json, '$.hint') IS NOT NULL
 OR json_type(receipt_json, '$.contextReset') IS NOT NULL ELSE 0 END;
