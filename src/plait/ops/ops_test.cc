// The generated test: every op of the table, against its own record.
#include "plait/ops/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>

#include "plait/base/rng.h"

namespace plait {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A tensor or a shard of one; integers are kept as doubles too.
struct Tensor {
  TensorType type;
  std::vector<int64_t> begin, global;
  std::vector<double> data;
  explicit Tensor(const TensorType& t, double value = 0)
      : type(t), begin(t.dims.size(), 0), data(static_cast<size_t>(t.elements()), value) {
    for (const Extent& e : t.dims) global.push_back(e.size);
  }
};
using Tensors = std::vector<Tensor>;

double draw(uint64_t index, uint32_t substream) {
  return uniform(7, Stream::test, index, substream) * 2 - 1;
}

Tensors draw_operands(const OpSample& sample) {
  Tensors in;
  for (size_t i = 0; i < sample.in.size(); ++i) {
    Tensor& x = in.emplace_back(sample.in[i]);
    for (size_t j = 0; j < x.data.size(); ++j)
      x.data[j] = x.type.dtype == Dtype::i32
                      ? sample.integers(i, static_cast<int64_t>(j))
                      : sample.low + (sample.high - sample.low) / 2 *
                                         (1 + draw(j, static_cast<uint32_t>(i)));
  }
  for (size_t i : sample.unused) std::fill(in[i].data.begin(), in[i].data.end(), kNan);
  return in;
}

// The bytes of a tensor as a kernel sees them, between two guards.
template <class T>
struct Buffer {
  static constexpr size_t kGuard = 8;
  std::vector<T> values;
  TensorView view;
  explicit Buffer(const Tensor& x) : values(2 * kGuard, T(77)) {
    values.insert(values.begin() + kGuard, x.data.begin(), x.data.end());
    view.data = values.data() + kGuard;
    view.dtype = sizeof(T) == 8 ? Dtype::f64 : Dtype::f32;
    view.rank = static_cast<int>(x.begin.size());
    for (size_t d = 0; d < x.begin.size(); ++d) {
      view.dims[d] = x.type.dims[d].size;
      view.begin[d] = x.begin[d];
      view.global[d] = x.global[d];
    }
  }
  bool guards_hold() const {
    auto untouched = [](T v) { return v == T(77); };
    return std::all_of(values.begin(), values.begin() + kGuard, untouched) &&
           std::all_of(values.end() - kGuard, values.end(), untouched);
  }
};

// Calls the reference in arithmetic T. Results and scratch memory are NaN before the call.
template <class T>
void run(const OpDef& op, const Attrs& attrs, const Tensors& in, Tensors& out,
         bool share_storage = false) {
  std::vector<std::unique_ptr<Buffer<T>>> floats;
  std::vector<std::unique_ptr<Buffer<int32_t>>> integers;
  std::vector<TensorView> in_views, out_views;
  Types types;
  for (const Tensor& x : in) {
    types.push_back(x.type);
    if (x.type.dtype == Dtype::i32)
      in_views.push_back(integers.emplace_back(std::make_unique<Buffer<int32_t>>(x))->view);
    else
      in_views.push_back(floats.emplace_back(std::make_unique<Buffer<T>>(x))->view);
  }
  for (Tensor& y : out) {
    std::fill(y.data.begin(), y.data.end(), kNan);
    out_views.push_back(floats.emplace_back(std::make_unique<Buffer<T>>(y))->view);
  }
  if (share_storage)
    for (const auto& [result, operand] : op.in_place)
      out_views[result].data = in_views[operand].data;
  const int64_t bytes = op.workspace == nullptr ? 0 : op.workspace(attrs, types, 1);
  std::vector<double> workspace(static_cast<size_t>(bytes) / 8 + 16, kNan);
  void* scratch = workspace.data();
  size_t space = workspace.size() * 8;
  std::align(64, static_cast<size_t>(bytes), scratch, space);
  std::memset(static_cast<char*>(scratch) + bytes, 77, 8);
  Kernel kernel = op.reference.counted;
  if constexpr (std::is_same_v<T, float>) kernel = op.reference.f32;
  if constexpr (std::is_same_v<T, double>) kernel = op.reference.f64;
  kernel({&attrs, in_views, out_views, scratch});
  for (const auto& b : floats) EXPECT_TRUE(b->guards_hold()) << "written outside of a tensor";
  EXPECT_EQ(static_cast<char*>(scratch)[bytes], 77) << "written behind the workspace";
  for (size_t i = 0; i < out.size(); ++i) {
    const auto* shared = static_cast<const T*>(out_views[i].data);
    for (size_t j = 0; j < out[i].data.size(); ++j) out[i].data[j] = static_cast<double>(shared[j]);
  }
}

Tensors results(const OpDef& op, const Attrs& attrs, const Tensors& in) {
  Types types;
  for (const Tensor& x : in) types.push_back(x.type);
  Tensors out;
  for (const TensorType& t : infer_types(op, attrs, types)) out.emplace_back(t);
  return out;
}

Tensors run_whole(const OpDef& op, const Attrs& attrs, const Tensors& in) {
  Tensors out = results(op, attrs, in);
  run<double>(op, attrs, in, out);
  return out;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

void expect_close(const std::vector<double>& found, const std::vector<double>& expected,
                  double tolerance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  const double bound = tolerance * std::max(norm(expected), 1e-2);
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_LE(std::abs(found[i] - expected[i]), bound)
        << what << ", element " << i << ": found " << found[i] << ", expected " << expected[i];
}

// ---- placements ---------------------------------------------------------------------------

struct Split {
  char letter;
  int64_t ranks;
  int64_t rank = 0;
};

// Whole units in balanced parts, the first ones larger: {begin, size} of this rank.
std::pair<int64_t, int64_t> part(const Extent& e, int64_t ranks, int64_t rank) {
  const int64_t each = e.units() / ranks, more = e.units() % ranks;
  return {(each * rank + std::min(rank, more)) * e.unit, (each + (rank < more ? 1 : 0)) * e.unit};
}

// The empty shard of a tensor for given splits.
Tensor shard_of(const Tensor& whole, const std::vector<Factor>& factors,
                const std::vector<Split>& splits) {
  TensorType type = whole.type;
  std::vector<int64_t> begin(factors.size(), 0);
  for (size_t d = 0; d < factors.size(); ++d)
    for (const Split& s : splits)
      if (s.letter == factors[d].letter)
        std::tie(begin[d], type.dims[d].size) = part(whole.type.dims[d], s.ranks, s.rank);
  Tensor shard(type);
  shard.begin = begin;
  shard.global = whole.global;
  return shard;
}

// Calls f(value in the shard, value in the whole) for every element of the shard.
template <class F>
void for_each_pair(Tensor& shard, Tensor& whole, F f) {
  for (size_t i = 0; i < shard.data.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0, stride = 1;
    for (size_t d = shard.begin.size(); d-- > 0;) {
      const int64_t size = shard.type.dims[d].size;
      at += (shard.begin[d] + rest % size) * stride;
      rest /= size;
      stride *= shard.global[d];
    }
    f(shard.data[i], whole.data[static_cast<size_t>(at)]);
  }
}

double combine(Reduce reduce, double a, double b) {
  if (reduce == Reduce::sum) return a + b;
  const double top = std::max(a, b);
  if (reduce == Reduce::max || std::isinf(top)) return top;
  return top + std::log(std::exp(a - top) + std::exp(b - top));
}

// How the shards of each result combine: a result that lacks a factor that is split is pending.
std::vector<const Reduce*> reductions(const Rule& rule, const std::vector<Split>& splits) {
  std::vector<const Reduce*> reduce(rule.out.size(), nullptr);
  for (const Split& s : splits)
    for (size_t i = 0; i < rule.out.size(); ++i)
      if (!carries(rule.out[i], s.letter)) reduce[i] = &rule.contracted.at(s.letter);
  return reduce;
}

// Runs one rank's shards and combines its results into `out`.
void run_rank(const OpDef& op, const Attrs& attrs, const Rule& rule, Tensors& in,
              const std::vector<Split>& splits, Tensors& out) {
  const std::vector<const Reduce*> reduce = reductions(rule, splits);
  Tensors local_in, local_out;
  for (size_t i = 0; i < in.size(); ++i) {
    Tensor& x = local_in.emplace_back(shard_of(in[i], rule.in[i], splits));
    for_each_pair(x, in[i], [](double& a, double& b) { a = b; });
  }
  for (size_t i = 0; i < out.size(); ++i)
    local_out.push_back(shard_of(out[i], rule.out[i], splits));
  run<double>(op, attrs, local_in, local_out);
  for (size_t i = 0; i < out.size(); ++i)
    for_each_pair(local_out[i], out[i], [&](double& a, double& b) {
      EXPECT_FALSE(std::isnan(a));
      b = reduce[i] == nullptr ? a : combine(*reduce[i], a, b);
    });
}

void check_splits(const OpDef& op, const OpSample& sample, const Rule& rule,
                  std::vector<Split> splits) {
  Tensors in = draw_operands(sample);
  const Tensors expected = run_whole(op, sample.attrs, in);
  const std::vector<const Reduce*> reduce = reductions(rule, splits);
  Tensors out = expected;
  for (size_t i = 0; i < out.size(); ++i)
    std::fill(out[i].data.begin(), out[i].data.end(),
              reduce[i] == nullptr        ? kNan
              : *reduce[i] == Reduce::sum ? 0.0
                                          : -std::numeric_limits<double>::infinity());
  int64_t ranks = 1;
  std::string what = "split";
  for (const Split& s : splits) {
    ranks *= s.ranks;
    what += fmt::format(" {}/{}", s.letter, s.ranks);
  }
  for (int64_t r = 0; r < ranks; ++r) {
    int64_t rest = r;
    for (Split& s : splits) {
      s.rank = rest % s.ranks;
      rest /= s.ranks;
    }
    run_rank(op, sample.attrs, rule, in, splits, out);
  }
  for (size_t i = 0; i < out.size(); ++i)
    expect_close(out[i].data, expected[i].data, 1e-12, fmt::format("{}, result {}", what, i));
}

// Can the factor be split over so many ranks? Proportional extents need even parts, unless they
// have equally many units.
bool legal(const Rule& rule, const Tensors& in, char letter, int64_t ranks) {
  std::set<int64_t> units;
  for (size_t i = 0; i < rule.in.size(); ++i)
    for (size_t d = 0; d < rule.in[i].size(); ++d) {
      const Factor& f = rule.in[i][d];
      if (f.letter == letter && f.whole) return false;
      if (f.letter == letter && f.proportional) units.insert(in[i].type.dims[d].units());
    }
  return units.size() <= 1 ||
         std::all_of(units.begin(), units.end(), [&](int64_t n) { return n % ranks == 0; });
}

std::set<char> letters(const std::vector<Factor>& factors) {
  std::set<char> all;
  for (const Factor& f : factors) all.insert(f.letter);
  return all;
}

// Every float operand a pending sum of random parts: the results are pending sums too.
void check_pending(const OpDef& op, const OpSample& sample, size_t ranks) {
  const Tensors in = draw_operands(sample);
  const Tensors expected = run_whole(op, sample.attrs, in);
  std::vector<Tensors> parts(ranks, in);
  for (size_t i = 0; i < in.size(); ++i)
    for (size_t j = 0; in[i].type.dtype != Dtype::i32 && j < in[i].data.size(); ++j)
      for (size_t r = 1; r < ranks; ++r) {
        parts[r][i].data[j] = draw(j, static_cast<uint32_t>(100 * r + i));
        parts[0][i].data[j] -= parts[r][i].data[j];
      }
  Tensors sum = run_whole(op, sample.attrs, parts[0]);
  for (size_t r = 1; r < ranks; ++r) {
    const Tensors more = run_whole(op, sample.attrs, parts[r]);
    for (size_t i = 0; i < sum.size(); ++i)
      for (size_t j = 0; j < sum[i].data.size(); ++j) sum[i].data[j] += more[i].data[j];
  }
  for (size_t i = 0; i < sum.size(); ++i)
    expect_close(sum[i].data, expected[i].data, 1e-12, "pending sums");
}

// ---- the generated test -------------------------------------------------------------------

class OpsTable : public testing::TestWithParam<size_t> {
 protected:
  const OpDef& op() const { return all_ops()[GetParam()]; }
  template <class F>
  void for_each_sample(F f) const {
    const auto samples = op().samples();
    ASSERT_FALSE(samples.empty());
    for (size_t i = 0; i < samples.size(); ++i) {
      SCOPED_TRACE(fmt::format("sample {}", i));
      f(samples[i]);
      if (HasFatalFailure()) return;
    }
  }
  void expect_refused(const Attrs& attrs, const Types& in, const std::string& what) const {
    try {
      infer_types(op(), attrs, in);
      ADD_FAILURE() << what << " is not refused";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(fmt::format("op '{}'", op().name))) << what;
    }
  }
};

TEST_P(OpsTable, RecordIsComplete) {
  EXPECT_EQ(&find_op(op().name), &op()) << "listed twice";
  EXPECT_FALSE(op().summary.empty());
  EXPECT_NE(op().grad == nullptr, op().no_grad.empty()) << "a gradient, or the reason for none";
  EXPECT_TRUE(op().flops && op().reference.f32 && op().reference.f64 && op().reference.counted);
  for_each_sample([&](const OpSample& s) {
    const Types out = infer_types(op(), s.attrs, s.in);
    for (const auto& [result, operand] : op().in_place) EXPECT_EQ(out[result], s.in[operand]);
    for (const Rule& rule : parse_rules(op().rule(s.attrs, s.in))) {
      ASSERT_EQ(rule.out.size(), out.size());
      ASSERT_EQ(rule.in.size(), s.in.size());
      for (const auto& operand : rule.in)
        for (const Factor& f : operand) {
          size_t carriers = 0;
          for (const auto& result : rule.out) carriers += letters(result).count(f.letter);
          EXPECT_EQ(carriers < rule.out.size(), rule.contracted.contains(f.letter)) << f.letter;
          for (const auto& other : rule.in)
            for (const Factor& g : other)
              EXPECT_TRUE(g.letter != f.letter || g.whole == f.whole) << f.letter;
        }
    }
  });
}

TEST_P(OpsTable, RefusesWrongOperands) {
  for_each_sample([&](const OpSample& s) {
    const Rule rule = parse_rules(op().rule(s.attrs, s.in)).front();
    std::map<char, int> uses;
    for (const auto& operand : rule.in)
      for (const Factor& f : operand) ++uses[f.letter];
    for (size_t i = 0; i < s.in.size(); ++i) {
      Types in = s.in;
      in[i].dims.resize(5, {"", 1});
      expect_refused(s.attrs, in, fmt::format("rank 5 of operand {}", i));
      in = s.in;
      in[i].dtype = in[i].dtype == Dtype::i32 ? Dtype::f64 : Dtype::i32;
      expect_refused(s.attrs, in, fmt::format("dtype of operand {}", i));
      for (size_t d = 0; d < s.in[i].dims.size(); ++d) {
        in = s.in;
        in[i].dims[d] = {in[i].dims[d].name, in[i].dims[d].size + 1, 1};
        if (uses[rule.in[i][d].letter] > 1)
          expect_refused(s.attrs, in, fmt::format("size of operand {} dimension {}", i, d));
      }
    }
    expect_refused(s.attrs, {}, "a call without operands");
  });
}

TEST_P(OpsTable, WritesEveryElementFromPoison) {
  for_each_sample([&](const OpSample& s) {
    const Tensors in = draw_operands(s), out = run_whole(op(), s.attrs, in);
    Tensors single = out, shared = out;
    run<float>(op(), s.attrs, in, single);
    run<double>(op(), s.attrs, in, shared, true);
    for (size_t i = 0; i < out.size(); ++i) {
      for (double v : out[i].data) ASSERT_TRUE(std::isfinite(v)) << "result " << i;
      expect_close(single[i].data, out[i].data, 1e-5, "f32 against f64");
      EXPECT_EQ(shared[i].data, out[i].data) << "in place";
    }
  });
}

TEST_P(OpsTable, CountsItsFlops) {
  for_each_sample([&](const OpSample& s) {
    const Tensors in = draw_operands(s);
    Tensors out = results(op(), s.attrs, in);
    Counted::operations = 0;
    run<Counted>(op(), s.attrs, in, out);
    const int64_t counted = Counted::operations, flops = op().flops(s.attrs, s.in);
    EXPECT_LE(counted, flops);
    EXPECT_TRUE(!s.full || counted == flops) << counted << " counted, " << flops << " stated";
  });
}

TEST_P(OpsTable, EveryPlacementEqualsOneRank) {
  for_each_sample([&](const OpSample& s) {
    const Tensors in = draw_operands(s);
    for (const Rule& rule : parse_rules(op().rule(s.attrs, s.in))) {
      std::set<char> all;
      for (const auto& operand : rule.in) all.merge(letters(operand));
      for (char a : all) {
        for (int64_t ranks = 1; ranks <= 4; ++ranks)
          if (legal(rule, in, a, ranks)) check_splits(op(), s, rule, {{a, ranks}});
        for (char b : all)
          if (a < b && legal(rule, in, a, 2) && legal(rule, in, b, 2))
            check_splits(op(), s, rule, {{a, 2}, {b, 2}});
      }
    }
    for (size_t ranks = 2; op().additive && ranks <= 4; ++ranks) check_pending(op(), s, ranks);
  });
}

// The verifier ignores the order of these sums, so they must be nothing else.
TEST(Ops, StatedTermsAreTheResult) {
  int stated = 0;
  for (const OpDef& op : all_ops()) {
    if (op.terms.empty()) continue;
    ++stated;
    for (const OpSample& s : op.samples()) {
      const Tensors in = draw_operands(s), out = run_whole(op, s.attrs, in);
      ASSERT_EQ(op.terms.size(), in.size());
      ASSERT_EQ(out.size(), 1u);
      for (size_t j = 0; j < out[0].data.size(); ++j) {
        double sum = 0;
        for (size_t i = 0; i < in.size(); ++i) sum += op.terms[i] * in[i].data[j];
        EXPECT_NEAR(out[0].data[j], sum, 1e-15) << op.name;
      }
    }
  }
  EXPECT_GE(stated, 3);
}

// Evaluates a joint graph whose values are indexed by id.
void evaluate(const Graph& graph, std::vector<Tensor>& values) {
  for (const Node& node : graph.nodes) {
    Tensors in;
    for (ValueId v : node.in) in.push_back(values[static_cast<size_t>(v)]);
    const Tensors out = run_whole(find_op(node.op), node.attrs, in);
    for (size_t i = 0; i < out.size(); ++i) values[static_cast<size_t>(node.out[i])] = out[i];
  }
}

// Through result 0; further results (attention's log-sum-exp) are saved values.
TEST_P(OpsTable, GradientEqualsFiniteDifferences) {
  for_each_sample([&](const OpSample& s) {
    Graph forward;
    for (const TensorType& t : s.in) forward.inputs.push_back(forward.add_value("", t));
    forward.outputs = {forward.emit(std::string(op().name), forward.inputs, s.attrs)[0]};
    if (op().grad == nullptr) {
      try {
        differentiate(forward);
        FAIL() << "differentiated without a gradient";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(std::string(op().no_grad)));
      }
      return;
    }
    const Graph joint = differentiate(forward);
    Tensors in = draw_operands(s), values;
    for (const Value& v : joint.values) values.emplace_back(v.type);
    for (size_t i = 0; i < in.size(); ++i) values[i] = in[i];
    Tensor& cotangent = values[static_cast<size_t>(joint.d_outputs[0])];
    for (size_t j = 0; j < cotangent.data.size(); ++j) cotangent.data[j] = draw(j, 50);
    evaluate(joint, values);
    auto objective = [&] {
      const Tensors out = run_whole(op(), s.attrs, in);
      double sum = 0;
      for (size_t j = 0; j < out[0].data.size(); ++j) sum += out[0].data[j] * cotangent.data[j];
      return sum;
    };
    for (size_t i = 0; i < in.size(); ++i) {
      if (s.in[i].dtype == Dtype::i32) continue;
      ASSERT_NE(joint.d_inputs[i], kNone) << "operand " << i;
      std::vector<double> expected;
      for (double& x : in[i].data) {
        const double at = x, step = 1e-5;
        x = at + step;
        const double above = objective();
        x = at - step;
        expected.push_back((above - objective()) / (2 * step));
        x = at;
      }
      expect_close(values[static_cast<size_t>(joint.d_inputs[i])].data, expected, 1e-7,
                   fmt::format("gradient of operand {}", i));
    }
  });
}

