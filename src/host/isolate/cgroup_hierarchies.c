/* Finds out which cgroup hierarchy of this host does which job.
 *
 * Controllers are read from mountinfo, never guessed. A v1 hierarchy wins where it is mounted,
 * because a controller belongs to one hierarchy only; v2 serves the rest. On a hybrid host, a v2
 * tree without controllers is still used, because it counts CPU time, freezes and kills by itself,
 * which replaces two v1 hierarchies. */
#include "host/isolate/cgroup.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/isolate/cgtext.h"
#include "host/isolate/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static const struct {
    enum cgroup_job job;
    const char *v1; /* controller in the options of a v1 mount */
    const char *v2; /* controller in cgroup.controllers; NULL: v2 needs none */
} cgroup_job_controllers[] = {
    { CGROUP_MEMORY, "memory", "memory" }, { CGROUP_PIDS, "pids", "pids" },   { CGROUP_CPU, "cpu", "cpu" },
    { CGROUP_CPUSET, "cpuset", "cpuset" }, { CGROUP_USAGE, "cpuacct", NULL }, { CGROUP_FREEZE, "freezer", NULL },
    { CGROUP_IO, "blkio", "io" },
};

static int cgroup_add_tree(struct cgroup_hierarchies *f, const char *point, const char *parent, bool v2,
                           struct err *err)
{
    auto_free char *path = str_printf("%s/%s", point, parent);
    struct stat st, known;

    auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) {
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return err_sys(err, ERR_NO_CGROUP, "mkdir %s", path);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, ERR_NO_CGROUP, "open %s", path);
    for (size_t i = 0; i < f->ntrees; i++) /* co-mounted controllers appear once each */
        if (fstat(f->trees[i], &known) == 0 && known.st_dev == st.st_dev && known.st_ino == st.st_ino)
            return (int)i;
    if (f->ntrees == CGROUP_TREES)
        return err_set(err, ERR_NO_CGROUP, "this host has more than %d cgroup hierarchies", CGROUP_TREES);
    f->found_empty = f->found_empty && st.st_nlink == 2; /* "." and the parent's entry: it has no subdirectory */
    f->v2[f->ntrees] = v2;
    f->trees[f->ntrees] = take_fd(&fd);
    return (int)f->ntrees++;
}

/* Enables controllers for the children of a directory. Controllers that the host does not delegate
 * stay disabled. */
static void cgroup_enable_controllers(int dir, const char *controllers)
{
    static const char *const wanted[] = { "memory", "pids", "cpu", "cpuset", "io" };

    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        char text[16];

        if (!cgtext_has_word(controllers, wanted[i]))
            continue;
        snprintf(text, sizeof(text), "+%s", wanted[i]);
        (void)fd_put_at(dir, "cgroup.subtree_control", text);
    }
}

/* v2 does the jobs of the controllers that are bound to it. It counts, freezes and kills without a
 * controller. */
static void cgroup_use_v2(struct cgroup_hierarchies *f, int tree)
{
    char enabled[512] = "";
    int dir = f->trees[tree];

    (void)fd_get_at(dir, "cgroup.subtree_control", enabled, sizeof(enabled));
    /* Checked in the parent directory: the leaves do not exist yet. */
    f->has_cgroup_kill = faccessat(dir, "cgroup.kill", F_OK, 0) == 0;
    for (size_t i = 0; i < ARRAY_LEN(cgroup_job_controllers); i++)
        if (cgroup_job_controllers[i].v2 ? cgtext_has_word(enabled, cgroup_job_controllers[i].v2) : f->has_cgroup_kill)
            f->job[cgroup_job_controllers[i].job] = tree;
}

static bool cgroup_find_v2(struct cgroup_hierarchies *f, const char *point, const char *parent)
{
    char controllers[512] = "";
    int tree = cgroup_add_tree(f, point, parent, true, NULL);

    if (tree < 0)
        return false;
    auto_fd int root = open(point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root >= 0 && fd_get_at(root, "cgroup.controllers", controllers, sizeof(controllers)) >= 0) {
        cgroup_enable_controllers(root, controllers);
        cgroup_enable_controllers(f->trees[tree], controllers);
    }
    cgroup_use_v2(f, tree);
    return true;
}

