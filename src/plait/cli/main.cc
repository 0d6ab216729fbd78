// plait: the command line. Errors are caught here and nowhere else: exit code 1 for what went
// wrong, 2 for usage.
#include <algorithm>
#include <cstdio>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/cli/run_file.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("plait: parallel training where layout is data", "plait");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  plait::add_demo(app);
  plait::add_models(app);
  plait::add_print(app);
  plait::add_verify(app);
  plait::add_explain(app);
  plait::add_tokenize(app);
  plait::add_train(app);
  plait::add_eval(app);
  plait::add_generate(app);
  plait::add_merge(app);
  plait::add_data(app);
  plait::add_checkpoint(app);
  plait::let_the_last_win(app);
  std::vector<std::string> args(argv + 1, argv + argc);
  if (!args.empty() && args[0] == "train") {
    args.erase(args.begin());
    args = plait::expand_run_file(*app.get_subcommand("train"), std::move(args));
    args.insert(args.begin(), "train");
  }
  std::reverse(args.begin(), args.end());  // as parse() wants them
  try {
    app.parse(std::move(args));
  } catch (const CLI::RuntimeError& e) {  // a command that has said itself what was wrong
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const plait::PlanRefused& e) {
    std::fflush(stdout);
    fmt::print(stderr, "plait: {}\n", e.what());
    try {
      fmt::print(stderr, "\n{}", e.help());
    } catch (const std::exception& help) {
      fmt::print(stderr, "plait: no suggestion: {}\n", help.what());
    }
  } catch (const std::exception& e) {
    std::fflush(stdout);
    fmt::print(stderr, "plait: {}\n", e.what());
  }
  return 1;
}
