/* Any bytes as a kubeconfig: either a server with a scheme, or an error that says something; and as the name
 * of a Service. */
#include "kubeconfig.h"

#include <assert.h>
#include <stdlib.h>

#include "kubeslices.h"
#include "mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct slice text = {(const char *)data, size};
    struct slice namespace, name, port;
    struct kubeconfig k;
    const char *why = NULL;
    char *error = NULL;

    if (kubeconfig_parse(text, &k, &error)) {
        assert(error == NULL && strncmp(k.server, "http", 4) == 0);
        kubeconfig_free(&k);
    } else {
        assert(error != NULL && error[0] != '\0' && k.server == NULL && k.token == NULL);
        mem_free(error);
    }
    if (kubeslices_parse_service(text, &namespace, &name, &port, &why))
        assert(name.n > 0 && namespace.n + name.n + port.n <= size);
    else
        assert(why != NULL && why[0] != '\0');
    return 0;
}
