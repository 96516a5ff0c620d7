/* container.h: from a member to the struct that holds it. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_CONTAINER_H
#define BASE_CONTAINER_H

#include <stddef.h>

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
