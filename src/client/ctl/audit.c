/* cove audit: reads and verifies the audit trail of a server.
 *
 * verify reads files and needs no server: it is for users that do not trust the machine that wrote
 * them. The other commands use the server and print the records that the key may read. */
#include "client/ctl/ctl_internal.h"

#include "server/audit/verify.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "remote/fetch/fetch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define KEYS_MAX 8u
#define PEM_MAX 4096u
#define BROKEN 1 /* exit status of verify: the log was changed */

/* --- verify --- */

struct ctl_audit_check {
    struct ctl *c;
    struct sign_key *keys[KEYS_MAX];
    size_t nkeys;
    bool key_from_log; /* the key was found next to the log */
    char **files;
    size_t nfiles;
    struct chain_link expect;
    bool has_expect;
};

static int ctl_audit_add_key(struct ctl_audit_check *k, const char *path, struct err *err)
{
    char text[PEM_MAX];
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, sizeof(text));

    if (k->nkeys == KEYS_MAX)
        return err_set(err, ERR_USAGE, "--key: given more than %u times", KEYS_MAX);
    if (n < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_DENIED, "%.150s", path);
    if (sign_read(text, (size_t)n, &k->keys[k->nkeys], err) < 0)
        return err_wrap(err, "%.150s", path);
    k->nkeys++;
    return 0;
}

static void ctl_audit_add_file(struct ctl_audit_check *k, char *path)
{
    k->files = mem_resize(k->files, k->nfiles + 1, sizeof(*k->files));
    k->files[k->nfiles++] = path;
}

static int ctl_audit_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the files of a log in order, and its key if no --key was given. */
static int ctl_audit_add_dir(struct ctl_audit_check *k, const char *path, struct err *err)
{
    DIR *d = opendir(path);
    auto_free char *key = str_printf("%s/key.pub", path);
    size_t first = k->nfiles;
    const struct dirent *e;

    if (!d)
        return err_sys(err, ERR_DENIED, "%.150s", path);
    while ((e = readdir(d)))
        if (str_ends(e->d_name, ".jsonl"))
            ctl_audit_add_file(k, str_printf("%s/%s", path, e->d_name));
    closedir(d);
    if (k->nfiles == first)
        return err_set(err, ERR_MISSING, "%.150s: contains no audit log", path);
    qsort(k->files + first, k->nfiles - first, sizeof(*k->files), ctl_audit_by_name);
    if (k->nkeys > 0 || access(key, F_OK) < 0)
        return 0;
    k->key_from_log = true;
    return ctl_audit_add_key(k, key, err);
}

static int ctl_audit_read_expect(struct ctl_audit_check *k, const char *text, struct err *err)
{
    const char *p = text;

    if (!str_eat_u64(&p, INT64_MAX, &k->expect.seq) || !str_eat(&p, ":") || strlen(p) != (size_t)2 * CHAIN_HASH ||
        !chain_unhex(p, CHAIN_HASH, k->expect.hash))
        return err_set(err, ERR_USAGE, "--head %.100s: must be NUMBER:HASH of a known record", text);
    k->has_expect = true;
    return 0;
}

static int ctl_audit_read_check(struct ctl_audit_check *k, struct err *err)
{
    const struct args *a = &k->c->args;
    const struct arg *head = args_find(a, OPT_HEAD);
    struct stat st;

    for (size_t i = 0; i < a->n; i++)
        if (a->items[i].opt->id == OPT_KEY_FILE && ctl_audit_add_key(k, a->items[i].value, err) < 0)
            return -1;
    if (head && ctl_audit_read_expect(k, head->value, err) < 0)
        return -1;
    for (int i = 0; i < a->nrest; i++) {
        if (stat(a->rest[i], &st) < 0)
            return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_DENIED, "%.150s", a->rest[i]);
        if (!S_ISDIR(st.st_mode))
            ctl_audit_add_file(k, str_dup(a->rest[i]));
        else if (ctl_audit_add_dir(k, a->rest[i], err) < 0)
            return -1;
    }
    return 0;
}

static int ctl_audit_print_report_json(const struct ctl_audit_check *k, const struct verify_report *r)
{
    char hex[2 * CHAIN_HASH + 1];
    auto_buf out = { 0 };
    struct jsonw w;

    chain_hex(r->head.hash, CHAIN_HASH, hex);
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kbool(&w, "intact", r->fault == VERIFY_FINE);
    jsonw_ku64(&w, "files", r->files);
    jsonw_ku64(&w, "records", r->records);
    jsonw_ku64(&w, "firstSeq", r->first);
    jsonw_ku64(&w, "lastSeq", r->last);
    jsonw_kstr(&w, "lastHash", hex);
    jsonw_ku64(&w, "checkpoints", r->checkpoints);
    jsonw_ku64(&w, "signedTo", r->signed_to);
    jsonw_kbool(&w, "keyFromLog", k->key_from_log);
    if (r->fault) {
        jsonw_key(&w, "broken");
        jsonw_object(&w);
        jsonw_kstr(&w, "what", verify_fault_name(r->fault));
        jsonw_kstr(&w, "file", r->file);
        jsonw_ku64(&w, "line", r->line);
        jsonw_ku64(&w, "seq", r->seq);
        jsonw_kstr(&w, "why", r->why);
        jsonw_end_object(&w);
    }
    jsonw_end_object(&w);
    buf_adds(&out, "\n");
    return report_text(&out);
}

