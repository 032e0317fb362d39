/* The store keeps the last checkpoint, in a file that an attacker would have to change too in order
 * to shorten the audit trail. The two are compared at each start. */
#include "server/gateway/server_audit.h"

#include "core/base/fd.h"
#include "core/base/jsonw.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>

#define SECRET_LEN 32u
#define RESTORED "server.restored" /* key in the store, set by `cove restore` */
#define HEAD "audit.head"          /* key in the store: "<seq> <hash>" */

struct server_audit {
    struct ev *ev;
    struct store *store;
    struct audit *audit;
    struct webhook *webhook;
    bool damaged;
};

struct audit_head_query {
    bool answered;
    struct chain_link head;
    struct err err;
};

static bool server_audit_parse_head(const char *text, struct chain_link *ret)
{
    struct chain_link l = { 0 };

    if (!str_eat_u64(&text, INT64_MAX, &l.seq) || !str_eat(&text, " ") || strlen(text) != (size_t)2 * CHAIN_HASH ||
        !chain_unhex(text, CHAIN_HASH, l.hash))
        return false;
    *ret = l;
    return true;
}

static void server_audit_on_head(void *arg, const struct err *err, const char *value)
{
    struct audit_head_query *a = arg;

    a->answered = true;
    if (err && err->id != ERR_MISSING)
        a->err = *err;
    else if (!err && value && !server_audit_parse_head(value, &a->head))
        log_warn("cannot parse the last checkpoint of the audit trail in the database");
}

static void server_audit_on_head_stored(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("cannot store the last checkpoint of the audit trail in the database: %s", err->msg);
}

static void server_audit_on_checkpoint(void *arg, const struct chain_link *at)
{
    struct server_audit *r = arg;
    char hex[2 * CHAIN_HASH + 1];

    chain_hex(at->hash, CHAIN_HASH, hex);
    auto_free char *text = str_printf("%" PRIu64 " %s", at->seq, hex);
    store_meta_put(r->store, HEAD, text, server_audit_on_head_stored, r);
}

static void server_audit_log_damage(const struct audit_open_report *f)
{
    if (f->torn_bytes)
        log_warn("the last record of the audit trail was incomplete; removed its %" PRIu64 " bytes", f->torn_bytes);
    if (f->shortened)
        log_error("the audit trail ends before its last known checkpoint: records were removed");
    if (f->replaced)
        log_error("the audit trail was rewritten: it lacks its last known checkpoint");
}

/* Created once; the operator of the receiver copies it from the file. It is not a setting, because
 * settings are printed and logged. */
static int server_audit_read_webhook_secret(const char *dir, char ret[2 * SECRET_LEN + 1], struct err *err)
{
    auto_free char *path = str_printf("%s/webhook.secret", dir);
    uint8_t random[SECRET_LEN];
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 && errno == ENOENT) {
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (RAND_bytes(random, sizeof(random)) != 1)
            abort();
        chain_hex(random, sizeof(random), ret);
        if (fd < 0 || fd_write_all(fd, ret, 2 * SECRET_LEN) < 0 || fsync(fd) < 0 || lseek(fd, 0, SEEK_SET) < 0)
            return err_sys(err, ERR_STATE_DIR, "%.150s", path);
    }
    if (fd < 0 || fd_read_full(fd, ret, 2 * SECRET_LEN) != 2 * SECRET_LEN)
        return err_set(err, ERR_STATE_DIR,
                       "%.150s: cannot be read or is not a webhook secret; remove the file to create a new one", path);
    ret[2 * SECRET_LEN] = '\0';
    return 0;
}

static int server_audit_open_webhook(struct server_audit *r, const char *dir, const struct server_audit_settings *set,
                                     struct err *err)
{
    char secret[2 * SECRET_LEN + 1];
    struct webhook_settings hook = { .url = set->webhook, .allow = set->webhook_allow, .secret = secret };

    if (!set->webhook || !*set->webhook)
        return 0;
    int rc = server_audit_read_webhook_secret(dir, secret, err);
    if (rc == 0 && (rc = webhook_new(r->ev, &hook, &r->webhook, err)) < 0)
        err_wrap(err, "security.webhook");
    explicit_bzero(secret, sizeof(secret));
    return rc;
}

