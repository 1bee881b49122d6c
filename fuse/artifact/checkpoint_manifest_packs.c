/* Pack lists. */
#include "checkpoint_manifest.h"
#include "checkpoint_manifest_parts.h"
#include "cleanup.h"

#include <string.h>

static const char what[] = "the pack list";
static const char empty_digest[] =
    "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
#define MEDIA_EMPTY "application/vnd.oci.empty.v1+json"

struct checkpoint_blob checkpoint_packs_config(void)
{
    struct checkpoint_blob blob = {.size = sizeof CHECKPOINT_EMPTY - 1};
    (void)digest_parse(empty_digest, &blob.digest, NULL);
    return blob;
}

/* A pack has at most as many bytes as places can speak of. */
static int check_packs(const struct pack *packs, size_t count, struct err *err)
{
    if (count < 1 || count > CHECKPOINT_LIST_PACKS)
        return err_fail(err, ERR_DAMAGED, "%s has %zu packs, not 1 to %d", what, count,
                        CHECKPOINT_LIST_PACKS);
    for (size_t i = 0; i < count; i++) {
        if (packs[i].size < 1 || packs[i].size > PACK_BYTES_MAX)
            return err_fail(err, ERR_DAMAGED, "pack %zu of %s has a size that cannot be", i, what);
        for (size_t j = 0; j < i; j++)
            if (memcmp(packs[i].digest.bytes, packs[j].digest.bytes, VOLUME_PACK_ID) == 0)
                return err_fail(err, ERR_DAMAGED,
                                "packs %zu and %zu of %s begin with the same "
                                "digits",
                                j, i, what);
    }
    return 0;
}

static json_t *layers_json(const struct pack *packs, size_t count)
{
    cleanup_json json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++)
        if (json_array_append_new(array,
                                  checkpoint_manifest_descriptor(&packs[i].digest, packs[i].size,
                                                                 CHECKPOINT_MEDIA_PACK)) < 0)
            return NULL;
    return steal_ptr(array);
}

int checkpoint_packs_encode(const struct pack *packs, size_t count, char **ret, size_t *ret_len,
                            struct err *err)
{
    struct err wrong = ERR_INIT;
    if (check_packs(packs, count, &wrong) < 0)
        return err_fail(err, ERR_INTERNAL, "cannot write a checkpoint: %s", wrong.text);
    const struct checkpoint_blob config = checkpoint_packs_config();
    cleanup_json json_t *json =
        json_pack("{s:i, s:s, s:s, s:o, s:o}", "schemaVersion", 2, "mediaType", OCI_MEDIA_MANIFEST,
                  "artifactType", CHECKPOINT_PACKS, "config",
                  checkpoint_manifest_descriptor(&config.digest, config.size, MEDIA_EMPTY),
                  "layers", layers_json(packs, count));
    return checkpoint_manifest_dump(json, ret, ret_len, err);
}

static int read_config(const json_t *json, struct err *err)
{
    const struct checkpoint_blob wanted = checkpoint_packs_config();
    struct checkpoint_blob config;
    int rc =
        checkpoint_manifest_blob(json_object_get(json, "config"), "the config of the pack list",
                                 MEDIA_EMPTY, wanted.size, wanted.size, &config, err);
    if (rc == 0 && !digest_equal(&config.digest, &wanted.digest))
        rc = err_fail(err, ERR_DAMAGED, "the config of %s is not the empty one", what);
    return rc;
}

static int read_layers(const json_t *layers, struct pack *ret, struct err *err)
{
    size_t number;
    json_t *member;
    json_array_foreach ((json_t *)layers, number, member) {
        char name[48];
        struct checkpoint_blob blob;
        snprintf(name, sizeof name, "pack %zu of the list", number);
        int rc = checkpoint_manifest_blob(member, name, CHECKPOINT_MEDIA_PACK, 1, PACK_BYTES_MAX,
                                          &blob, err);
        if (rc < 0)
            return rc;
        ret[number] = (struct pack){.digest = blob.digest, .size = blob.size};
    }
    return 0;
}

int checkpoint_packs_decode(const char *bytes, size_t len, struct pack **ret, size_t *ret_count,
                            struct err *err)
{
    cleanup_json json_t *json = NULL;
    json_t *layers = NULL;
    int rc = checkpoint_manifest_load(bytes, len, OCI_MEDIA_MANIFEST, CHECKPOINT_PACKS, &json, err);
    if (rc == 0)
        rc = read_config(json, err);
    if (rc == 0)
        rc = json_doc_get_array(json, "layers", what, &layers, err);
    if (rc < 0)
        return rc;
    size_t count = json_array_size(layers);
    if (count < 1 || count > CHECKPOINT_LIST_PACKS)
        return err_fail(err, ERR_DAMAGED, "%s has %zu packs, not 1 to %d", what, count,
                        CHECKPOINT_LIST_PACKS);
    cleanup_free struct pack *packs = calloc(count, sizeof *packs);
    if (!packs)
        return err_errno(err, ENOMEM, "cannot read %s", what);
    rc = read_layers(layers, packs, err);
    if (rc == 0)
        rc = check_packs(packs, count, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(packs);
    *ret_count = count;
    return 0;
}
