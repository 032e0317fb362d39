/* pem.h - certificate and key as they come from files: read, and passed from the process that may read them to the one
 * that needs them. Needs no cryptography. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"

#define PEM_BYTES_MAX (1024 * 1024) /* of one file */

enum pem_part { PEM_CERTIFICATE, PEM_KEY, PEM_CLIENT_CA, PEM_PARTS };

struct pem {
    struct buf part[PEM_PARTS]; /* without bytes: there is none */
};
void pem_done(struct pem *p); /* overwrites the key */

struct pem_paths {
    const char *part[PEM_PARTS]; /* "" or NULL: none */
};

int pem_read(const struct pem_paths *paths, struct pem *ret, struct err *err);

/* Over a SEQPACKET socket. */
int pem_request(int sock, struct err *err);
int pem_send(int sock, const struct pem *p, struct err *err);
void pem_send_failure(int sock, const struct err *why);
/* What pem_send sent, or, as an error, what pem_send_failure did. ERR_BUSY: nothing is there yet. */
int pem_recv(int sock, struct pem *ret, struct err *err);
