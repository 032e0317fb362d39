-- A removed user stays removed, even if an identity provider vouches for them, until an
-- admin adds them again.
CREATE TABLE removed_users (
 owner TEXT NOT NULL REFERENCES tenants (name), name TEXT NOT NULL, removed_ms INTEGER NOT NULL,
 PRIMARY KEY (owner, name)) STRICT, WITHOUT ROWID;
