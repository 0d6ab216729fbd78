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
  std::string programs_out, programs_in;
  bool json = false;
};

using Json = nlohmann::ordered_json;

void print_json(const Json& out) {  // names from files may hold any bytes
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_report(const Compiled& c) {
  Json out = {{"verified", true},
              {"model", c.lowered.programs.model},
              {"mesh", to_string(c.lowered.programs.mesh)},
              {"digest", fmt::format("{:016x}", digest(c.lowered.programs))}};
  for (const RankReport& r : c.report.ranks)
    out["ranks"].push_back({{"actions", r.actions},
                            {"collectives", r.collectives},
                            {"messages", r.messages},
                            {"sent_bytes", r.sent_bytes},
                            {"state_bytes", r.state_bytes},
                            {"peak_live_bytes", r.peak_live_bytes},
                            {"arena_bytes", r.arena_bytes},
                            {"empty_inputs", r.empty_inputs}});
  out["notes"] = notes(c.lowered.programs, c.report);
  print_json(out);
}

[[noreturn]] void refuse_in_json(const std::string& why, const std::optional<Suggestion>& found) {
  Json out = {{"verified", false}, {"error", why}, {"suggestion", nullptr}};
  if (found) out["suggestion"] = {{"changes", found->changes}, {"plan", print_plan(found->plan)}};
  print_json(out);
  throw CLI::RuntimeError(1);
}

std::string mesh_words(const Mesh& mesh) {
  return fmt::format(
      "'{}' with {}", to_string(mesh),
      mesh.pipeline_axis().empty() ? "no pipeline axis" : "pipeline axis " + mesh.pipeline_axis());
}

// The programs of a file, for the same model and mesh, in the place of lowered ones.
Compiled read_programs(const Model& model, const Plan& plan, const VerifyOptions& o) {
  constexpr int64_t kMaxBytes = int64_t{1} << 32;
  if (o.ranks > 0) check_ranks(plan, o.ranks);
  Compiled c;
  Programs& programs = c.lowered.programs;
  programs = parse_programs(read_text(o.programs_in, kMaxBytes), o.programs_in);
  if (programs.model != model.name)
    fail("'{}': programs of model '{}', expected '{}'", o.programs_in, programs.model, model.name);
  if (programs.mesh != plan.mesh)
    fail("'{}': programs for the mesh {}, the plan has {}", o.programs_in,
         mesh_words(programs.mesh), mesh_words(plan.mesh));
  // Whatever the file says it means, it is held to what the model computes.
  programs.meaning =
      lower(model, one_rank_plan(plan.microbatches), lower_options(o, plan)).programs.meaning;
  c.report = verify(programs);
  return c;
}

void run_verify(const VerifyOptions& o) {
  const Model model = open_model(o, Head::loss);
  const Plan plan = load_plan(o.plan);
  const bool given = !o.programs_in.empty();
  const Compiled c =
      given ? read_programs(model, plan, o) : compile(model, plan, o.ranks, lower_options(o, plan));
  if (!o.programs_out.empty()) write_text(o.programs_out, print_programs(c.lowered.programs));
  if (o.json) return print_report(c);
  fmt::print("verified: {}, {}, digest {:016x}\n",
             given ? fmt::format("programs '{}'", o.programs_in)
                   : fmt::format("'{}' under '{}'", model.name, o.plan),
             count_of(static_cast<int64_t>(c.report.ranks.size()), "rank"),
             digest(c.lowered.programs));
  fmt::print("{}{}", explain_ranks(c.report), explain_notes(notes(c.lowered.programs, c.report)));
}

void run_verify_json(const VerifyOptions& o) {
  try {
    run_verify(o);
  } catch (const PlanRefused& e) {
    std::optional<Suggestion> found;
    try {
      found = e.suggestion();
    } catch (const std::exception&) {  // none, then
    }
    refuse_in_json(e.what(), found);
  } catch (const std::exception& e) {
    refuse_in_json(e.what(), {});
  }
}

void run_explain(const CommonOptions& o) {
  const Model model = open_model(o, Head::loss);
  const Plan plan = load_plan(o.plan);
  const Compiled c = compile(model, plan, o.ranks, lower_options(o, plan));
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
  CLI::Option* out = command->add_option("--programs-out", options->programs_out,
                                         "write every rank's program there");
  command
      ->add_option("--programs-in", options->programs_in,
                   "verify the programs of this file, not those made of model and plan")
      ->check(a_path())
      ->excludes(out->check(a_path()));
  command->add_flag("--json", options->json, "print the report as JSON");
  command->callback(
      [options] { options->json ? run_verify_json(*options) : run_verify(*options); });
}

void add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "a model under a plan, in words");
  auto options = std::make_shared<CommonOptions>();
  add_plan(*command, *options);
  command->callback([options] { run_explain(*options); });
}

}  // namespace plait
