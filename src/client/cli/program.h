/* program.h - which program a request starts inside the sandbox: a program as it is, a script of
 * the host with its runtime, a text, or standard input. */
#pragma once

#include "client/cli/run_options.h"

#include "policy/syscalls.h"

struct program {
    char **argv; /* as the sandbox sees it; NULL-terminated */
    size_t argc;
    enum profile profile;
    int script_fd; /* a file of the host to show read-only at script_dst, or -1 */
    char script_dst[256];
    const char *code; /* a text to put into LANGUAGE_CODE_FILE before the start, or NULL; belongs to the request */
    bool reads_stdin; /* its program comes through standard input */
};

struct program_search {
    const char *const *dirs; /* where runtimes are looked for */
    bool stdin_open;         /* something can be read from standard input */
};

int program_resolve(const struct run_options *r, const struct program_search *place, struct program *ret,
                    struct err *err);
void program_done(struct program *p);

/* What the first line of a script says: the words after "#!", at most two, and the program behind
 * "env". False when it is none. `line` is changed and *ret_arg (or NULL) points into it. */
bool program_shebang(char *line, const char **ret_program, const char **ret_arg);
