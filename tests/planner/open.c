#include "open.h"

void open_begin(struct open *open, const char *model, const char *topology, int n,
	const char *const *options)
{
	*open = (struct open){{0}};
	struct model *loaded = load_model(&open->arena, model);
	open->question.model = loaded;
	open->question.topology = load_topology(&open->arena, topology);
	open->question.mixes = true;
	set_choices(&open->question, &open->arena, n, options);
	/* As the command line does. */
	if (question_gives(&open->question, KNOB_SEQ_LEN))
		loaded->architecture.context =
			max_i64(loaded->architecture.context, open->question.asked.seq_len);
}

double token_time(const struct candidate *candidate)
{
	return candidate->prediction.step_time / plan_tokens(&candidate->plan);
}
