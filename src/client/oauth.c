/* Answers of the provider are untrusted input: bounded, parsed strictly, and fetched
 * only over https. */
#include "client/oauth.h"

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "remote/fetch/fetch.h"

#include <errno.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <sys/random.h>

#define ANSWER_MAX (256 * KIB)
#define PATIENCE_NS (30 * NS_PER_S)
#define EARLY_MS 30000u /* renew a token that expires within this time */
#define SLOWER_MS 5000u
#define GRANT_DEVICE "urn:ietf:params:oauth:grant-type:device_code"
#define AUTO_JSON __attribute__((cleanup(json_decrefp))) json_t

/* --- one exchange --- */

struct oauth_exchange {
    struct fetch_call *call;
    struct buf body;
    int status;
    bool done, too_large;
    struct err err;
};

static void oauth_on_head(void *arg, int status)
{
    ((struct oauth_exchange *)arg)->status = status;
}

static void oauth_on_data(void *arg, const void *data, size_t len)
{
    struct oauth_exchange *x = arg;

    if (x->body.len + len <= ANSWER_MAX)
        buf_add(&x->body, data, len);
    else
        x->too_large = true;
}

static void oauth_on_fetch_done(void *arg, const struct err *err)
{
    struct oauth_exchange *x = arg;

    x->done = true;
    x->call = NULL;
    if (err)
        x->err = *err;
}

static int oauth_exchange_wait(struct ev *ev, struct oauth_exchange *x, const char *url, struct err *err)
{
    uint64_t end = clock_mono_ns() + PATIENCE_NS;

    while (!x->done && !x->too_large && clock_mono_ns() < end)
        ev_turn(ev, 200);
    if (!x->done)
        fetch_cancel(x->call);
    if (x->too_large)
        return err_set(err, ERR_PROTOCOL, "%.120s: the answer is too large", url);
    if (!x->done)
        return err_set(err, ERR_TIMEOUT, "%.120s: no answer in time", url);
    if (x->err.id != ERR_NONE) {
        *err = x->err;
        return err_wrap(err, "%.100s", url);
    }
    return 0;
}

/* form NULL: GET. *ret is the JSON object of the answer, also for an error status. */
static int oauth_exchange_run(struct ev *ev, const char *url, const char *form, int *ret_status, json_t **ret,
                              struct err *err)
{
    static const struct fetch_ops ops = { .on_head = oauth_on_head,
                                          .on_data = oauth_on_data,
                                          .on_done = oauth_on_fetch_done };
    static const char *const headers[] = { "Accept: application/json", NULL };
    struct fetch_spec spec = { .url = url,
                               .headers = headers,
                               .body = form,
                               .body_len = form ? strlen(form) : 0,
                               .method = form ? "POST" : NULL };
    auto_(fetch) f = NULL;
    struct oauth_exchange x = { 0 };

    if (!fetch_is_safe(url))
        return err_set(err, ERR_PROTOCOL, "%.140s: not safe for a login; it must begin with https://", url);
    if (fetch_new(ev, &f, err) < 0 || fetch_start(f, &spec, &ops, &x, &x.call, err) < 0)
        return -1;
    int rc = oauth_exchange_wait(ev, &x, url, err);
    if (rc == 0) {
        *ret_status = x.status;
        *ret = json_loadb(x.body.data ? x.body.data : "", x.body.len, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(*ret)) {
            json_decref(*ret);
            *ret = NULL;
            rc = err_set(err, ERR_PROTOCOL, "%.120s: status %d, and the answer is not a JSON object", url, x.status);
        }
    }
    if (x.body.data)
        explicit_bzero(x.body.data, x.body.len);
    buf_done(&x.body);
    return rc;
}

static void oauth_add_field(struct buf *form, const char *name, const char *value)
{
    auto_free char *escaped = fetch_escape(value);

    buf_addf(form, "%s%s=%s", form->len ? "&" : "", name, escaped);
}

static char *oauth_text(const json_t *doc, const char *name)
{
    const char *text = json_string_value(json_object_get(doc, name));

    return text && *text && strlen(text) == json_string_length(json_object_get(doc, name)) ? str_dup(text) : NULL;
}

/* --- the provider --- */

void oauth_provider_done(struct oauth_provider *p)
{
    free(p->issuer);
    free(p->device_url);
    free(p->token_url);
    *p = (struct oauth_provider){ 0 };
}

