// The model "Unigram" of a tokenizer.json: of all ways to write a piece as tokens, the one whose
// scores add up to the most (Viterbi; Kudo 2018, arXiv 1804.10959).
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "plait/tokens/byte_level.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/model.h"
#include "plait/tokens/trie.h"
#include "plait/tokens/utf8.h"

namespace plait {

namespace {

constexpr double kUnknownPenalty = 10.0;  // below the lowest score, as in SentencePiece

// A number as Hugging Face's library reads it from JSON: its digits as a whole number, rounded,
// times or over a power of ten, rounded again; up to a unit in the last place from what stands
// there. It decides between ways to write a text whose scores have the same sum but for rounding.
double as_the_library_reads(double x) {
  std::array<char, 32> text{};
  char* const begin = text.data();
  const char* const end =
      std::to_chars(begin, begin + text.size(), std::abs(x), std::chars_format::scientific).ptr;
  const char* const e =
      std::find<const char*>(begin, end, 'e');  // "d.ddde-dd": as few digits as name `x`
  uint64_t digits = 0;
  for (const char* c = begin; c != e; ++c)
    if (*c != '.') digits = 10 * digits + static_cast<uint64_t>(*c - '0');
  int exponent = 0;
  std::from_chars(e[1] == '+' ? e + 2 : e + 1, end, exponent);
  exponent -= static_cast<int>(std::max<std::ptrdiff_t>(e - begin - 2, 0));
  double power = 0;
  const std::string power_text = fmt::format("1e{}", std::abs(exponent));
  const auto read =
      std::from_chars(power_text.data(), power_text.data() + power_text.size(), power);
  if (read.ec != std::errc()) return x;
  const double whole = static_cast<double>(digits);
  const double result = exponent < 0 ? whole / power : whole * power;
  return std::isfinite(result) ? std::copysign(result, x) : x;
}

class Unigram final : public TokenModel {
 public:
  explicit Unigram(Section& s) {
    const nlohmann::json& vocab = s.array("vocab");
    if (vocab.empty()) s.error("vocab", "empty");
    for (const nlohmann::json& entry : vocab) read_entry(s, entry);
    if (s.has("unk_id"))
      unk_ = static_cast<int32_t>(s.integer("unk_id", 0, vocabulary_.size() - 1));
    if (s.boolean("byte_fallback", false)) fallback_ = byte_fallback_ids(vocabulary_);
  }

  std::string_view kind() const override { return "unigram"; }
  std::optional<int32_t> unk() const override { return unk_; }

  void encode(std::string_view piece, bool bytes, std::vector<int32_t>& ids) const override {
    if (bytes) {
      encode(to_byte_level(piece), false, ids);
      return;
    }
    const std::vector<Step> best = best_path(piece);
    std::vector<Step> path;
    for (size_t end = piece.size(); end > 0; end = best[end].begin) {
      // Neighbouring unknown characters are one unknown token.
      if (!path.empty() && best[end].unknown && path.back().unknown)
        path.back().begin = best[end].begin;
      else
        path.push_back({best[end].begin, end, best[end].id, 0, best[end].unknown});
    }
    for (auto step = path.rbegin(); step != path.rend(); ++step)
      append(piece.substr(step->begin, step->end - step->begin), *step, ids);
  }

 private:
  struct Step {
    size_t begin = 0, end = 0;
    int32_t id = -1;
    double score = 0;
    bool unknown = false;
  };

  void read_entry(Section& s, const nlohmann::json& entry) {
    const int64_t id = vocabulary_.count();
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      s.error("vocab", "entry {}: expected [token, score]", id);
    const double number = entry[1].get<double>();
    if (!std::isfinite(number)) s.error("vocab", "entry {}: a score that is not finite", id);
    const double score = as_the_library_reads(number);
    std::string token = entry[0].get<std::string>();
    if (!token.empty()) trie_.add(token, static_cast<int32_t>(id));
    scores_.push_back(score);
    lowest_ = std::min(lowest_, score);
    vocabulary_.add(std::move(token), id, s.where("vocab"));
  }

  // best[i]: the last token of the best way to write the first i bytes.
  std::vector<Step> best_path(std::string_view piece) const {
    std::vector<Step> best(piece.size() + 1);
    const double unknown_score = lowest_ - kUnknownPenalty;
    const auto offer = [&](size_t begin, size_t end, int32_t id, double score, bool unknown) {
      Step& s = best[end];
      if (s.id == -1 || score > s.score) s = {begin, end, id, score, unknown};
    };
    for (size_t i = 0; i < piece.size();) {
      const double here = best[i].score;
      const size_t length = utf8_length(piece[i]);
      bool single = false;
      trie_.each_prefix(piece.substr(i), [&](size_t bytes, int32_t id) {
        offer(i, i + bytes, id, scores_[static_cast<size_t>(id)] + here, id == unk_);
        single |= bytes == length;
      });
      if (!single) offer(i, i + length, unk_.value_or(-2), unknown_score + here, true);
      i += length;
    }
    return best;
  }

  void append(std::string_view text, const Step& step, std::vector<int32_t>& ids) const {
    if (!step.unknown) return ids.push_back(step.id);
    if (const auto id = vocabulary_.id(text)) return ids.push_back(*id);
    if (!fallback_.empty()) {
      for (const char b : text) ids.push_back(fallback_[static_cast<unsigned char>(b)]);
      return;
    }
    if (!unk_)
      fail("the tokenizer has no token for '{}', and no unknown token in its vocabulary", text);
    ids.push_back(*unk_);
  }

  Trie trie_;
  std::vector<double> scores_;
  double lowest_ = std::numeric_limits<double>::infinity();
  std::optional<int32_t> unk_;
  std::vector<int32_t> fallback_;
};

}  // namespace

std::unique_ptr<TokenModel> read_unigram(Section& s) { return std::make_unique<Unigram>(s); }

}  // namespace plait
