// What the commands share: options that name a model and a plan, and compiling the two.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "plait/exec/session.h"
#include "plait/model/families.h"
#include "plait/program/lower.h"

namespace plait {

struct CommonOptions {
  std::string model, plan;
  int64_t slots = 2, slot_tokens = 128;
  std::string dtype;  // empty: as the model says
  std::string optimizer = "adamw";
  int ranks = 0;  // size of the world; 0: what the plan says
};
void add_model_option(CLI::App& command, CommonOptions& options);
void add_batch_options(CLI::App& command, CommonOptions& options);  // slots, dtype
void add_world_options(CLI::App& command, CommonOptions& options);  // ranks, optimizer

Model open_model(const CommonOptions& options, Head head);

// A plan that cannot work for a model; help() looks for one that can.
class PlanRefused : public Error {
 public:
  PlanRefused(const std::string& why, Model model, Plan plan, int ranks, LowerOptions options);
  std::string help() const;

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
LowerOptions lower_options(const CommonOptions& options);

// Throws Error naming the first rank whose counted bytes differ from the predicted ones.
void check_counters(const Session& session);

}  // namespace plait
