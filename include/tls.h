/* tls: TLS 1.2 and 1.3 on one non-blocking socket (OpenSSL): contexts, which hold certificate, key or trusted
 * authorities, and sessions, which read and write the socket. A session says which readiness it waits for;
 * conn arms the event. Renegotiation is off; the only protocol offered above it (ALPN) is HTTP/1.1. */
#ifndef TLS_H
#define TLS_H

#include <sys/types.h>
#include <sys/uio.h>

#include "util.h"

struct tls_context;
struct tls;

/* For a listener: PEM files, the certificate first and its chain behind it. Reads the disk: at start and
 * reload only. NULL: *error (mem_free) names the file and what is wrong with it: a key that is not the
 * certificate's, too. */
struct tls_context *tls_context_server(const char *cert_file, const char *key_file, char **error);
/* For connections to pods, whose certificates it verifies. ca_file: PEM file of the trusted authorities; "" =
 * the system's. Errors and reading as above. */
struct tls_context *tls_context_client(const char *ca_file, char **error);
/* Sessions that were made from it live on. NULL is allowed. */
void tls_context_free(struct tls_context *c);
/* When the listener's certificate ends, in seconds since 1970. */
int64_t tls_context_expires_s(const struct tls_context *c);
/* Why clients refuse the listener's certificate today: it "has expired" or "is not valid yet"; else NULL. */
const char *tls_context_dates(const struct tls_context *c);

/* The session of an accepted socket, which stays the caller's. */
struct tls *tls_accept(const struct tls_context *c, int fd);
/* The session of a connecting socket. name: a DNS name or an IP address without brackets, for which the other
 * side's certificate has to be made. */
struct tls *tls_connect(const struct tls_context *c, int fd, const char *name);
/* Sends nothing. */
void tls_free(struct tls *t);

/* Besides a number of bytes. */
enum { TLS_CLOSED = 0, TLS_WANT_READ = -1, TLS_FAILED = -2, TLS_WANT_WRITE = -3 };

/* 1 = the session stands; TLS_WANT_READ, TLS_WANT_WRITE or TLS_FAILED, see tls_failure. */
int tls_handshake(struct tls *t);
/* As many bytes as are there. TLS_CLOSED: the other side said that it ends, or a client closed its socket. */
ssize_t tls_read(struct tls *t, void *p, size_t n_bytes);
/* There is more to read in here, about which the socket may be silent. */
bool tls_has_more(const struct tls *t);
/* Takes the start of iov, one record at most. After TLS_WANT_... the same bytes have to come again, more of
 * them may follow. */
ssize_t tls_writev(struct tls *t, const struct iovec *iov, unsigned n);
/* Tells the other side that nothing more comes (close_notify), if the socket takes that now. Reading goes on.
 */
void tls_end_writing(struct tls *t);

/* Why the last handshake of this process failed: `kind` is one of a few words, `text` is for people. Valid
 * until the next failure. */
struct tls_failure {
    const char *kind; /* "plain_http", "not_tls", "version", "cipher", "alpn", "alert", "closed", "other" */
    const char *text;
};
const struct tls_failure *tls_failure(void);

#endif
