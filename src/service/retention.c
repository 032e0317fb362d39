/* Rows are removed in batches as the store returns them, and with each batch the output files of
 * its executions. A kill between the two leaves output files without a row, as does a restored
 * backup. Only a scan of all files finds those, one lookup per file, and only on request. */
#include "service/retention.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct retention {
    struct store *store;
    struct output_dir *output_dir;
    bool running, strays;
    struct store_retention keep;
    DIR *dir;               /* open while output files are searched for strays */
    char name[ID_SIZE + 8]; /* of the file that is looked up */
    struct manager_gc removed;
    manager_gc_fn *done;
    void *arg;
};

struct retention *retention_new(struct store *store, struct output_dir *output_dir)
{
    struct retention *r = mem_new(struct retention);

    r->store = store;
    r->output_dir = output_dir;
    return r;
}

void retention_free(struct retention *r)
{
    if (!r)
        return;
    if (r->dir)
        closedir(r->dir);
    free(r);
}

static void retention_finish(struct retention *r, const struct err *err)
{
    if (r->dir)
        closedir(take_ptr(&r->dir));
    r->running = false;
    r->done(r->arg, err, err ? NULL : &r->removed);
}

static void retention_remove_stray(struct retention *r, const char *name)
{
    struct stat st;

    if (fstatat(output_dir_fd(r->output_dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return; /* removed meanwhile */
    if (!r->keep.dry_run && unlinkat(output_dir_fd(r->output_dir), name, 0) < 0) {
        log_warn("output %s: %s", name, strerror(errno));
        return;
    }
    r->removed.stray_files++;
    r->removed.stray_bytes += (uint64_t)st.st_size;
}

static void retention_next_stray(struct retention *r);

static void retention_on_looked_up(void *arg, const struct err *err, const struct store_execution *row UNUSED)
{
    struct retention *r = arg;

    if (err && err->id == ERR_MISSING)
        retention_remove_stray(r, r->name);
    if (err && err->id != ERR_MISSING)
        retention_finish(r, err);
    else
        retention_next_stray(r);
}

static void retention_next_stray(struct retention *r)
{
    const struct dirent *e;
    char id[ID_SIZE];

    while ((e = readdir(r->dir)))
        if (output_dir_parse_name(e->d_name, id) && str_copy(r->name, sizeof(r->name), e->d_name)) {
            store_execution_get(r->store, STORE_ANY_OWNER, id, retention_on_looked_up, r);
            return;
        }
    retention_finish(r, NULL);
}

static void retention_find_strays(struct retention *r)
{
    auto_fd int fd = openat(output_dir_fd(r->output_dir), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err;

    r->dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!r->dir) {
        err_sys(&err, ERR_SYS, "output directory");
        retention_finish(r, &err);
        return;
    }
    take_fd(&fd);
    retention_next_stray(r);
}

static void retention_on_batch(void *arg, const struct err *err, const struct store_gc_report *report)
{
    struct retention *r = arg;

    if (err) {
        retention_finish(r, err);
        return;
    }
    for (size_t i = 0; report->executions && i < report->nexecutions; i++)
        output_dir_remove(r->output_dir, report->executions[i]);
    r->removed.executions += report->nexecutions;
    r->removed.output_bytes += report->output_bytes;
    r->removed.sandboxes += report->sandboxes;
    r->removed.events += report->events;
    r->removed.idem += report->idem;
    r->removed.usage += report->usage;
    r->removed.scripts += report->scripts;
    if (report->more)
        store_gc(r->store, &r->keep, retention_on_batch, r);
    else if (r->strays)
        retention_find_strays(r);
    else
        retention_finish(r, NULL);
}

void retention_run(struct retention *r, const struct store_retention *keep, bool strays, manager_gc_fn *done, void *arg)
{
    struct err err;

    if (r->running) {
        err_set(&err, ERR_BUSY, "retention is running already; try again later");
        done(arg, &err, NULL);
        return;
    }
    r->running = true;
    r->strays = strays;
    r->keep = *keep;
    r->removed = (struct manager_gc){ 0 };
    r->done = done;
    r->arg = arg;
    store_gc(r->store, keep, retention_on_batch, r);
}
