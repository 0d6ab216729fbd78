// Tokens from a trained model, one after another: greedy or by temperature.
//
//   Model model = load_model("out", {1, 256}, Head::logits);
//   Generator generator(model, load_parameters(model, "out"));
//   std::vector<int32_t> more = generator.generate(tokenizer->encode("In the beginning"), {});
//
// There is no cache yet: for every new token the model runs over the whole window, the last
// slot_tokens tokens. So a token costs as much as a forward pass over slot_tokens tokens.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "plait/exec/session.h"
#include "plait/model/model.h"

namespace plait {

struct GenerateOptions {
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: greedy, ties to the lower id
  uint64_t seed = 1;
  std::vector<int32_t> stop;  // ends before one of these
};

class Generator {
 public:
  // The model has logits, and one slot. Runs on one rank.
  Generator(const Model& model, const HostTensors& parameters);
  void set_parameters(const HostTensors& parameters);

  // What follows the prompt. `seen` is called with every token as it comes; false ends it.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                const std::function<bool(int32_t)>& seen = {});

 private:
  std::vector<double> next_logits(std::span<const int32_t> ids);
  int64_t window_, vocabulary_;
  Session session_;
};

// The id that `draw`, uniform in [0, 1), picks. Throws Error when a logit is not finite.
int64_t pick_token(const std::vector<double>& logits, double temperature, double draw);

}  // namespace plait
