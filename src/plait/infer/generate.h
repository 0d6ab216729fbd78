// Text from a trained model: one byte after another, greedy or by temperature.
//
//   Model model = load_model("out", {1, 256}, Head::logits);
//   Generator generator(model, load_parameters(model, "out"));
//   std::string text = generator.generate("In the beginning", {200, 0.8, 1});
//
// There is no cache yet: for every new byte the model runs over the whole window, the last
// slot_tokens bytes. So a byte costs as much as a forward pass over slot_tokens tokens.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "plait/exec/session.h"
#include "plait/model/model.h"

namespace plait {

struct GenerateOptions {
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: greedy, ties to the lower byte
  uint64_t seed = 1;
};

class Generator {
 public:
  // The model has logits, and one slot. Runs on one rank.
  Generator(const Model& model, const HostTensors& parameters);

  // What follows the prompt. `seen` is called with every byte as it comes.
  std::string generate(std::string_view prompt, const GenerateOptions& options,
                       const std::function<void(char)>& seen = {});

 private:
  std::vector<double> next_logits(std::string_view text);
  int64_t window_, vocabulary_;
  Session session_;
};

// The byte that `draw`, uniform in [0, 1), picks. Throws Error when a logit is not finite.
int64_t pick_token(const std::vector<double>& logits, double temperature, double draw);

}  // namespace plait
