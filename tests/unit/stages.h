/* stages.h: the tests of the daemon's stages with RDMA replaced, fake_rdma.c. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef STAGES_H
#define STAGES_H

#include <check.h>

void add_admission_tests(Suite *suite);
void add_memory_tests(Suite *suite);
void add_vring_tests(Suite *suite);
void add_options_tests(Suite *suite);
void add_mapfile_tests(Suite *suite);
void add_region_tests(Suite *suite);
void add_pmem_tests(Suite *suite);
void add_registration_tests(Suite *suite);
void add_catalog_tests(Suite *suite);
void add_publish_tests(Suite *suite);
void add_mapping_life_tests(Suite *suite);
void add_frontend_tests(Suite *suite);

#endif
