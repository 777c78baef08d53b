/* OpenSSL on non-blocking sockets. Small parts of a write are joined, so that a head and its body are one
 * record; whoever waits inside one call is the caller's event loop, never this file. */
#include "tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "authority.h"
#include "mem.h"

#define TLS_RECORD_BYTES (16 * 1024)

struct tls_context {
    SSL_CTX *ssl;
    int64_t expires_s;
};

struct tls {
    SSL *ssl;
    bool more;   /* tls_has_more */
    bool plain;  /* what came instead of a handshake is a request in plain HTTP */
    bool failed; /* no more writing, close_notify included */
};

static struct tls_failure tls_last;
static char tls_last_text[200];

/* As mem.h does it: the only failure of the calls behind this is a lack of memory. */
static void tls_need_memory(bool got)
{
    if (got)
        return;
    (void)fputs("out of memory: TLS\n", stderr);
    abort();
}

/* ---- contexts ---- */

static char *tls_error(const char *what, const char *file)
{
    const unsigned long e = ERR_peek_error(); /* the first is the cause, the last only names the library */
    const char *reason = ERR_reason_error_string(e);
    char *text;

    if (e != 0 && ERR_SYSTEM_ERROR(e))
        reason = strerror(ERR_GET_REASON(e));
    text = mem_printf("%s %.250s: %s", what, file, reason != NULL ? reason : "not usable");
    ERR_clear_error();
    return text;
}

/* A key with a passphrase is refused, instead of a question on the terminal. */
static int tls_no_passphrase(char *buf, int size, int rwflag, void *arg)
{
    (void)buf, (void)size, (void)rwflag, (void)arg;
    return -1;
}

static int tls_choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                               const unsigned char *in, unsigned in_n, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *picked;

    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&picked, out_n, ours, sizeof ours - 1, in, in_n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = picked;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *tls_context_base(const SSL_METHOD *method)
{
    SSL_CTX *c;

    ERR_clear_error();
    c = SSL_CTX_new(method);
    tls_need_memory(c != NULL);
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    /* Of TLS 1.2 only what TLS 1.3 has, too: forward secrecy and authenticated encryption. */
    SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20");
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    /* An idle connection holds no buffers; a write that had to wait goes on from wherever its bytes are. */
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(c, 1);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(c, tls_no_passphrase);
    return c;
}

static int64_t tls_expiry_s(const SSL_CTX *c)
{
    const X509 *cert = SSL_CTX_get0_certificate(c);
    struct tm tm;

    if (cert == NULL || ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1)
        return 0;
    return (int64_t)timegm(&tm);
}

struct tls_context *tls_context_server(const char *cert_file, const char *key_file, char **error)
{
    SSL_CTX *ssl = tls_context_base(TLS_server_method());
    struct tls_context *c;

    *error = NULL;
    /* A client that closes its socket without a goodbye has left: that HTTP message was whole or not. */
    SSL_CTX_set_options(ssl, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_num_tickets(ssl, 1);
    SSL_CTX_set_alpn_select_cb(ssl, tls_choose_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(ssl, cert_file) != 1)
        *error = tls_error("cannot use the certificate", cert_file);
    else if (SSL_CTX_use_PrivateKey_file(ssl, key_file, SSL_FILETYPE_PEM) != 1)
        *error = tls_error("cannot use the key", key_file);
    else if (SSL_CTX_check_private_key(ssl) != 1) /* a key of another kind stands beside the certificate */
        *error = mem_printf("cannot use the key %.250s: it is of another kind than the certificate in %.250s",
                            key_file, cert_file);
    if (*error != NULL) {
        SSL_CTX_free(ssl);
        return NULL;
    }
    c = mem_zalloc(sizeof *c);
    c->ssl = ssl;
    c->expires_s = tls_expiry_s(ssl);
    return c;
}

struct tls_context *tls_context_client(const char *ca_file, char **error)
{
    static const unsigned char ours[] = "\x08http/1.1";
    SSL_CTX *ssl = tls_context_base(TLS_client_method());
    struct tls_context *c;

