/* A `cove run` whose program is a fork of a zygote: PID 1 does not start it. It is forked from a
 * process outside, joins the sandbox, raises its own walls, is adopted, and becomes the program.
 * Everything else is the product: its command line, its jailer, its receipts. So the whole suite
 * can attack from such a process, case by case.
 *
 * This file is linked in front of three functions of the product. Programs with a terminal or a
 * standard input, and all programs of a kept sandbox after the first, are started as usual:
 * language kernels have neither. */
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/engine.h"
#include "host/jailer/jailer.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

int __real_jailer_fork(const struct jailer_settings *settings, int *ret_sock, pid_t *ret_pid, struct err *err);
int __wrap_jailer_fork(const struct jailer_settings *settings, int *ret_sock, pid_t *ret_pid, struct err *err);
int __real_sandbox_handle_new(struct engine *e, const struct sandbox_spec *spec, const struct sandbox_handle_ops *ops,
                              void *arg, struct sandbox_handle **ret, struct err *err);
int __wrap_sandbox_handle_new(struct engine *e, const struct sandbox_spec *spec, const struct sandbox_handle_ops *ops,
                              void *arg, struct sandbox_handle **ret, struct err *err);
int __real_sandbox_handle_exec(struct sandbox_handle *b, const struct exec_spec *spec,
                               const struct exec_handle_ops *ops, void *arg, struct exec_handle **ret, struct err *err);
int __wrap_sandbox_handle_exec(struct sandbox_handle *b, const struct exec_spec *spec,
                               const struct exec_handle_ops *ops, void *arg, struct exec_handle **ret, struct err *err);

static struct {
    struct sandbox_handle_ops theirs;
    void *arg;
    struct sandbox_handle **box;
    bool made, zygote; /* made: the sandbox is ready; zygote: the zygote is ready */
} birth;

int __wrap_jailer_fork(const struct jailer_settings *settings, int *ret_sock, pid_t *ret_pid, struct err *err)
{
    struct jailer_settings s = *settings;
    char path[PATH_MAX] = "";

    if (readlink("/proc/self/exe", path, sizeof(path) - sizeof("kernels")) < 0)
        return err_sys(err, ERR_SYS, "/proc/self/exe");
    strcpy(strrchr(path, '/'), "/kernels");
    auto_fd int kernels = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kernels < 0)
        return err_sys(err, ERR_SYS, "%.100s", path);
    s.kernels_fd = kernels;
    return __real_jailer_fork(&s, ret_sock, ret_pid, err);
}

static void on_joined(void *unused UNUSED, const struct err *err)
{
    if (err)
        birth.theirs.on_failed(birth.arg, err);
    else
        birth.theirs.on_ready(birth.arg);
}

static void on_zygote(void *unused UNUSED, const struct err *err)
{
    birth.zygote = true;
    if (err)
        birth.theirs.on_failed(birth.arg, err);
    else if (birth.made)
        sandbox_handle_join_interpreter(*birth.box, on_joined, NULL);
}

static void on_ready(void *unused UNUSED)
{
    birth.made = true;
    if (birth.zygote)
        sandbox_handle_join_interpreter(*birth.box, on_joined, NULL);
}

static void on_failed(void *unused UNUSED, const struct err *err)
{
    birth.theirs.on_failed(birth.arg, err);
}

static void on_ended(void *unused UNUSED, const struct err *why)
{
    birth.theirs.on_ended(birth.arg, why);
}

static void on_made(void *unused UNUSED)
{
    if (birth.theirs.on_created)
        birth.theirs.on_created(birth.arg);
}

int __wrap_sandbox_handle_new(struct engine *e, const struct sandbox_spec *spec, const struct sandbox_handle_ops *ops,
                              void *arg, struct sandbox_handle **ret, struct err *err)
{
    static struct zygote_spec zygote = { "attack", "" };
    static const struct sandbox_handle_ops ours = { on_ready, on_failed, on_ended, on_made };
    struct sandbox_spec born = *spec;

    if (birth.box) /* the doctor makes several sandboxes and needs none of this */
        return __real_sandbox_handle_new(e, spec, ops, arg, ret, err);
    birth.theirs = *ops;
    birth.arg = arg;
    birth.box = ret;
    born.zygote = &zygote;
    if (getenv("COVE_MUTATE_BORN")) /* the wall that only forks of the zygote shall lack */
        zygote.preload = getenv("COVE_MUTATE_BORN");
    if (engine_start_zygote(e, &born, on_zygote, NULL, err) < 0)
        return -1;
    return __real_sandbox_handle_new(e, &born, &ours, NULL, ret, err);
}

/* The program travels in the environment, its words joined by a separator that none of them
 * contains. */
static char *in_one_word(const char *const *argv)
{
    size_t len = sizeof("COVE_ATTACK=");

    for (size_t i = 0; argv[i]; i++)
        len += strlen(argv[i]) + 1;
    char *word = mem_alloc(len), *at = stpcpy(word, "COVE_ATTACK=");
    for (size_t i = 0; argv[i]; i++) {
        if (i > 0)
            *at++ = '\x1f';
        at = stpcpy(at, argv[i]);
    }
    return word;
}

int __wrap_sandbox_handle_exec(struct sandbox_handle *b, const struct exec_spec *spec,
                               const struct exec_handle_ops *ops, void *arg, struct exec_handle **ret, struct err *err)
{
    const char *env[256] = { NULL };
    struct exec_spec born = *spec;
    size_t n = 0;

    if (spec->tty || spec->stdin_open || !sandbox_handle_has_interpreter(b))
        return __real_sandbox_handle_exec(b, spec, ops, arg, ret, err);
    while (spec->env && spec->env[n] && n < ARRAY_LEN(env) - 2) {
        env[n] = spec->env[n];
        n++;
    }
    char *word = in_one_word(spec->argv);
    env[n] = word;
    born.env = env;
    born.use_waiting_interpreter = born.is_language_kernel = true;
    int rc = __real_sandbox_handle_exec(b, &born, ops, arg, ret, err);
    free(word);
    return rc;
}
