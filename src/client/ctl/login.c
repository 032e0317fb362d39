/* cove login, logout and whoami: select the server and the credential of the command line. A
 * credential is checked before it is stored, and never taken from the command line, which other
 * users of the machine can read. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "client/ctl/hidden_input.h"
#include "client/login.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KEY_MAX (16 * KIB)

static int ctl_login_read_key(char *ret, size_t cap, struct err *err)
{
    if (hidden_input_read("Key: ", ret, cap) > 0)
        return 0;
    return err_set(err, ERR_USAGE, "no key given; type it, or redirect it to standard input: cove login URL < FILE");
}

/* --- whoami --- */

static int ctl_login_request_whoami(struct ctl *c, json_t **ret, struct err *err)
{
    return client_json(c->client, "GET", "/v1/whoami", NULL, ret, err);
}

static void ctl_login_print_whoami(const struct ctl *c, const json_t *identity)
{
    auto_buf scopes = { 0 };
    const json_t *scope;
    size_t i;

    json_array_foreach(json_object_get(identity, "scopes"), i, scope)
        buf_addf(&scopes, "%s%s", i ? " " : "", json_is_string(scope) ? json_string_value(scope) : "");
    ctl_printf("server   %s", client_endpoint(c->client));
    ctl_printf("tenant   %s", ctl_field_text(identity, "tenant"));
    ctl_printf("kind     %s", ctl_field_text(identity, "kind"));
    if (*ctl_field_text(identity, "userId"))
        ctl_printf("user     %s", ctl_field_text(identity, "userId"));
    if (*ctl_field_text(identity, "keyId"))
        ctl_printf("key      %s", ctl_field_text(identity, "keyId"));
    if (*ctl_field_text(identity, "sandboxId"))
        ctl_printf("sandbox  %s", ctl_field_text(identity, "sandboxId"));
    ctl_printf("scopes   %s", scopes.len ? scopes.data : "none");
    if (*ctl_field_text(identity, "expiresAt"))
        ctl_printf("expires  %s", ctl_field_text(identity, "expiresAt"));
}

int ctl_whoami(struct ctl *c, struct err *err)
{
    AUTO_JSON *identity = NULL;

    if (ctl_require_args(c, 0, 0, "whoami", err) < 0 || ctl_login_request_whoami(c, &identity, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(identity);
    ctl_login_print_whoami(c, identity);
    return 0;
}

/* --- login --- */

static int ctl_login_store(struct ctl *c, const struct login *l, struct err *err)
{
    struct client_settings set = { .url = l->url, .key = l->key, .cacert = l->cacert };
    AUTO_JSON *identity = NULL;

    if (client_new(c->ev, &set, &c->client, err) < 0 || ctl_login_request_whoami(c, &identity, err) < 0 ||
        login_write(l, err) < 0)
        return -1;
    auto_free char *path = login_path();
    if (c->json)
        return ctl_print_json(identity);
    if (!c->quiet)
        report_note("logged in at %s, tenant %s; stored in %s", l->url, ctl_field_text(identity, "tenant"),
                    path ? path : "");
    return 0;
}

/* Makes the path absolute, so that it works from every directory. */
static int ctl_login_read_authority(const struct ctl *c, struct login *l, struct err *err)
{
    const struct arg *ca = args_find(&c->args, OPT_CACERT);

    if (ca && !(l->cacert = realpath(ca->value, NULL)))
        return err_sys(err, ERR_INVALID, "certificate authority %.160s", ca->value);
    return 0;
}

int ctl_login(struct ctl *c, struct err *err)
{
    char key[KEY_MAX];
    struct login l = { 0 };

    if (ctl_require_args(c, 0, 1, "login [FLAGS] [URL]", err) < 0)
        return -1;
    const char *url = c->args.nrest ? c->args.rest[0] : getenv("COVE_URL");
    if (!url || !*url)
        url = CLIENT_URL_DEFAULT;
    l.url = str_dup_n(url, strlen(url) - (str_ends(url, "/") ? 1 : 0));
    bool device = args_find(&c->args, OPT_DEVICE) != NULL;
    int rc = ctl_login_read_authority(c, &l, err);
    if (rc == 0)
        rc = device ? ctl_device_login(c, &l, err) : ctl_login_read_key(key, sizeof(key), err);
    if (rc == 0 && !device)
        l.key = str_dup(key);
    if (rc == 0)
        rc = ctl_login_store(c, &l, err);
    explicit_bzero(key, sizeof(key));
    login_done(&l);
    return rc;
}

int ctl_logout(struct ctl *c, struct err *err)
{
    struct login l;
    struct err none;

    if (ctl_require_args(c, 0, 0, "logout", err) < 0)
        return -1;
    bool known = login_read(&l, &none) == 0;
    int rc = login_remove(err);
    if (rc == 0 && !c->quiet)
        report_note("removed the credential for %s; it is still valid, so revoke it if it may have leaked",
                    known ? l.url : "a server");
    if (known)
        login_done(&l);
    return rc;
}
