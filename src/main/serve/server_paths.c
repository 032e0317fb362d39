/* Ownership of the directories. For root, every user can enter the run directory, to reach the
 * API's socket, but only root can create a socket there; the state directory belongs to coved
 * alone. For another user, both directories are closed to everybody else. An existing directory is
 * used as it is if it is safe: the expected owner, and writable by no other user. */
#include "main/serve/server_paths.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/server_dirs.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

static bool server_paths_is_set(const char *s)
{
    return s && *s;
}

static int server_paths_find_user(const struct server_paths_settings *w, struct server_paths *p, struct err *err)
{
    uint64_t number;

    p->uid = w->euid;
    p->gid = getegid();
    if (w->euid != 0)
        return 0;
    struct passwd *pw = getpwnam(w->user);
    if (pw) {
        p->uid = pw->pw_uid;
        p->gid = pw->pw_gid;
    } else if (str_to_u64(w->user, UINT32_MAX - 1, &number)) {
        p->uid = p->gid = (uid_t)number;
    } else if (str_eq(w->user, "cove")) { /* the default user need not exist */
        p->uid = p->gid = SERVER_DEFAULT_UID;
    } else {
        return err_set(err, ERR_CONF_VALUE, "user: '%.60s' does not exist on this host", w->user);
    }
    if (p->uid == 0)
        return err_set(err, ERR_CONF_VALUE, "user: coved never runs as root; name another user");
    return 0;
}

int server_paths_resolve(const struct server_paths_settings *w, struct server_paths *ret, struct err *err)
{
    const struct server_dirs_env env = { w->euid, w->home, w->xdg_state, w->xdg_runtime };
    struct server_paths p = { 0 };

    if ((server_paths_is_set(w->state_dir) && w->state_dir[0] != '/') ||
        (server_paths_is_set(w->run_dir) && w->run_dir[0] != '/'))
        return err_set(err, ERR_CONF_VALUE, "stateDir and runDir must be absolute paths");
    if (server_paths_find_user(w, &p, err) < 0)
        return -1;
    if (!server_paths_is_set(w->state_dir))
        p.state_dir = server_dirs_state(&env);
    else /* neither may contain the other: coved owns the state directory and root the run directory */
        p.state_dir = server_paths_is_set(w->run_dir) ? str_dup(w->state_dir) : str_printf("%s/state", w->state_dir);
    if (server_paths_is_set(w->run_dir))
        p.run_dir = str_dup(w->run_dir);
    else
        p.run_dir = server_paths_is_set(w->state_dir) ? str_printf("%s/run", w->state_dir) : server_dirs_run(&env);
    p.output_dir = str_printf("%s/output", p.state_dir);
    p.jailer_socket = str_printf("%s/jailer.sock", p.run_dir);
    p.monitor_socket = str_printf("%s/monitor.sock", p.run_dir);
    p.egress_socket = str_printf("%s/egress.sock", p.run_dir);
    p.api_socket = server_dirs_api_socket(p.run_dir);
    *ret = p;
    if (strlen(p.monitor_socket) < sizeof(((struct sockaddr_un *)0)->sun_path))
        return 0;
    err_set(err, ERR_CONF_VALUE, "runDir is too long for the path of a socket: %.120s", p.run_dir);
    server_paths_done(ret);
    return -1;
}

void server_paths_done(struct server_paths *p)
{
    free(p->state_dir);
    free(p->run_dir);
    free(p->output_dir);
    free(p->jailer_socket);
    free(p->monitor_socket);
    free(p->egress_socket);
    free(p->api_socket);
    *p = (struct server_paths){ 0 };
}

/* mkdir -p of the parent directories; existing ones are not checked. */
static void server_paths_make_parents(const char *path)
{
    auto_free char *part = str_dup(path);

    for (char *p = strchr(part + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        (void)mkdir(part, 0755);
        *p = '/';
    }
}

static int server_paths_make_dir(const char *path, mode_t mode, uid_t uid, gid_t gid, struct err *err)
{
    struct stat st;

    server_paths_make_parents(path);
    bool made = mkdir(path, mode) == 0;
    if (!made && errno != EEXIST)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "%.160s", path);
    auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, ERR_STATE_DIR, "%.160s", path);
    if (made && geteuid() == 0 && fchown(fd, uid, gid) < 0)
        return err_sys(err, ERR_SYS, "cannot set the owner of %.160s", path);
    if (!made && st.st_uid != uid) /* an existing directory never changes its owner: it might be /etc */
        return err_set(err, ERR_STATE_DIR, "%.160s belongs to uid %u, but must belong to uid %u", path, st.st_uid, uid);
    if (fchmod(fd, mode) < 0)
        return err_sys(err, ERR_STATE_DIR, "cannot set the mode of %.160s", path);
    return 0;
}

int server_paths_create(const struct server_paths *p, const char *store_file, struct err *err)
{
    size_t len = store_file ? (size_t)(strrchr(store_file, '/') - store_file) : 0;
    auto_free char *store_dir = store_file ? str_dup_n(store_file, len ? len : 1) : NULL; /* "/" for "/x.db" */
    uid_t me = geteuid();

    if (server_paths_make_dir(p->run_dir, me == 0 ? 0755 : 0700, me, getegid(), err) < 0 ||
        server_paths_make_dir(p->state_dir, 0700, p->uid, p->gid, err) < 0 ||
        server_paths_make_dir(p->output_dir, 0700, p->uid, p->gid, err) < 0)
        return -1;
    return store_dir ? server_paths_make_dir(store_dir, 0700, p->uid, p->gid, err) : 0;
}

int server_paths_lock(const struct server_paths *p, int *ret_fd, struct err *err)
{
    auto_free char *path = str_printf("%s/serve.lock", p->run_dir);
    auto_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "%.160s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_SERVER_RUNNING, "another server uses %.160s", p->run_dir);
    *ret_fd = take_fd(&fd);
    return 0;
}
