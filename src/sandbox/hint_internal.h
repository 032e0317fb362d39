/* hint_internal.h - what the files hint*.c share. Not for other files. */
#pragma once

#include "sandbox/hint.h"

struct hint {
    const struct hint_facts *facts;
    struct buf line; /* "NAME: VALUE" of the exception; empty: none is known */
    struct buf text; /* traceback and the end of the output; NUL bytes replaced */
    bool in_line;    /* the pattern was found in `line`, otherwise in `text` */
    struct buf out;
};

/* A writer is called at each place where its pattern stands: `at` is the beginning of the pattern,
 * `end` is after it, both in h->line or h->text. It adds sentences to h->out and returns true, or
 * returns false and adds nothing. */
typedef bool hint_writer(struct hint *h, const char *at, const char *end, const char *text);

/* Copies a name if it has only permitted characters and fits; otherwise ret is empty. */
bool hint_token(const char *s, size_t len, char ret[HINT_TOKEN_MAX]);
bool hint_token_quoted(const char *at, char ret[HINT_TOKEN_MAX]);                     /* the rest begins with 'NAME' */
bool hint_token_before(const char *start, const char *end, char ret[HINT_TOKEN_MAX]); /* the word that ends here */
bool hint_token_after(const char *at, char ret[HINT_TOKEN_MAX]);                      /* the word that begins here */
bool hint_has_text(const struct hint *h, const char *pattern);                        /* in line, text or code */
bool hint_is_language(const struct hint *h, const char *name);
const char *hint_start(const struct hint *h); /* of the text in which the pattern was found */

void hint_add_packages(struct hint *h, const char *debian); /* where packages come from; "" or NULL: no name is known */
void hint_add_raise(struct hint *h, enum limit l);          /* "raise NAME" */
void hint_add_value(struct hint *h, enum limit l);          /* " of 512M", if it is known */

/* hint_module.c */
hint_writer hint_python_module, hint_python_import_name, hint_node_module, hint_command_before, hint_command_sh,
    hint_command_quoted, hint_command_spawn, hint_install;
/* hint_code.c */
hint_writer hint_syntax, hint_name;
/* hint_network.c */
hint_writer hint_network, hint_refused_connection, hint_refused_destination;
/* hint_access.c */
hint_writer hint_missing_file, hint_missing_file_before, hint_no_write, hint_not_permitted, hint_input;
/* hint_limit.c */
hint_writer hint_memory, hint_processes, hint_disk, hint_file_size, hint_open_files;
bool hint_ended(struct hint *h); /* by a clock, a limit or a request */
bool hint_signal(struct hint *h, int signal);
/* A refused system call, if there is one. */
bool hint_denial(struct hint *h);