static void ctl_audit_note_signatures(const struct ctl_audit_check *k, const struct verify_report *r)
{
    if (k->nkeys == 0)
        report_note("no key was given, so %" PRIu64
                    " signatures were not checked: the files could have been rewritten completely; add --key FILE",
                    r->checkpoints);
    else if (r->signed_to == 0)
        report_note("no checkpoint is signed yet");
    else if (k->key_from_log)
        report_note(
            "the key was found next to the log, so it proves little; add --key with a copy from another machine");
}

static int ctl_audit_print_report(const struct ctl_audit_check *k, const struct verify_report *r)
{
    auto_buf out = { 0 };
    int status;

    if (k->c->json) {
        status = ctl_audit_print_report_json(k, r);
    } else {
        if (r->fault) {
            auto_free char *file = str_dup(r->file);

            str_strip_control_chars(file);
            buf_addf(&out, "%s:%" PRIu64 ": record %" PRIu64 " is broken (%s): %s\n", file, r->line, r->seq,
                     verify_fault_name(r->fault), r->why);
        } else {
            buf_addf(&out, "intact: %" PRIu64 " records, %" PRIu64 " to %" PRIu64 "; signed up to %" PRIu64 "\n",
                     r->records, r->first, r->last, r->signed_to);
        }
        status = report_text(&out);
        if (!r->fault && !k->c->quiet)
            ctl_audit_note_signatures(k, r);
    }
    return status ? status : r->fault ? BROKEN : 0;
}

static int ctl_audit_run_check(struct ctl_audit_check *k, struct err *err)
{
    auto_(verify) v = verify_new((const struct sign_key *const *)k->keys, k->nkeys, k->has_expect ? &k->expect : NULL);

    for (size_t i = 0; i < k->nfiles; i++) {
        auto_fd int fd = open(k->files[i], O_RDONLY | O_CLOEXEC);

        if (fd < 0)
            return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_DENIED, "%.150s", k->files[i]);
        if (verify_file(v, k->files[i], fd, err) < 0)
            return -1;
    }
    verify_finish(v);
    return ctl_audit_print_report(k, verify_report(v));
}

static int ctl_audit_verify(struct ctl *c, struct err *err)
{
    struct ctl_audit_check k = { .c = c };

    if (c->args.nrest < 1)
        return err_set(err, ERR_USAGE, "missing argument; usage: cove audit verify [--key FILE] FILE|DIR...");
    int status = ctl_audit_read_check(&k, err);
    if (status == 0)
        status = ctl_audit_run_check(&k, err);
    for (size_t i = 0; i < k.nkeys; i++)
        sign_free(k.keys[i]);
    for (size_t i = 0; i < k.nfiles; i++)
        free(k.files[i]);
    free(k.files);
    return status;
}

/* --- export, tail and key --- */

/* Parses a time of the command line: RFC 3339, or a duration ago ("2h"). */
static int ctl_audit_read_moment(const char *flag, const char *text, char ret[32], struct err *err)
{
    uint64_t ms, now = clock_real_ms();

    if (str_to_ms(text, &ms) && ms < now) {
        clock_rfc3339((now - ms) * NS_PER_MS, ret);
        return 0;
    }
    if (!clock_from_rfc3339(text, &ms))
        return err_set(err, ERR_USAGE,
                       "--%s %.40s: must be a time such as 2027-01-31T12:00:00Z, or a duration ago, such as 2h", flag,
                       text);
    clock_rfc3339_ms(ms, ret);
    return 0;
}

static int ctl_audit_add_moment(const struct ctl *c, int opt, const char *name, struct buf *path, struct err *err)
{
    const struct arg *a = args_find(&c->args, opt);
    char text[32];

    if (!a)
        return 0;
    if (ctl_audit_read_moment(name, a->value, text, err) < 0)
        return -1;
    auto_free char *escaped = fetch_escape(text);
    buf_addf(path, "&%s=%s", name, escaped);
    return 0;
}

static void ctl_audit_add_text(const struct ctl *c, int opt, const char *name, struct buf *path)
{
    const struct arg *a = args_find(&c->args, opt);

    if (!a)
        return;
    auto_free char *escaped = fetch_escape(a->value);
    buf_addf(path, "&%s=%s", name, escaped);
}

static bool ctl_audit_write_bytes(void *arg, const void *data, size_t len)
{
    struct err *err = arg;

    if (fd_write_all(STDOUT_FILENO, data, len) == 0)
        return true;
    err_sys(err, ERR_SYS, "standard output");
    return false;
}

