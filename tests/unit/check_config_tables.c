/* SPDX-License-Identifier: Apache-2.0
 *
 * Every table of the product keeps the contract of config/config.h. A new policy or backend stands
 * in its array and so is found here.
 */
#include "tests/unit/unit.h"

#include <stddef.h>

#include "config/config.h"
#include "policy/policy.h"
#include "tiers/nvme.h"
#include "tiers/tier.h"

static void check_rows(const char *whose, const struct config_row *rows, size_t size)
{
	struct err err = ERR_INIT;

	ck_assert_msg(rows == NULL || config_check_rows(rows, size, &err) == 0, "%s: %s", whose,
		      err.text);
}

START_TEST(tables_of_policies_keep_the_contract)
{
	size_t i;

	for (i = 0; policy_all[i] != NULL; i++)
		check_rows(policy_all[i]->name, policy_all[i]->rows, policy_all[i]->config_size);
	ck_assert_uint_ge(i, 4);
}
END_TEST

START_TEST(tables_of_backends_keep_the_contract)
{
	size_t i;

	for (i = 0; tier_backends[i] != NULL; i++)
		check_rows(tier_backends[i]->name, tier_backends[i]->rows,
			   tier_backends[i]->config_size);
	ck_assert_uint_ge(i, 1);
}
END_TEST

START_TEST(tables_of_nvme_keep_the_contract)
{
	check_rows("nvme paths", nvme_path_rows, sizeof(struct nvme_path));
	check_rows("nvme", nvme_option_rows, sizeof(struct nvme_options));
	check_rows("fault", fault_rows, sizeof(struct fault_config));
}
END_TEST

UNIT_MAIN("config_tables", tables_of_policies_keep_the_contract,
	  tables_of_backends_keep_the_contract, tables_of_nvme_keep_the_contract)