/* A restore happens while no server runs; the next server records it once. */
static void server_audit_on_restored(void *arg, const struct err *err, const char *value)
{
    struct server_audit *r = arg;

    if (err || !value || !*value)
        return;
    auto_free char *details = str_printf("{\"restoredAt\":\"%.30s\"}", value);
    server_audit_record(r, "server.restore", details);
    store_meta_put(r->store, RESTORED, "", server_audit_on_head_stored, r);
}

int server_audit_open(struct ev *ev, struct store *store, const struct server_audit_settings *set,
                      struct server_audit **ret, struct err *err)
{
    auto_free char *dir = str_printf("%s/audit", set->state_dir);
    struct audit_head_query asked = { 0 };
    struct audit_open_report found;

    store_meta_get(store, HEAD, server_audit_on_head, &asked);
    while (!asked.answered)
        ev_turn(ev, -1);
    if (asked.err.id != ERR_NONE) {
        *err = asked.err;
        return -1;
    }
    struct server_audit *r = mem_new(struct server_audit);
    struct audit_settings log = { .dir = dir,
                                  .sync_full = set->sync_full,
                                  .segment_max = set->segment_max,
                                  .keep_max = set->keep_max,
                                  .known_checkpoint = asked.head,
                                  .on_checkpoint = server_audit_on_checkpoint,
                                  .arg = r };
    r->ev = ev;
    r->store = store;
    if (audit_open(ev, &log, &r->audit, &found, err) < 0) {
        free(r);
        return -1;
    }
    server_audit_log_damage(&found);
    r->damaged = found.shortened || found.replaced;
    if (server_audit_open_webhook(r, dir, set, err) < 0) {
        server_audit_close(r);
        return -1;
    }
    store_meta_get(store, RESTORED, server_audit_on_restored, r);
    *ret = r;
    return 0;
}

void server_audit_close(struct server_audit *r)
{
    if (!r)
        return;
    audit_close(r->audit);
    webhook_free(r->webhook);
    free(r);
}

struct audit *server_audit_log(struct server_audit *r)
{
    return r ? r->audit : NULL;
}

struct webhook *server_audit_webhook(struct server_audit *r)
{
    return r ? r->webhook : NULL;
}

bool server_audit_is_damaged(const struct server_audit *r)
{
    return r && r->damaged;
}

void server_audit_record(struct server_audit *r, const char *action, const char *details)
{
    if (r)
        audit_append(r->audit, &(struct audit_record){ .action = action, .outcome = "success", .details = details },
                     true);
}

void server_audit_sandbox_ended(struct server_audit *r, const char *id, const char *owner, const char *ended_by,
                                const struct err *why)
{
    struct audit_pair target = { "sandbox", id };
    auto_buf details = { 0 };
    struct jsonw w;

    if (!r)
        return;
    jsonw_init(&w, &details, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "endedBy", ended_by);
    jsonw_kstr(&w, "reason", why->msg);
    jsonw_end_object(&w);
    audit_append(r->audit,
                 &(struct audit_record){ .tenant = owner,
                                         .action = "sandbox.end",
                                         .outcome = "success",
                                         .target = &target,
                                         .ntarget = 1,
                                         .details = details.data },
                 true);
}

void server_audit_secret_used(struct server_audit *r, const char *owner, const char *sandbox, const char *name,
                              const char *host, uint32_t count)
{
    struct audit_pair target[] = { { "secret", name }, { "sandbox", sandbox } };
    auto_buf details = { 0 };
    struct jsonw w;

    if (!r)
        return;
    jsonw_init(&w, &details, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "host", host);
    jsonw_ku64(&w, "requests", count);
    jsonw_end_object(&w);
    audit_append(r->audit,
                 &(struct audit_record){ .tenant = owner,
                                         .action = "secret.use",
                                         .outcome = "success",
                                         .target = target,
                                         .ntarget = ARRAY_LEN(target),
                                         .details = details.data },
                 true);
}
