/* Evaluators for work that the caller does on several cores. */
#include "planner/evaluation/evaluation.h"

#include <stdlib.h>

int lent_workers(const struct question *question)
{
	const struct lent *lent = question->lent;
	return lent != NULL && lent->each != NULL && lent->workers > 1 ? lent->workers : 1;
}

void lent_each(const struct question *question, int n,
	void (*piece)(void *data, int index, int worker), void *data)
{
	if (lent_workers(question) > 1 && n > 1) {
		question->lent->each(question->lent->context, n, piece, data);
		return;
	}
	for (int i = 0; i < n; i++)
		piece(data, i, 0);
}

struct question lent_alone(const struct question *question)
{
	struct question alone = *question;
	alone.lent = NULL;
	return alone;
}

void evaluators_init(struct evaluators *evaluators, const struct question *question)
{
	*evaluators = (struct evaluators){.n = lent_workers(question)};
	evaluators->of = calloc((size_t)evaluators->n, sizeof(*evaluators->of));
	if (evaluators->of == NULL)
		base_out_of_memory((size_t)evaluators->n * sizeof(*evaluators->of));
	for (int i = 0; i < evaluators->n; i++)
		evaluators->of[i].question = question;
}

int64_t evaluators_evaluated(const struct evaluators *evaluators)
{
	int64_t evaluated = 0;
	for (int i = 0; i < evaluators->n; i++)
		evaluated += evaluators->of[i].evaluated;
	return evaluated;
}

void evaluators_finish(struct evaluators *evaluators)
{
	for (int i = 0; i < evaluators->n; i++)
		evaluator_finish(&evaluators->of[i]);
	free(evaluators->of);
}
