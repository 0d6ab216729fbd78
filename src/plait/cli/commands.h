// The commands of plait; each adds itself to the command line and runs as its callback.
#pragma once

#include <CLI/CLI.hpp>

namespace plait {

void add_models(CLI::App& app);
void add_print(CLI::App& app);
void add_verify(CLI::App& app);
void add_explain(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_merge(CLI::App& app);
void add_generate(CLI::App& app);
void add_checkpoint(CLI::App& app);
void add_data(CLI::App& app);
void add_demo(CLI::App& app);

}  // namespace plait