int oauth_discover(struct ev *ev, const char *issuer, struct oauth_provider *ret, struct err *err)
{
    auto_free char *url = str_printf("%s%s.well-known/openid-configuration", issuer, str_ends(issuer, "/") ? "" : "/");
    AUTO_JSON *doc = NULL;
    int status = 0;

    *ret = (struct oauth_provider){ 0 };
    if (oauth_exchange_run(ev, url, NULL, &status, &doc, err) < 0)
        return -1;
    ret->issuer = oauth_text(doc, "issuer");
    ret->device_url = oauth_text(doc, "device_authorization_endpoint");
    ret->token_url = oauth_text(doc, "token_endpoint");
    int rc = 0;
    if (status != 200)
        rc = err_set(err, ERR_PROTOCOL, "%.140s: the answer has status %d", url, status);
    else if (!ret->issuer || !str_eq(ret->issuer, issuer))
        rc = err_set(err, ERR_PROTOCOL, "the provider at %.80s has another name in its metadata: '%.80s'", issuer,
                     ret->issuer ? ret->issuer : "");
    else if (!ret->device_url || !ret->token_url)
        rc = err_set(err, ERR_PROTOCOL, "the provider %.120s does not support device login; log in with a key", issuer);
    else if (!fetch_is_safe(ret->device_url) || !fetch_is_safe(ret->token_url))
        rc = err_set(err, ERR_PROTOCOL, "the provider %.120s has a login endpoint that is not https", issuer);
    if (rc < 0)
        oauth_provider_done(ret);
    return rc;
}

/* --- the code --- */

