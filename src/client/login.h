/* login.h - the login of the command line: one server and its credential, in a private file of the
 * user ($XDG_CONFIG_HOME/cove/login.json, mode 0600). */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct login {
    char *url;
    char *key;    /* a key or a token, as it is sent */
    char *cacert; /* absolute path of the certificate authority; NULL: the system's authorities */
    /* Set for a token of an issuer, which must be renewed; NULL for a key. */
    char *issuer, *client_id, *token_url, *refresh;
    uint64_t expires_ms; /* expiry of the token, ms since the epoch; 0: never or unknown */
};

/* ERR_MISSING: not logged in. ERR_DENIED: other users could read or change the file. */
int login_read(struct login *ret, struct err *err);
/* Replaces the file atomically. */
int login_write(const struct login *l, struct err *err);
int login_remove(struct err *err); /* ERR_MISSING: not logged in */
void login_done(struct login *l);  /* wipes the secrets in memory */
char *login_path(void) MUST_USE;   /* NULL: neither XDG_CONFIG_HOME nor HOME is set */