// Fused ops and to_bf16, whose result is of another type, have tests of their own (fused_test.cc).
std::vector<size_t> primitive_ops() {
  std::vector<size_t> list;
  for (size_t i = 0; i < all_ops().size(); ++i)
    if (all_ops()[i].expansion == nullptr && all_ops()[i].name != "to_bf16") list.push_back(i);
  return list;
}

INSTANTIATE_TEST_SUITE_P(, OpsTable, testing::ValuesIn(primitive_ops()), [](const auto& index) {
  return std::string(all_ops()[index.param].name);
});

// ---- directed tests -----------------------------------------------------------------------

double apply(std::string_view name, std::vector<double> operands, const Attrs& attrs = {}) {
  Tensors in;
  for (double v : operands) in.emplace_back(TensorType{Dtype::f64, {}}, v);
  Tensors out = results(find_op(name), attrs, in);
  run<float>(find_op(name), attrs, in, out);
  return out[0].data[0];
}

TEST(Ops, ActivationsAreFiniteForLargeInputs) {
  for (const std::string name : {"silu", "gelu", "gelu_erf", "gelu_quick", "relu", "squared_relu"})
    for (const double x : {-1e4, -200.0, -90.0, -10.0, 0.0, 10.0, 90.0, 200.0, 1e4}) {
      EXPECT_TRUE(std::isfinite(apply(name, {x}))) << name << " of " << x;
      EXPECT_TRUE(std::isfinite(apply(name + "_grad", {x, 1}))) << name << "_grad of " << x;
    }
  EXPECT_EQ(apply("silu", {1e4}), 1e4);
  EXPECT_EQ(apply("gelu_grad", {-1e4, 1}), 0);
}

