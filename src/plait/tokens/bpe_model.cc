// The model "BPE" of a tokenizer.json.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "plait/base/digest.h"
#include "plait/tokens/bpe.h"
#include "plait/tokens/byte_level.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/model.h"
#include "plait/tokens/utf8.h"

namespace plait {

namespace {

// Ids of short pieces seen lately by this thread, for the model that it used last. Words repeat:
// most pieces are found here. Direct-mapped, of fixed size; a collision only costs time.
class PieceCache {
 public:
  struct Entry {
    uint64_t hash = 0;
    uint8_t bytes = 0, ids = 0;  // bytes 0: free
    char text[30];
    int32_t id[8];
  };
  static constexpr size_t kMaxBytes = sizeof(Entry::text), kMaxIds = 8;

  static PieceCache& of(uint64_t owner) {
    thread_local PieceCache cache;
    if (cache.owner_ != owner) {
      cache.entries_.assign(1 << 14, Entry{});
      cache.owner_ = owner;
    }
    return cache;
  }
  Entry& slot(uint64_t hash) { return entries_[hash & (entries_.size() - 1)]; }

 private:
  uint64_t owner_ = 0;
  std::vector<Entry> entries_;
};

uint64_t next_owner() {
  static std::atomic<uint64_t> count{0};
  return ++count;
}

class Bpe final : public TokenModel {
 public:
  explicit Bpe(Section& s) : owner_(next_owner()) {
    read_options(s);
    read_vocabulary(s);
    read_merges(s);
    for (int b = 0; b < 256; ++b) {
      std::string c;
      append_utf8(c, byte_character(static_cast<unsigned char>(b)));
      byte_ids_[static_cast<size_t>(b)] = vocabulary_.id(c).value_or(-1);
    }
    all_bytes_ = std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t i) { return i >= 0; });
    fallback_ids_.assign(256, -1);
    if (byte_fallback_)
      for (int b = 0; b < 256; ++b)
        fallback_ids_[static_cast<size_t>(b)] =
            vocabulary_.id(byte_fallback_token(static_cast<unsigned char>(b))).value_or(-1);
  }

  std::string_view kind() const override { return "bpe"; }
  std::optional<int32_t> unk() const override { return unk_id_; }

  void encode(std::string_view piece, bool bytes, std::vector<int32_t>& ids) const override {
    if (bytes && !(all_bytes_ && suffix_.empty())) {
      encode(to_byte_level(piece), false, ids);
      return;
    }
    if (bytes || piece.size() <= PieceCache::kMaxBytes) return encode_cached(piece, bytes, ids);
    if (ignore_merges_)
      if (const auto id = vocabulary_.id(piece)) return ids.push_back(*id);
    if (!suffix_.empty()) return encode_now(piece, false, ids);
    encode_in_parts(piece, ids);
  }

 private:
  void read_options(Section& s) {
    if (s.has("dropout") && s.value("dropout") != 0.0)
      s.error("dropout", "{}: random merges are not supported; set it to null",
              s.value("dropout").dump());
    if (const std::string p = s.string("continuing_subword_prefix", ""); !p.empty())
      s.error("continuing_subword_prefix", "'{}' is not supported; expected null", p);
    suffix_ = s.string("end_of_word_suffix", "");
    fuse_unk_ = s.boolean("fuse_unk", false);
    byte_fallback_ = s.boolean("byte_fallback", false);
    ignore_merges_ = s.boolean("ignore_merges", false);
    if (s.has("unk_token")) unk_token_ = s.string("unk_token");
  }

  void read_vocabulary(Section& s) {
    const nlohmann::json& vocab = s.value("vocab");
    if (!vocab.is_object()) s.error("vocab", "expected an object, found {}", json_kind(vocab));
    if (vocab.empty()) s.error("vocab", "empty");
    // In order of ids, so that gaps are seen before anything is allocated for them.
    std::vector<std::pair<int64_t, const std::string*>> order;
    for (auto it = vocab.begin(); it != vocab.end(); ++it) {
      const bool fits =
          it->is_number_integer() && !(it->is_number_unsigned() && it->get<uint64_t>() > INT32_MAX);
      if (!fits)
        s.error("vocab", "token '{}': expected an id, found {}", it.key(),
                it->is_number() ? it->dump() : std::string(json_kind(*it)));
      order.emplace_back(it->get<int64_t>(), &it.key());
    }
    std::sort(order.begin(), order.end());
    for (const auto& [id, token] : order) vocabulary_.add(*token, id, s.where("vocab"));
    vocabulary_.check_gaps(s.where("vocab"));
    if (unk_token_) unk_id_ = vocabulary_.id(*unk_token_);
  }

  void read_merges(Section& s) {
    const nlohmann::json& list = s.array("merges");
    merges_ = MergeTable(list.size());
    uint32_t rank = 0;
    for (const nlohmann::json& m : list) {
      const std::pair<std::string, std::string> pair = halves(s, m, rank);
      const std::string& left = pair.first;
      const std::string& right = pair.second;
      const auto id = [&](const std::string& token) {
        const auto found = vocabulary_.id(token);
        if (!found)
          s.error("merges", "merge {} ('{}' and '{}'): '{}' is not in the vocabulary", rank, left,
                  right, token);
        return *found;
      };
      const int32_t a = id(left), b = id(right), whole = id(left + right);
      merges_.set(a, b, {rank++, whole});
      seams_.insert(seam(last_character(left), utf8_at(right, 0)));
    }
  }

