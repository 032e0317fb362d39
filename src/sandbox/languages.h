/* languages.h - language runtimes: what they are called, where a host keeps them, and how each one takes its program.
 */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/syscalls.h"

/* Where a text goes that is too long to travel as an argument. */
#define LANGUAGE_CODE_FILE "/tmp/.cove-code"

struct language {
    const char *name;              /* "python" */
    const char *program;           /* "python3" */
    const char *const *extensions; /* of scripts, with the dot; NULL-terminated */
    enum profile profile;
    const char *code_flag;         /* before a text to run: "-c" */
    const char *code_loader;       /* the same for a text that was put into LANGUAGE_CODE_FILE */
    bool code_needs_argv0;         /* the text is followed by $0 */
    const char *const *stdin_args; /* that make it read its program from standard input; NULL-terminated */
    const char *package;           /* the Debian package */
};

const struct language *languages_all(size_t *count);
const struct language *language_by_name(const char *name);       /* NULL when there is none */
const struct language *language_by_extension(const char *path);  /* by the end of the file's name; NULL */
const struct language *language_by_program(const char *program); /* "/usr/bin/python3.11" is python; NULL */
enum profile language_profile(const char *program);              /* of any program: base when it is no runtime */

/* Directories that a sandbox shares with the host, in the order in which they are searched. */
extern const char *const language_dirs[]; /* NULL-terminated */

/* Finds the program in `dirs`. A link that leads out of what a sandbox sees is refused by name, because inside it would
 * be a missing file. */
int language_find_program(const struct language *rt, const char *const *dirs, char *path, size_t cap, struct err *err);
/* Whether a path of the host, links resolved, is in the part of the system that a sandbox sees. */
bool language_path_is_shared(const char *real);