    *error = NULL;
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    tls_need_memory(SSL_CTX_set_alpn_protos(ssl, ours, sizeof ours - 1) == 0);
    if (ca_file[0] == '\0')
        (void)SSL_CTX_set_default_verify_paths(ssl); /* a system without any is found out by the handshake */
    else if (SSL_CTX_load_verify_file(ssl, ca_file) != 1)
        *error = tls_error("cannot use the authorities", ca_file);
    if (*error != NULL) {
        SSL_CTX_free(ssl);
        return NULL;
    }
    c = mem_zalloc(sizeof *c);
    c->ssl = ssl;
    return c;
}

void tls_context_free(struct tls_context *c)
{
    if (c == NULL)
        return;
    SSL_CTX_free(c->ssl);
    mem_free(c);
}

int64_t tls_context_expires_s(const struct tls_context *c)
{
    return c->expires_s;
}

const char *tls_context_dates(const struct tls_context *c)
{
    const X509 *cert = SSL_CTX_get0_certificate(c->ssl);

    if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
        return "has expired";
    return X509_cmp_current_time(X509_get0_notBefore(cert)) > 0 ? "is not valid yet" : NULL;
}

/* ---- sessions ---- */

static struct tls *tls_session(const struct tls_context *c, int fd)
{
    struct tls *t = mem_zalloc(sizeof *t);

    t->ssl = SSL_new(c->ssl);
    tls_need_memory(t->ssl != NULL && SSL_set_fd(t->ssl, fd) == 1);
    return t;
}

/* OpenSSL knows GET, POST, HEAD and PUT by itself; of the other methods it says no more than that this is no
 * TLS. They are all longer than the head of a record, which is what can be seen here. */
static void tls_look_at_record(int write_p, int version, int type, const void *p, size_t n, SSL *ssl,
                               void *arg)
{
    static const char methods[][6] = {"PATCH", "DELET", "OPTIO"};
    struct tls *t = arg;

    (void)version, (void)ssl;
    if (write_p || type != SSL3_RT_HEADER || n != sizeof methods[0] - 1)
        return;
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        t->plain |= memcmp(p, methods[i], n) == 0;
}

struct tls *tls_accept(const struct tls_context *c, int fd)
{
    struct tls *t = tls_session(c, fd);

    SSL_set_msg_callback(t->ssl, tls_look_at_record);
    SSL_set_msg_callback_arg(t->ssl, t);
    SSL_set_accept_state(t->ssl);
    return t;
}

struct tls *tls_connect(const struct tls_context *c, int fd, const char *name)
{
    struct tls *t = tls_session(c, fd);

    SSL_set_connect_state(t->ssl);
    if (authority_is_ip(slice_of(name))) {
        tls_need_memory(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t->ssl), name) == 1);
    } else {
        SSL_set_hostflags(t->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        tls_need_memory(SSL_set_tlsext_host_name(t->ssl, name) == 1 && SSL_set1_host(t->ssl, name) == 1);
    }
    return t;
}

void tls_free(struct tls *t)
{
    if (t == NULL)
        return;
    SSL_free(t->ssl);
    mem_free(t);
}

/* What a call that moved nothing means. */
static int tls_status(struct tls *t, int result)
{
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return TLS_WANT_READ;
    case SSL_ERROR_WANT_WRITE:
        return TLS_WANT_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_CLOSED;
    default:
        t->failed = true;
        return TLS_FAILED;
    }
}

static const char *tls_kind_of(unsigned long e)
{
    static const struct {
        int reason;
        const char *kind;
    } kinds[] = {
        {SSL_R_HTTP_REQUEST, "plain_http"},
        {SSL_R_WRONG_VERSION_NUMBER, "not_tls"}, /* of the first record: SSH, a scanner, another protocol */
        {SSL_R_HTTPS_PROXY_REQUEST, "not_tls"},
        {SSL_R_BAD_RECORD_TYPE, "not_tls"},
        {SSL_R_UNSUPPORTED_PROTOCOL, "version"},
        {SSL_R_VERSION_TOO_LOW, "version"},
        {SSL_R_VERSION_TOO_HIGH, "version"},
        {SSL_R_INAPPROPRIATE_FALLBACK, "version"},
        {SSL_R_NO_SHARED_CIPHER, "cipher"},
        {SSL_R_NO_SUITABLE_KEY_SHARE, "cipher"},
        {SSL_R_NO_SHARED_GROUPS, "cipher"},
        {SSL_R_NO_SUITABLE_GROUPS, "cipher"},
        {SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS, "cipher"},
        {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, "cipher"},
        {SSL_R_NO_APPLICATION_PROTOCOL, "alpn"}};
    const int reason = ERR_GET_REASON(e);

    if (e == 0 || ERR_SYSTEM_ERROR(e))
        return "closed";
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (kinds[i].reason == reason)
            return kinds[i].kind;
    }
    return reason > SSL_AD_REASON_OFFSET ? "alert" : "other";
}

