/* Which of the algorithms builds the step, and which units live on the host. */
#include "schedule/passes/passes.h"

bool is_ddp(const struct builder *b)
{
	return plan_layout(b->plan) == LAYOUT_WHOLE;
}

bool is_zero(const struct builder *b)
{
	return is_ddp(b) && b->runtime->zero != NULL;
}

bool is_zero3(const struct builder *b)
{
	return plan_layout(b->plan) == LAYOUT_PARTITIONED;
}

bool offloads(const struct builder *b, int unit)
{
	return b->schedule->units[unit].offload != OFFLOAD_NONE;
}

bool offloads_parameters(const struct builder *b, int unit)
{
	return b->schedule->units[unit].offload == OFFLOAD_PARAMETERS;
}
