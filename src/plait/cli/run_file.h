// A run file: the flags of a command as TOML, so that a run can be written down.
//
//   model = "llama-demo"            plait train llama-demo
//   data = ["a.jsonl", "b.txt"]       --data a.jsonl --data b.txt
//   learning_rate = 1e-3              --learning-rate 1e-3
//   [lora]
//   rank = 8                          --lora-rank 8
//
//   plait train run.toml --steps 20   # what the command line says wins
//
// There is one list of settings, the command's flags: the key of a flag is its name with _ for -,
// and a table's name goes before the keys in it. Paths are as on the command line, from the
// current folder. All errors are Errors with file and line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace plait {

// Arguments of `command` with the run file at args[0], if it is one (a name that ends in .toml),
// replaced by what it says; flags that `args` has too are left to them.
std::vector<std::string> expand_run_file(const CLI::App& command, std::vector<std::string> args);

// Of a flag of one value that is given twice, the last one wins, as on most command lines; in all
// commands of `app`. Flags of several values gather them all.
void let_the_last_win(CLI::App& app);

}  // namespace plait
