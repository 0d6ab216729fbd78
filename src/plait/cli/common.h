// What the commands share: options that name a model and a plan, and compiling the two.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "plait/exec/session.h"
#include "plait/model/families.h"
#include "plait/program/lower.h"
#include "plait/program/suggest.h"

namespace plait {

struct CommonOptions {
  std::string model, plan;
  int64_t slots = 2, slot_tokens = 128;
  std::string dtype;  // empty: as the model says
  std::string optimizer = "adamw";
  int ranks = 0;    // size of the world; 0: what the plan says
  int threads = 0;  // compute threads of each rank; 0: the cores shared out
};
// Checks of options, with short words. A whole number in decimal; a path that is not empty.
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator a_path();
inline constexpr int64_t kMaxSlots = 1 << 20, kMaxCount = 1 << 30;  // slots, their tokens; the rest

void add_model_option(CLI::App& command, CommonOptions& options);
void add_batch_options(CLI::App& command, CommonOptions& options);  // slots, dtype
void add_save_dtype(CLI::App& command, std::string& dtype);
std::optional<Dtype> save_dtype(const std::string& dtype);  // nothing for an empty one
void add_ranks_option(CLI::App& command, CommonOptions& options);
void add_threads_option(CLI::App& command, CommonOptions& options);
void add_world_options(CLI::App& command, CommonOptions& options);  // ranks, threads, optimizer

// For commands that train nothing: dropout in config.json is of no effect.
Model open_model(const CommonOptions& options, Head head);
void say_notes(const Model& model);  // Model::notes, on stderr

// A plan that cannot work for a model; help() looks for one that can.
class PlanRefused : public Error {
 public:
  PlanRefused(const std::string& why, Model model, Plan plan, int ranks, LowerOptions options);
  std::optional<Suggestion> suggestion() const;
  std::string help() const;  // the suggestion in words

 private:
  Model model_;
  Plan plan_;
  int ranks_;
  LowerOptions options_;
};

struct Compiled {
  Lowered lowered;
  VerifyReport report;
};
// Lowers and verifies; throws PlanRefused.
Compiled compile(const Model& model, const Plan& plan, int ranks, const LowerOptions& options);
LowerOptions lower_options(const CommonOptions& options, const Plan& plan);

// check_save_target, and a folder can be made beside it: asked before training.
void check_can_save(const std::string& folder, const SaveOptions& options = {});

// Throws Error naming the first rank whose counted bytes differ from the predicted ones.
void check_counters(const Session& session);

}  // namespace plait
