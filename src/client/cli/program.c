/* The first argument is a script if it was not written after "--" and names a file of the host that
 * is not a program visible in the sandbox. Only this file is mounted, below /mnt/script and under
 * its own name, so sys.argv[0] and $0 end with the name that the caller wrote. A script in the
 * directory of --workspace is run from /workspace instead, so that it finds the files next to it.
 * The descriptor is opened once, here, and the first bytes are read through it: the inspected file
 * is the file that is mounted, whatever happens to the path in between. */
#include "client/cli/program.h"

#include "sandbox/drivers.h"
#include "policy/languages.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define SCRIPT_DIR "/mnt/script/"
#define WORDS_MAX (56 * KIB)
#define CODE_ARG_MAX (16 * KIB) /* longer code is sent as a file: all arguments together must fit into one frame */

static void program_push_word(struct program *p, const char *word)
{
    p->argv = mem_resize(p->argv, p->argc + 2, sizeof(char *));
    p->argv[p->argc++] = str_dup(word);
    p->argv[p->argc] = NULL;
}

static void program_push_rest(struct program *p, const struct run_options *r, int from)
{
    for (int i = from; i < r->nwords; i++)
        program_push_word(p, r->words[i]);
}

bool program_shebang(char *line, const char **ret_program, const char **ret_arg)
{
    char *save = NULL;

    if (line[0] != '#' || line[1] != '!')
        return false;
    line[strcspn(line, "\r\n")] = '\0';
    char *first = strtok_r(line + 2, " \t", &save);
    if (!first)
        return false;
    char *arg = strtok_r(NULL, " \t", &save);
    const char *base = strrchr(first, '/');
    if (base && str_eq(base, "/env")) {
        while (arg && (str_eq(arg, "-S") || strchr(arg, '=')))
            arg = strtok_r(NULL, " \t", &save);
        if (!arg)
            return false;
        first = arg;
        arg = strtok_r(NULL, " \t", &save);
    }
    *ret_program = first;
    *ret_arg = arg;
    return true;
}

/* Sets the path of the script inside the sandbox: below /workspace if the script is part of the
 * workspace, else a mount of its own. */
