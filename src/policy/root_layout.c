/* The contents of every sandbox's root, as tables. The code that builds the root contains no names.
 */
#include "policy/root_layout.h"

const char *const root_system_dirs[] = { "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", NULL };

const char *const root_empty_dirs[] = { "proc",  "dev",         "dev/pts",   "dev/shm", "etc", "etc/ssl",
                                        "tmp",   "var",         "workspace", "skills",  "mnt", "opt",
                                        ".cove", ".cove/empty", "etc/fonts", NULL };

const struct root_link root_links[] = {
    { "dev/ptmx", "pts/ptmx" },
    { "dev/fd", "/proc/self/fd" },
    { "dev/stdin", "/proc/self/fd/0" },
    { "dev/stdout", "/proc/self/fd/1" },
    { "dev/stderr", "/proc/self/fd/2" },
    { "var/tmp", "/tmp" },
    { "etc/mtab", "/proc/self/mounts" },
    { "etc/os-release", "/usr/lib/os-release" },
    /* the path where Debian's matplotlib looks */
    { "etc/matplotlibrc", "/usr/share/matplotlib/mpl-data/matplotlibrc" },
    { NULL, NULL },
};

const struct root_device root_devices[] = {
    { "dev/null", 1, 3 },    { "dev/zero", 1, 5 }, { "dev/full", 1, 7 }, { "dev/random", 1, 8 },
    { "dev/urandom", 1, 9 }, { "dev/tty", 5, 0 },  { NULL, 0, 0 },
};

/* Without "dns", a name that is not in /etc/hosts does not exist: the answer is permanent, and
 * programs do not try again. */
#define ROOT_NSSWITCH(hosts) "passwd: files\ngroup: files\nhosts: " hosts "\nservices: files\nprotocols: files\n"

const struct root_text_file root_text_files[] = {
    { "etc/passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
                    "cove:x:1000:1000:sandbox:/workspace:/bin/bash\n"
                    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
    { "etc/group", "root:x:0:\ntty:x:5:\ncove:x:1000:\nnogroup:x:65534:\n" },
    { "etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.0.1 cove\n" },
    { "etc/resolv.conf", "# no resolver: this sandbox has no network\noptions timeout:1 attempts:1\n" },
    { "etc/nsswitch.conf", ROOT_NSSWITCH("files") },
    { "etc/hostname", "cove\n" },
    { "etc/fonts/fonts.conf", "<?xml version=\"1.0\"?>\n<fontconfig>\n<dir>/usr/share/fonts</dir>\n"
                              "<dir>/usr/local/share/fonts</dir>\n<cachedir prefix=\"xdg\">fontconfig</cachedir>\n"
                              "</fontconfig>\n" },
    { NULL, NULL },
};

const struct root_text_file root_egress_files[] = {
    { "etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n" },
    { "etc/nsswitch.conf", ROOT_NSSWITCH("files dns") },
    { NULL, NULL },
};

const char *const root_host_files[] = { "etc/ld.so.cache",  "etc/ssl/openssl.cnf", "etc/services", "etc/protocols",
                                        "etc/alternatives", "etc/ssl/certs",       "etc/pki",      NULL };

/* These files reveal facts about the host or its other sandboxes, or control the host. Files that
 * the kernel shows only to the host's root are masked only if access would be fatal. */
const char *const root_proc_masks[] = { "acpi",    "asound",    "bus",           "cmdline",     "config.gz",
                                        "driver",  "fs",        "interrupts",    "irq",         "kallsyms",
                                        "kcore",   "key-users", "keys",          "kmsg",        "latency_stats",
                                        "modules", "mtrr",      "pressure",      "sched_debug", "schedstat",
                                        "scsi",    "softirqs",  "sysrq-trigger", "timer_list",  NULL };
_Static_assert(ARRAY_LEN(root_proc_masks) <= ROOT_MASKS_MAX, "root_proc_masks exceeds ROOT_MASKS_MAX");
