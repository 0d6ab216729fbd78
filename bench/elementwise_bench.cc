// The kernels around matmul and attention against the limit that binds them: the machine's memory,
// measured by copy and triad loops of our own with the same threads, or the core's arithmetic,
// measured by the same kernel on data that the first cache holds. All of them take turns.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>

#include "bench.h"
#include "plait/base/half.h"
#include "plait/kernels/cpu/cpu.h"
#include "plait/kernels/cpu/team.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace plait::bench {

namespace {

constexpr int kRounds = 9;
constexpr int64_t kSmallBytes = 24 << 10;    // held by the first cache
constexpr int64_t kStreamFloats = 16 << 20;  // of each of the stream's arrays

struct Operand {
  Dtype dtype;
  std::vector<int64_t> dims;
  bool counted = true;  // read or written whole
};

// A call for so many rows; a bf16 one where `narrow` says so.
struct Spec {
  std::vector<Operand> in, out;
  Attrs attrs = {};
};
struct Subject {
  std::string_view op;
  int64_t rows;
  std::function<Spec(int64_t rows, Dtype narrow)> spec;
};

// On one thread, time of the processor, which other processes disturb little; by the wall for more.
double seconds(int threads, const std::function<void()>& f) {
  const auto now = [=] {
    timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  f();
  return now() - start;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

using Memory = std::unique_ptr<std::byte, void (*)(std::byte*)>;
Memory memory(int64_t bytes) { return {cpu_device().allocate(bytes), cpu_device().release}; }

class Prepared {
 public:
  Prepared(const OpDef& op, const Spec& spec, int threads) : attrs_(spec.attrs) {
    for (const Operand& o : spec.in) in_.push_back(view(o));
    for (const Operand& o : spec.out) out_.push_back(view(o));
    for (const auto& [result, operand] : op.in_place) out_[result].data = in_[operand].data;
    std::vector<TensorType> types;
    for (const Operand& o : spec.in) {
      types.push_back({o.dtype, {}});
      for (const int64_t size : o.dims) types.back().dims.push_back({"", size});
    }
    const int64_t scratch = op.workspace == nullptr ? 0 : op.workspace(attrs_, types, threads);
    memory_.push_back(memory(scratch));
    args_ = {&attrs_, in_, out_, memory_.back().get(), threads};
  }
  void run(Kernel kernel) const { kernel(args_); }
  double bytes() const { return static_cast<double>(bytes_); }

 private:
  TensorView view(const Operand& o) {
    TensorView v;
    v.dtype = o.dtype;
    v.rank = static_cast<int>(o.dims.size());
    for (size_t d = 0; d < o.dims.size(); ++d) v.dims[d] = v.global[d] = o.dims[d];
    const int64_t bytes = dtype_bytes(v.dtype, v.elements());
    memory_.push_back(memory(bytes));
    v.data = memory_.back().get();
    if (o.counted) bytes_ += bytes;
    uint32_t state = 12345;
    for (int64_t i = 0; i < v.elements(); ++i) {
      state = state * 1664525 + 1013904223;
      const float value = static_cast<float>(state >> 8) * 0x1p-24f + 0.01f;
      if (v.dtype == Dtype::f32) v.as<float>()[i] = value;
      if (v.dtype == Dtype::bf16) v.as<uint16_t>()[i] = bf16_bits(value);
      if (v.dtype == Dtype::i32) v.as<int32_t>()[i] = static_cast<int32_t>(i);
    }
    return v;
  }
  Attrs attrs_;
  std::vector<Memory> memory_;
  std::vector<TensorView> in_, out_;
  KernelArgs args_;
  int64_t bytes_ = 0;
};

// ---- the machine's own ------------------------------------------------------------------------

class Stream {
 public:
  Stream() : a_(floats()), b_(floats()), c_(floats()) {
    for (float* x : {a(), b(), c()}) std::fill_n(x, kStreamFloats, 1.0f);
  }
  // Bytes per second of the best of copy and triad, with plain stores and past the cache.
  double best(int threads) {
    const double n = kStreamFloats * sizeof(float);
    const double copied = seconds(threads, [&] {
      parallel_for(threads, kStreamFloats, 4096, [&](int64_t i, int64_t end) {
        std::memcpy(c() + i, a() + i, static_cast<size_t>(end - i) * sizeof(float));
      });
    });
    const double plain = seconds(threads, [&] {
      parallel_for(threads, kStreamFloats, 4096, [&](int64_t i, int64_t end) {
        for (float *x = a(), *y = b(), *z = c(); i < end; ++i) z[i] = x[i] + 3 * y[i];
      });
    });
    double best = std::max(2 * n / copied, 3 * n / plain);
#if defined(__SSE2__)
    const double past = seconds(threads, [&] {
      parallel_for(threads, kStreamFloats, 4096, [&](int64_t i, int64_t end) {
        const __m128 three = _mm_set1_ps(3);
        for (; i < end; i += 4)
          _mm_stream_ps(c() + i,
                        _mm_add_ps(_mm_load_ps(a() + i), _mm_mul_ps(three, _mm_load_ps(b() + i))));
        _mm_sfence();
      });
    });
    best = std::max(best, 3 * n / past);
#endif
    return best;
  }

 private:
  static Memory floats() { return memory(kStreamFloats * 4); }
  float* a() { return reinterpret_cast<float*>(a_.get()); }
  float* b() { return reinterpret_cast<float*>(b_.get()); }
  float* c() { return reinterpret_cast<float*>(c_.get()); }
  Memory a_, b_, c_;
};

// ---- what is measured -------------------------------------------------------------------------

constexpr Dtype kF32 = Dtype::f32;

// `in` operands and one result of one shape.
std::function<Spec(int64_t, Dtype)> same(size_t in, int64_t width, const Attrs& attrs = {}) {
  return [=](int64_t rows, Dtype d) {
    return Spec{std::vector<Operand>(in, {d, {rows, width}}), {{d, {rows, width}}}, attrs};
  };
}

std::vector<Subject> subjects() {
  constexpr int64_t n = 3072, h = 4096, v = 50257;
  const Attrs eps = {{"eps", 1e-5}};
  std::vector<Subject> all;
  for (const int64_t rows : {1024, 8192}) {
    all.push_back({"add", rows, same(2, n)});
    all.push_back({"mul", rows, same(2, n)});
  }
  all.push_back({"scale", 8192, same(1, n, {{"by", 0.5}})});
  all.push_back({"accumulate", 8192, [](int64_t t, Dtype d) {
                   return Spec{{{kF32, {t, n}}, {d, {t, n}}}, {{kF32, {t, n}}}};
                 }});
  all.push_back({"add_bias", 8192, [](int64_t t, Dtype d) {
                   return Spec{{{d, {t, n}}, {kF32, {n}}}, {{d, {t, n}}}};
                 }});
  for (const std::string_view op : {"silu", "gelu", "gelu_erf", "gelu_quick", "squared_relu"})
    all.push_back({op, 8192, same(1, n)});
  for (const std::string_view op : {"silu_grad", "gelu_grad", "gelu_erf_grad"})
    all.push_back({op, 8192, same(2, n)});
  all.push_back({"soft_cap", 8192, same(1, n, {{"cap", 30}})});
  all.push_back({"sum_rows", 8192, [](int64_t t, Dtype d) {
                   return Spec{{{d, {t, n}}}, {{kF32, {n}}}};
                 }});
  for (const std::string_view op : {"rms_norm", "layer_norm"}) {
    const bool bias = op == "layer_norm";
    all.push_back({op, 8192, [=](int64_t t, Dtype d) {
                     Spec s{{{d, {t, n}}, {kF32, {n}}}, {{d, {t, n}}}, eps};
                     if (bias) s.in.push_back({kF32, {n}});
                     return s;
                   }});
  }
  for (const std::string_view op : {"rms_norm_grad_x", "layer_norm_grad_x"})
    all.push_back({op, 8192, [=](int64_t t, Dtype d) {
                     return Spec{{{d, {t, n}}, {kF32, {n}}, {d, {t, n}}}, {{d, {t, n}}}, eps};
                   }});
  for (const std::string_view op : {"rms_norm_grad_w", "layer_norm_grad_w"})
    all.push_back({op, 8192, [=](int64_t t, Dtype d) {
                     return Spec{{{d, {t, n}}, {d, {t, n}}}, {{kF32, {n}}}, eps};
                   }});
  for (const int64_t width : {h, int64_t{1024}})
    all.push_back({"rope", 4096, [=](int64_t t, Dtype d) {
                     return Spec{{{d, {t, width}}, {Dtype::i32, {t}}},
                                 {{d, {t, width}}},
                                 {{"head_size", 128}, {"theta", 1e4}}};
                   }});
  all.push_back({"row_lse", 512, [](int64_t t, Dtype d) {
                   return Spec{{{d, {t, v}}}, {{kF32, {t}}}};
                 }});
  all.push_back({"lse_grad", 512, [](int64_t t, Dtype d) {
                   return Spec{{{d, {t, v}}, {kF32, {t}}, {kF32, {t}}}, {{d, {t, v}}}};
                 }});
  all.push_back({"pick_grad", 512, [](int64_t t, Dtype d) {
                   return Spec{{{d, {t, v}, false}, {Dtype::i32, {t}}, {kF32, {t}}}, {{d, {t, v}}}};
                 }});
  all.push_back({"embedding", 8192, [](int64_t t, Dtype d) {
                   return Spec{{{d, {t, n}}, {Dtype::i32, {t}}}, {{d, {t, n}}}};
                 }});
  all.push_back(
      {"embedding_grad", 1024, [](int64_t t, Dtype d) {
         return Spec{{{d, {v, 768}, false}, {Dtype::i32, {t}}, {d, {t, 768}}}, {{d, {v, 768}}}};
       }});
  all.push_back({"sum_squares", 8192, [](int64_t t, Dtype d) {
                   return Spec{{{d, {t, n}}}, {{kF32, {}}}};
                 }});
  all.push_back({"dot", 8192, [](int64_t t, Dtype d) {
                   return Spec{{{d, {t, n}}, {d, {t, n}}}, {{kF32, {}}}};
                 }});
  all.push_back({"adamw", 9216, [](int64_t t, Dtype d) {
                   const Operand p{kF32, {t, n}};
                   return Spec{
                       {p, {d, {t, n}}, p, p, {kF32, {2}}, {kF32, {}}},
                       {p, p, p},
                       {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}}};
                 }});
  all.push_back(
      {"sgd_momentum", 9216, [](int64_t t, Dtype d) {
         const Operand p{kF32, {t, n}};
         return Spec{{p, {d, {t, n}}, p, {kF32, {2}}, {kF32, {}}},
                     {p, p},
                     {{"weight_decay", 0.1}, {"momentum", 0.9}, {"dampening", 0}, {"nesterov", 1}}};
       }});
  return all;
}

const FastKernel* fast(std::string_view op) {
  for (const FastKernel& k : fast_kernels())
    if (k.op == op) return &k;
  return nullptr;
}

// Seconds that the kernel's arithmetic takes for `bytes` on one thread, by a call on few rows.
double arithmetic(const Subject& s, Kernel kernel, Dtype narrow, double bytes) {
  int64_t rows = s.rows;
  while (rows > 1 && bytes * static_cast<double>(rows) / static_cast<double>(s.rows) > kSmallBytes)
    rows /= 2;
  const Prepared small(find_op(s.op), s.spec(rows, narrow), 1);
  std::vector<double> times;
  for (int round = 0; round < 5 * kRounds; ++round)
    times.push_back(seconds(1, [&] { small.run(kernel); }));
  return *std::min_element(times.begin(), times.end()) * bytes / small.bytes();
}

void measure(const Subject& s, Dtype narrow, int threads, Stream& stream, bool plain) {
  const FastKernel* entry = fast(s.op);
  if (entry == nullptr) return;
  const Kernel kernel = narrow == kF32 ? entry->f32 : entry->bf16;
  const OpDef& op = find_op(s.op);
  const Prepared call(op, s.spec(s.rows, narrow), threads);
  call.run(kernel);
  std::vector<double> times, streams;
  for (int round = 0; round < kRounds; ++round) {
    streams.push_back(stream.best(threads));
    times.push_back(seconds(threads, [&] { call.run(kernel); }));
  }
  const double time = median(times), machine = median(streams);
  std::sort(times.begin(), times.end());
  const double spread = (times[6] - times[2]) / time;
  const double core = arithmetic(s, kernel, narrow, call.bytes()) / threads;
  const double memory_time = call.bytes() / machine;
  std::string beside;
  if (plain) {
    const double reference = seconds(1, [&] { call.run(op.reference.f32); });
    beside = fmt::format("{:7.1f}x", reference / time);
  }
  std::string shape;
  const Spec spec = s.spec(s.rows, narrow);
  for (const int64_t size : (spec.out[0].dims.size() > 1 ? spec.out : spec.in)[0].dims)
    shape += (shape.empty() ? "" : "x") + std::to_string(size);
  fmt::print("{:18} {:11} {:4} {} {:9.3f} {:5.0f}% {:7.1f} {:5.0f}% {:5.0f}% {:6} {}\n", s.op,
             shape, info(narrow).name, threads, time * 1e3, 100 * spread,
             call.bytes() / time * 1e-9, 100 * memory_time / time,
             100 * std::max(core, memory_time) / time, core > memory_time ? "core" : "memory",
             beside);
  std::fflush(stdout);
}

}  // namespace

void elementwise_table(std::string_view filter) {
  Stream stream;
  fmt::print(
      "Medians of {} rounds, in turns with copy and triad loops; spread: middle half.\n"
      "GB/s: operands and results once. stream: share of the best of copy and triad. limit: "
      "share of what\nbinds, memory or the same kernel's arithmetic on data in the first "
      "cache. plain: the reference's time beside it.\n"
      "One thread is timed by the processor's clock, two by the wall's.\n\n",
      kRounds);
  for (const int threads : {1, 2}) {
    cpu_device().start_team({threads, -1});
    std::vector<double> best;
    for (int round = 0; round < kRounds; ++round) best.push_back(stream.best(threads));
    fmt::print("copy and triad on {} threads: {:.1f} GB/s\n", threads, median(best) * 1e-9);
  }
  fmt::print("\n{:18} {:11} {:4} {} {:>9} {:>6} {:>7} {:>6} {:>6} {:6} {}\n", "op", "shape", "type",
             "n", "ms", "spread", "GB/s", "stream", "limit", "binds", "   plain");
  for (const Subject& s : subjects())
    for (const Dtype narrow : {kF32, Dtype::bf16})
      for (const int threads : {1, 2}) {
        if (s.op.find(filter) == std::string_view::npos) continue;
        cpu_device().start_team({threads, -1});
        measure(s, narrow, threads, stream, narrow == kF32 && threads == 1);
      }
}

}  // namespace plait::bench
