/* Parts that several documents share. Each is built here once, and drawn as text, Markdown or HTML.
 * These functions initialise the grids; the caller finishes them. */
#ifndef REPORTS_TEXT_SECTIONS_H
#define REPORTS_TEXT_SECTIONS_H

#include "reports/text/grid.h"
#include "reports/text/types.h"

/* Example: "communication buffers". */
void category_label(enum category category, struct text *text);

/* Bytes by category at the peak, and each category's own peak. */
void memory_grid(const struct prediction *prediction, struct grid *grid);
/* Memory and bubble of each stage of a pipeline. False: there is no pipeline, and no grid. */
bool stages_grid(const struct prediction *prediction, struct grid *grid);
/* The communication of each axis: ranks, link, bytes, seconds. False: fewer than `least` axes
 * communicate, and there is no grid. */
bool mesh_grid(const struct topology *topology, const struct prediction *prediction, int least,
	struct grid *grid);
/* The kinds of groups, those of neighbouring ranks first. */
extern const enum group_kind mesh_order[GROUP_KIND_COUNT];
/* The ranks of rank 0's group ("0-7", "0,8,16,24"), and the links between them ("nvswitch,
 * infiniband"). */
void axis_ranks(const struct axis_figures *axis, struct text *text);
void axis_link(const struct topology *topology, const struct axis_figures *axis, struct text *text);
/* Seconds by kind of work. */
void time_grid(const struct prediction *prediction, struct grid *grid);
/* Time, throughput, memory, network and bounds, each behind a label, for a terminal. */
void put_prediction(const struct topology *topology, const struct prediction *prediction,
	const struct style *style, struct text *text);
/* Example: "llama-2-7b (6.74 B parameters) on 2xdgx-a100-80gb: 16 x A100-SXM4-80GB, 80.0 GiB
 * each". */
void add_subject_line(
	const struct model *model, const struct topology *topology, struct text *text);

/* The name of a report beside others: its label, else the model. */
const char *report_name(const struct report *report);
/* One row for each report: plan, metrics, and the measured step time if there is one. */
void reports_grid(const struct report *reports, int n, struct grid *grid);

/* Is alternative `i` the first of its strategy and runtime, and are these not those of the chosen
 * plan? */
bool is_best_of_its_strategy(const struct answer *answer, int i);
/* The best plan of each strategy, the chosen one first, with the reason why each other one lost. */
void comparison_grid(const struct answer *answer, bool reasons, struct grid *grid);
/* `narrow`: knob and value in one column, for a terminal. */
void sensitivity_grid(const struct answer *answer, bool narrow, struct grid *grid);
/* The gain of each lever alone. The sentence "With the levers free: ..."; empty if there is
 * none. */
void lever_grid(const struct answer *answer, struct grid *grid);
void lever_sentence(const struct answer *answer, struct text *text);
/* Example: "--runtime megatron: at least 42.5 % less time". Empty if no other framework is clearly
 * faster. */
void elsewhere_sentence(const struct answer *answer, struct text *text);
/* The options with which something fits, and the result. A sentence that more devices do not help;
 * or "". */
void way_out_sentence(const struct way_out *way, struct text *text);
void useless_devices_sentence(const struct answer *answer, struct text *text);
/* Example: "1.23 s per step, 3412 tokens/s/GPU, ...". */
void add_answer_figures(const struct prediction *prediction, struct text *text);
/* Why nothing fits: the least memory needed, and the limit. Empty if a plan was chosen. */
void add_no_answer(const struct answer *answer, struct text *text);
/* Example: "128 plans simulated, 64 pruned; ...". */
void add_proof(const struct answer *answer, struct text *text);

/* Time by kind of operation; measured beside predicted if there is a measurement. */
void kinds_grid(const struct explained *explained, struct grid *grid);
void check_grid(const struct check *check, struct grid *grid);
/* Were enough steps measured for percentiles of their times? */
bool has_percentiles(const struct measurement *measured);
/* Ranks, steps, step time, loss and digests, as names and values. */
void measurement_grid(const struct measurement *measured, struct grid *grid);
/* Every knob of the plan, as names and values. */
void plan_grid(const struct plan *plan, struct grid *grid);
/* The sources of the numbers: devices, links, calibration, bounds, as names and values. */
void assumptions_grid(
	const struct explained *explained, const struct topology *topology, struct grid *grid);

/* Puts a sentence behind a label, broken at blanks at `width` columns (0: not broken). The text of
 * all lines begins at column `indent`. Returns the number of lines. */
int put_line(const char *label, int indent, const char *sentence, int width, struct text *text);
/* Puts each of the lines, whose first `indent` columns are a label, at 100 columns or the width of
 * a narrower terminal. */
void put_lines(const char *lines, int indent, const struct style *style, struct text *text);
/* Adds as many clauses of the sentence, from the first on, as fit in `columns`, but at least one. A
 * clause ends with ", " or "; ". */
void add_clauses(const char *sentence, int columns, struct text *text);

/* Writes a grid and finishes it. */
void put_text(struct grid *grid, const struct style *style, struct text *text);
void put_markdown(struct grid *grid, struct text *text);
void put_html(struct grid *grid, const char *caption, bool sortable, struct text *text);

#endif
