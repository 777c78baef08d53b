/* The hooks of four libraries. libyaml and inih have none; their errors are heeded where they are used. */
#include "libs.h"

#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <event2/event.h>
#include <openssl/crypto.h>

#include "mem.h"

static void *libs_calloc(size_t n, size_t size_bytes)
{
    size_t total_bytes;

    return __builtin_mul_overflow(n, size_bytes, &total_bytes) ? NULL : mem_zalloc(total_bytes);
}

static void *libs_openssl_alloc(size_t n_bytes, const char *file, int line)
{
    (void)file, (void)line;
    return mem_alloc(n_bytes);
}

static void *libs_openssl_realloc(void *p, size_t n_bytes, const char *file, int line)
{
    (void)file, (void)line;
    if (n_bytes > 0)
        return mem_realloc(p, n_bytes);
    mem_free(p);
    return NULL;
}

static void libs_openssl_free(void *p, const char *file, int line)
{
    (void)file, (void)line;
    mem_free(p);
}

bool libs_use_mem(void)
{
    cJSON_Hooks hooks = {mem_alloc, mem_free};

    cJSON_InitHooks(&hooks);
    event_set_mem_functions(mem_alloc, mem_realloc, mem_free);
    return CRYPTO_set_mem_functions(libs_openssl_alloc, libs_openssl_realloc, libs_openssl_free) == 1;
}

bool libs_start_curl(void)
{
    return curl_global_init_mem(CURL_GLOBAL_DEFAULT, mem_alloc, mem_free, mem_realloc, mem_strdup,
                                libs_calloc) == CURLE_OK;
}
