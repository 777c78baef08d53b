/* certificate: the inference listener's certificate and key: reading them, looking for new ones, replacing
 * them. New connections get the new one; those that stand keep theirs. */
#ifndef CERTIFICATE_H
#define CERTIFICATE_H

#include <sys/stat.h>

#include "loop.h"
#include "tls.h"

/* Files are looked at this often. */
#define CERTIFICATE_CHECK_US (5 * US_PER_S)

struct certificate {
    struct loop *loop;
    char *cert_file, *key_file;  /* NULL = no TLS */
    struct tls_context *context; /* NULL = no TLS */
    struct stat seen[2];         /* of the files that were read last, well or badly */
    struct wheel_timer timer;
};

/* cert_file "" = no TLS. False: *error says why the files cannot be used (mem_free). */
MUST_CHECK bool certificate_start(struct certificate *c, struct loop *l, const char *cert_file,
                                  const char *key_file, char **error);
/* Reads the files again. False: the certificate in use stays. Without TLS: true. */
MUST_CHECK bool certificate_reload(struct certificate *c, char **error);
void certificate_free(struct certificate *c);

#endif
