// rms_norm, layer_norm and their gradients: a row stays in the first caches while it is read twice
// or more, and during its last pass the next one is fetched. Gradients of weights are sums over
// rows, in fixed blocks (ops/row_blocks.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plait/kernels/cpu/norms.cc"
#include "plait/kernels/cpu/targets.h"
// ... which comes first
#include <cmath>

#include "hwy/foreach_target.h"
#include "plait/kernels/cpu/kernels.h"
#include "plait/kernels/cpu/simd-inl.h"
#include "plait/ops/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace plait::HWY_NAMESPACE {

// The rows over which means are taken: whole ones, or heads.
struct NormRows {
  int64_t count, width;
  float eps, offset;
  explicit NormRows(const KernelArgs& args)
      : count(args.in[0].dims[0]),
        width(args.in[0].dims[1]),
        eps(static_cast<float>(attr(*args.attrs, "eps"))),
        offset(static_cast<float>(attr_or(*args.attrs, "offset", 0))) {
    if (!args.attrs->contains("head_size")) return;
    const auto size = static_cast<int64_t>(attr(*args.attrs, "head_size"));
    count *= width / size;
    width = size;
  }
};

// Asks for what lies one row further on; behind the last row nothing comes of it.
template <class T>
HWY_INLINE void fetch_next(const T* x, const NormRows& rows) {
  hwy::Prefetch(reinterpret_cast<const char*>(x) + rows.width * static_cast<int64_t>(sizeof(T)));
}

template <class T>
HWY_INLINE float inverse_rms(const T* x, const NormRows& rows) {
  const float sum = total(rows.width, [=](auto io, int64_t j, VF s) HWY_ATTR {
    const VF v = io.load(x + j);
    return hn::MulAdd(v, v, s);
  });
  return 1 / std::sqrt(sum / static_cast<float>(rows.width) + rows.eps);
}

void rms_norm(const KernelArgs& args) {
  const NormRows rows(args);
  const TensorView &in = args.in[0], &out = args.out[0];
  const float* w = wide(args.in[1]);
  const bool stream = streams(out);
  same_storage({&in, &out});
  by_storage(in, [&](auto* first) HWY_ATTR {
    auto* first_out = out.as<std::remove_pointer_t<decltype(first)>>();
    for_rows(args.threads, rows.count, rows.width, [=](int64_t i) HWY_ATTR {
      const auto* x = first + i * rows.width;
      auto* y = first_out + i * rows.width;
      const VF r = set(inverse_rms(x, rows)), offset = set(rows.offset);
      walk(0, rows.width, stream, y, [=](auto io, int64_t j) HWY_ATTR {
        fetch_next(x + j, rows);
        io.store(hn::Mul(hn::Mul(io.load(x + j), r), hn::Add(io.load(w + j), offset)), y + j);
      });
    });
  });
}

// dx = r (w dy - x r^2 mean(w dy x)), w with its offset
template <bool kAdd>
HWY_INLINE void rms_norm_grad_x_of(const KernelArgs& args) {
  const NormRows rows(args);
  const float* w = wide(args.in[1]);
  const bool stream = streams(args.out[0]);
  same_storage({&args.in[0], &args.in[2], &args.out[0]});
  by_storage(args.in[0], [&](auto* first) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(first)>;
    const T* first_dy = args.in[2].as<T>();
    T* first_dx = args.out[0].as<T>();
    const T* first_more = kAdd ? args.in[3].as<T>() : nullptr;
    for_rows(args.threads, rows.count, rows.width, [=](int64_t i) HWY_ATTR {
      const T *x = first + i * rows.width, *dy = first_dy + i * rows.width;
      T* dx = first_dx + i * rows.width;
      const T* more = kAdd ? first_more + i * rows.width : nullptr;
      const VF offset = set(rows.offset);
      const float r = inverse_rms(x, rows);
      const float sum = total(rows.width, [=](auto io, int64_t j, VF s) HWY_ATTR {
        const VF g = hn::Mul(hn::Add(io.load(w + j), offset), io.load(dy + j));
        return hn::MulAdd(g, io.load(x + j), s);
      });
      const VF by = set(r), common = set(sum * r * r / static_cast<float>(rows.width));
      walk(0, rows.width, stream, dx, [=](auto io, int64_t j) HWY_ATTR {
        fetch_next(x + j, rows);
        fetch_next(dy + j, rows);
        const VF g = hn::Mul(hn::Add(io.load(w + j), offset), io.load(dy + j));
        VF v = hn::Mul(by, hn::NegMulAdd(io.load(x + j), common, g));
        if constexpr (kAdd) v = hn::Add(v, io.load(more + j));
        io.store(v, dx + j);
      });
    });
  });
}
void rms_norm_grad_x(const KernelArgs& args) { rms_norm_grad_x_of<false>(args); }
void rms_norm_grad_x_add(const KernelArgs& args) { rms_norm_grad_x_of<true>(args); }

