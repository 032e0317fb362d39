/* The store remembers the last checkpoint, in a file that whoever shortens the log would have to change as well; the
 * two are compared at each start. */
#include "api/recorder.h"

#include "base/fd.h"
#include "base/jsonw.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>

#define SECRET_LEN 32u
#define RESTORED "server.restored" /* in the store, by `cove restore` */
#define HEAD "audit.head"          /* in the store: "<seq> <hash>" */

struct recorder {
    struct ev *ev;
    struct store *store;
    struct audit *audit;
    struct webhook *webhook;
    bool damaged;
};

struct asked {
    bool done;
    struct chain_link link;
    struct err err;
};

static bool read_link(const char *text, struct chain_link *ret)
{
    struct chain_link l = { 0 };

    if (!str_eat_u64(&text, INT64_MAX, &l.seq) || !str_eat(&text, " ") || strlen(text) != (size_t)2 * CHAIN_HASH ||
        !chain_unhex(text, CHAIN_HASH, l.hash))
        return false;
    *ret = l;
    return true;
}

static void on_head(void *arg, const struct err *err, const char *value)
{
    struct asked *a = arg;

    a->done = true;
    if (err && err->id != ERR_MISSING)
        a->err = *err;
    else if (!err && value && !read_link(value, &a->link))
        log_warn("what the database remembers of the audit log cannot be read");
}

static void on_kept(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("the database does not remember the last checkpoint of the audit log: %s", err->msg);
}

static void on_signed(void *arg, const struct chain_link *at)
{
    struct recorder *r = arg;
    char hex[2 * CHAIN_HASH + 1];

    chain_hex(at->hash, CHAIN_HASH, hex);
    auto_free char *text = str_printf("%" PRIu64 " %s", at->seq, hex);
    store_meta_put(r->store, HEAD, text, on_kept, r);
}

static void tell_found(const struct audit_found *f)
{
    if (f->torn)
        log_warn("the last record of the audit log was cut off in the middle; its %" PRIu64 " bytes are gone", f->torn);
    if (f->shortened)
        log_error("the audit log ends before the last checkpoint that is known: records were taken away");
    if (f->replaced)
        log_error("the audit log was written anew: it does not have the last checkpoint that is known");
}

/* Made once, and read by whoever sets up the receiver: no setting, because settings are printed and logged. */
static int read_secret(const char *dir, char ret[2 * SECRET_LEN + 1], struct err *err)
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
        return err_set(err, ERR_STATE_DIR, "%.150s cannot be read, or is no secret", path);
    ret[2 * SECRET_LEN] = '\0';
    return 0;
}

static int open_webhook(struct recorder *r, const char *dir, const struct recorder_settings *set, struct err *err)
{
    char secret[2 * SECRET_LEN + 1];
    struct webhook_settings hook = { .url = set->webhook, .allow = set->webhook_allow, .secret = secret };

    if (!set->webhook || !*set->webhook)
        return 0;
    int rc = read_secret(dir, secret, err);
    if (rc == 0 && (rc = webhook_new(r->ev, &hook, &r->webhook, err)) < 0)
        err_wrap(err, "security.webhook");
    explicit_bzero(secret, sizeof(secret));
    return rc;
}

/* A restore happens while no server runs; the next one tells of it, once. */
static void on_restored(void *arg, const struct err *err, const char *value)
{
    struct recorder *r = arg;

    if (err || !value || !*value)
        return;
    auto_free char *details = str_printf("{\"restoredAt\":\"%.30s\"}", value);
    recorder_note(r, "server.restore", details);
    store_meta_put(r->store, RESTORED, "", on_kept, r);
}

int recorder_open(struct ev *ev, struct store *store, const struct recorder_settings *set, struct recorder **ret,
                  struct err *err)
{
    auto_free char *dir = str_printf("%s/audit", set->state_dir);
    struct asked asked = { 0 };
    struct audit_found found;

    store_meta_get(store, HEAD, on_head, &asked);
    while (!asked.done)
        ev_turn(ev, -1);
    if (asked.err.id != ERR_NONE) {
        *err = asked.err;
        return -1;
    }
    struct recorder *r = mem_new(struct recorder);
    struct audit_settings log = { .dir = dir,
                                  .sync_full = set->sync_full,
                                  .segment_max = set->segment_max,
                                  .keep_max = set->keep_max,
                                  .known = asked.link,
                                  .on_signed = on_signed,
                                  .arg = r };
    r->ev = ev;
    r->store = store;
    if (audit_open(ev, &log, &r->audit, &found, err) < 0) {
        free(r);
        return -1;
    }
    tell_found(&found);
    r->damaged = found.shortened || found.replaced;
    if (open_webhook(r, dir, set, err) < 0) {
        recorder_close(r);
        return -1;
    }
    store_meta_get(store, RESTORED, on_restored, r);
    *ret = r;
    return 0;
}

void recorder_close(struct recorder *r)
{
    if (!r)
        return;
    audit_close(r->audit);
    webhook_free(r->webhook);
    free(r);
}

struct audit *recorder_audit(struct recorder *r)
{
    return r ? r->audit : NULL;
}

struct webhook *recorder_webhook(struct recorder *r)
{
    return r ? r->webhook : NULL;
}

bool recorder_damaged(const struct recorder *r)
{
    return r && r->damaged;
}

void recorder_note(struct recorder *r, const char *action, const char *details)
{
    if (r)
        audit_append(r->audit, &(struct audit_record){ .action = action, .outcome = "success", .details = details },
                     true);
}

void recorder_sandbox_ended(struct recorder *r, const char *id, const char *owner, enum ended_by by,
                            const struct err *why)
{
    struct audit_pair target = { "sandbox", id };
    auto_buf details = { 0 };
    struct jsonw w;

    if (!r)
        return;
    jsonw_init(&w, &details, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "endedBy", ended_by_name(by));
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
