#include "plait/model/rope.h"

#include <algorithm>
#include <cmath>

#include "plait/base/text.h"

namespace plait {

namespace {

constexpr double kLargest = 1e12;
constexpr double kPi = 3.14159265358979323846;

std::vector<double> plain(double theta, int64_t head_size) {
  std::vector<double> f;
  for (int64_t i = 0; i < head_size / 2; ++i)
    f.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size)));
  return f;
}

double read_factor(Config& c) { return c.number("factor", 1e-6, kLargest); }

// The length that the model was trained with, before it was stretched.
double original_positions(Config& config, Config& c, const RopeSizes& n) {
  const int64_t inside = c.integer("original_max_position_embeddings", 1, kMaxIds, n.max_positions);
  // A value beside the scaling goes before one inside of it, as at Hugging Face.
  return static_cast<double>(
      config.integer("original_max_position_embeddings", 1, kMaxIds, inside));
}

// Documents shorter than `original`, in slots longer than it, get other positions than at Hugging
// Face.
void note_length(Config& config, const char* type, const RopeSizes& n, int64_t original) {
  std::string note = fmt::format(
      "rotary positions of type {} are stretched for slots of {} tokens, longer than the model's "
      "original {}; transformers stretches by the length of the text, so the logits of shorter "
      "texts differ from its own; slots of at most {} tokens agree",
      type, n.slot_tokens, original, original);
  if (std::find(config.notes.begin(), config.notes.end(), note) == config.notes.end())
    config.notes.push_back(std::move(note));
}

void linear(Config& c, const RopeSizes& n, Rope& rope) {
  const double factor = read_factor(c);
  rope.frequencies = plain(rope.theta, n.head_size);
  for (double& f : rope.frequencies) f /= factor;
}