// Values worked out by hand: the generated test compares an op with itself only.
TEST(Ops, KnownValues) {
  EXPECT_NEAR(apply("silu", {1}), 0.7310586, 1e-6);
  EXPECT_NEAR(apply("gelu", {1}), 0.8411920, 1e-6);
  EXPECT_NEAR(apply("gelu_erf", {1}), 0.8413447, 1e-6);
  EXPECT_NEAR(apply("gelu_erf_grad", {1, 1}), 1.0833155, 1e-6);
  EXPECT_NEAR(apply("gelu_quick", {1}), 0.8457958, 1e-6);
  EXPECT_EQ(apply("relu", {-3}), 0);
  EXPECT_EQ(apply("relu_grad", {0, 5}), 0);
  EXPECT_NEAR(apply("soft_cap", {60}, {{"cap", 30}}), 28.9208275, 1e-5);
  EXPECT_EQ(apply("squared_relu", {3}), 9);
  EXPECT_EQ(apply("sub", {3, 1}), 2);
  auto row = [](std::vector<double> values) {
    Tensor x({Dtype::f64, {{"", 1}, {"", static_cast<int64_t>(values.size()), 1}}});
    x.data = std::move(values);
    return x;
  };
  const Tensor one({Dtype::f64, {{"", 2}}}, 1), zero({Dtype::f64, {{"", 2}}}, 0);
  const double r = 1 / std::sqrt(12.5);
  EXPECT_THAT(run_whole(find_op("rms_norm"), {{"eps", 0}}, {row({3, 4}), one})[0].data,
              testing::ElementsAre(testing::DoubleEq(3 * r), testing::DoubleEq(4 * r)));
  EXPECT_THAT(run_whole(find_op("layer_norm"), {{"eps", 0}}, {row({1, 3}), one, zero})[0].data,
              testing::ElementsAre(testing::DoubleEq(-1), testing::DoubleEq(1)));
  Tensor x = row({1, 1, 0, 0});
  x.type.dims[1].unit = 4;
  const Tensors y = run_whole(find_op("rope"), {{"head_size", 4}, {"theta", 100}},
                              {x, Tensor({Dtype::i32, {{"", 1}}}, 3)});
  const double expected[] = {std::cos(3), std::cos(0.3), std::sin(3), std::sin(0.3)};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[0].data[i], expected[i], 1e-15);
}

