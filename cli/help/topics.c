/* The topics of `help`, two of which are lists. */
#include "cli/help/help.h"

const char *const help_topics[] = {
	"completion", "defaults", "environment", "exit-codes", "man", "settings", NULL};

const struct help_line help_exit_codes[] = {
	{"0", "ok"},
	{"1", "a well-formed \"no\": nothing fits, or a value is outside its tolerance"},
	{"2", "usage: unknown option, a question that contradicts itself"},
	{"3", "bad input: one line, file:line:col: what, expected, got, fix"},
	{"4", "something is missing on this machine, or cannot be written"},
	{"5", "internal error, or out of memory"},
	{"6", "training was stopped by a fault"},
	{"129", "`train --checkpoint` lost its terminal (SIGHUP): as 143"},
	{"130", "ended by Ctrl-C; `plan`: with the best plan so far; "
		"`train --checkpoint`: after the step, and it was committed"},
	{"143", "`train` was asked to stop (SIGTERM): "
		"the step was finished, the checkpoint committed"},
	{"128+n", "ended by signal n"},
	{NULL, NULL},
};

const struct help_line help_variables[] = {
	{"SHARDPLAN_PATH", "folders, separated by colons, with models and topologies of one's own: "
			   "NAME.yaml, NAME.json or NAME/config.json there is called NAME"},
	{"SHARDPLAN_SECRET", "what only the ranks of one job know, over TCP; "
			     "or SHARDPLAN_SECRET_FILE, a file that holds it"},
	{"SHARDPLAN_OPTION",
		"an option that is not typed, such as SHARDPLAN_SEQ_LEN=2048 for --seq-len "
		"(`shardplan help settings` lists them)"},
	{"XDG_CONFIG_HOME", "the file of settings is $XDG_CONFIG_HOME/shardplan/config.yaml; "
			    "without it in ~/.config/shardplan"},
	{"XDG_CACHE_HOME", "the calibration of this machine is in $XDG_CACHE_HOME/shardplan; "
			   "without it in ~/.cache/shardplan"},
	{"NO_COLOR", "when set and not empty, no colours unless --color=always"},
	{"TERM", "\"dumb\": no colours either"},
	{NULL, NULL},
};
