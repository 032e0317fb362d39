/* pem.h - certificate and key files: reads them, and passes them from the process that may read
 * them to the process that uses them. Uses no cryptography. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"

#define PEM_BYTES_MAX (1024 * 1024) /* maximum size of one file */

enum pem_part { PEM_CERTIFICATE, PEM_KEY, PEM_CLIENT_CA, PEM_PARTS };

struct pem {
    struct buf part[PEM_PARTS]; /* an empty buffer: the part is absent */
};
void pem_done(struct pem *p); /* overwrites the key */

struct pem_paths {
    const char *part[PEM_PARTS]; /* "" or NULL: absent */
};

int pem_read(const struct pem_paths *paths, struct pem *ret, struct err *err);

/* These functions use a SEQPACKET socket. */
int pem_request(int sock, struct err *err);
int pem_send(int sock, const struct pem *p, struct err *err);
void pem_send_failure(int sock, const struct err *why);
/* Receives the message of pem_send(), or returns the error of pem_send_failure(). ERR_BUSY: no
 * message yet. */
int pem_recv(int sock, struct pem *ret, struct err *err);
