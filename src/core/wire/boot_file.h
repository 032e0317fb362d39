/* boot_file.h - the last walls of a sandbox, for a runtime that raises them itself because the
 * program that made its namespaces cannot.
 *
 * The runtime is then started as `cove-runtime ID [TARGET...]`, with CAP_SYS_ADMIN and CAP_SETPCAP
 * in the user namespace of the sandbox, and inherits more descriptors, which it closes before it
 * reads a frame: BOOT_FILE_FD, a sealed file with this header and two programs for seccomp after
 * it; BOOT_MONITOR_FD, the socket to the monitor, if `notify` is not 0; and for each TARGET a
 * detached mount that it attaches there. Many runtimes share one file and its offset, so it is read
 * with pread. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <linux/filter.h>

#define BOOT_FILE_FD 4
#define BOOT_MONITOR_FD 5
#define BOOT_MASKS_MAX 32
#define BOOT_PROGRAM_MAX 4096u /* instructions: the limit of Linux */

#define BOOT_BINDS_MAX 12

/* The namespaces that the program has to make, by their inode numbers, in the order of
 * boot_namespace_names. */
#define BOOT_NAMESPACES 6
struct boot_namespaces {
    uint64_t inodes[BOOT_NAMESPACES];
};
extern const char *const boot_namespace_names[BOOT_NAMESPACES];

struct boot_mask { /* an entry of /proc that is covered */
    char name[24];
    uint32_t is_dir;
};

struct boot_file_header {
    uint32_t notify; /* instructions of the filter whose denied calls go to a listener; 0: no monitor */
    uint32_t plain;  /* instructions of the filter without a listener, which follow */
    uint32_t nmasks;
    uint32_t zero;
    struct boot_namespaces made_by; /* of the process that starts the program: PID 1 is in none of them */
    struct boot_mask masks[BOOT_MASKS_MAX];
};

/* Returns a sealed, close-on-exec descriptor, or -1 and sets err. */
int boot_file_make(const struct boot_file_header *head, const struct sock_filter *notify,
                   const struct sock_filter *plain, struct err *err);
/* Reads and checks the header and the programs: `notify`, then `plain`, in one allocation that the
 * caller frees. Returns NULL and sets err if the file is not valid. */
struct sock_filter *boot_file_read(int fd, struct boot_file_header *ret, struct err *err);
/* The namespaces of the caller. proc: directory descriptor of a /proc of its pid namespace. */
int boot_namespaces_get(int proc, struct boot_namespaces *ret, struct err *err);
/* Fails with the name of the first namespace that both have in common. */
int boot_namespaces_check(const struct boot_namespaces *outside, const struct boot_namespaces *inside, struct err *err);
