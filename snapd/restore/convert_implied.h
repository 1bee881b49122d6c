/* convert_implied.h - directories that a layer does not list, and what they look like.
 *
 * A layer may have d/f without d. Such a directory takes owner, mode, time and attributes from the
 * directory that the layers below show at its path, whatever markers the layer has for them; where
 * they show none it stays as it was made (convert_tree.h). The root is another matter: it is marked
 * with trusted.varve.implied, as the merged root is made by others.
 */
#pragma once

#include "convert_lower.h"
#include "convert_tree.h"

/* Number of implied directories in the tree, without the root. */
uint32_t convert_implied_count(const struct convert_tree *tree);

/* Gives all of them their look. */
int convert_implied_apply(struct convert_tree *tree, struct convert_lower *lower, struct err *err);