  static std::pair<std::string, std::string> halves(Section& s, const nlohmann::json& m,
                                                    uint32_t rank) {
    std::pair<std::string, std::string> result;
    if (m.is_string()) {
      const std::string text = m.get<std::string>();
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos)
        s.error("merges", "merge {}: expected two tokens and one space, found '{}'", rank, text);
      result = {text.substr(0, space), text.substr(space + 1)};
    } else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
      result = {m[0].get<std::string>(), m[1].get<std::string>()};
    } else {
      s.error("merges", "merge {}: expected \"a b\" or [\"a\", \"b\"], found {}", rank,
              json_kind(m));
    }
    if (result.first.empty() || result.second.empty())
      s.error("merges", "merge {}: an empty token", rank);
    return result;
  }

  static char32_t last_character(const std::string& token) {
    size_t at = token.size() - 1;
    while ((static_cast<unsigned char>(token[at]) & 0xc0) == 0x80) --at;
    return utf8_at(token, at);
  }
  static uint64_t seam(char32_t left, char32_t right) {
    return static_cast<uint64_t>(left) << 32 | right;
  }

  void encode_cached(std::string_view piece, bool bytes, std::vector<int32_t>& ids) const {
    if (piece.size() > PieceCache::kMaxBytes) return encode_now(piece, bytes, ids);
    const uint64_t hash = digest(piece) * 2 + (bytes ? 1 : 0);
    PieceCache::Entry& e = PieceCache::of(owner_).slot(hash);
    if (e.bytes == piece.size() && e.hash == hash &&
        std::memcmp(e.text, piece.data(), piece.size()) == 0) {
      ids.insert(ids.end(), e.id, e.id + e.ids);
      return;
    }
    const size_t before = ids.size();
    encode_now(piece, bytes, ids);
    if (ids.size() - before > PieceCache::kMaxIds) return;
    e.hash = hash;
    e.bytes = static_cast<uint8_t>(piece.size());
    e.ids = static_cast<uint8_t>(ids.size() - before);
    std::memcpy(e.text, piece.data(), piece.size());
    std::copy(ids.begin() + static_cast<ptrdiff_t>(before), ids.end(), e.id);
  }

  void encode_now(std::string_view piece, bool bytes, std::vector<int32_t>& ids) const {
    if (ignore_merges_)
      if (const auto id = vocabulary_.id(bytes ? to_byte_level(piece) : std::string(piece)))
        return ids.push_back(*id);
    std::vector<int32_t> symbols;
    symbols.reserve(piece.size());
    if (bytes)
      for (const char b : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(b)]);
    else
      append_characters(piece, symbols);
    merge_symbols(merges_, symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  // A text without spaces that a pre-tokenizer could have used: cut where no merge reaches across.
  // Two symbols merge only if some merge has a left half that ends and a right half that starts
  // with the characters at that seam, so the parts can be encoded one by one.
  void encode_in_parts(std::string_view piece, std::vector<int32_t>& ids) const {
    size_t begin = 0, at = 0;
    while (at < piece.size()) {
      const size_t length = utf8_length(piece[at]);
      const size_t next = at + length;
      if (next < piece.size() &&
          safe_seam(piece.substr(at, length), piece.substr(next, utf8_length(piece[next])))) {
        encode_part(piece.substr(begin, next - begin), ids);
        begin = next;
      }
      at = next;
    }
    encode_part(piece.substr(begin), ids);
  }

  bool safe_seam(std::string_view left, std::string_view right) const {
    if (seams_.contains(seam(utf8_at(left, 0), utf8_at(right, 0)))) return false;
    // Characters without a token become bytes, or unknown tokens that may be fused.
    return vocabulary_.id(left).has_value() && vocabulary_.id(right).has_value();
  }

  void encode_part(std::string_view part, std::vector<int32_t>& ids) const {
    if (!ignore_merges_) return encode_cached(part, false, ids);
    std::vector<int32_t> symbols;
    append_characters(part, symbols);
    merge_symbols(merges_, symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  void append_characters(std::string_view piece, std::vector<int32_t>& symbols) const {
    bool last_unknown = false;
    for (size_t i = 0; i < piece.size();) {
      const size_t length = utf8_length(piece[i]);
      std::string_view c = piece.substr(i, length);
      i += length;
      std::string with_suffix;
      if (!suffix_.empty() && i == piece.size()) c = with_suffix = std::string(c) + suffix_;
      if (const auto id = vocabulary_.id(c)) {
        symbols.push_back(*id);
        last_unknown = false;
      } else if (append_fallback(c, symbols)) {
        last_unknown = false;
      } else {
        if (!(last_unknown && fuse_unk_)) symbols.push_back(unknown(c));
        last_unknown = true;
      }
    }
  }

  bool append_fallback(std::string_view c, std::vector<int32_t>& symbols) const {
    if (!byte_fallback_) return false;
    for (const char b : c)
      if (fallback_ids_[static_cast<unsigned char>(b)] < 0) return false;
    for (const char b : c) symbols.push_back(fallback_ids_[static_cast<unsigned char>(b)]);
    return true;
  }

  int32_t unknown(std::string_view c) const {
    if (unk_id_) return *unk_id_;
    fail("the tokenizer has no token for '{}' (U+{:04X}), and no unknown token in its vocabulary",
         c, static_cast<uint32_t>(utf8_at(c, 0)));
  }

  uint64_t owner_;
  std::string suffix_;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false, all_bytes_ = false;
  std::optional<std::string> unk_token_;
  std::optional<int32_t> unk_id_;
  MergeTable merges_{0};
  std::unordered_set<uint64_t> seams_;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<int32_t> fallback_ids_;
};

}  // namespace

std::unique_ptr<TokenModel> read_bpe(Section& s) { return std::make_unique<Bpe>(s); }

}  // namespace plait
