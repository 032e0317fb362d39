/* oauth.h - logging in at an identity provider from a place without a browser (RFC 8628, the device flow).
 *
 * The provider gives a code for this device and another for the person, who enters it in a browser anywhere and logs in
 * there; meanwhile we ask for the token. No password and no redirect ever comes here, so there is no address to be
 * tricked into and nothing to be replayed; and whoever overhears the device's code cannot use it, because the token is
 * given only to who can show the verifier (PKCE) whose hash was sent with the first request. */
#pragma once

#include "client/login.h"
#include "core/ev/ev.h"

struct oauth_provider { /* the provider, as it describes itself */
    char *issuer, *device_url, *token_url;
};
/* Asks the issuer where its doors are. ERR_PROTOCOL: it calls itself by another name, so it may be another one; or one
 * of the doors is not safe. */
int oauth_discover(struct ev *ev, const char *issuer, struct oauth_provider *ret, struct err *err);
void oauth_provider_done(struct oauth_provider *p);

struct oauth_device {
    char *device_code, *user_code, *page, *page_with_code; /* the last may be NULL */
    uint64_t interval_ms, expires_ms;                      /* from now on */
    char verifier[64];
};
int oauth_device_begin(struct ev *ev, const struct oauth_provider *p, const char *client_id, const char *audience,
                       struct oauth_device *ret, struct err *err);
void oauth_device_done(struct oauth_device *d);

/* Waits until the person has logged in, refused, or let the code expire. Fills the token's part of *ret. */
int oauth_device_wait(struct ev *ev, const struct oauth_provider *p, const char *client_id,
                      const struct oauth_device *d, struct login *ret, struct err *err);

/* A token that is about to end is replaced, and what is kept with it. Nothing happens to a key. ERR_UNAUTHORIZED: the
 * provider gives no other; log in again. */
int oauth_renew(struct ev *ev, struct login *l, struct err *err);