void dynamic(Config& config, Config& c, const RopeSizes& n, Rope& rope) {
  const double factor = read_factor(c);
  if (n.slot_tokens <= n.max_positions) return;
  note_length(config, "dynamic", n, n.max_positions);
  if (n.head_size == 2) fail("config.json: dynamic rotary positions need a head size above 2");
  const auto size = static_cast<double>(n.head_size);
  const double stretch =
      factor * static_cast<double>(n.slot_tokens) / static_cast<double>(n.max_positions) -
      (factor - 1);
  rope.frequencies = plain(rope.theta * std::pow(stretch, size / (size - 2)), n.head_size);
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

void yarn(Config& config, Config& c, const RopeSizes& n, Rope& rope) {
  const double original = original_positions(config, c, n);
  const double factor =
      c.number("factor", 1e-6, kLargest, static_cast<double>(n.max_positions) / original);
  const double mscale = c.number("mscale", 0, kLargest, 0);
  const double mscale_all = c.number("mscale_all_dim", 0, kLargest, 0);
  const double inferred = mscale != 0 && mscale_all != 0
                              ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all)
                              : yarn_magnitude(factor, 1);
  rope.magnitude = c.number("attention_factor", 1e-6, kLargest, inferred);
  double fast = c.number("beta_fast", 0, kLargest, 32),
         slow = c.number("beta_slow", 0, kLargest, 1);
  if (fast == 0) fast = 32;
  if (slow == 0) slow = 1;
  const bool truncate = c.boolean("truncate", true);
  const auto size = static_cast<double>(n.head_size);
  // The pair that turns so many times in the original length.
  const auto pair_of = [&](double rotations) {
    return size * std::log(original / (rotations * 2 * kPi)) / (2 * std::log(rope.theta));
  };
  double low = pair_of(fast), high = pair_of(slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  rope.frequencies = plain(rope.theta, n.head_size);
  for (size_t i = 0; i < rope.frequencies.size(); ++i) {
    const double slowness = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& f = rope.frequencies[i];
    f = f / factor * slowness + f * (1 - slowness);
  }
}

void llama3(Config& config, Config& c, const RopeSizes& n, Rope& rope) {
  const double original = original_positions(config, c, n);
  const double factor = read_factor(c);
  const double low = c.number("low_freq_factor", 1e-6, kLargest);
  const double high = c.number("high_freq_factor", 1e-6, kLargest);
  rope.frequencies = plain(rope.theta, n.head_size);
  for (double& f : rope.frequencies) {
    const double wavelength = 2 * kPi / f;
    if (wavelength < original / high) continue;
    if (wavelength > original / low) {
      f /= factor;
    } else {
      const double smooth = (original / wavelength - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

void longrope(Config& config, Config& c, const RopeSizes& n, Rope& rope) {
  const double original = original_positions(config, c, n);
  const double factor =
      c.number("factor", 1e-6, kLargest, static_cast<double>(n.max_positions) / original);
  const double inferred = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  rope.magnitude = c.number("attention_factor", 1e-6, kLargest, inferred);
  const auto factors = [&](const char* key) {
    std::vector<double> list = c.numbers(key, 1e-6, kLargest);
    if (static_cast<int64_t>(list.size()) != n.head_size / 2)
      fail("config.json: '{}' has {} numbers for the {} pairs of a head of {}", key, list.size(),
           n.head_size / 2, n.head_size);
    return list;
  };
  const std::vector<double> near = factors("short_factor"), far = factors("long_factor");
  const bool stretched = static_cast<double>(n.slot_tokens) > original;
  if (stretched) note_length(config, "longrope", n, static_cast<int64_t>(original));
  rope.frequencies = plain(rope.theta, n.head_size);
  for (size_t i = 0; i < rope.frequencies.size(); ++i)
    rope.frequencies[i] /= stretched ? far[i] : near[i];
}

// One set of parameters; `c` is the section, `config` the whole.
Rope read_rope(Config& config, Config& c, const RopeSizes& n, double theta) {
  Rope rope;
  rope.theta = c.number("rope_theta", 1, 1e30, theta);
  c.only("partial_rotary_factor", {1}, "partial rotary positions are not supported here");
  const std::string old = c.text("type", "default");
  const std::string type = c.text("rope_type", old);
  if (c.has("type") && type != old)
    fail("config.json: rotary positions of type '{}' and rope_type '{}'; needs one of them", old,
         type);
  if (type == "linear") {
    linear(c, n, rope);
  } else if (type == "dynamic") {
    dynamic(config, c, n, rope);
  } else if (type == "yarn") {
    yarn(config, c, n, rope);
  } else if (type == "llama3") {
    llama3(config, c, n, rope);
  } else if (type == "longrope") {
    longrope(config, c, n, rope);
  } else if (type != "default") {
    fail(
        "config.json: rotary positions of type '{}' are not supported; known are default, linear, "
        "dynamic, yarn, llama3, longrope",
        type);
  }
  c.finish();
  const auto good = [](double f) { return std::isfinite(f) && f >= 0; };
  if (!std::all_of(rope.frequencies.begin(), rope.frequencies.end(), good) || !good(rope.magnitude))
    fail("config.json: rotary positions of type '{}' give frequencies that are no numbers", type);
  return rope;
}

}  // namespace

std::map<std::string, Rope> read_ropes(Config& config, const RopeSizes& sizes,
                                       double default_theta) {
  if (sizes.head_size % 2 != 0)
    fail("config.json: head size {}; rotary positions need an even one", sizes.head_size);
  const double theta = config.number("rope_theta", 1, 1e30, default_theta);
  config.only("partial_rotary_factor", {1}, "partial rotary positions are not supported here");
  const bool old = config.has("rope_scaling"), fresh = config.has("rope_parameters");
  if (old && fresh) fail("config.json: both 'rope_scaling' and 'rope_parameters'; needs one");
  if (!old && !fresh) return {{"", Rope{theta, {}, 1}}};
  Config parameters = config.section(old ? "rope_scaling" : "rope_parameters");
  std::map<std::string, Rope> ropes;
  for (const std::string type : {"full_attention", "sliding_attention"}) {
    if (!parameters.has(type)) continue;
    Config section = parameters.section(type);
    const bool sliding = type == "sliding_attention" && sizes.sliding_theta != 0;
    ropes[type] = read_rope(config, section, sizes, sliding ? sizes.sliding_theta : theta);
  }
  if (ropes.empty()) return {{"", read_rope(config, parameters, sizes, theta)}};
  parameters.finish();
  return ropes;
}

std::string rope_attributes(const Rope& rope, int64_t head_size) {
  std::string s = fmt::format(" head_size={}", head_size);
  s += rope.frequencies.empty() ? " theta=" + number_text(rope.theta)
                                : " frequencies=" + to_string(Attr(rope.frequencies));
  if (rope.magnitude != 1) s += " magnitude=" + number_text(rope.magnitude);
  return s;
}

}  // namespace plait
