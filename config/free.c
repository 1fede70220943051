/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"
#include "config/config.h"

#include "base/check.h"

static void free_list(const struct config_sub *sub, struct config_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		config_free(sub->rows, (char *)list->items + i * sub->size);
	heap_free(list->items);
	*list = (struct config_list){ NULL, 0 };
}

static void free_variant(const struct config_sub *sub, struct config_variant *variant)
{
	struct config_choice choice;

	if (sub->rows != NULL)
		config_free(sub->rows, variant);
	if (variant->config == NULL)
		return;
	ASSERT(sub->variant((size_t)variant->choice, &choice));
	if (choice.rows != NULL)
		config_free(choice.rows, variant->config);
	heap_free(variant->config);
	variant->config = NULL;
}

/* Members of what was filled only in part are zero, and so free to free. */
void config_free(const struct config_row *rows, void *filled)
{
	for (; rows->key != NULL; rows++) {
		void *member = (char *)filled + rows->offset;

		switch (rows->kind) {
		case CONFIG_TEXT:
		case CONFIG_PATH:
			heap_free(*(char **)member);
			*(char **)member = NULL;
			break;
		case CONFIG_MAP:
			config_free(rows->sub->rows, member);
			break;
		case CONFIG_LIST:
			free_list(rows->sub, member);
			break;
		case CONFIG_VARIANT:
			free_variant(rows->sub, member);
			break;
		default:
			break;
		}
	}
}
