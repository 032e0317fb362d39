-- Terminal flag and context of an execution; both were members of request_json before.
ALTER TABLE executions ADD COLUMN tty INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN context TEXT;
UPDATE executions SET tty = json_type(request_json, '$.tty') IS 'true',
 context = CASE WHEN json_type(request_json, '$.context') IS 'text'
 AND length(json_extract(request_json, '$.context')) = 22 THEN json_extract(request_json, '$.context') END
 WHERE json_valid(request_json);
