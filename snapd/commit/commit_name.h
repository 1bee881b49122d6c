/* commit_name.h - names for new images, and what a user's path means. */
#pragma once

#include "err.h"

/* "repo[:tag]" as the user gave it, in the form that the catalog has: with a tag, without a
 * digest. Caller frees *ret. */
int commit_name_of_user(const char *text, char **ret, struct err *err);

/* The name for an image from the file or directory `path`: its last component without endings such
 * as ".tar.gz", in small letters, with '-' for everything that no repository name may hold; the tag
 * is `tag` when that is one, else "latest". Caller frees; NULL without memory. */
char *commit_name_of_path(const char *path, const char *tag);

/* Makes a text one component of a repository, in place: small letters and digits stay, every run of
 * anything else between them becomes one separator ('-', or the '.' or '_' that stood there alone).
 * May leave "". */
void commit_name_make_legal(char *name);

/* Splits "PATH:NAME", NAME being that of an image in a layout: *ret_path is `text` when that
 * exists, else the shortest part before a ':' that does. Both are owned by the caller; *ret_name is
 * NULL without a NAME. ERR_NOT_FOUND when nothing exists. */
int commit_name_split(const char *text, char **ret_path, char **ret_name, struct err *err);
