/* tar.h - the tar format: a parser that takes input in pieces of any size and returns entries, and
 * a writer of headers. Pure.
 *
 * Supported: v7, ustar, GNU long names, pax path, linkpath, size and mtime. The parser refuses the
 * following before any file is opened: absolute paths, "..", devices, pipes, sparse files,
 * malformed names and numbers, and anything beyond the limits. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#define TAR_BLOCK 512u
#define TAR_PATH_MAX 4096u /* with the NUL */
#define TAR_DEPTH_MAX 256u /* components of a path */
#define TAR_ENTRIES_MAX 200000u
#define TAR_META_MAX 65536u               /* bytes of one pax header or long name */
#define TAR_HEADERS_MAX (TAR_BLOCK * 32u) /* maximum output of tar_write_headers for one entry */

struct tar_entry {
    char kind;               /* 'f' file, 'd' directory, 'l' symbolic link, 'h' hard link */
    uint32_t mode;           /* 0-0777: set-id bits are dropped */
    uint64_t size;           /* of a file, else 0 */
    uint64_t mtime;          /* seconds */
    char path[TAR_PATH_MAX]; /* relative, clean: no "", ".", ".." components; "": the top directory itself */
    char link[TAR_PATH_MAX]; /* target of a link; that of a hard link is a clean path */
};

struct tar_ops { /* each may fail, which ends the parsing */
    int (*on_entry)(void *arg, const struct tar_entry *e, struct err *err);
    int (*on_bytes)(void *arg, const void *data, size_t len,
                    struct err *err);                /* content of a file, e->size bytes in total */
    int (*on_entry_end)(void *arg, struct err *err); /* of a file */
};

enum tar_parser_state { TAR_HEADER, TAR_CONTENT, TAR_META, TAR_PADDING, TAR_END };

struct tar_parser {
    const struct tar_ops *ops;
    void *arg;
    uint64_t bytes_max; /* of all files together */

    enum tar_parser_state state;
    uint8_t block[TAR_BLOCK]; /* header that is being received */
    size_t block_len;         /* bytes of `block` received */
    uint64_t content_left;    /* bytes of content still to come */
    size_t padding;           /* bytes to skip after the content */
    char meta_type;           /* 'x', 'g', 'L', 'K' */
    struct buf meta;
    bool has_path, has_link, has_size, has_mtime; /* set by metadata before the entry */
    uint64_t size, mtime;
    struct tar_entry entry;
    uint64_t entries, bytes;
};

void tar_parser_init(struct tar_parser *t, uint64_t bytes_max, const struct tar_ops *ops, void *arg);
void tar_parser_done(struct tar_parser *t);
int tar_parser_feed(struct tar_parser *t, const void *data, size_t len, struct err *err);
/* Call at the end of the input. Fails if an entry is incomplete. */
int tar_parser_finish(struct tar_parser *t, struct err *err);

/* Makes a path of an archive relative and clean, in place. */
int tar_clean_path(char *path, struct err *err);

/* Writes the headers of one entry, with a pax header first if names or sizes do not fit. Returns
 * their length. */
size_t tar_write_headers(uint8_t out[TAR_HEADERS_MAX], const struct tar_entry *e);
