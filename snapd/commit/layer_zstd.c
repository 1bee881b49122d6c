#include "layer_zstd.h"

#include <sched.h>
#include <zstd.h>

static int check_zstd(size_t code, struct err *err)
{
    if (!ZSTD_isError(code))
        return 0;
    return err_fail(err, ERR_INTERNAL, "cannot compress the layer: %s", ZSTD_getErrorName(code));
}

static int worker_count(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < LAYER_ZSTD_WORKERS_MAX ? count : LAYER_ZSTD_WORKERS_MAX;
}

/* At least one worker always: without workers libzstd makes other bytes than with them. */
static int set_up(ZSTD_CCtx *context, struct err *err)
{
    const struct {
        ZSTD_cParameter parameter;
        int value;
    } settings[] = {
        {ZSTD_c_compressionLevel, LAYER_ZSTD_LEVEL}, {ZSTD_c_checksumFlag, 1},
        {ZSTD_c_nbWorkers, worker_count()},          {ZSTD_c_jobSize, LAYER_ZSTD_JOB_BYTES},
        {ZSTD_c_overlapLog, LAYER_ZSTD_OVERLAP_LOG},
    };
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        size_t code = ZSTD_CCtx_setParameter(context, settings[i].parameter, settings[i].value);
        int rc = check_zstd(code, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int layer_zstd_begin(struct layer_zstd *zstd, struct err *err)
{
    cleanup_layer_zstd struct layer_zstd made = {.out_size = ZSTD_CStreamOutSize()};
    made.out = malloc(made.out_size);
    made.context = ZSTD_createCCtx();
    if (!made.out || !made.context)
        return err_errno(err, ENOMEM, "cannot compress a layer");
    int rc = set_up(made.context, err);
    if (rc < 0)
        return rc;
    *zstd = made;
    made = (struct layer_zstd){0};
    return 0;
}

/* Gives bytes to the compressor and what it hands back to the blob. With ZSTD_e_end it goes on
 * until everything came out. */
static int compress(struct layer_zstd *zstd, struct blob_writer *blob, const void *bytes,
                    size_t len, ZSTD_EndDirective mode, struct err *err)
{
    ZSTD_inBuffer in = {.src = bytes, .size = len};
    for (;;) {
        ZSTD_outBuffer out = {.dst = zstd->out, .size = zstd->out_size};
        size_t left = ZSTD_compressStream2(zstd->context, &out, &in, mode);
        int rc = check_zstd(left, err);
        if (rc == 0 && out.pos > 0)
            rc = blob_writer_write(blob, zstd->out, out.pos, err);
        if (rc < 0)
            return rc;
        if (mode == ZSTD_e_end ? left == 0 : in.pos == in.size)
            return 0;
    }
}

int layer_zstd_write(struct layer_zstd *zstd, struct blob_writer *blob, const void *bytes,
                     size_t len, struct err *err)
{
    return compress(zstd, blob, bytes, len, ZSTD_e_continue, err);
}

int layer_zstd_finish(struct layer_zstd *zstd, struct blob_writer *blob, struct err *err)
{
    return compress(zstd, blob, NULL, 0, ZSTD_e_end, err);
}

void layer_zstd_free(struct layer_zstd *zstd)
{
    ZSTD_freeCCtx(zstd->context);
    free(zstd->out);
    *zstd = (struct layer_zstd){0};
}
