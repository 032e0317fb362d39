/* conf.h - the settings of the server, from the table of settings.def.
 *
 * Read in this order, each going over the one before: defaults, the file, COVE_* variables, flags. What does not exist
 * or does not fit is an error that says where; nothing is guessed and nothing is ignored. Only src/main includes this:
 * it hands each module a settings struct of its own. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/doc/problems.h"

#define CONF_FILE "/etc/cove/cove.yaml"

enum conf_setting {
#define SETTING(id, name, kind, def, least, most, choices, help) SETTING_##id,
#include "main/conf/settings.def"
#undef SETTING
    SETTING_COUNT,
};

enum setting_kind {
    SETTING_TEXT,
    SETTING_LIST,
    SETTING_BYTES,
    SETTING_TIME,
    SETTING_NUMBER,
    SETTING_SWITCH,
    SETTING_CHOICE,
};

struct setting_info {
    const char *name;
    enum setting_kind kind;
    const char *def;
    uint64_t least, most;
    const char *choices; /* "a|b" */
    const char *help;
};
const struct setting_info *setting_info(enum conf_setting s);
char *setting_variable(enum conf_setting s) MUST_USE; /* "COVE_LOG_LEVEL"; the caller frees */
char *setting_flag(enum conf_setting s) MUST_USE;     /* "--log-level" */

enum conf_source { CONF_DEFAULT, CONF_IN_FILE, CONF_VARIABLE, CONF_FLAG };

struct conf {
    struct conf_value {
        char *text;      /* as it was written */
        uint64_t number; /* BYTES, TIME (ms), NUMBER; SWITCH and CHOICE: the index of the choice */
        char **list;     /* LIST: NULL-terminated */
        enum conf_source source;
        uint32_t line; /* CONF_IN_FILE */
    } v[SETTING_COUNT];
    char *file; /* that was read; NULL: none */
};

void conf_init(struct conf *c); /* the defaults */
void conf_done(struct conf *c);

/* path NULL: CONF_FILE, which need not exist. Refuses a file that others may write, or that belongs to somebody who is
 * neither root nor the caller. pr must outlive the messages; pr->file is set. */
int conf_read_file(struct conf *c, const char *path, struct problems *pr);
int conf_read(struct conf *c, const char *data, size_t len, struct problems *pr); /* the content of one */
/* Variables that begin with COVE_ and are no setting belong to other programs of cove, and are left alone; unless they
 * are so near to one that they must be meant: that is an error. */
int conf_read_environment(struct conf *c, char *const *env, struct err *err);
/* One flag, "--log-level" with its value. 0: it was a setting and is taken; 1: it is no setting; -1: a bad value. */
int conf_read_flag(struct conf *c, const char *flag, const char *value, struct err *err);

const char *conf_text(const struct conf *c, enum conf_setting s);
uint64_t conf_number(const struct conf *c, enum conf_setting s);
bool conf_is_on(const struct conf *c, enum conf_setting s);
const char *const *conf_list(const struct conf *c, enum conf_setting s);

/* What a setting comes to, where that is known only later (a directory that depends on the user), for those who are
 * shown it; where it came from stays as it is. */
void conf_set_effective_text(struct conf *c, enum conf_setting s, const char *text);

/* All of them, as a file that would set the same; each with where it came from. */
void conf_print(const struct conf *c, struct buf *out);
void conf_json(const struct conf *c, struct buf *out);
void conf_help(struct buf *out); /* flags with their defaults, for --help */

/* A whole command line: the file that --config names (or the default one), then the environment, then the flags, as
 * --name VALUE or --name=VALUE. `own` are flags of the program itself. Words that are neither are errors, with the
 * nearest flag. Everything that is wrong is in pr. */
struct conf_option {
    const char *name;   /* "--print-config" */
    const char **value; /* takes a value; or NULL: */
    bool *set;          /* is a switch */
};
/* The two halves of the flags by themselves: the program's own, and the settings with all complaints. */
void conf_read_own_flags(int argc, char **argv, const struct conf_option *own, size_t nown);
int conf_read_flags(struct conf *c, int argc, char **argv, const struct conf_option *own, size_t nown,
                    struct problems *pr);
int conf_read_command_line(struct conf *c, const char *program, int argc, char **argv, char *const *env,
                           const struct conf_option *own, size_t nown, struct problems *pr);