static int program_place_script(const struct run_options *r, const char *path, int fd, struct program *p,
                                struct err *err)
{
    char real[PATH_MAX], root[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    if (r->workspace && realpath(path, real) && realpath(r->workspace, root)) {
        size_t n = strlen(root);

        if (strncmp(real, root, n) == 0 && (real[n] == '/' || n == 1)) {
            int len = snprintf(p->script_dst, sizeof(p->script_dst), "/workspace/%s", real + (n == 1 ? 1 : n + 1));

            if (len > 0 && (size_t)len < sizeof(p->script_dst))
                return 0;
        }
    }
    for (const char *s = name; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return err_set(err, ERR_INVALID, "script: the name contains control characters; rename the file");
    int len = snprintf(p->script_dst, sizeof(p->script_dst), SCRIPT_DIR "%s", name);
    if (len < 0 || (size_t)len > 250)
        return err_set(err, ERR_INVALID, "script %.60s...: the name is too long; rename the file", name);
    p->script_fd = fd;
    return 0;
}

static int program_push_language(const struct language *rt, const struct program_search *place, struct program *p,
                                 struct err *err)
{
    char path[PATH_MAX];

    int rc = place->dirs ? language_find_program(rt, place->dirs, path, sizeof(path), err)
                         : drivers_ops(place->driver)->find_language("", rt, path, sizeof(path), err);
    if (rc < 0)
        return -1;
    program_push_word(p, path);
    p->profile = rt->profile;
    return 0;
}

/* Opens a regular file and reads its first bytes into head. */
static int program_open_script(const char *path, int *ret_fd, char *head, size_t cap, struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;

    if (fd < 0)
        return err_sys(err, errno == ENOENT || errno == ENOTDIR ? ERR_SCRIPT_MISSING : ERR_BIND_SOURCE, "script %.120s",
                       path);
    if (fstat(fd, &st) < 0)
        return err_sys(err, ERR_SYS, "fstat of %.120s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "script %.120s: not a regular file", path);
    ssize_t n = pread(fd, head, cap - 1, 0);
    if (n < 0)
        return err_sys(err, ERR_BIND_SOURCE, "reading %.120s", path);
    head[n] = '\0';
    *ret_fd = take_fd(&fd);
    return 0;
}

/* Pushes the interpreter of the script. */
static int program_push_interpreter(const char *path, const struct language *rt, char *head,
                                    const struct program_search *place, struct program *p, struct err *err)
{
    const char *program, *arg;

    if (!rt)
        rt = language_by_extension(path);
    if (!rt && head[0] == '#' && program_shebang(head, &program, &arg)) {
        p->profile = language_profile(program);
        program_push_word(p, program);
        if (arg)
            program_push_word(p, arg);
        return 0;
    }
    if (rt)
        return program_push_language(rt, place, p, err);
    if (memcmp(head, "\177ELF", 4) == 0) /* a binary runs without an interpreter */
        return 0;
    return err_set(err, ERR_INVALID,
                   "script %.120s: unknown language; add --runtime NAME, a known extension or a #! line", path);
}

static int program_use_script(const struct run_options *r, const struct language *rt,
                              const struct program_search *place, struct program *p, struct err *err)
{
    const char *path = r->words[0];
    char head[256] = "";
    auto_fd int fd = -1;

    if (program_open_script(path, &fd, head, sizeof(head), err) < 0)
        return -1;
    if (program_push_interpreter(path, rt, head, place, p, err) < 0)
        return -1;
    if (program_place_script(r, path, fd, p, err) < 0)
        return -1;
    if (p->script_fd >= 0)
        take_fd(&fd);
    program_push_word(p, p->script_dst);
    program_push_rest(p, r, 1);
    return 0;
}

static int program_use_language(const struct run_options *r, const struct program_search *place, struct program *p,
                                struct err *err)
{
    const char *name = r->runtime ? r->runtime : RUN_OPTIONS_LANGUAGE_DEFAULT;
    const struct language *rt = language_by_name(name);
    bool from_stdin = r->nwords == 0 ? place->stdin_open && !r->tty : str_eq(r->words[0], "-");

    if (!rt)
        return language_unknown_error("--runtime", name, err);
    if (!r->code && r->nwords == 0 && !from_stdin && !r->tty)
        return err_set(err, ERR_USAGE,
                       "nothing to run: add a script, -c CODE, or - for code on standard input; -t "
                       "starts an interactive session");
    if (!r->code && !from_stdin && r->nwords > 0 && !(r->after_dashes && r->words[0][0] == '-'))
        return program_use_script(r, rt, place, p, err);
    if (program_push_language(rt, place, p, err) < 0)
        return -1;
    if (r->code) {
        bool long_ = strlen(r->code) > CODE_ARG_MAX;

        p->code = long_ ? r->code : NULL;
        program_push_word(p, rt->code_flag);
        program_push_word(p, long_ ? rt->code_loader : r->code);
        if (rt->code_needs_argv0)
            program_push_word(p, rt->name);
        program_push_rest(p, r, 0);
        return 0;
    }
    if (from_stdin) {
        for (size_t i = 0; rt->stdin_args[i]; i++)
            program_push_word(p, rt->stdin_args[i]);
        p->reads_stdin = true;
        program_push_rest(p, r, 1);
        return 0;
    }
    program_push_rest(p, r, 0); /* arguments of the runtime itself; none: an interactive session */
    return 0;
}

static bool program_is_in_dirs(const char *name, const char *const *dirs)
{
    char path[PATH_MAX];

    for (size_t i = 0; dirs[i]; i++) {
        int n = snprintf(path, sizeof(path), "%s/%s", dirs[i], name);

        if (n > 0 && (size_t)n < sizeof(path) && access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static bool program_is_script(const char *word, const char *const *dirs)
{
    struct stat st;
    bool found = stat(word, &st) == 0 && S_ISREG(st.st_mode);

    if (strchr(word, '/'))
        return (found && !language_path_is_shared(word)) || (!found && word[0] != '/' && language_by_extension(word));
    if (language_by_extension(word))
        return found || !program_is_in_dirs(word, dirs); /* report a missing script as such, not as a missing program */
    return found && !program_is_in_dirs(word, dirs);
}

/* Arguments and variables are sent in one frame each, of 64 KiB. */
static int program_check_size(const struct run_options *r, const struct program *p, struct err *err)
{
    size_t args = strlen(r->cwd), env = 0;

    for (size_t i = 0; i < p->argc; i++)
        args += strlen(p->argv[i]) + 4;
    for (size_t i = 0; i < r->nenv; i++)
        env += strlen(r->env[i]) + 4;
    if (args > WORDS_MAX)
        return err_set(err, ERR_INVALID,
                       "the arguments have %zu bytes, more than %llu; pass the data in a file or on "
                       "standard input",
                       args, WORDS_MAX);
    if (env > WORDS_MAX)
        return err_set(err, ERR_INVALID, "--env: the variables have %zu bytes, more than %llu; pass the data in a file",
                       env, WORDS_MAX);
    return 0;
}

int program_resolve(const struct run_options *r, const struct program_search *place, struct program *ret,
                    struct err *err)
{
    struct program p = { .script_fd = -1, .profile = PROFILE_BASE };
    int rc;

    if (r->runtime || (r->nwords > 0 && !r->after_dashes && str_eq(r->words[0], "-"))) {
        rc = program_use_language(r, place, &p, err);
    } else if (r->nwords == 0 || !r->words[0][0]) {
        rc = err_set(err, ERR_USAGE, "nothing to run: write 'cove run -- PROGRAM' or 'cove run SCRIPT'");
    } else if (!r->after_dashes && program_is_script(r->words[0], place->dirs ? place->dirs : language_dirs)) {
        rc = program_use_script(r, NULL, place, &p, err);
    } else {
        program_push_rest(&p, r, 0);
        p.profile = language_profile(r->words[0]);
        rc = 0;
    }
    if (rc == 0)
        rc = program_check_size(r, &p, err);
    if (rc < 0) {
        program_done(&p);
        return -1;
    }
    *ret = p;
    return 0;
}

void program_done(struct program *p)
{
    for (size_t i = 0; i < p->argc; i++)
        free(p->argv[i]);
    free(p->argv);
    fd_close(&p->script_fd);
    p->argv = NULL;
    p->argc = 0;
}
