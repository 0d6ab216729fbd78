// plait verify MODEL PLAN, plait explain MODEL PLAN.
#include <memory>
#include <nlohmann/json.hpp>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/io/files.h"
#include "plait/report/explain.h"
#include "plait/report/table.h"

namespace plait {

namespace {

struct VerifyOptions : CommonOptions {
  std::string programs_out;
  bool json = false;
};

void print_json(const Compiled& c) {
  nlohmann::ordered_json out = {{"model", c.lowered.programs.model},
                                {"mesh", to_string(c.lowered.programs.mesh)},
                                {"digest", fmt::format("{:016x}", digest(c.lowered.programs))}};
  for (const RankReport& r : c.report.ranks)
    out["ranks"].push_back({{"actions", r.actions},
                            {"collectives", r.collectives},
                            {"messages", r.messages},
                            {"sent_bytes", r.sent_bytes},
                            {"state_bytes", r.state_bytes},
                            {"peak_live_bytes", r.peak_live_bytes},
                            {"arena_bytes", r.arena_bytes}});
  fmt::print("{}\n", out.dump(2));
}

void run_verify(const VerifyOptions& o) {
  const Model model = open_model(o, Head::loss);
  const Compiled c = compile(model, load_plan(o.plan), o.ranks, lower_options(o));
  if (!o.programs_out.empty()) write_text(o.programs_out, print_programs(c.lowered.programs));
  if (o.json) return print_json(c);
  fmt::print("verified: '{}' under '{}', {}, digest {:016x}\n", model.name, o.plan,
             count_of(static_cast<int64_t>(c.report.ranks.size()), "rank"),
             digest(c.lowered.programs));
  fmt::print("{}", explain_ranks(c.report));
}

void run_explain(const CommonOptions& o) {
  const Model model = open_model(o, Head::loss);
  const Plan plan = load_plan(o.plan);
  const Compiled c = compile(model, plan, o.ranks, lower_options(o));
  fmt::print("{}", explain(model, plan, c.lowered, c.report));
}

void add_plan(CLI::App& command, CommonOptions& o) {
  add_model_option(command, o);
  command.add_option("PLAN", o.plan, "plan file")->required();
  add_batch_options(command, o);
  add_world_options(command, o);
}

}  // namespace

void add_verify(CLI::App& app) {
  CLI::App* command = app.add_subcommand("verify", "prove that a model under a plan can run");
  auto options = std::make_shared<VerifyOptions>();
  add_plan(*command, *options);
  command->add_option("--programs-out", options->programs_out, "write every rank's program there");
  command->add_flag("--json", options->json, "print the report as JSON");
  command->callback([options] { run_verify(*options); });
}

void add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "a model under a plan, in words");
  auto options = std::make_shared<CommonOptions>();
  add_plan(*command, *options);
  command->callback([options] { run_explain(*options); });
}

}  // namespace plait