static int ctl_audit_export(struct ctl *c, struct err *err)
{
    auto_buf path = { 0 };

    if (ctl_require_args(c, 0, 0, "audit export [--since WHEN] [--until WHEN] [--tenant NAME]", err) < 0)
        return -1;
    buf_adds(&path, "/v1/audit?format=jsonl");
    if (ctl_audit_add_moment(c, OPT_SINCE, "since", &path, err) < 0 ||
        ctl_audit_add_moment(c, OPT_UNTIL, "until", &path, err) < 0)
        return -1;
    ctl_audit_add_text(c, OPT_TENANT, "tenant", &path);
    ctl_audit_add_text(c, OPT_ACTION, "action", &path);
    return client_download(c->client, path.data, ctl_audit_write_bytes, err, err);
}

static int ctl_audit_print_record(const struct ctl *c, const json_t *r, struct err *err)
{
    const json_t *actor = json_object_get(r, "actor"), *target = json_object_get(r, "target");
    const char *actor_name = *ctl_field_text(actor, "user")  ? ctl_field_text(actor, "user")
                             : *ctl_field_text(actor, "key") ? ctl_field_text(actor, "key")
                                                             : ctl_field_text(actor, "kind");
    auto_free char *what = json_dumps(target, JSON_COMPACT),
                   *details = json_dumps(json_object_get(r, "details"), JSON_COMPACT);
    auto_free char *text = NULL;

    if (c->json)
        text = ctl_json_text(r);
    else
        text = str_printf("%s  %-18s %-8s  %-10s %-22s %s%s%s%s", ctl_field_text(r, "at"), ctl_field_text(r, "action"),
                          ctl_field_text(r, "outcome"), ctl_field_text(r, "tenant"), actor_name, what ? what : "",
                          *ctl_field_text(r, "error") ? " " : "", ctl_field_text(r, "error"), details ? details : "");
    if (!c->json)
        str_strip_control_chars(text);
    if (printf("%s\n", text) < 0 || fflush(stdout) != 0)
        return err_sys(err, ERR_SYS, "standard output");
    return 0;
}

static int ctl_audit_print_page(const struct ctl *c, const json_t *answer, struct err *err)
{
    const json_t *list = json_object_get(answer, "items");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (ctl_audit_print_record(c, json_array_get(list, i), err) < 0)
            return -1;
    return 0;
}

/* Prints the pages after `last` for ever; polls once per second when there is nothing new. */
static int ctl_audit_follow(struct ctl *c, const char *filter, uint64_t last, struct err *err)
{
    for (;;) {
        auto_free char *path = str_printf("/v1/audit?limit=1000&cursor=%" PRIu64 "%s", last, filter);
        AUTO_JSON *answer = NULL;

        if (client_json(c->client, "GET", path, NULL, &answer, err) < 0) {
            if (err->id != ERR_UNREACHABLE && err->id != ERR_CUT_OFF && err->id != ERR_BUSY)
                return -1;
        } else if (ctl_audit_print_page(c, answer, err) < 0) {
            return -1;
        } else {
            last = ctl_field_number(answer, "lastSeq");
        }
        if (!json_object_get(answer, "nextCursor"))
            nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    }
}

static int ctl_audit_tail(struct ctl *c, struct err *err)
{
    const struct arg *lines = args_find(&c->args, OPT_LINES);
    auto_buf filter = { 0 };
    AUTO_JSON *answer = NULL;
    uint64_t n = 20;

    if (ctl_require_args(c, 0, 0, "audit tail [-f] [-n COUNT]", err) < 0)
        return -1;
    if (lines && (!str_to_u64(lines->value, 1000, &n) || n == 0))
        return err_set(err, ERR_USAGE, "--lines %.40s: must be a number from 1 to 1000", lines->value);
    ctl_audit_add_text(c, OPT_TENANT, "tenant", &filter);
    ctl_audit_add_text(c, OPT_ACTION, "action", &filter);
    auto_free char *path = str_printf("/v1/audit?latest=true&limit=%" PRIu64 "%s", n, filter.data ? filter.data : "");
    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0 || ctl_audit_print_page(c, answer, err) < 0)
        return -1;
    return args_find(&c->args, OPT_FOLLOW)
               ? ctl_audit_follow(c, filter.data ? filter.data : "", ctl_field_number(answer, "lastSeq"), err)
               : 0;
}

static int ctl_audit_show_key(struct ctl *c, struct err *err)
{
    AUTO_JSON *answer = NULL;
    auto_buf out = { 0 };

    if (ctl_require_args(c, 0, 0, "audit key", err) < 0 ||
        client_json(c->client, "GET", "/v1/audit/key", NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    buf_adds(&out, ctl_field_text(answer, "publicKey"));
    return report_text(&out);
}

int ctl_audit(struct ctl *c, const char *what, struct err *err)
{
    if (str_eq(what, "verify"))
        return ctl_audit_verify(c, err);
    if (str_eq(what, "export"))
        return ctl_audit_export(c, err);
    return str_eq(what, "tail") ? ctl_audit_tail(c, err) : ctl_audit_show_key(c, err);
}
