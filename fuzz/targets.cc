// All fuzz targets, one line each; the record of NAME is made by fuzz_NAME() in fuzz/NAME.cc.
#include "fuzz.h"

// clang-format off
#define PLAIT_FUZZ_TARGETS(X) \
  X(safetensors) X(index) X(config) X(manifest) X(jsonl) X(megatron_index) X(data_cache) \
  X(template) X(adapter) X(encode) X(sentencepiece) X(tokenizer)
// clang-format on

namespace plait {

#define PLAIT_DECLARE(name) FuzzTarget fuzz_##name();
PLAIT_FUZZ_TARGETS(PLAIT_DECLARE)
#undef PLAIT_DECLARE

std::span<const FuzzTarget> fuzz_targets() {
#define PLAIT_RECORD(name) fuzz_##name(),
  static const std::vector<FuzzTarget> all = {PLAIT_FUZZ_TARGETS(PLAIT_RECORD)};
#undef PLAIT_RECORD
  return all;
}

}  // namespace plait