static void tls_note_failure(const struct tls *t, int error)
{
    const unsigned long e = ERR_peek_last_error();
    const char *reason = e != 0 && !ERR_SYSTEM_ERROR(e) ? ERR_reason_error_string(e) : NULL;
    const long verdict = SSL_get_verify_result(t->ssl);

    tls_last.kind = t->plain ? "plain_http" : tls_kind_of(e);
    tls_last.text = tls_last_text;
    if (reason == NULL)
        reason = error != 0 ? strerror(error) : "the other side closed the connection";
    (void)snprintf(tls_last_text, sizeof tls_last_text, "%s%s%s", reason, verdict != X509_V_OK ? ": " : "",
                   verdict != X509_V_OK ? X509_verify_cert_error_string(verdict) : "");
}

const struct tls_failure *tls_failure(void)
{
    return &tls_last;
}

int tls_handshake(struct tls *t)
{
    int result, status;

    ERR_clear_error();
    errno = 0;
    result = SSL_do_handshake(t->ssl);
    if (result == 1) {
        SSL_set_msg_callback(t->ssl, NULL);
        t->more = SSL_has_pending(t->ssl) == 1;
        return 1;
    }
    status = tls_status(t, result);
    if (status != TLS_WANT_READ && status != TLS_WANT_WRITE) {
        tls_note_failure(t, errno);
        t->failed = true;
        status = TLS_FAILED;
    }
    return status;
}

ssize_t tls_read(struct tls *t, void *p, size_t n_bytes)
{
    size_t got = 0;
    int result;

    do {
        size_t once = 0;

        ERR_clear_error();
        result = SSL_read_ex(t->ssl, (char *)p + got, n_bytes - got, &once);
        got += once;
    } while (result == 1 && got < n_bytes && SSL_has_pending(t->ssl) == 1);
    if (result == 1)
        t->more = SSL_has_pending(t->ssl) == 1;
    else if (got > 0)
        t->more = SSL_get_error(t->ssl, result) != SSL_ERROR_WANT_READ; /* said by the next call */
    else
        t->more = false;
    return got > 0 ? (ssize_t)got : tls_status(t, result);
}

bool tls_has_more(const struct tls *t)
{
    return t->more;
}

/* Joins parts up to a record. Where the first part fills one by itself nothing is copied. */
static struct iovec tls_gather(const struct iovec *iov, unsigned n)
{
    static char record[TLS_RECORD_BYTES];
    size_t have = 0;

    if (n == 1 || iov[0].iov_len >= sizeof record)
        return (struct iovec){iov[0].iov_base,
                              iov[0].iov_len < sizeof record ? iov[0].iov_len : sizeof record};
    for (unsigned i = 0; i < n && have < sizeof record; i++) {
        const size_t room = sizeof record - have;
        const size_t part = iov[i].iov_len < room ? iov[i].iov_len : room;

        memcpy(record + have, iov[i].iov_base, part);
        have += part;
    }
    return (struct iovec){record, have};
}

ssize_t tls_writev(struct tls *t, const struct iovec *iov, unsigned n)
{
    const struct iovec one = tls_gather(iov, n);
    size_t took = 0;
    int result;

    if (t->failed)
        return TLS_FAILED;
    if (one.iov_len == 0)
        return 0;
    ERR_clear_error();
    result = SSL_write_ex(t->ssl, one.iov_base, one.iov_len, &took);
    if (result == 1)
        return (ssize_t)took;
    result = tls_status(t, result);
    return result == TLS_CLOSED ? TLS_FAILED : result;
}

void tls_end_writing(struct tls *t)
{
    if (t->failed || SSL_in_init(t->ssl))
        return;
    ERR_clear_error();
    (void)SSL_shutdown(t->ssl);
    ERR_clear_error();
}
