/* kubeconfig: what a kubeconfig file says about its current context: where the API server is and how to show
 * who we are. Reads the YAML text; files that it names are read by who uses them. */
#ifndef KUBECONFIG_H
#define KUBECONFIG_H

#include "util.h"

#define KUBECONFIG_BYTES_MAX (1024 * 1024)

/* NULL = not given. PEM texts of the ...-data fields are decoded. Names of files are as written; a relative
 * one is relative to the kubeconfig's directory. */
struct kubeconfig {
    char *server;    /* "https://host:port", without a slash at the end */
    char *namespace; /* of the context */
    char *ca_file, *ca_pem;
    char *tls_server_name;
    bool insecure; /* insecure-skip-tls-verify */
    char *token, *token_file;
    char *cert_file, *cert_pem, *key_file, *key_pem;
};

/* False: *error says what is wrong, freed by the caller; nothing is in *k. */
MUST_CHECK bool kubeconfig_parse(struct slice text, struct kubeconfig *k, char **error);
void kubeconfig_free(struct kubeconfig *k);

#endif