// One pair of two tokens each: the chosen answer gained 1.5, the rejected one 0.5.
TEST(Ops, PreferenceLossByHand) {
  const Extent t{"T", 5, 5};
  Tensor nll({Dtype::f64, {t}}), reference({Dtype::f64, {t}}), weights({Dtype::f64, {t}}, 1);
  Tensor pairs({Dtype::i32, {t}});
  nll.data = {1, 2, 3, 4, 50};
  reference.data = {2, 2.5, 3.5, 9, 60};
  weights.data[3] = 0;
  pairs.data = {1, 1, 2, 2, 0};
  const auto loss = [&](const Attrs& attrs) {
    const Tensors out = run_whole(find_op("preference_loss"), attrs,
                                  {nll, reference, weights, pairs, Tensor({Dtype::f64, {}}, 3)});
    EXPECT_EQ(out[1].data[0], 1);
    EXPECT_EQ(out[2].data[0], 1);
    return out[0].data[0];
  };
  EXPECT_DOUBLE_EQ(loss({{"beta", 2}}), 3 * std::log(1 + std::exp(-2)));
  EXPECT_DOUBLE_EQ(loss({{"beta", 2}, {"label_smoothing", 0.25}}),
                   3 * (0.75 * std::log(1 + std::exp(-2)) + 0.25 * std::log(1 + std::exp(2))));
  EXPECT_DOUBLE_EQ(loss({{"beta", 0.25}, {"variant", 1}}), 3 * 0.75);
  EXPECT_DOUBLE_EQ(loss({{"beta", 0.25}, {"variant", 2}}), 3);
  std::fill(reference.data.begin(), reference.data.begin() + 2, 1e6);  // no overflow far away
  const Tensors far = run_whole(find_op("preference_loss"), {{"beta", 1}},
                                {reference, nll, weights, pairs, Tensor({Dtype::f64, {}}, 1)});
  EXPECT_NEAR(far[0].data[0], 2e6 - 3.5, 1);
}