static void oauth_wipe_text(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void oauth_device_done(struct oauth_device *d)
{
    oauth_wipe_text(&d->device_code);
    oauth_wipe_text(&d->user_code);
    oauth_wipe_text(&d->page);
    oauth_wipe_text(&d->page_with_code);
    explicit_bzero(d->verifier, sizeof(d->verifier));
}

static void oauth_make_verifier(char ret[64], struct buf *ret_challenge)
{
    uint8_t random[32], hash[32];
    auto_buf text = { 0 };
    unsigned n = 0;
    ssize_t got;

    do
        got = getrandom(random, sizeof(random), 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof(random))
        abort();
    text_base64url(&text, random, sizeof(random));
    str_copy(ret, 64, text.data);
    if (EVP_Digest(ret, strlen(ret), hash, &n, EVP_sha256(), NULL) != 1 || n != sizeof(hash))
        abort();
    text_base64url(ret_challenge, hash, sizeof(hash));
}

static uint64_t oauth_seconds_as_ms(const json_t *doc, const char *name, uint64_t preset, uint64_t most)
{
    json_int_t s = json_integer_value(json_object_get(doc, name));

    return (s > 0 ? min_u64((uint64_t)s, most) : preset) * 1000;
}

/* The URL is untrusted and is shown to the user: it must contain no control characters and must be
 * an https page. */
static bool oauth_is_page_url(const char *url)
{
    if (!url || !fetch_is_safe(url))
        return false;
    for (const char *p = url; *p; p++)
        if (*p <= ' ' || *p > '~')
            return false;
    return true;
}

static int oauth_refused(const json_t *doc, int status, const char *what, struct err *err)
{
    auto_free char *code = oauth_text(doc, "error"), *description = oauth_text(doc, "error_description");

    err_set(err, ERR_UNAUTHORIZED, "the provider refuses %s: %.60s %.100s (status %d)", what, code ? code : "",
            description ? description : "", status);
    str_strip_control_chars(err->msg);
    return -1;
}

int oauth_device_begin(struct ev *ev, const struct oauth_provider *p, const char *client_id, const char *audience,
                       struct oauth_device *ret, struct err *err)
{
    auto_buf form = { 0 }, challenge = { 0 };
    AUTO_JSON *doc = NULL;
    int status = 0;

    *ret = (struct oauth_device){ 0 };
    oauth_make_verifier(ret->verifier, &challenge);
    oauth_add_field(&form, "client_id", client_id);
    oauth_add_field(&form, "scope", "openid offline_access");
    oauth_add_field(&form, "audience", audience);
    oauth_add_field(&form, "code_challenge", challenge.data);
    oauth_add_field(&form, "code_challenge_method", "S256");
    if (oauth_exchange_run(ev, p->device_url, form.data, &status, &doc, err) < 0)
        return -1;
    if (status != 200)
        return oauth_refused(doc, status, "to start the login", err);
    ret->device_code = oauth_text(doc, "device_code");
    ret->user_code = oauth_text(doc, "user_code");
    ret->page = oauth_text(doc, "verification_uri");
    ret->page_with_code = oauth_text(doc, "verification_uri_complete");
    ret->interval_ms = oauth_seconds_as_ms(doc, "interval", 5, 60);
    ret->expires_ms = oauth_seconds_as_ms(doc, "expires_in", 600, 3600);
    if (ret->device_code && ret->user_code && oauth_is_page_url(ret->page)) {
        str_strip_control_chars(ret->user_code);
        if (ret->page_with_code && !oauth_is_page_url(ret->page_with_code))
            oauth_wipe_text(&ret->page_with_code);
        return 0;
    }
    oauth_device_done(ret);
    return err_set(err, ERR_PROTOCOL, "the answer of the provider lacks the code or the page for it");
}

/* --- the token --- */

static int oauth_store_token(const json_t *doc, struct login *ret, struct err *err)
{
    auto_free char *type = oauth_text(doc, "token_type");
    char *token = oauth_text(doc, "access_token"), *refresh = oauth_text(doc, "refresh_token");

    if (!token || !type || strcasecmp(type, "bearer") != 0) {
        oauth_wipe_text(&token);
        oauth_wipe_text(&refresh);
        return err_set(err, ERR_PROTOCOL, "the answer of the provider lacks a bearer token");
    }
    oauth_wipe_text(&ret->key);
    ret->key = token;
    if (refresh) { /* else the previous refresh token stays valid */
        oauth_wipe_text(&ret->refresh);
        ret->refresh = refresh;
    }
    ret->expires_ms = clock_real_ms() + oauth_seconds_as_ms(doc, "expires_in", 300, 365 * 86400);
    return 0;
}

static void oauth_pause(struct ev *ev, uint64_t ms)
{
    uint64_t end = clock_mono_ns() + ms * NS_PER_MS;

    while (clock_mono_ns() < end)
        ev_turn(ev, (int)min_u64((end - clock_mono_ns()) / NS_PER_MS + 1, 1000));
}

int oauth_device_wait(struct ev *ev, const struct oauth_provider *p, const char *client_id,
                      const struct oauth_device *d, struct login *ret, struct err *err)
{
    uint64_t end = clock_mono_ns() + d->expires_ms * NS_PER_MS, interval = d->interval_ms;
    auto_buf form = { 0 };
    int rc = 1;

    oauth_add_field(&form, "grant_type", GRANT_DEVICE);
    oauth_add_field(&form, "device_code", d->device_code);
    oauth_add_field(&form, "client_id", client_id);
    oauth_add_field(&form, "code_verifier", d->verifier);
    while (rc == 1 && clock_mono_ns() < end) {
        AUTO_JSON *doc = NULL;
        int status = 0;

        oauth_pause(ev, interval);
        if (oauth_exchange_run(ev, p->token_url, form.data, &status, &doc, err) < 0) {
            rc = -1;
            break;
        }
        const char *code = json_string_value(json_object_get(doc, "error"));
        if (status == 200)
            rc = oauth_store_token(doc, ret, err);
        else if (code && str_eq(code, "slow_down"))
            interval += SLOWER_MS;
        else if (!code || !str_eq(code, "authorization_pending"))
            rc = oauth_refused(doc, status, "the login", err);
    }
    explicit_bzero(form.data, form.len);
    return rc == 1 ? err_set(err, ERR_TIMEOUT, "the code expired before it was entered; try again") : rc;
}

int oauth_renew(struct ev *ev, struct login *l, struct err *err)
{
    auto_buf form = { 0 };
    AUTO_JSON *doc = NULL;
    int status = 0;

    if (!l->issuer || !l->expires_ms || clock_real_ms() + EARLY_MS < l->expires_ms)
        return 0;
    if (!l->refresh || !l->token_url || !l->client_id)
        return err_set(err, ERR_UNAUTHORIZED, "the login at %.80s has expired; run 'cove login --device' again",
                       l->url);
    oauth_add_field(&form, "grant_type", "refresh_token");
    oauth_add_field(&form, "refresh_token", l->refresh);
    oauth_add_field(&form, "client_id", l->client_id);
    int rc = oauth_exchange_run(ev, l->token_url, form.data, &status, &doc, err);
    explicit_bzero(form.data, form.len);
    if (rc < 0)
        return -1;
    if (status != 200)
        return err_set(err, ERR_UNAUTHORIZED, "the login at %.80s has expired; run 'cove login --device' again",
                       l->url);
    return oauth_store_token(doc, l, err) < 0 ? -1 : login_write(l, err);
}
