-- A name is free again when its sandbox has ended.
CREATE UNIQUE INDEX sandboxes_living_names ON sandboxes (owner, name) WHERE state <> 'ended';
CREATE INDEX sandboxes_by_name ON sandboxes (owner, name, created_ms, id) WHERE name IS NOT NULL;
