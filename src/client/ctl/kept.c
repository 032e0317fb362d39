/* Kept sandboxes in the verbs that also know those of a server: listing them, and running a command
 * or copying files with the programs inside. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/state_dir.h"

#include <fcntl.h>
#include <unistd.h>

static const char *ctl_kept_dir(const struct ctl *c, char buf[STATE_DIR_MAX])
{
    const struct arg *given = args_find(&c->args, OPT_STATE_DIR);

    return state_dir(given ? given->value : NULL, buf);
}

void ctl_kept_list(struct ctl *c, void (*each)(void *arg, const char *id, uint64_t since_real_ns), void *arg)
{
    char buf[STATE_DIR_MAX];
    struct err err = { 0 };

    (void)c->kept->list(ctl_kept_dir(c, buf), each, arg, &err); /* a directory of another user has none of ours */
}

int ctl_kept_remove(struct ctl *c, const char *id, struct err *err)
{
    char buf[STATE_DIR_MAX];

    return kept_sandbox_remove(c->kept, ctl_kept_dir(c, buf), id, err);
}

int ctl_kept_exec(struct ctl *c, const char *id, const char *const *argv, bool tty, bool input, struct err *err)
{
    struct kept_command command = { .argv = argv, .wall_ms = KEPT_COMMAND_TIMEOUT_MS, .tty = tty, .input = input };
    char buf[STATE_DIR_MAX];
    int status = kept_command_read(&c->args, &command, err);

    if (status == 0)
        status = kept_sandbox_exec(c->kept, ctl_kept_dir(c, buf), id, &command, err);
    kept_command_done(&command);
    return status;
}

/* The streams of the command are those of this process, so one of them is replaced meanwhile. */
static int ctl_kept_transfer(struct ctl *c, const char *id, const char *line, const char *path, int fd, int stream,
                             struct err *err)
{
    const char *const argv[] = { "/bin/sh", "-c", line, "sh", path, NULL };
    auto_fd int own = fcntl(stream, F_DUPFD_CLOEXEC, 3);

    if (dup2(fd, stream) < 0)
        return err_sys(err, ERR_SYS, "dup2");
    int status = ctl_kept_exec(c, id, argv, false, stream == STDIN_FILENO, err);
    if (own >= 0)
        (void)dup2(own, stream);
    if (status > 0) /* its message is on standard error */
        return err_set(err, ERR_MISSING, "%.160s: could not be copied", path);
    return status;
}

int ctl_kept_write(struct ctl *c, const char *id, const char *line, const char *path, int fd, struct err *err)
{
    return ctl_kept_transfer(c, id, line, path, fd, STDIN_FILENO, err);
}

int ctl_kept_read(struct ctl *c, const char *id, const char *line, const char *path, int fd, struct err *err)
{
    return ctl_kept_transfer(c, id, line, path, fd, STDOUT_FILENO, err);
}
