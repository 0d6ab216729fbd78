// The random-plan harness: a random model, plan and batch; every invariant of a layout held
// against the reference interpreter; failing cases shrink to text.
#pragma once

#include <array>
#include <optional>

#include "plait/model/families.h"
#include "plait/program/lower.h"
#include "reference.h"

namespace plait {

struct Case {
  uint64_t seed = 0;
  std::string config;              // config.json of the model
  std::optional<LoraConfig> lora;  // low-rank adapters on it
  BatchShape batch;
  Plan plan;
};

// The learning rate of every SGD step here.
inline constexpr double kHarnessRate = 0.05;

Case random_case(uint64_t seed);
Model case_model(const Case& c);  // with its adapters, in f32
std::string print_case(const Case& c);
Case parse_case(const std::string& text, const std::string& source);

// Parameters with no special values: norms and biases are drawn too.
HostTensors random_parameters(const Model& model, uint64_t seed);
// Packed sequences of random lengths, padding, masks, sometimes a slot masked whole.
Batch random_batch(const Model& model, int64_t microbatches, uint64_t seed);

enum class Outcome : uint8_t { passed, refused, failed };
struct CaseResult {
  Outcome outcome = Outcome::passed;
  std::string what;  // of a refusal or failure
  double worst = 0;  // largest error, as a share of its tolerance
  int ranks = 1;
};

// f64: two SGD steps against the reference at 1e-10; replicas equal in bits; counted bytes and
// peaks equal to prediction; the other schedule and a repetition give the same bits.
// f32 and bf16: one step, every gradient within 4x of the error of one rank against f64, which is
// the largest of three: with these parameters, and with parameters that are off by one rounding.
CaseResult run_case(const Case& c, Dtype dtype = Dtype::f64);
Case shrink(Case failing, Dtype dtype);

// Runs one f64 step of programs (not verified when `trust`) and says what differs from the
// reference; empty if nothing does.
struct Truth {
  Model model;
  HostTensors parameters;
  Batch batch;
  ReferenceStep reference;
  HostTensors after;
};
Truth make_truth(const Case& c);
// Of any model (f64): after with_lora, with frozen parameters, ...
Truth make_truth(Model model, int64_t microbatches, uint64_t seed);
// Counted bytes and peaks against the prediction, of the last step: empty if they agree.
std::string counted_as_predicted(const Session& session);
std::string compare_step(const Programs& programs, const Truth& truth,
                         const SessionOptions& options, double* worst = nullptr);
LowerOptions harness_options();

// Plants one fault at a time in what programs communicate or compute.
struct MutantTally {
  std::map<std::string, std::array<int64_t, 4>> by_kind;  // planted, verifier, numbers, survived
  std::vector<std::string> survivors;
};
void plant_mutants(const Case& c, int most, MutantTally& tally);

}  // namespace plait
