/* conf.h - the settings of the server, from the table settings.def.
 *
 * Sources in this order, each overriding the one before: defaults, the file, COVE_* variables,
 * flags. An unknown setting or an invalid value is an error with its position; nothing is guessed
 * and nothing is ignored. Only src/main includes this header: it passes each module a settings
 * struct of its own. */
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
char *setting_flag(enum conf_setting s) MUST_USE;     /* "--log-level"; the caller frees */

enum conf_source { CONF_DEFAULT, CONF_IN_FILE, CONF_VARIABLE, CONF_FLAG };

struct conf {
    struct conf_value {
        char *text;      /* as given by the source */
        uint64_t number; /* BYTES, TIME (ms), NUMBER; SWITCH and CHOICE: the index of the choice */
        char **list;     /* LIST: NULL-terminated */
        enum conf_source source;
        uint32_t line; /* line of the file; only for CONF_IN_FILE */
    } v[SETTING_COUNT];
    char *file; /* path of the file that was read; NULL if there was none */
};

void conf_init(struct conf *c); /* sets the defaults */
void conf_done(struct conf *c);

/* path NULL means CONF_FILE, which need not exist. Refuses a file that other users can write, and a
 * file whose owner is neither root nor the caller. Sets pr->file, which points into c. */
int conf_read_file(struct conf *c, const char *path, struct problems *pr);
/* Parses the content of a file. */
int conf_read(struct conf *c, const char *data, size_t len, struct problems *pr);
/* Variables that begin with COVE_ but are not settings belong to other programs of cove and are
 * ignored. A variable whose name is close to a setting is an error. */
int conf_read_environment(struct conf *c, char *const *env, struct err *err);
/* Reads one flag, "--log-level", with its value. Returns 0 if it is a setting and was set, 1 if it
 * is not a setting, -1 if the value is invalid. */
int conf_read_flag(struct conf *c, const char *flag, const char *value, struct err *err);

const char *conf_text(const struct conf *c, enum conf_setting s);
uint64_t conf_number(const struct conf *c, enum conf_setting s);
bool conf_is_on(const struct conf *c, enum conf_setting s);
const char *const *conf_list(const struct conf *c, enum conf_setting s);

/* Sets the value that is displayed for a setting whose effective value is known only later, for
 * example a directory that depends on the user. The source of the setting does not change. */
void conf_set_effective_text(struct conf *c, enum conf_setting s, const char *text);

/* Writes all settings as a file that would set the same values, each with its source. */
void conf_print(const struct conf *c, struct buf *out);
void conf_json(const struct conf *c, struct buf *out);
void conf_help(struct buf *out); /* all flags with their defaults, for --help */

/* Reads a whole command line: the file that --config names (or the default file), then the
 * environment, then the flags, as --name VALUE or --name=VALUE. `own` lists the flags of the
 * program itself. An argument that is neither is an error that names the nearest flag. All errors
 * are added to pr. */
struct conf_option {
    const char *name;   /* "--print-config" */
    const char **value; /* receives the value; NULL for a switch */
    bool *set;          /* receives true for a switch; NULL for a flag with a value */
};
/* The two passes over the flags: the program's own flags without errors, then the settings with all
 * errors. */
void conf_read_own_flags(int argc, char **argv, const struct conf_option *own, size_t nown);
int conf_read_flags(struct conf *c, int argc, char **argv, const struct conf_option *own, size_t nown,
                    struct problems *pr);
int conf_read_command_line(struct conf *c, int argc, char **argv, char *const *env, const struct conf_option *own,
                           size_t nown, struct problems *pr);
