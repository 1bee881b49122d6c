#include "oci_image.h"

#include <string.h>

/* Go's names (GOARCH), which the image-spec uses, and what other tools write for them. */
static const struct {
    const char *spelling;
    const char *name;
    const char *variant; /* that the spelling implies */
} spellings[] = {
    {"x86_64", "amd64", NULL}, {"x86-64", "amd64", NULL}, {"aarch64", "arm64", NULL},
    {"i386", "386", NULL},     {"i686", "386", NULL},     {"armhf", "arm", "v7"},
    {"armel", "arm", "v6"},
};

const char *oci_host_architecture(void)
{
#if defined(__x86_64__)
    return "amd64";
#elif defined(__aarch64__)
    return "arm64";
#elif defined(__i386__)
    return "386";
#elif defined(__arm__)
    return "arm";
#elif defined(__riscv) && __riscv_xlen == 64
    return "riscv64";
#elif defined(__powerpc64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return "ppc64le";
#elif defined(__s390x__)
    return "s390x";
#elif defined(__loongarch64)
    return "loong64";
#else
#error "the name of this architecture in OCI images is not known"
#endif
}

/* The variant that every machine of an architecture has, and that a missing variant stands for. */
static int baseline(const char *architecture)
{
    static const struct {
        const char *architecture;
        int variant;
    } baselines[] = {{"amd64", 1}, {"arm64", 8}, {"arm", 7}};
    for (size_t i = 0; i < ARRAY_SIZE(baselines); i++)
        if (strcmp(architecture, baselines[i].architecture) == 0)
            return baselines[i].variant;
    return 0;
}

/* "v8" or "8" -> 8; anything else, such as a minor version, counts as far above the baseline. */
static int variant_number(const char *variant)
{
    if (*variant == 'v')
        variant++;
    size_t digits = strspn(variant, "0123456789");
    if (digits == 0 || digits > 3 || variant[digits] != '\0')
        return 999;
    int number = 0;
    for (size_t i = 0; i < digits; i++)
        number = number * 10 + (variant[i] - '0');
    return number;
}

int oci_host_fit(const char *os, const char *architecture, const char *variant)
{
    if (variant && *variant == '\0')
        variant = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(spellings); i++) {
        if (strcmp(architecture, spellings[i].spelling) != 0)
            continue;
        architecture = spellings[i].name;
        variant = variant ? variant : spellings[i].variant;
        break;
    }
    if (strcmp(os, "linux") != 0 || strcmp(architecture, oci_host_architecture()) != 0)
        return 0;
    int have = baseline(architecture);
    int wanted = variant ? variant_number(variant) : have;
    /* Up to the baseline the higher the better; above it, where this machine may lack something,
     * only as a last resort and the lower the better. */
    return wanted <= have ? 2000 + wanted : 1000 - wanted;
}
