#include "plait/cli/common.h"

#include <charconv>
#include <filesystem>

#include "plait/io/files.h"
#include "plait/report/table.h"

namespace plait {

CLI::Validator whole_number(int64_t least, int64_t most) {
  const auto check = [least, most](const std::string& text) {
    int64_t n = 0;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), n);
    const bool whole = r.ec == std::errc() && std::to_string(n) == text;  // "010" would be octal
    if (whole && n >= least && n <= most) return std::string();
    return fmt::format("found '{}', expected a whole number from {} to {}", text, least, most);
  };
  return CLI::Validator(check, fmt::format("{} to {}", least, most));
}

CLI::Validator a_path() {
  return CLI::Validator(
      [](const std::string& text) { return text.empty() ? "the path is empty" : std::string(); },
      "");
}

void add_model_option(CLI::App& command, CommonOptions& o) {
  command
      .add_option("MODEL", o.model,
                  "a folder with config.json, a .plait file, or a name (plait models)")
      ->required();
}

void add_batch_options(CLI::App& command, CommonOptions& o) {
  command.add_option("--slots", o.slots, "sequences in a micro-batch")
      ->check(whole_number(1, kMaxSlots))
      ->capture_default_str();
  command.add_option("--slot-tokens", o.slot_tokens, "tokens of a sequence")
      ->check(whole_number(1, kMaxSlots))
      ->capture_default_str();
  command
      .add_option("--dtype", o.dtype,
                  "f32, f64, or bf16 with f32 sums and updates; left out: as the model says")
      ->check(CLI::IsMember({"f32", "f64", "bf16"}));
}

void add_save_dtype(CLI::App& command, std::string& dtype) {
  command
      .add_option("--save-dtype", dtype,
                  "element type of the saved weights; left out: as in the files that were read")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
}

std::optional<Dtype> save_dtype(const std::string& dtype) {
  if (dtype.empty()) return {};
  return parse_stored_dtype(dtype);
}

void add_ranks_option(CLI::App& command, CommonOptions& o) {
  command.add_option("--ranks", o.ranks, "size of the world; a plan for another size is refused")
      ->check(whole_number(1, 1 << 20));
}

void add_threads_option(CLI::App& command, CommonOptions& o) {
  command
      .add_option("--threads", o.threads,
                  "compute threads of each rank; left out: the cores shared out")
      ->check(whole_number(1, 1024));
}

void add_world_options(CLI::App& command, CommonOptions& o) {
  add_ranks_option(command, o);
  add_threads_option(command, o);
  command.add_option("--optimizer", o.optimizer, "how parameters are updated")
      ->check(CLI::IsMember(optimizer_names()))
      ->capture_default_str();
}

Model open_model(const CommonOptions& o, Head head) {
  Model model = load_model(o.model, {o.slots, o.slot_tokens}, head, Dropout::off);
  return o.dtype.empty() ? model : with_dtype(std::move(model), parse_dtype(o.dtype));
}

void say_notes(const Model& model) {
  for (const std::string& note : model.notes) fmt::print(stderr, "note: {}\n", note);
}

PlanRefused::PlanRefused(const std::string& why, Model model, Plan plan, int ranks,
                         LowerOptions options)
    : Error(why),
      model_(std::move(model)),
      plan_(std::move(plan)),
      ranks_(ranks),
      options_(std::move(options)) {}

std::optional<Suggestion> PlanRefused::suggestion() const {
  return suggest_plan(model_, plan_, ranks_, options_);
}

std::string PlanRefused::help() const {
  const std::optional<Suggestion> found = suggestion();
  if (!found) return "no plan with so few changed fields verifies\n";
  std::string text = "a plan that verifies, with the fewest fields changed:\n";
  for (const std::string& change : found->changes) text += "  " + change + "\n";
  return text + "\n" + print_plan(found->plan);
}

Compiled compile(const Model& model, const Plan& plan, int ranks, const LowerOptions& options) {
  try {
    if (ranks > 0) check_ranks(plan, ranks);
    Compiled c{lower(model, plan, options), {}};
    c.report = verify(c.lowered.programs);
    return c;
  } catch (const Error& e) {
    throw PlanRefused(e.what(), model, plan, ranks, options);
  }
}

LowerOptions lower_options(const CommonOptions& o, const Plan& plan) {
  LowerOptions options;
  options.threads = o.threads > 0 ? o.threads : share_of_cores(plan.mesh.ranks());
  options.optimizer.name = o.optimizer;
  return options;
}

void check_can_save(const std::string& folder, const SaveOptions& options) {
  const std::string target = check_save_target(folder, options), probe = path_beside(target);
  std::error_code error;
  if (!std::filesystem::create_directory(probe, error))
    fail("cannot save to '{}': no folder can be made in '{}': {}", folder,
         std::filesystem::path(target).parent_path().string(), error.message());
  std::filesystem::remove(probe, error);
}

void check_counters(const Session& session) {
  for (size_t r = 0; r < session.counters().size(); ++r) {
    const RankCounters& counted = session.counters()[r];
    const RankReport& predicted = session.report().ranks[r];
    if (counted.sent_bytes != predicted.sent_bytes)
      fail("rank {}: counted {} bytes sent in a step, predicted {}", r, counted.sent_bytes,
           predicted.sent_bytes);
    if (counted.peak_live_bytes != predicted.peak_live_bytes)
      fail("rank {}: counted {} bytes live at the peak, predicted {}", r, counted.peak_live_bytes,
           predicted.peak_live_bytes);
  }
}

}  // namespace plait