TEST(Ops, ClipScaleIsOneWithoutALimitAndBelowIt) {
  EXPECT_EQ(apply("clip_scale", {100, 1}, {{"max_norm", 0}}), 1);
  EXPECT_EQ(apply("clip_scale", {100, 1}, {{"max_norm", 11}}), 1);
  EXPECT_NEAR(apply("clip_scale", {100, 1}, {{"max_norm", 5}}), 0.5, 1e-6);
  for (const double limit : {0, 1})
    for (const double bad : {kNan, HUGE_VAL, -HUGE_VAL}) {
      EXPECT_TRUE(std::isnan(apply("clip_scale", {bad, 1}, {{"max_norm", limit}})));
      EXPECT_TRUE(std::isnan(apply("clip_scale", {1, bad}, {{"max_norm", limit}})));
    }
}

TEST(Ops, IdsOutsideTheVocabularyAreRefusedByEveryShard) {
  for (const std::string_view name : {"embedding", "embedding_grad", "pick", "pick_grad"}) {
    const OpDef& op = find_op(name);
    const OpSample sample = op.samples()[0];
    const Rule rule = parse_rule(op.rule(sample.attrs, sample.in));
    for (const int id : {-1, 7})
      for (int64_t rank = 0; rank < 2; ++rank) {
        Tensors in = draw_operands(sample);
        in[1].data[3] = id;
        Tensors out = results(op, sample.attrs, in);
        try {
          run_rank(op, sample.attrs, rule, in, {{'t', 2, 1}, {'v', 2, rank}}, out);
          ADD_FAILURE() << name << " accepts " << id;
        } catch (const Error& error) {
          EXPECT_EQ(error.what(), fmt::format("op '{}': found id {} at position 3, expected "
                                              "0 <= id < 7, the vocabulary size",
                                              name, id));
        }
      }
  }
}

