/* program.h - resolves which program a run starts inside the sandbox: a program, a script of the
 * host with its runtime, code, or standard input. */
#pragma once

#include "client/cli/run_options.h"

#include "policy/syscalls.h"

struct program {
    char **argv; /* command line inside the sandbox; NULL-terminated */
    size_t argc;
    enum profile profile;
    int script_fd; /* host file to mount read-only at script_dst; -1: none */
    char script_dst[256];
    const char *code; /* code to write to LANGUAGE_CODE_FILE before the start; NULL: none; borrowed from the request */
    bool reads_stdin; /* standard input is the program */
};

struct program_search {
    enum driver_id driver;   /* asked for runtimes */
    const char *const *dirs; /* not NULL: searched for runtimes instead, in tests */
    bool stdin_open;         /* standard input can be read */
};

int program_resolve(const struct run_options *r, const struct program_search *place, struct program *ret,
                    struct err *err);
void program_done(struct program *p);

/* Parses the first line of a script: at most two words after "#!"; "env" is skipped, so
 * *ret_program is the program that env would start. Returns false if the line is not a #! line.
 * Modifies `line`; *ret_arg points into it or is NULL. */
bool program_shebang(char *line, const char **ret_program, const char **ret_arg);
