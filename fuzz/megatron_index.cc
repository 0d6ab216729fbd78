#include "fuzz.h"
#include "plait/data/megatron.h"

namespace plait {

namespace {

// The index is the input; the ids beside it are 64 bytes.
void run(std::string_view input) {
  fuzz_file("tokens.bin", std::string(64, '\1'));
  const MegatronStore store(fuzz_file("tokens.idx", input));
  std::vector<int32_t> ids(static_cast<size_t>(store.tokens()));
  std::vector<uint8_t> learn(ids.size());
  for (int64_t d = 0; d < store.documents(); ++d)
    store.read(store.begin(d), store.begin(d + 1), ids.data(), learn.data());
}

std::vector<std::string> seeds() {
  const std::string path = fuzz_folder() + "/seed";
  MegatronWriter writer(path, 300);
  for (const size_t n : {10, 0, 22}) {
    writer.add(std::vector<int32_t>(n, 257));
    writer.end_document();
  }
  writer.commit();
  return {read_text(path + ".idx", 1 << 20)};
}

}  // namespace

FuzzTarget fuzz_megatron_index() { return {"megatron_index", run, seeds}; }

}  // namespace plait
