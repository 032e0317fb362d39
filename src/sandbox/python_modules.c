/* A module is a directory, a .py or .pyc file or an extension (.so) in a directory of sys.path,
 * is named by a .pth file there, or is compiled into the interpreter. All names of these
 * directories are collected once, which costs a few directory reads, whatever is asked
 * afterwards. Asking the interpreter would be exact, and would take a sandbox. */
#include "sandbox/python_modules.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"
#include "policy/languages.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>

#define MODULES_MAX 65536u
#define PTH_LINE_MAX 4096

struct python_modules {
    char **names; /* sorted */
    size_t count, capacity;
    bool unknown; /* there may be others: the layout is not a known one */
};

/* Modules that CPython may have compiled in, which then have no file. Names that begin with '_'
 * are not looked for. */
static const char *const compiled_in[] = {
    "array",   "atexit",  "binascii",    "builtins",  "cmath",  "errno", "faulthandler", "fcntl",
    "gc",      "grp",     "itertools",   "marshal",   "math",   "mmap",  "nis",          "posix",
    "pwd",     "pyexpat", "readline",    "resource",  "select", "spwd",  "sys",          "syslog",
    "termios", "time",    "unicodedata", "xxsubtype", "zlib",
};

/* Modules whose Debian package is not python3-NAME. */
static const struct {
    const char *module, *package;
} module_packages[] = {
    { "Crypto", "python3-pycryptodome" },
    { "OpenSSL", "python3-openssl" },
    { "cv2", "python3-opencv" },
    { "tkinter", "python3-tk" },
};

static void python_modules_add(struct python_modules *m, const char *name, size_t len)
{
    if (len == 0)
        return;
    if (m->count == MODULES_MAX) {
        m->unknown = true;
        return;
    }
    if (m->count == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 512;
        m->names = mem_resize(m->names, m->capacity, sizeof(m->names[0]));
    }
    m->names[m->count++] = str_dup_n(name, len);
}

static void python_modules_add_entry(struct python_modules *m, const char *entry)
{
    size_t len = strcspn(entry, ".");

    if (entry[len] == '\0' || str_eq(entry + len, ".py") || str_eq(entry + len, ".pyc") || str_ends(entry, ".so"))
        python_modules_add(m, entry, len);
}

static bool python_modules_scan_directory(struct python_modules *m, const char *path, bool is_site);

/* A line names a directory, or is code to execute. An editable installation makes modules known
 * by code. */
static void python_modules_read_pth(struct python_modules *m, const char *site, const char *name)
{
    auto_free char *path = str_printf("%s/%s", site, name);
    char line[PTH_LINE_MAX];
    FILE *f = fopen(path, "re");

    if (str_starts(name, "__editable__"))
        m->unknown = true;
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (!line[0] || line[0] == '#' || str_starts(line, "import ") || str_starts(line, "import\t"))
            continue;
        auto_free char *target = line[0] == '/' ? str_dup(line) : str_printf("%s/%s", site, line);
        char real[PATH_MAX];
        if (realpath(target, real) && language_path_is_shared(real))
            (void)python_modules_scan_directory(m, real, false);
    }
    if (f)
        fclose(f);
}

static bool python_modules_scan_directory(struct python_modules *m, const char *path, bool is_site)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;

    if (!dir)
        return false;
    while ((entry = readdir(dir)) != NULL) {
        python_modules_add_entry(m, entry->d_name);
        if (is_site && str_ends(entry->d_name, ".pth"))
            python_modules_read_pth(m, path, entry->d_name);
    }
    closedir(dir);
    return true;
}

