/* login.h - where the command line is logged in: one server and the credential for it, in a file of the user's own
 * ($XDG_CONFIG_HOME/cove/login.json, 0600). */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct login {
    char *url;
    char *key;    /* a key or a token, as it is sent */
    char *cacert; /* absolute; the authority that the server's certificate is trusted by. NULL: those of this machine */
    /* Of a token that an issuer gave, and that has to be renewed; NULL: it is a key. */
    char *issuer, *client_id, *token_url, *refresh;
    uint64_t expires_ms; /* 0: never, or not known */
};

/* ERR_MISSING: nobody is logged in. ERR_DENIED: others could read or change the file. */
int login_read(struct login *ret, struct err *err);
/* Whole or not at all. */
int login_write(const struct login *l, struct err *err);
int login_remove(struct err *err); /* ERR_MISSING: there was none */
void login_done(struct login *l);  /* wipes what it held */
char *login_path(void) MUST_USE;   /* NULL: this user has no place for it */
