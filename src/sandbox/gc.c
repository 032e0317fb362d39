/* Forgetting what is old: first the rows, in batches as the store removes them, and with each batch the output of its
 * executions. A kill between the two leaves output files whose row is gone; so does a restored backup. Nothing but a
 * look at every file finds those, one after another, and only when somebody asks for it. */
#include "sandbox/inside.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static void finish(struct manager *m, const struct err *err)
{
    if (m->gc_dir)
        closedir(take_ptr(&m->gc_dir));
    m->collecting = false;
    m->gc_done(m->gc_arg, err, err ? NULL : &m->removed);
}

static void remove_stray(struct manager *m, const char *name)
{
    struct stat st;

    if (fstatat(m->output_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return; /* its other half, taken before */
    if (!m->keep.rehearse && unlinkat(m->output_dir, name, 0) < 0) {
        log_warn("output %s: %s", name, strerror(errno));
        return;
    }
    m->removed.stray_files++;
    m->removed.stray_bytes += (uint64_t)st.st_size;
}

static void next_stray(struct manager *m);

static void on_looked_up(void *arg, const struct err *err, const struct store_execution *row UNUSED)
{
    struct manager *m = arg;

    if (err && err->id == ERR_MISSING)
        remove_stray(m, m->gc_name);
    if (err && err->id != ERR_MISSING)
        finish(m, err);
    else
        next_stray(m);
}

static void next_stray(struct manager *m)
{
    const struct dirent *e;
    char id[ID_SIZE];

    while ((e = readdir(m->gc_dir)))
        if (output_is_name(e->d_name, id) && str_copy(m->gc_name, sizeof(m->gc_name), e->d_name)) {
            store_execution_get(m->store, STORE_ANY_OWNER, id, on_looked_up, m);
            return;
        }
    finish(m, NULL);
}

static void find_strays(struct manager *m)
{
    auto_fd int fd = openat(m->output_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err;

    m->gc_dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!m->gc_dir) {
        err_sys(&err, ERR_SYS, "the directory of outputs");
        finish(m, &err);
        return;
    }
    take_fd(&fd);
    next_stray(m);
}

static void on_collected(void *arg, const struct err *err, const struct store_gc_report *report)
{
    struct manager *m = arg;

    if (err) {
        finish(m, err);
        return;
    }
    for (size_t i = 0; report->executions && i < report->nexecutions; i++)
        output_remove(m, report->executions[i]);
    m->removed.executions += report->nexecutions;
    m->removed.output_bytes += report->output_bytes;
    m->removed.sandboxes += report->sandboxes;
    m->removed.events += report->events;
    m->removed.idem += report->idem;
    m->removed.usage += report->usage;
    if (report->more)
        store_gc(m->store, &m->keep, on_collected, m);
    else if (m->strays)
        find_strays(m);
    else
        finish(m, NULL);
}

void manager_gc(struct manager *m, const struct store_retention *keep, bool strays, manager_gc_fn *done, void *arg)
{
    struct err err;

    if (m->collecting) {
        err_set(&err, ERR_BUSY, "what is too old is being removed already");
        done(arg, &err, NULL);
        return;
    }
    m->collecting = true;
    m->strays = strays;
    m->keep = *keep;
    m->removed = (struct manager_gc){ 0 };
    m->gc_done = done;
    m->gc_arg = arg;
    store_gc(m->store, keep, on_collected, m);
}