TEST(Ops, LogSumExpOfNoColumnsIsMinusInfinity) {
  const Tensors out = run_whole(find_op("row_lse"), {}, {Tensor({Dtype::f64, {{"", 2}, {"", 0}}})});
  for (double v : out[0].data) EXPECT_EQ(v, -std::numeric_limits<double>::infinity());
}

TEST(Ops, AttentionIsCausalInsideItsSequence) {
  const OpDef& op = find_op("attention");
  const OpSample sample = op.samples()[2];  // sequences of 2, 3 and 5; 6 heads of 2 over 3
  Tensors in = draw_operands(sample);
  const auto &q = in[0].data, &k = in[1].data, &v = in[2].data;
  const double s0 = (q[12] * k[0] + q[13] * k[1]) / std::sqrt(2);
  const double s1 = (q[12] * k[6] + q[13] * k[7]) / std::sqrt(2);
  const double p1 = 1 / (1 + std::exp(s0 - s1));
  EXPECT_NEAR(run_whole(op, sample.attrs, in)[0].data[12], v[0] * (1 - p1) + v[6] * p1, 1e-14);
  for (double& x : in[0].data) x *= 1e6;
  const Tensors out = run_whole(op, sample.attrs, in);
  for (size_t t : {0, 2, 5})  // first tokens attend to themselves only, whatever their score
    for (size_t c = 0; c < 12; ++c)
      EXPECT_EQ(out[0].data[t * 12 + c], v[t * 6 + c / 4 * 2 + c % 2]);
  for (double x : out[0].data) EXPECT_TRUE(std::isfinite(x));
}

