#include "layer_list.h"

#include "buf.h"
#include "spawn.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char reader[] =
    "import hashlib, json, os, subprocess, sys, tarfile\n"
    "def text(s): return os.fsencode(s).decode('utf-8', 'backslashreplace')\n"
    "zstd = subprocess.Popen(['zstd', '-dcq', sys.argv[1]], stdout=subprocess.PIPE)\n"
    "tar = tarfile.open(fileobj=zstd.stdout, mode='r|', encoding='utf-8',\n"
    "                   errors='surrogateescape')\n"
    "out = []\n"
    "for m in tar:\n"
    "    pax = dict(m.pax_headers)\n"
    "    name = m.name + ('/' if m.isdir() else '')\n"
    "    entry = dict(name=text(name), type=m.type.decode(), mode=m.mode, uid=m.uid, gid=m.gid,\n"
    "        mtime=pax.pop('mtime', str(int(m.mtime))), size=m.size, link=text(m.linkname),\n"
    "        major=m.devmajor, minor=m.devminor, uname=m.uname + m.gname)\n"
    "    if m.isreg():\n"
    "        h = hashlib.sha256()\n"
    "        f = tar.extractfile(m)\n"
    "        while True:\n"
    "            b = f.read(1 << 20)\n"
    "            if not b: break\n"
    "            h.update(b)\n"
    "        entry['sha256'] = h.hexdigest()\n"
    "    key = 'SCHILY.xattr.'\n"
    "    entry['xattrs'] = {text(k[len(key):]): os.fsencode(v).hex() for k, v in pax.items()\n"
    "                       if k.startswith(key)}\n"
    "    entry['pax'] = sorted(text(k) for k in pax if not k.startswith(key))\n"
    "    out.append(entry)\n"
    "while zstd.stdout.read(1 << 20): pass\n"
    "if zstd.wait() != 0: sys.exit('zstd failed')\n"
    "json.dump(out, sys.stdout)\n";

static void blob_path(struct blobs *blobs, const struct digest *digest, char ret[4096])
{
    snprintf(ret, 4096, "%s/blobs/sha256/%s", blobs_path(blobs), digest_hex(digest).s);
}

static void must_succeed(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

json_t *layer_list(struct blobs *blobs, const struct digest *digest)
{
    char path[4096];
    blob_path(blobs, digest, path);
    const char *argv[] = {"python3", "-X", "utf8", "-c", reader, path, NULL};
    cleanup_buf struct buf out = BUF_INIT(256 << 20);
    struct err err = ERR_INIT;
    must_succeed(spawn_tool(argv, &out, &err), &err);
    json_t *list = json_loadb(buf_str(&out), out.len, 0, NULL);
    assert_non_null(list);
    return list;
}

long layer_index(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(layer_str(json_array_get(list, i), "name"), name) == 0)
            return (long)i;
    return -1;
}

const json_t *layer_entry(const json_t *list, const char *name)
{
    const json_t *found = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        if (strcmp(layer_str(entry, "name"), name) != 0)
            continue;
        if (found)
            fail_msg("%s is in the layer twice", name);
        found = entry;
    }
    if (!found)
        fail_msg("%s is not in the layer", name);
    return found;
}

const char *layer_str(const json_t *entry, const char *key)
{
    return json_string_value(json_object_get(entry, key));
}

long long layer_int(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(entry, key));
}

const char *layer_xattr(const json_t *entry, const char *name)
{
    return json_string_value(json_object_get(json_object_get(entry, "xattrs"), name));
}

char *layer_names(const json_t *list)
{
    struct buf names = BUF_INIT(64 << 20);
    for (size_t i = 0; i < json_array_size(list); i++)
        assert_int_equal(buf_addf(&names, NULL, "%s\n", layer_str(json_array_get(list, i), "name")),
                         0);
    return buf_steal(&names);
}

static char *run(const char *fmt, va_list ap)
{
    char command[16384];
    int len = vsnprintf(command, sizeof command, fmt, ap);
    assert_in_range(len, 1, sizeof command - 1);
    const char *argv[] = {"bash", "-ec", command, NULL};
    struct buf out = BUF_INIT(64 << 20);
    struct err err = ERR_INIT;
    must_succeed(spawn_tool(argv, &out, &err), &err);
    if (out.len > 0 && out.data[out.len - 1] == '\n')
        out.data[--out.len] = '\0';
    return buf_steal(&out);
}

char *layer_shell_output(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *out = run(fmt, ap);
    va_end(ap);
    return out;
}

void layer_shell(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    free(run(fmt, ap));
    va_end(ap);
}

void layer_extract(struct blobs *blobs, const struct digest *digest, const char *dir)
{
    char path[4096];
    blob_path(blobs, digest, path);
    layer_shell("set -o pipefail; zstd -dcq '%s' | tar -x -C '%s' --numeric-owner -p --xattrs "
                "--xattrs-include='*' --acls --delay-directory-restore",
                path, dir);
}