/* v1 does the remaining jobs. Without cgroup.kill, the v1 freezer kills faster than v2, so it is
 * preferred. */
static bool cgroup_find_v1(struct cgroup_hierarchies *f, const struct mountinfo *m, const char *parent)
{
    bool found = false;

    for (size_t i = 0; i < ARRAY_LEN(cgroup_job_controllers); i++) {
        int *job = &f->job[cgroup_job_controllers[i].job];

        if (*job >= 0 || !mountinfo_has_option(m->super, cgroup_job_controllers[i].v1))
            continue;
        *job = cgroup_add_tree(f, m->point, parent, false, NULL);
        found = found || *job >= 0;
    }
    return found;
}

/* Assigns jobs that v1 does not do to v2, and fails if a required job has no hierarchy. */
static int cgroup_complete_jobs(struct cgroup_hierarchies *f, bool v2, struct err *err)
{
    static const struct {
        enum cgroup_job job;
        const char *name;
    } needed[] = { { CGROUP_MEMORY, "memory" }, { CGROUP_PIDS, "pids" }, { CGROUP_FREEZE, "freezing" } };

    for (size_t i = 0; v2 && i < ARRAY_LEN(cgroup_job_controllers); i++)
        if (!cgroup_job_controllers[i].v2 && f->job[cgroup_job_controllers[i].job] < 0)
            f->job[cgroup_job_controllers[i].job] = 0; /* tree 0 is v2 */
    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if (f->job[needed[i].job] < 0) {
            cgroup_close_hierarchies(f);
            return err_set(
                err, ERR_NO_CGROUP,
                "no writable cgroup controller for %s; a container that mounts cgroups read-only needs --privileged",
                needed[i].name);
        }
    return 0;
}

int cgroup_find_hierarchies(struct cgroup_hierarchies *f, const char *mountinfo, const char *parent, bool ignore_v2,
                            struct err *err)
{
    struct mountinfo m;
    const char *text;
    bool v1 = false, v2 = false;

    cgroup_init_none(f);
    f->found_empty = true;
    for (text = mountinfo; !ignore_v2 && !v2 && mountinfo_next(&text, &m);)
        v2 = str_eq(m.type, "cgroup2") && cgroup_find_v2(f, m.point, parent);
    for (text = mountinfo; mountinfo_next(&text, &m);)
        if (str_eq(m.type, "cgroup") && cgroup_find_v1(f, &m, parent))
            v1 = true;
    snprintf(f->kind, sizeof(f->kind), "%s", v1 && v2 ? "hybrid" : v1 ? "v1" : v2 ? "v2" : "none");
    return cgroup_complete_jobs(f, v2, err);
}

int cgroup_use_dir(struct cgroup_hierarchies *f, int dir, struct err *err)
{
    char controllers[512] = "";

    cgroup_init_none(f);
    f->trees[0] = dir;
    f->v2[0] = true;
    f->ntrees = 1;
    if (fd_get_at(dir, "cgroup.controllers", controllers, sizeof(controllers)) >= 0)
        cgroup_enable_controllers(dir, controllers);
    cgroup_use_v2(f, 0);
    snprintf(f->kind, sizeof(f->kind), "v2");
    return cgroup_complete_jobs(f, true, err);
}

void cgroup_init_none(struct cgroup_hierarchies *f)
{
    *f = (struct cgroup_hierarchies){ .kind = "none" };
    for (size_t i = 0; i < CGROUP_JOBS; i++)
        f->job[i] = -1;
}

void cgroup_close_hierarchies(struct cgroup_hierarchies *f)
{
    for (size_t i = 0; i < f->ntrees; i++)
        close(f->trees[i]);
    f->ntrees = 0;
}

int cgroup_lock_file(const struct cgroup_hierarchies *f)
{
    if (f->job[CGROUP_PIDS] < 0) {
        errno = ENOENT;
        return -1;
    }
    return openat(f->trees[f->job[CGROUP_PIDS]], "cgroup.procs", O_RDWR | O_CLOEXEC);
}