// dw [width] = the sum over rows of what add_row(row, sum [width]) adds.
template <class AddRow>
HWY_INLINE void sum_over_rows(const KernelArgs& args, const NormRows& rows, AddRow add_row) {
  float* dw = wide(args.out[0]);
  const int64_t width = rows.width;
  const RowBlocks blocks = row_blocks(rows.count);
  if (blocks.count == 0) std::memset(dw, 0, static_cast<size_t>(width) * sizeof(float));
  float* sums = blocks.count <= 1 ? dw : static_cast<float*>(args.workspace);
  for_rows(args.threads, blocks.count, blocks.rows * width, [=](int64_t block) HWY_ATTR {
    float* sum = sums + block * width;
    std::memset(sum, 0, static_cast<size_t>(width) * sizeof(float));
    const int64_t end = std::min(rows.count, (block + 1) * blocks.rows);
    for (int64_t row = block * blocks.rows; row < end; ++row) add_row(row, sum);
  });
  if (blocks.count <= 1) return;
  sweep(args.threads, width, [=](auto io, int64_t j) HWY_ATTR {
    VF sum = io.load(sums + j);
    for (int64_t b = 1; b < blocks.count; ++b) sum = hn::Add(sum, io.load(sums + b * width + j));
    io.store(sum, dw + j);
  });
}

// dw = sum over tokens (and heads) of dy x r
void rms_norm_grad_w(const KernelArgs& args) {
  const NormRows rows(args);
  same_storage({&args.in[0], &args.in[1]});
  by_storage(args.in[0], [&](auto* first) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(first)>;
    const T* first_dy = args.in[1].as<T>();
    sum_over_rows(args, rows, [=](int64_t row, float* sum) HWY_ATTR {
      const T *x = first + row * rows.width, *dy = first_dy + row * rows.width;
      const VF r = set(inverse_rms(x, rows));
      walk(0, rows.width, [=](auto io, int64_t j) HWY_ATTR {
        fetch_next(x + j, rows);
        fetch_next(dy + j, rows);
        const VF n = hn::Mul(io.load(x + j), r);
        io.store(hn::MulAdd(io.load(dy + j), n, io.load(sum + j)), sum + j);
      });
    });
  });
}

struct Moments {
  float mean, inverse_deviation;
};

template <class T>
HWY_INLINE Moments moments(const T* x, const NormRows& rows) {
  const auto count = static_cast<float>(rows.width);
  const float mean = total(rows.width, [=](auto io, int64_t j, VF s)
                                           HWY_ATTR { return hn::Add(s, io.load(x + j)); }) /
                     count;
  const VF middle = set(mean);
  const float squares = total(rows.width, [=](auto io, int64_t j, VF s) HWY_ATTR {
    const VF centred = io.or_else(hn::Sub(io.load(x + j), middle), zero());
    return hn::MulAdd(centred, centred, s);
  });
  return {mean, 1 / std::sqrt(squares / count + rows.eps)};
}

void layer_norm(const KernelArgs& args) {
  const NormRows rows(args);
  const float *w = wide(args.in[1]), *b = wide(args.in[2]);
  const bool stream = streams(args.out[0]);
  same_storage({&args.in[0], &args.out[0]});
  by_storage(args.in[0], [&](auto* first) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(first)>;
    T* first_out = args.out[0].as<T>();
    for_rows(args.threads, rows.count, rows.width, [=](int64_t i) HWY_ATTR {
      const T* x = first + i * rows.width;
      T* y = first_out + i * rows.width;
      const Moments m = moments(x, rows);
      const VF mean = set(m.mean), r = set(m.inverse_deviation);
      walk(0, rows.width, stream, y, [=](auto io, int64_t j) HWY_ATTR {
        fetch_next(x + j, rows);
        const VF n = hn::Mul(hn::Sub(io.load(x + j), mean), r);
        io.store(hn::MulAdd(n, io.load(w + j), io.load(b + j)), y + j);
      });
    });
  });
}

