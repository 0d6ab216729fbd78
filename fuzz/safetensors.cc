#include "plait/io/safetensors.h"

#include "fuzz.h"

namespace plait {

namespace {

void run(std::string_view input) {
  const SafetensorsFile file(fuzz_file("model.safetensors", input));
  for (const SafetensorsEntry& e : file.entries()) file.read(e.name);
}

std::vector<std::string> seeds() {
  const std::string path = fuzz_folder() + "/seed.safetensors";
  HostTensor a(Dtype::f32, {2, 3}), b(Dtype::f64, {}), c(Dtype::i32, {0, 4});
  write_safetensors(path, {{"a", &a}, {"b.weight", &b}, {"c", &c}});
  const std::string file = read_text(path, 1 << 20);
  return {file};
}

}  // namespace

FuzzTarget fuzz_safetensors() { return {"safetensors", run, seeds}; }

}  // namespace plait
