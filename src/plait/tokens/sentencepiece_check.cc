#include "plait/tokens/sentencepiece_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "plait/base/error.h"
#include "plait/tokens/decoder.h"
#include "plait/tokens/utf8.h"

namespace plait {

namespace {

constexpr int64_t kMaxPieces = 1 << 24;
constexpr size_t kMaxPieceBytes = 1 << 16;
// The library keeps so many results of one look-up, and does not count.
constexpr int kMaxMapResults = 32, kMaxNested = 64;

// One field of a message: a number (varint, fixed) or bytes.
struct Field {
  uint32_t number = 0, wire = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

class Message {
 public:
  Message(std::string_view bytes, const std::string& source, std::string_view name)
      : bytes_(bytes), source_(source), name_(name) {}

  bool next(Field& f) {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    f.number = static_cast<uint32_t>(key >> 3);
    f.wire = static_cast<uint32_t>(key & 7);
    f.value = 0;
    f.bytes = {};
    if (key >> 32 != 0 || f.number == 0) broken("a field number");
    if (f.wire == 0)
      f.value = varint();
    else if (f.wire == 1 || f.wire == 5)
      f.value = fixed(f.wire == 1 ? 8 : 4);
    else if (f.wire == 2)
      f.bytes = take(varint());
    else
      broken("a field type");
    return true;
  }

  void want(const Field& f, uint32_t wire) const {
    if (f.wire != wire)
      fail("{}: {}: field {} has the wire type {}; expected {}", source_, name_, f.number, f.wire,
           wire);
  }
  [[noreturn]] void broken(std::string_view what) const {
    fail("{}: not a SentencePiece model: {} of {} is broken at byte {}", source_, what, name_, at_);
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == bytes_.size()) broken("a number");
      const auto b = static_cast<unsigned char>(bytes_[at_++]);
      if (shift == 63 && b > 1) broken("a number");
      value |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (b < 0x80) return value;
    }
    broken("a number");
  }
  uint64_t fixed(size_t n) {
    const std::string_view b = take(n);
    uint64_t value = 0;
    std::memcpy(&value, b.data(), n);
    return value;
  }
  std::string_view take(uint64_t n) {
    if (n > bytes_.size() - at_) broken("a length");
    const std::string_view b = bytes_.substr(at_, static_cast<size_t>(n));
    at_ += static_cast<size_t>(n);
    return b;
  }

  std::string_view bytes_;
  const std::string& source_;
  std::string_view name_;
  size_t at_ = 0;
};

float as_float(uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  float f = 0;
  std::memcpy(&f, &low, sizeof f);
  return f;
}

enum PieceType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct PieceFacts {
  std::string_view text;
  int type = kNormal;
};

PieceFacts check_piece(std::string_view bytes, const std::string& source, int64_t index) {
  const std::string name = fmt::format("piece {}", index);
  Message m(bytes, source, name);
  PieceFacts p;
  for (Field f; m.next(f);) {
    if (f.number == 1) {
      m.want(f, 2);
      p.text = f.bytes;
    } else if (f.number == 2) {
      m.want(f, 5);
      if (!std::isfinite(as_float(f.value))) fail("{}: {}: its score is not finite", source, name);
    } else if (f.number == 3) {
      m.want(f, 0);
      if (f.value < kNormal || f.value > kByte)
        fail("{}: {}: unknown type {}", source, name, f.value);
      p.type = static_cast<int>(f.value);
    }
  }
  if (p.type == kByte && byte_fallback_value(std::string(p.text)) < 0)
    fail("{}: {}: '{}' stands for no byte", source, name, p.text);
  if (p.text.empty()) fail("{}: {} is empty", source, name);
  if (p.text.size() > kMaxPieceBytes)
    fail("{}: {} has {} bytes; at most {} are read", source, name, p.text.size(), kMaxPieceBytes);
  if (p.text.find('\0') != p.text.npos) fail("{}: {} holds a zero byte", source, name);
  require_utf8(p.text, fmt::format("{}: {}", source, name));
  return p;
}

void check_trainer(std::string_view bytes, const std::string& source) {
  Message m(bytes, source, "the trainer settings");
  for (Field f; m.next(f);) {
    if (f.number == 3) {
      m.want(f, 0);
      if (f.value == 3 || f.value == 4)
        fail("{}: a model of {}s; supported are unigram and bpe", source,
             f.value == 3 ? "word" : "character");
      if (f.value != 1 && f.value != 2) fail("{}: unknown model type {}", source, f.value);
    }
    if (f.number == 24) {
      m.want(f, 0);
      if (f.value != 0)
        fail("{}: treat_whitespace_as_suffix is on, which is not supported", source);
    }
    if (f.number >= 44 && f.number <= 48) {  // surface of unknown text; special pieces
      m.want(f, 2);
      require_utf8(f.bytes, source + ": a special piece");
      if (f.bytes.find('\0') != f.bytes.npos) fail("{}: a special piece holds a zero byte", source);
    }
  }
}

void check_normalizer(std::string_view bytes, const std::string& source,
                      SentencePieceFacts* facts) {
  Message m(bytes, source, "the normalizer settings");
  for (Field f; m.next(f);) {
    if (f.number == 2) {
      m.want(f, 2);
      if (!f.bytes.empty() && facts == nullptr)
        fail("{}: a map for decoded text is not supported", source);
      if (!f.bytes.empty()) check_character_map(f.bytes, source);
    }
    if (f.number >= 3 && f.number <= 5) m.want(f, 0);
    if (f.number == 5 && f.value == 0)
      fail("{}: escape_whitespaces is off, which is not supported", source);
    if (facts != nullptr && f.number == 3) facts->add_dummy_prefix = f.value != 0;
    if (facts != nullptr && f.number == 4) facts->remove_extra_whitespaces = f.value != 0;
  }
}

// How many strings of a sorted set can open one text.
void check_nested(const std::set<std::string_view>& pieces, const std::string& source) {
  std::vector<std::string_view> open;
  for (const std::string_view p : pieces) {
    while (!open.empty() && !p.starts_with(open.back())) open.pop_back();
    open.push_back(p);
    if (open.size() > static_cast<size_t>(kMaxNested))
      fail("{}: more than {} user-defined pieces that open one another, as '{}' and '{}'", source,
           kMaxNested, open[0], open[1]);
  }
}

// The double array of a character map (the format of the library Darts-clone): from a node, byte
// c leads to `base ^ c`, if that unit is labelled c.
class MapChecker {
 public:
  MapChecker(std::vector<uint32_t> units, size_t strings, const std::string& source)
      : units_(std::move(units)), strings_(strings), source_(source) {}

