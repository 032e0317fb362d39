/* cove-store - `cove backup` and `cove restore`: the database of a server as one file.
 *
 * If a server runs, it is asked for a copy, over its socket or its URL, and continues to work.
 * Otherwise the database is opened here, as the user that owns it, and under the lock that keeps a
 * server from starting meanwhile. A restore is possible only while no server runs: the state in a
 * server's memory would contradict the restored database.
 *
 * A copy holds the hashes of keys and the records of all tenants, so only its owner can read it. */
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "client/cli/args.h"
#include "client/cli/report.h"
#include "client/client.h"
#include "main/conf/conf.h"
#include "main/serve/server_paths.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

struct backup_run {
    struct ev *ev;
    struct args args;
    bool json, quiet;
    struct conf conf;
    struct server_paths paths;
    struct store_settings store;
};

/* --- the backup file --- */

struct backup_target {
    const char *name;
    char *part; /* temporary name; NULL: standard output */
    int fd;
    uint64_t bytes;
    struct err *err;
};

static int backup_target_open(struct backup_target *t, const char *name, struct err *err)
{
    struct stat st;

    *t = (struct backup_target){ .name = name, .fd = -1, .err = err };
    if (str_eq(name, "-")) {
        t->fd = dup(STDOUT_FILENO);
        return t->fd < 0 ? err_sys(err, ERR_SYS, "standard output") : 0;
    }
    if (lstat(name, &st) == 0)
        return err_set(err, ERR_EXISTS,
                       "%.150s already exists, and a backup never replaces a file; choose another name", name);
    t->part = str_printf("%s.%d.part", name, getpid());
    t->fd = open(t->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return t->fd < 0 ? err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_INVALID, "%.150s", name) : 0;
}

static bool backup_target_write(void *arg, const void *data, size_t len)
{
    struct backup_target *t = arg;

    if (fd_write_all(t->fd, data, len) < 0) {
        err_sys(t->err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "%.150s", t->part ? t->name : "standard output");
        return false;
    }
    t->bytes += len;
    return true;
}

/* Renames the file to its final name after it is complete and on the disk. */
static int backup_target_close(struct backup_target *t, bool whole, struct err *err)
{
    int bad = 0;

    if (whole && t->part && fsync(t->fd) < 0)
        bad = err_sys(err, ERR_SYS, "%.150s", t->name);
    if (whole && !bad && t->part && link(t->part, t->name) < 0)
        bad = err_sys(err, errno == EEXIST ? ERR_EXISTS : ERR_SYS, "%.150s", t->name);
    if (t->part && t->fd >= 0)
        unlink(t->part);
    fd_close(&t->fd);
    free(take_ptr(&t->part));
    return bad;
}

/* --- copy from a server --- */

