/* A model as another one but for one thing. */
#include "models/model.h"

#include "models/widths.h"

static bool build_variant(struct arena *arena, const struct model *model,
	const struct architecture *architecture, struct model **variant, struct error *error)
{
	if (!model_build(arena, architecture, variant, error))
		return false;
	(*variant)->part = model->part;
	return true;
}

bool model_train(struct arena *arena, const struct model *model, const struct trainable *trainable,
	struct model **trained, struct error *error)
{
	struct architecture architecture = model->architecture;

	architecture.trainable = *trainable;
	return build_variant(arena, model, &architecture, trained, error);
}

bool model_pad(struct arena *arena, const struct model *model, int64_t vocab, struct model **padded,
	struct error *error)
{
	struct architecture architecture = model->architecture;

	if (vocab < architecture.vocab)
		return error_set(error, EXIT_CODE_USAGE,
			"--vocab %lld: %.60s has a vocabulary of %lld words; it can only be padded",
			(long long)vocab, architecture.name, (long long)architecture.vocab);
	architecture.vocab = vocab;
	return build_variant(arena, model, &architecture, padded, error);
}

bool model_predict_next(struct arena *arena, const struct model *model, int64_t modules,
	struct model **predicting, struct error *error)
{
	struct architecture architecture = model->architecture;

	if (architecture.encoder_layers > 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--mtp-layers: %.60s has an encoder; leave it out", architecture.name);
	architecture.layers = saturated_add(architecture.layers, modules);
	architecture.mtp_layers += modules;
	return architecture_check(&architecture, NULL, error) &&
	       build_variant(arena, model, &architecture, predicting, error);
}

int64_t vocab_padded(int64_t vocab)
{
	enum { MULTIPLE = 64 };

	return round_up(vocab, MULTIPLE);
}