// dx = r (g - mean(g) - n mean(g n)) with g = w dy
template <bool kAdd>
HWY_INLINE void layer_norm_grad_x_of(const KernelArgs& args) {
  const NormRows rows(args);
  const float* w = wide(args.in[1]);
  const bool stream = streams(args.out[0]);
  same_storage({&args.in[0], &args.in[2], &args.out[0]});
  by_storage(args.in[0], [&](auto* first) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(first)>;
    const T* first_dy = args.in[2].as<T>();
    T* first_dx = args.out[0].as<T>();
    const T* first_more = kAdd ? args.in[3].as<T>() : nullptr;
    for_rows(args.threads, rows.count, rows.width, [=](int64_t i) HWY_ATTR {
      const T *x = first + i * rows.width, *dy = first_dy + i * rows.width;
      T* dx = first_dx + i * rows.width;
      const T* more = kAdd ? first_more + i * rows.width : nullptr;
      const Moments m = moments(x, rows);
      const VF mean = set(m.mean), r = set(m.inverse_deviation);
      const float sum_g = total(rows.width, [=](auto io, int64_t j, VF s) HWY_ATTR {
        return hn::MulAdd(io.load(w + j), io.load(dy + j), s);
      });
      const float sum_gn = total(rows.width, [=](auto io, int64_t j, VF s) HWY_ATTR {
        const VF n = hn::Mul(hn::Sub(io.load(x + j), mean), r);
        return hn::MulAdd(hn::Mul(io.load(w + j), io.load(dy + j)), n, s);
      });
      const auto count = static_cast<float>(rows.width);
      const VF mean_g = set(sum_g / count), mean_gn = set(sum_gn / count);
      walk(0, rows.width, stream, dx, [=](auto io, int64_t j) HWY_ATTR {
        fetch_next(x + j, rows);
        fetch_next(dy + j, rows);
        const VF n = hn::Mul(hn::Sub(io.load(x + j), mean), r);
        const VF g = hn::Sub(hn::Mul(io.load(w + j), io.load(dy + j)), mean_g);
        VF v = hn::Mul(r, hn::NegMulAdd(n, mean_gn, g));
        if constexpr (kAdd) v = hn::Add(v, io.load(more + j));
        io.store(v, dx + j);
      });
    });
  });
}
void layer_norm_grad_x(const KernelArgs& args) { layer_norm_grad_x_of<false>(args); }
void layer_norm_grad_x_add(const KernelArgs& args) { layer_norm_grad_x_of<true>(args); }

// dw = sum over tokens of dy n
void layer_norm_grad_w(const KernelArgs& args) {
  const NormRows rows(args);
  same_storage({&args.in[0], &args.in[1]});
  by_storage(args.in[0], [&](auto* first) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(first)>;
    const T* first_dy = args.in[1].as<T>();
    sum_over_rows(args, rows, [=](int64_t row, float* sum) HWY_ATTR {
      const T *x = first + row * rows.width, *dy = first_dy + row * rows.width;
      const Moments m = moments(x, rows);
      const VF mean = set(m.mean), r = set(m.inverse_deviation);
      walk(0, rows.width, [=](auto io, int64_t j) HWY_ATTR {
        fetch_next(x + j, rows);
        fetch_next(dy + j, rows);
        const VF n = hn::Mul(hn::Sub(io.load(x + j), mean), r);
        io.store(hn::MulAdd(io.load(dy + j), n, io.load(sum + j)), sum + j);
      });
    });
  });
}

}  // namespace plait::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait {
PLAIT_KERNEL(rms_norm)
PLAIT_KERNEL(rms_norm_grad_x)
PLAIT_KERNEL(rms_norm_grad_x_add)
PLAIT_KERNEL(rms_norm_grad_w)
PLAIT_KERNEL(layer_norm)
PLAIT_KERNEL(layer_norm_grad_x)
PLAIT_KERNEL(layer_norm_grad_x_add)
PLAIT_KERNEL(layer_norm_grad_w)
}  // namespace plait
#endif