static bool backup_is_socket(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* Returns 1 if no server answers and the user did not name one. */
static int backup_from_server(struct backup_run *w, struct backup_target *t, struct err *err)
{
    const struct arg *url = args_find(&w->args, OPT_URL), *ca = args_find(&w->args, OPT_CACERT);
    const char *named = url ? url->value : getenv("COVE_URL");
    bool elsewhere = named && *named;
    struct client_settings set = { .url = url ? url->value : NULL, .cacert = ca ? ca->value : NULL };
    auto_(client) client = NULL;

    if (args_find(&w->args, OPT_STORE_URL))
        return url ? err_set(err, ERR_USAGE, "--url names a server and --store-url a database; use one of them") : 1;
    if (!elsewhere && backup_is_socket(w->paths.api_socket))
        set.socket = w->paths.api_socket;
    else if (!elsewhere && (args_find(&w->args, OPT_STATE_DIR) || !backup_is_socket(CLIENT_SOCKET_DEFAULT)))
        return 1;
    if (client_new(w->ev, &set, &client, err) < 0)
        return -1;
    int bad = client_download(client, "/v1/maintenance/backup", backup_target_write, t, err);
    return bad && !elsewhere && err->id == ERR_UNREACHABLE ? 1 : bad;
}

/* --- copy from the database --- */

struct backup_copy {
    bool done;
    struct err err;
};

static void backup_on_done(void *arg, const struct err *err)
{
    struct backup_copy *c = arg;

    c->done = true;
    if (err)
        c->err = *err;
}

static int backup_copy_store(struct backup_run *w, const char *path, struct err *err)
{
    struct backup_copy c = { 0 };
    struct store *store = NULL;

    if (store_open(w->ev, &w->store, &store, err) < 0)
        return -1;
    store_backup(store, path, backup_on_done, &c);
    while (!c.done)
        ev_turn(w->ev, -1);
    store_close(store);
    if (c.err.id == ERR_NONE)
        return 0;
    *err = c.err;
    return -1;
}

static int backup_send_file(const char *path, struct backup_target *t, struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char piece[65536];
    ssize_t n;

    if (fd < 0)
        return err_sys(err, ERR_SYS, "%.150s", path);
    while ((n = read(fd, piece, sizeof(piece))) > 0)
        if (!backup_target_write(t, piece, (size_t)n))
            return -1;
    return n < 0 ? err_sys(err, ERR_SYS, "%.150s", path) : 0;
}

/* Files next to the database must belong to its user, even if root runs this: a file of root would
 * keep the server from starting. */
static int backup_switch_user(uid_t uid, gid_t gid, struct err *err)
{
    if (geteuid() == uid)
        return 0;
    if ((uid != 0 && setegid(gid) < 0) || seteuid(uid) < 0 || (uid == 0 && setegid(gid) < 0))
        return err_sys(err, ERR_SYS, "cannot become uid %u", uid);
    return 0;
}

static int backup_from_database(struct backup_run *w, struct backup_target *t, struct err *err)
{
    auto_free char *path = str_printf("%s/backup.tmp", w->paths.state_dir);
    auto_fd int lock = -1;
    uid_t me = geteuid();
    gid_t my_group = getegid();

    if (store_check_exists(&w->store, err) < 0) {
        struct err why = *err;

        return err_set(err, why.id, "no server runs here, and %s; use --url, --state-dir or --store-url", why.msg);
    }
    if (server_paths_lock(&w->paths, &lock, err) < 0 || backup_switch_user(w->paths.uid, w->paths.gid, err) < 0)
        return -1;
    unlink(path);
    int bad = backup_copy_store(w, path, err);
    if (backup_switch_user(me, my_group, bad ? &(struct err){ 0 } : err) < 0)
        bad = -1;
    if (!bad)
        bad = backup_send_file(path, t, err);
    unlink(path);
    return bad;
}

/* --- verbs --- */

/* Prints one JSON object for programs, or one line for users. */
static int backup_report(const struct backup_run *w, struct buf *json, const char *text)
{
    int status = 0;

    if (w->json) {
        buf_adds(json, "\n");
        status = report_text(json);
    } else if (!w->quiet) {
        report_note("%s", text);
    }
    buf_done(json);
    return status;
}

static int backup_create(struct backup_run *w, struct err *err)
{
    const char *name = w->args.rest[0];
    struct backup_target t;

    if (str_eq(name, "-") && w->json)
        return err_set(err, ERR_USAGE, "the backup and --json cannot both go to standard output");
    umask(077);
    int got = backup_target_open(&t, name, err);
    if (got == 0)
        got = backup_from_server(w, &t, err);
    if (got == 1)
        got = backup_from_database(w, &t, err) < 0 ? -1 : 1;
    if (backup_target_close(&t, got >= 0, err) < 0 || got < 0)
        return -1;
    struct buf json = { 0 };
    struct jsonw j;

    jsonw_init(&j, &json, 0);
    jsonw_object(&j);
    jsonw_kstr(&j, "file", name);
    jsonw_ku64(&j, "sizeBytes", t.bytes);
    jsonw_kstr(&j, "from", got ? "database" : "server");
    jsonw_end_object(&j);
    auto_free char *text = str_printf("%.150s: %" PRIu64 " bytes, copied from %s", name, t.bytes,
                                      got ? "the database; no server runs" : "the running server");
    return backup_report(w, &json, text);
}

/* For the audit trail of the next server: no server can write to it now. */
static int backup_mark_restored(struct backup_run *w, struct err *err)
{
    uid_t me = geteuid();
    gid_t my_group = getegid();
    struct backup_copy c = { 0 };
    struct store *store = NULL;
    char at[32];

    if (backup_switch_user(w->paths.uid, w->paths.gid, err) < 0)
        return -1;
    int bad = store_open(w->ev, &w->store, &store, err);
    if (!bad) {
        store_meta_put(store, "server.restored", clock_rfc3339(clock_real_ns(), at), backup_on_done, &c);
        while (!c.done)
            ev_turn(w->ev, -1);
        store_close(store);
    }
    if (!bad && c.err.id != ERR_NONE) {
        *err = c.err;
        bad = -1;
    }
    return backup_switch_user(me, my_group, bad ? &(struct err){ 0 } : err) < 0 ? -1 : bad;
}

static int backup_restore(struct backup_run *w, struct err *err)
{
    const char *name = w->args.rest[0];
    auto_free char *kept = NULL;
    auto_fd int lock = -1;

    if (access(name, R_OK) < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_DENIED, "%.150s", name);
    /* With the modes of `cove serve`, which may not have created them yet. */
    if (server_paths_create(&w->paths, w->store.url.file, err) < 0)
        return -1;
    umask(077);
    if (server_paths_lock(&w->paths, &lock, err) < 0 || store_restore(&w->store, name, &kept, err) < 0 ||
        backup_mark_restored(w, err) < 0)
        return -1;
    struct buf json = { 0 };
    struct jsonw j;

    jsonw_init(&j, &json, 0);
    jsonw_object(&j);
    jsonw_kstr(&j, "restored", name);
    jsonw_key(&j, "kept");
    if (kept)
        jsonw_str(&j, kept);
    else
        jsonw_null(&j);
    jsonw_end_object(&j);
    auto_free char *text = kept ? str_printf("%.120s is now the server's database; the previous one is kept as %.120s",
                                             name, kept)
                                : str_printf("%.120s is now the server's database", name);
    return backup_report(w, &json, text);
}

/* --- settings and paths --- */

static int backup_resolve_paths(struct backup_run *w, struct err *err)
{
    struct server_paths_settings wishes = {
        .state_dir = conf_text(&w->conf, SETTING_STATE_DIR),
        .run_dir = conf_text(&w->conf, SETTING_RUN_DIR),
        .user = conf_text(&w->conf, SETTING_USER),
        .euid = geteuid(),
        .home = getenv("HOME"),
        .xdg_state = getenv("XDG_STATE_HOME"),
        .xdg_runtime = getenv("XDG_RUNTIME_DIR"),
    };

    if (server_paths_resolve(&wishes, &w->paths, err) < 0)
        return -1;
    return store_url_parse(conf_text(&w->conf, SETTING_STORE_URL), w->paths.state_dir, &w->store.url, err);
}

/* Reads the settings as `cove serve` does, so that both use the same directories. */
static int backup_read_settings(struct backup_run *w)
{
    static struct problems pr;
    const struct arg *config = args_find(&w->args, OPT_CONFIG), *dir = args_find(&w->args, OPT_STATE_DIR),
                     *url = args_find(&w->args, OPT_STORE_URL);
    const char *argv[8] = { "cove-store" };
    int argc = 1;
    auto_buf out = { 0 };

    if (config) {
        argv[argc++] = "--config";
        argv[argc++] = config->value;
    }
    if (dir) {
        argv[argc++] = "--state-dir";
        argv[argc++] = dir->value;
    }
    if (url) {
        argv[argc++] = "--store-url";
        argv[argc++] = url->value;
    }
    if (conf_read_command_line(&w->conf, argc, (char **)(uintptr_t)argv, environ, NULL, 0, &pr) == 0)
        return 0;
    problems_print(&pr, &out);
    (void)fd_write_all(STDERR_FILENO, out.data, out.len);
    return problems_exit(&pr);
}

static int backup_dispatch(struct backup_run *w, const struct cli_verb *v, struct err *err)
{
    if (w->args.nrest != 1)
        return err_set(err, ERR_USAGE, "usage: cove %s FILE", v->name);
    int status = backup_read_settings(w);
    if (status != 0)
        return status;
    if (backup_resolve_paths(w, err) < 0 || ev_new(&w->ev, err) < 0)
        return -1;
    return v->id == VERB_RESTORE ? backup_restore(w, err) : backup_create(w, err);
}

int main(int argc, char **argv)
{
    const struct cli_verb *v = argc > 0 ? cli_verb_find(argv[0]) : NULL;
    bool json = args_has_flag(argc, argv, "--json");
    struct backup_run w = { .json = json };
    struct err err = { 0 };

    signal(SIGPIPE, SIG_IGN);
    conf_init(&w.conf);
    int status = -1;
    if (!v || (v->id != VERB_BACKUP && v->id != VERB_RESTORE))
        err_set(&err, ERR_USAGE, "this program is a part of cove and must be started by it");
    else if (args_parse(v, argc, argv, &w.args, &err) == 0) {
        w.quiet = args_find(&w.args, OPT_QUIET) != NULL;
        status = backup_dispatch(&w, v, &err);
    }
    ev_free(w.ev);
    server_paths_done(&w.paths);
    conf_done(&w.conf);
    store_url_done(&w.store.url);
    args_done(&w.args);
    return status < 0 ? report_error(&err, json) : status;
}
