/* tar.h - the tar format, pure: a parser that takes bytes in any pieces and hands out entries, and a writer of headers.
 *
 * Understood: v7, ustar, GNU long names, pax path, linkpath, size and mtime. What an archive may not do here is refused
 * by the parser, before anybody opens anything: absolute paths, "..", devices, pipes, sparse files, names and numbers
 * that are no names and numbers, and more of anything than the limits say. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#define TAR_BLOCK 512u
#define TAR_PATH_MAX 4096u /* with the NUL */
#define TAR_DEPTH_MAX 256u /* components of a path */
#define TAR_ENTRIES_MAX 200000u
#define TAR_META_MAX 65536u               /* bytes of one pax header or long name */
#define TAR_HEADERS_MAX (TAR_BLOCK * 32u) /* what tar_write_headers may write for one entry */

struct tar_entry {
    char kind;               /* 'f' file, 'd' directory, 'l' symbolic link, 'h' hard link */
    uint32_t mode;           /* 0-0777: bits that change identity are dropped */
    uint64_t size;           /* of a file, else 0 */
    uint64_t mtime;          /* seconds */
    char path[TAR_PATH_MAX]; /* relative, clean: no "", ".", ".." components; "" is the top itself, a directory */
    char link[TAR_PATH_MAX]; /* of a link; a hard link's is as clean as a path */
};

struct tar_ops { /* each may fail, which ends the parsing */
    int (*on_entry)(void *arg, const struct tar_entry *e, struct err *err);
    int (*on_bytes)(void *arg, const void *data, size_t len, struct err *err); /* of a file, e->size in all */
    int (*on_entry_end)(void *arg, struct err *err);                           /* of a file */
};

enum tar_parser_state { TAR_HEADER, TAR_CONTENT, TAR_META, TAR_PADDING, TAR_END };

struct tar_parser {
    const struct tar_ops *ops;
    void *arg;
    uint64_t bytes_max; /* of all files together */

    enum tar_parser_state state;
    uint8_t block[TAR_BLOCK]; /* a header that is arriving */
    size_t block_len;         /* bytes of it */
    uint64_t content_left;    /* bytes of content to come */
    size_t padding;           /* bytes to skip after it */
    char meta_type;           /* 'x', 'g', 'L', 'K' */
    struct buf meta;
    bool has_path, has_link, has_size, has_mtime; /* said by headers before the entry */
    uint64_t size, mtime;
    struct tar_entry entry;
    uint64_t entries, bytes;
};

void tar_parser_init(struct tar_parser *t, uint64_t bytes_max, const struct tar_ops *ops, void *arg);
void tar_parser_done(struct tar_parser *t);
int tar_parser_feed(struct tar_parser *t, const void *data, size_t len, struct err *err);
int tar_parser_finish(struct tar_parser *t,
                      struct err *err); /* the input is over: fails if that is in the middle of something */

/* Makes a path of an archive relative and clean, in place. */
int tar_clean_path(char *path, struct err *err);

/* Writes the headers of one entry, pax ones first where names or sizes do not fit, and returns their length. */
size_t tar_write_headers(uint8_t out[TAR_HEADERS_MAX], const struct tar_entry *e);
