#include "plait/exec/limits.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "plait/base/half.h"

namespace plait {

namespace {

constexpr int64_t kSide = 768, kStreamBytes = int64_t{64} << 20;
constexpr double kMatmulSeconds = 0.12, kStreamSeconds = 0.12;
constexpr int kMostCalls = 20;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One call of an op in memory of its own, operands filled with a small number.
class Call {
 public:
  Call(std::string_view op, Attrs attrs, const std::vector<TensorType>& in, int threads,
       const Device& device)
      : device_(device), op_(find_op(op)), attrs_(std::move(attrs)), threads_(threads) {
    for (const TensorType& t : in) in_.push_back(view(t));
    for (const TensorType& t : infer_types(op_, attrs_, in)) out_.push_back(view(t));
    const int64_t bytes = op_.workspace == nullptr ? 0 : op_.workspace(attrs_, in, threads);
    if (bytes > 0) workspace_ = allocate(bytes);
    for (const TensorView& v : in_)
      dispatch_computed(
          v.dtype, [&]<class T>() { std::fill_n(v.as<T>(), v.elements(), static_cast<T>(0.5F)); });
  }
  ~Call() {
    for (std::byte* m : memory_) device_.release(m);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Seconds of the best of some calls; the first, which builds and touches, only if it is long.
  double best(double budget) {
    const KernelArgs args{&attrs_, in_, out_, workspace_, threads_, &op_};
    const Kernel kernel = device_.kernel(op_, kernel_dtype(args.in, args.out));
    const auto begin = Clock::now();
    kernel(args);
    double least = since(begin);
    for (int i = 0; i < kMostCalls && since(begin) < budget; ++i) {
      const auto start = Clock::now();
      kernel(args);
      least = std::min(least, since(start));
    }
    return least;
  }

 private:
  std::byte* allocate(int64_t bytes) {
    memory_.push_back(nullptr);
    memory_.back() = device_.allocate(bytes);
    return memory_.back();
  }
  TensorView view(const TensorType& type) {
    TensorView v;
    v.data = allocate(type.bytes());
    v.dtype = type.dtype;
    v.rank = static_cast<int>(type.dims.size());
    for (size_t d = 0; d < type.dims.size(); ++d) v.dims[d] = v.global[d] = type.dims[d].size;
    return v;
  }

  const Device& device_;
  const OpDef& op_;
  Attrs attrs_;
  int threads_;
  std::vector<std::byte*> memory_;
  std::vector<TensorView> in_, out_;
  void* workspace_ = nullptr;
};

double matmul_rate(int threads, Dtype dtype, const Device& device) {
  const Extent side{"", kSide};
  const std::vector<TensorType> in(2, {dtype, {side, side}});
  Call call("matmul", {}, in, threads, device);
  return static_cast<double>(flops_of(find_op("matmul"), {}, in)) / call.best(kMatmulSeconds);
}

Limits measure(int threads, Dtype dtype, const Device& device) {
  const auto begin = Clock::now();
  device.start_team({threads, -1});
  Limits limits;
  limits.threads = threads;
  limits.flops_per_second = matmul_rate(threads, Dtype::f32, device);
  if (dtype == Dtype::bf16) limits.bf16_flops_per_second = matmul_rate(threads, dtype, device);
  const TensorType stream{Dtype::f32, {{"", kStreamBytes / dtype_bytes(Dtype::f32, 1)}}};
  Call add("add", {}, {stream, stream}, threads, device);
  limits.bytes_per_second = 3.0 * static_cast<double>(kStreamBytes) / add.best(kStreamSeconds);
  limits.seconds = since(begin);
  return limits;
}

// Bytes that a call reads and writes: its operands and results, but of a table of which a call
// reads or changes rows by id no more than these rows, and of an operand that gives only its shape
// nothing.
int64_t touched_bytes(const Program& p, const Action& a) {
  const auto size = [&](BufferId b) { return p.buffer(b).bytes; };
  if (a.name == "embedding") return size(a.in[1]) + 2 * size(a.out[0]);
  if (a.name == "embedding_grad") return size(a.in[1]) + size(a.in[2]) + size(a.out[0]);
  if (a.name == "embedding_grad_accumulate") return size(a.in[2]) + 3 * size(a.in[3]);
  if (a.name == "pick") return size(a.in[1]) + 2 * size(a.out[0]);
  if (a.name == "pick_grad") return size(a.in[1]) + size(a.in[2]) + size(a.out[0]);
  int64_t bytes = 0;
  for (const auto* list : {&a.in, &a.out})
    for (const BufferId b : *list) bytes = checked_add(bytes, size(b));
  return bytes;
}

Cost op_cost(const Program& p, const Action& a, const Limits& limits) {
  Cost c;
  std::vector<TensorType> in;
  bool bf16 = false;
  for (const BufferId b : a.in) in.push_back(p.buffer(b).local);
  for (const auto* list : {&a.in, &a.out})
    for (const BufferId b : *list) bf16 = bf16 || p.buffer(b).type.dtype == Dtype::bf16;
  c.flops = flops_of(find_op(a.name), a.attrs, in);
  c.bytes = touched_bytes(p, a);
  const double peak = bf16 && limits.bf16_flops_per_second > 0 ? limits.bf16_flops_per_second
                                                               : limits.flops_per_second;
  const double compute = static_cast<double>(c.flops) / peak;
  const double memory = static_cast<double>(c.bytes) / limits.bytes_per_second;
  c.compute = compute > memory;
  c.seconds = std::max(compute, memory);
  return c;
}

}  // namespace

Limits measure_limits(int threads, Dtype dtype, const Device& device) {
  return std::async(std::launch::async, [&] { return measure(threads, dtype, device); }).get();
}

Cost cost_of(const Programs& programs, int rank, const Action& a, const Limits& limits) {
  const Program& p = programs.ranks.at(static_cast<size_t>(rank));
  Cost c;
  switch (a.kind) {
    case ActionKind::op:
      return op_cost(p, a, limits);
    case ActionKind::fill:
      c.bytes = p.buffer(a.out[0]).bytes;
      break;
    case ActionKind::input:
    case ActionKind::copy:
    case ActionKind::slice:
      c.bytes = 2 * p.buffer(a.out[0]).bytes;
      break;
    case ActionKind::recv:
      c.bytes = p.buffer(a.out[0]).bytes;
      return c;
    default:
      c.bytes = sent_bytes(programs, rank, a);
      return c;
  }
  c.seconds = static_cast<double>(c.bytes) / limits.bytes_per_second;
  return c;
}

}  // namespace plait