static int module_name_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct python_modules *python_modules_scan_program(const char *real_path)
{
    static const char *const sites[] = { "", "/lib-dynload", "/site-packages", "/dist-packages" };
    static const char *const libs[] = { "lib", "lib64" };
    struct python_modules *m = mem_new(struct python_modules);
    const char *base = strrchr(real_path, '/');
    bool found = false;

    /* PREFIX/bin/python3.11 has its library in PREFIX/lib/python3.11. */
    if (!base || base - real_path < 4 || memcmp(base - 4, "/bin", 4) != 0 || !str_starts(base, "/python3.")) {
        m->unknown = true;
        return m;
    }
    auto_free char *prefix = str_dup_n(real_path, (size_t)(base - real_path) - 4);
    for (size_t i = 0; i < ARRAY_LEN(libs); i++)
        for (size_t k = 0; k < ARRAY_LEN(sites); k++) {
            auto_free char *path = str_printf("%s/%s%s%s", prefix, libs[i], base, sites[k]);
            bool there = python_modules_scan_directory(m, path, k > 1);

            found = found || (there && k == 0);
        }
    for (size_t k = 2; k < ARRAY_LEN(sites); k++) { /* where pip installs for Debian's interpreter */
        auto_free char *path = str_printf("%s/local/lib%s%s", prefix, base, sites[k]);

        (void)python_modules_scan_directory(m, path, true);
    }
    auto_free char *debian = str_printf("%s/lib/python3/dist-packages", prefix);
    (void)python_modules_scan_directory(m, debian, true);
    m->unknown = m->unknown || !found;
    if (m->count)
        qsort(m->names, m->count, sizeof(m->names[0]), module_name_compare);
    return m;
}

struct python_modules *python_modules_scan(void)
{
    char path[PATH_MAX], real[PATH_MAX];
    struct err err = { 0 };

    if (language_find_program(language_by_name("python"), language_dirs, path, sizeof(path), &err) < 0 ||
        !realpath(path, real))
        return python_modules_scan_program("");
    return python_modules_scan_program(real);
}

void python_modules_free(struct python_modules *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++)
        free(m->names[i]);
    free(m->names);
    free(m);
}

static bool python_modules_has(const struct python_modules *m, const char *name)
{
    if (name[0] == '_' || m->unknown)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(compiled_in); i++)
        if (str_eq(compiled_in[i], name))
            return true;
    return m->count && bsearch(&name, m->names, m->count, sizeof(m->names[0]), module_name_compare);
}

static bool module_list_has(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = list; *p; p += *p == ',') {
        size_t n = strcspn(p, ",");

        if (n == len && memcmp(p, name, n) == 0)
            return true;
        p += n;
    }
    return false;
}

size_t python_modules_missing(const struct python_modules *m, const char *list, struct buf *ret)
{
    size_t missing = 0;

    for (const char *p = list; m && *p; p += *p == ',') {
        auto_free char *name = str_dup_n(p, strcspn(p, ".,"));

        p += strcspn(p, ",");
        if (python_modules_has(m, name) || (ret->len && module_list_has(ret->data, name)))
            continue;
        buf_addf(ret, "%s%s", missing++ ? "," : "", name);
    }
    return missing;
}

const char *python_modules_nearest(const struct python_modules *m, const char *name)
{
    struct suggest near;

    suggest_init(&near, name);
    for (size_t i = 0; i < m->count; i++)
        if (m->names[i][0] != '_')
            suggest_offer(&near, m->names[i]);
    for (size_t i = 0; i < ARRAY_LEN(compiled_in); i++)
        suggest_offer(&near, compiled_in[i]);
    return near.best;
}

static void module_package_name(const char *module, struct buf *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(module_packages); i++)
        if (str_eq(module_packages[i].module, module)) {
            buf_adds(ret, module_packages[i].package);
            return;
        }
    buf_adds(ret, "python3-");
    for (const char *p = module; *p; p++)
        buf_addf(ret, "%c", *p == '_' ? '-' : tolower((unsigned char)*p));
}

void python_modules_install_command(const char *list, struct buf *ret)
{
    buf_adds(ret, "apt-get install");
    for (const char *p = list; *p; p += *p == ',') {
        auto_free char *name = str_dup_n(p, strcspn(p, ","));

        p += strlen(name);
        buf_adds(ret, " ");
        module_package_name(name, ret);
    }
}
