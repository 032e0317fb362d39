-- A template may be built into the server, so its name is not a foreign key.
CREATE TABLE pools (
 name TEXT PRIMARY KEY, template TEXT NOT NULL, min INTEGER NOT NULL, max INTEGER NOT NULL,
 ttl_ms INTEGER NOT NULL, max_age_ms INTEGER NOT NULL, autoscale INTEGER NOT NULL,
 hit_permille INTEGER NOT NULL, scale_down_ms INTEGER NOT NULL,
 zygote_max_age_ms INTEGER NOT NULL, zygote_max_members INTEGER NOT NULL, recycle INTEGER NOT NULL,
 generation INTEGER NOT NULL DEFAULT 1,
 created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, CHECK (min <= max)) STRICT;
CREATE INDEX pools_by_template ON pools (template);