  void run() {
    results_.assign(units_.size(), kUnseen);
    if (visit(0, 0) > kMaxMapResults)
      fail("{}: its character map has more than {} entries that open one another", source_,
           kMaxMapResults);
  }

 private:
  static constexpr int kUnseen = -1, kOpen = -2, kMaxDepth = 200;
  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

  [[noreturn]] void broken() const {
    fail("{}: its character map is broken: it points outside its tables", source_);
  }

  // The greatest number of entries on a way down from `node`.
  int visit(uint32_t node, int depth) {
    if (results_[node] == kOpen || depth > kMaxDepth) broken();
    if (results_[node] != kUnseen) return results_[node];
    results_[node] = kOpen;
    const uint32_t unit = units_[node];
    const uint32_t base = node ^ offset(unit);
    if ((base | 0xff) >= units_.size()) broken();
    const bool ends = (unit >> 8 & 1) != 0;
    if (ends && (units_[base] & 0x7fffffffu) >= strings_) broken();
    int most = 0;
    for (uint32_t c = 1; c < 256; ++c)
      if ((units_[base ^ c] & (1u << 31 | 0xff)) == c)
        most = std::max(most, visit(base ^ c, depth + 1));
    return results_[node] = most + (ends ? 1 : 0);
  }

  std::vector<uint32_t> units_;
  size_t strings_;  // bytes of replacement texts
  const std::string& source_;
  std::vector<int> results_;
};

}  // namespace

void check_character_map(std::string_view blob, const std::string& source) {
  uint32_t bytes = 0;
  if (blob.size() < sizeof bytes) fail("{}: its character map is cut short", source);
  std::memcpy(&bytes, blob.data(), sizeof bytes);
  blob.remove_prefix(sizeof bytes);
  if (bytes >= blob.size() || bytes == 0 || bytes % 1024 != 0)
    fail("{}: its character map says a table of {} bytes; {} follow", source, bytes, blob.size());
  if (blob.back() != '\0') fail("{}: its character map does not end in a zero byte", source);
  std::vector<uint32_t> units(bytes / 4);
  std::memcpy(units.data(), blob.data(), bytes);
  MapChecker(std::move(units), blob.size() - bytes, source).run();
}

SentencePieceFacts check_sentencepiece(std::string_view file, const std::string& source) {
  SentencePieceFacts facts;
  if (file.empty()) fail("{}: an empty file; expected a SentencePiece model", source);
  Message m(file, source, "the model");
  std::set<std::string_view> all, user_defined;
  for (Field f; m.next(f);) {
    if (f.number > 5) continue;
    m.want(f, 2);
    if (f.number == 2) check_trainer(f.bytes, source);
    if (f.number == 3) check_normalizer(f.bytes, source, &facts);
    if (f.number == 4) fail("{}: self-test data is not supported", source);
    if (f.number == 5) check_normalizer(f.bytes, source, nullptr);
    if (f.number != 1) continue;
    const PieceFacts p = check_piece(f.bytes, source, facts.pieces);
    if (++facts.pieces > kMaxPieces) fail("{}: more than {} pieces", source, kMaxPieces);
    if (!all.insert(p.text).second) fail("{}: piece '{}' stands twice", source, p.text);
    if (p.type == kUserDefined) user_defined.insert(p.text);
    if (p.type == kControl)
      facts.control.emplace_back(p.text, static_cast<int32_t>(facts.pieces - 1));
    if (p.type == kUnknown && !facts.unk.empty())
      fail("{}: two unknown pieces, '{}' and '{}'", source, facts.unk, p.text);
    if (p.type == kUnknown) facts.unk = std::string(p.text);
  }
  if (facts.pieces == 0) fail("{}: a SentencePiece model without pieces", source);
  if (facts.unk.empty()) fail("{}: a SentencePiece model without an unknown piece", source);
  check_nested(user_defined, source);
  return facts;
}

}  // namespace plait
