#include "bench.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>

#include "plait/base/rng.h"

namespace plait::bench {

TensorView Call::memory(const TensorType& type) {
  memory_.emplace_back(static_cast<size_t>(type.bytes()));
  TensorView v;
  v.data = memory_.back().data();
  v.dtype = type.dtype;
  v.rank = static_cast<int>(type.dims.size());
  for (size_t d = 0; d < type.dims.size(); ++d) v.dims[d] = v.global[d] = type.dims[d].size;
  return v;
}

Call::Call(std::string_view op, Attrs attrs, const std::vector<TensorType>& in)
    : op_(find_op(op)), attrs_(std::move(attrs)) {
  uint64_t next = 0;
  for (const TensorType& t : in) {
    in_.push_back(memory(t));
    for (int64_t i = 0; t.dtype == Dtype::f32 && i < t.elements(); ++i)
      in_.back().as<float>()[i] = static_cast<float>(2 * uniform(1, Stream::test, next++) - 1);
  }
  for (const TensorType& t : infer_types(op_, attrs_, in)) out_.push_back(memory(t));
  const int64_t bytes = op_.workspace == nullptr ? 0 : op_.workspace(attrs_, in, 1);
  workspace_.resize(static_cast<size_t>(bytes / 8 + 8));
  flops_ = static_cast<double>(op_.flops(attrs_, in));
}

void Call::run(Kernel kernel) { kernel({&attrs_, in_, out_, workspace_.data()}); }

void Call::give(size_t i, Call& other, size_t to) const {
  std::memcpy(other.in_.at(to).data, out_.at(i).data,
              static_cast<size_t>(dtype_bytes(out_[i].dtype, out_[i].elements())));
}

Batch random_batch(const Model& model, int64_t microbatches) {
  const Extent& t = model.extent("T");
  const auto vocabulary = static_cast<uint64_t>(model.extent("V").size);
  Batch batch;
  for (int64_t m = 0; m < microbatches; ++m) {
    HostTensors in;
    for (const char* name : {"tokens", "positions", "sequences", "labels"})
      in[name] = HostTensor(Dtype::i32, {t.size});
    HostTensor weights(Dtype::f64, {t.size});
    for (int64_t i = 0; i < t.size; ++i) {
      const uint64_t bits = random_bits(1, Stream::test, static_cast<uint64_t>(m * t.size + i));
      in["tokens"].as<int32_t>()[i] = static_cast<int32_t>(bits % vocabulary);
      in["labels"].as<int32_t>()[i] = static_cast<int32_t>((bits >> 32) % vocabulary);
      in["positions"].as<int32_t>()[i] = static_cast<int32_t>(i % t.unit);
      in["sequences"].as<int32_t>()[i] = static_cast<int32_t>(i / t.unit);
      weights.as<double>()[i] = 1 / static_cast<double>(microbatches * t.size);
    }
    in["weights"] = convert(weights, model.dtype);
    batch.microbatches.push_back(std::move(in));
  }
  HostTensor hyper(Dtype::f64, {2});
  hyper.as<double>()[0] = 1e-3;  // learning rate
  hyper.as<double>()[1] = 1;     // step
  batch.step["hyper"] = convert(hyper, model.dtype);
  return batch;
}

}  // namespace plait::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "elementwise") {
    plait::bench::elementwise_table(argc > 2 ? argv[2] : "");
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "gemm")
    return plait::bench::gemm_table(argc > 2 ? std::atoi(argv[2]) : 1,
                                    argc > 3 ? std::atof(argv[3]) : 1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
