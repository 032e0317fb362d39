/* languages.h - languages: their names, where the host keeps their programs, and how each one
 * takes its code. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/syscalls.h"

/* File for code that is too long to be passed as an argument. */
#define LANGUAGE_CODE_FILE "/tmp/.cove-code"

struct language {
    const char *name;              /* "python" */
    const char *program;           /* "python3" */
    const char *const *aliases;    /* other names that users write; NULL-terminated */
    const char *const *extensions; /* of scripts, including the dot; NULL-terminated */
    enum profile profile;
    const char *code_flag;   /* precedes code to run: "-c" */
    const char *code_loader; /* argument after code_flag that runs the code in LANGUAGE_CODE_FILE */
    bool code_needs_argv0;   /* the code is followed by $0 */
    /* Arguments that make the program read its code from standard input; NULL-terminated. */
    const char *const *stdin_args;
    const char *package; /* the Debian package that contains the program */
};

const struct language *languages_all(size_t *count);
const struct language *language_by_name(const char *name);       /* name, program or alias; NULL: unknown */
const struct language *language_by_extension(const char *path);  /* by the end of the file name; NULL: unknown */
const struct language *language_by_program(const char *program); /* "/usr/bin/python3.11" is python; NULL: unknown */
/* Returns -1 with an error that lists the languages:
 * "WHAT: unknown runtime 'NAME'; use python, ...". */
int language_unknown_error(const char *what, const char *name, struct err *err);
/* For any program: PROFILE_BASE unless the program is a language. */
enum profile language_profile(const char *program);

/* Directories that a sandbox shares with the host, in search order. */
extern const char *const language_dirs[]; /* NULL-terminated */

/* Finds the program in `dirs`. A link to a path that a sandbox does not see is reported by name,
 * because inside the sandbox the program would be missing. */
int language_find_program(const struct language *rt, const char *const *dirs, char *path, size_t cap, struct err *err);
/* Whether a path of the host, with links resolved, lies in the part of the file system that a
 * sandbox sees. */
bool language_path_is_shared(const char *real);
