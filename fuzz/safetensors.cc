#include "plait/io/safetensors.h"

#include "fuzz.h"

namespace plait {

namespace {

void run(std::string_view input) {
  const SafetensorsFile file(fuzz_file("model.safetensors", input));
  for (const SafetensorsEntry& e : file.entries())
    if (e.dtype) file.read(e.name);
}

std::vector<std::string> seeds() {
  const std::string path = fuzz_folder() + "/seed.safetensors";
  HostTensor a(Dtype::f32, {2, 3}), b(Dtype::f64, {}), c(Dtype::i32, {0, 4});
  write_safetensors(path, {{"a", &a}, {"b.weight", &b}, {"c", &c}});
  const std::string file = read_text(path, 1 << 20);
  HostTensor d(Dtype::bf16, {3}), e(Dtype::f16, {2, 2});
  write_safetensors(path, {{"d", &d}, {"e", &e}}, {{"format", "pt"}, {"note", "ä \"x\""}});
  const std::string halves = read_text(path, 1 << 20);
  const std::string header = R"({"mask":{"dtype":"BOOL","shape":[2,4],"data_offsets":[0,8]},)"
                             R"("ids":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},)"
                             R"("f4":{"dtype":"F4","shape":[4],"data_offsets":[16,18]}})";
  std::string others(8, '\0');
  others[0] = static_cast<char>(header.size());
  return {file, halves, others + header + std::string(18, '\1')};
}

}  // namespace

FuzzTarget fuzz_safetensors() { return {"safetensors", run, seeds}; }

}  // namespace plait
