// manifest.json of a checkpoint. The checksum is not asked for: it would stop every mutation.
#include "fuzz.h"
#include "plait/io/checkpoint.h"

namespace plait {

namespace {

void run(std::string_view input) {
  const Manifest m = parse_manifest(input, "manifest");
  parse_manifest(print_manifest(m), "manifest, printed again");
}

std::vector<std::string> seeds() {
  Manifest m;
  m.step = 100;
  m.saved = "2025-01-31T12:00:00Z";
  m.trainer = {{"tokens", 123456}, {"seed", 7}, {"rate", 0.25}, {"names", {"a", "b"}}};
  m.files = {{"states-00001-of-00002.safetensors", std::string(32, '0'), 1234},
             {"states-00002-of-00002.safetensors", std::string(32, 'f'), 5678}};
  m.tensors["param/a"] = {Dtype::f32, {2, 3}, 0};
  m.tensors["m/größe"] = {Dtype::bf16, {}, 1};
  Manifest empty;
  return {print_manifest(m), print_manifest(empty)};
}

}  // namespace

FuzzTarget fuzz_manifest() { return {"manifest", run, seeds}; }

}  // namespace plait