TEST(Ops, AttentionRefusesTheGradientOfItsLogSumExp) {
  const OpSample sample = find_op("attention").samples()[0];
  Graph graph;
  for (const TensorType& t : sample.in) graph.inputs.push_back(graph.add_value("", t));
  graph.outputs = {graph.emit("attention", graph.inputs, sample.attrs)[1]};
  EXPECT_THROW(differentiate(graph), Error);
}

TEST(Ops, UpdatesFollowTorch) {
  // torch.optim.AdamW(lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01), step 1, p=1, g=0.5
  const TensorType scalar{Dtype::f64, {}}, pair{Dtype::f64, {{"", 2}}};
  Tensors in = {Tensor(scalar, 1), Tensor(scalar, 1), Tensor(scalar, 0),
                Tensor(scalar, 0), Tensor(pair, 0.1), Tensor(scalar, 0.5)};
  in[4].data[1] = 1;
  const Tensors out =
      run_whole(find_op("adamw"),
                {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.01}}, in);
  EXPECT_NEAR(out[0].data[0], 0.899, 1e-8);
  EXPECT_NEAR(out[1].data[0], 0.05, 1e-15);
  EXPECT_NEAR(out[2].data[0], 0.00025, 1e-15);
  const std::vector<std::pair<size_t, size_t>> storage = {{0, 0}, {1, 2}, {2, 3}};
  EXPECT_EQ(find_op("adamw").in_place, storage);
  const Tensors sgd =
      run_whole(find_op("sgd"), {{"weight_decay", 0.01}}, {in[0], in[1], in[4], in[5]});
  EXPECT_NEAR(sgd[0].data[0], 1 - 0.1 * (0.5 + 0.01), 1e-15);
}

}  // namespace
}  // namespace plait
