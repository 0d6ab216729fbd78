#include "plait/tokens/newer_characters.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "plait/tokens/utf8.h"

namespace plait {

namespace {

enum class Kind { upper, lower, modifier, letter, han, digit, number, mark, punctuation, symbol };

struct Range {
  char32_t first, last;
  Kind kind;
};

// What Unicode 15 and 16 added, by general category.
constexpr std::array kSinceUnicode14 = {
    Range{0x897, 0x897, Kind::mark},
    Range{0xcf3, 0xcf3, Kind::mark},
    Range{0xece, 0xece, Kind::mark},
    Range{0x1b4e, 0x1b4f, Kind::punctuation},
    Range{0x1b7f, 0x1b7f, Kind::punctuation},
    Range{0x1c89, 0x1c89, Kind::upper},
    Range{0x1c8a, 0x1c8a, Kind::lower},
    Range{0x2427, 0x2429, Kind::symbol},
    Range{0x2ffc, 0x2fff, Kind::symbol},
    Range{0x31e4, 0x31e5, Kind::symbol},
    Range{0x31ef, 0x31ef, Kind::symbol},
    Range{0xa7cb, 0xa7cc, Kind::upper},
    Range{0xa7cd, 0xa7cd, Kind::lower},
    Range{0xa7da, 0xa7da, Kind::upper},
    Range{0xa7db, 0xa7db, Kind::lower},
    Range{0xa7dc, 0xa7dc, Kind::upper},
    Range{0x105c0, 0x105f3, Kind::letter},
    Range{0x10d40, 0x10d49, Kind::digit},
    Range{0x10d4a, 0x10d4d, Kind::letter},
    Range{0x10d4e, 0x10d4e, Kind::modifier},
    Range{0x10d4f, 0x10d4f, Kind::letter},
    Range{0x10d50, 0x10d65, Kind::upper},
    Range{0x10d69, 0x10d6d, Kind::mark},
    Range{0x10d6e, 0x10d6e, Kind::punctuation},
    Range{0x10d6f, 0x10d6f, Kind::modifier},
    Range{0x10d70, 0x10d85, Kind::lower},
    Range{0x10d8e, 0x10d8f, Kind::symbol},
    Range{0x10ec2, 0x10ec4, Kind::letter},
    Range{0x10efc, 0x10eff, Kind::mark},
    Range{0x1123f, 0x11240, Kind::letter},
    Range{0x11241, 0x11241, Kind::mark},
    Range{0x11380, 0x11389, Kind::letter},
    Range{0x1138b, 0x1138b, Kind::letter},
    Range{0x1138e, 0x1138e, Kind::letter},
    Range{0x11390, 0x113b5, Kind::letter},
    Range{0x113b7, 0x113b7, Kind::letter},
    Range{0x113b8, 0x113c0, Kind::mark},
    Range{0x113c2, 0x113c2, Kind::mark},
    Range{0x113c5, 0x113c5, Kind::mark},
    Range{0x113c7, 0x113ca, Kind::mark},
    Range{0x113cc, 0x113d0, Kind::mark},
    Range{0x113d1, 0x113d1, Kind::letter},
    Range{0x113d2, 0x113d2, Kind::mark},
    Range{0x113d3, 0x113d3, Kind::letter},
    Range{0x113d4, 0x113d5, Kind::punctuation},
    Range{0x113d7, 0x113d8, Kind::punctuation},
    Range{0x113e1, 0x113e2, Kind::mark},
    Range{0x116d0, 0x116e3, Kind::digit},
    Range{0x11b00, 0x11b09, Kind::punctuation},
    Range{0x11bc0, 0x11be0, Kind::letter},
    Range{0x11be1, 0x11be1, Kind::punctuation},
    Range{0x11bf0, 0x11bf9, Kind::digit},
    Range{0x11f00, 0x11f01, Kind::mark},
    Range{0x11f02, 0x11f02, Kind::letter},
    Range{0x11f03, 0x11f03, Kind::mark},
    Range{0x11f04, 0x11f10, Kind::letter},
    Range{0x11f12, 0x11f33, Kind::letter},
    Range{0x11f34, 0x11f3a, Kind::mark},
    Range{0x11f3e, 0x11f42, Kind::mark},
    Range{0x11f43, 0x11f4f, Kind::punctuation},
    Range{0x11f50, 0x11f59, Kind::digit},
    Range{0x11f5a, 0x11f5a, Kind::mark},
    Range{0x1342f, 0x1342f, Kind::letter},
    Range{0x13440, 0x13440, Kind::mark},
    Range{0x13441, 0x13446, Kind::letter},
    Range{0x13447, 0x13455, Kind::mark},
    Range{0x13460, 0x143fa, Kind::letter},
    Range{0x16100, 0x1611d, Kind::letter},
    Range{0x1611e, 0x1612f, Kind::mark},
    Range{0x16130, 0x16139, Kind::digit},
    Range{0x16d40, 0x16d42, Kind::modifier},
    Range{0x16d43, 0x16d6a, Kind::letter},
    Range{0x16d6b, 0x16d6c, Kind::modifier},
    Range{0x16d6d, 0x16d6f, Kind::punctuation},
    Range{0x16d70, 0x16d79, Kind::digit},
    Range{0x18cff, 0x18cff, Kind::letter},
    Range{0x1b132, 0x1b132, Kind::letter},
    Range{0x1b155, 0x1b155, Kind::letter},
    Range{0x1cc00, 0x1ccef, Kind::symbol},
    Range{0x1ccf0, 0x1ccf9, Kind::digit},
    Range{0x1cd00, 0x1ceb3, Kind::symbol},
    Range{0x1d2c0, 0x1d2d3, Kind::number},
    Range{0x1df25, 0x1df2a, Kind::lower},
    Range{0x1e030, 0x1e06d, Kind::modifier},
    Range{0x1e08f, 0x1e08f, Kind::mark},
    Range{0x1e4d0, 0x1e4ea, Kind::letter},
    Range{0x1e4eb, 0x1e4eb, Kind::modifier},
    Range{0x1e4ec, 0x1e4ef, Kind::mark},
    Range{0x1e4f0, 0x1e4f9, Kind::digit},
    Range{0x1e5d0, 0x1e5ed, Kind::letter},
    Range{0x1e5ee, 0x1e5ef, Kind::mark},
    Range{0x1e5f0, 0x1e5f0, Kind::letter},
    Range{0x1e5f1, 0x1e5fa, Kind::digit},
    Range{0x1e5ff, 0x1e5ff, Kind::punctuation},
    Range{0x1f6dc, 0x1f6dc, Kind::symbol},
    Range{0x1f774, 0x1f776, Kind::symbol},
    Range{0x1f77b, 0x1f77f, Kind::symbol},
    Range{0x1f7d9, 0x1f7d9, Kind::symbol},
    Range{0x1f8b2, 0x1f8bb, Kind::symbol},
    Range{0x1f8c0, 0x1f8c1, Kind::symbol},
    Range{0x1fa75, 0x1fa77, Kind::symbol},
    Range{0x1fa87, 0x1fa89, Kind::symbol},
    Range{0x1fa8f, 0x1fa8f, Kind::symbol},
    Range{0x1faad, 0x1faaf, Kind::symbol},
    Range{0x1fabb, 0x1fabf, Kind::symbol},
    Range{0x1fac6, 0x1fac6, Kind::symbol},
    Range{0x1face, 0x1facf, Kind::symbol},
    Range{0x1fada, 0x1fadc, Kind::symbol},
    Range{0x1fadf, 0x1fadf, Kind::symbol},
    Range{0x1fae8, 0x1fae9, Kind::symbol},
    Range{0x1faf7, 0x1faf8, Kind::symbol},
    Range{0x1fbcb, 0x1fbef, Kind::symbol},
    Range{0x2b739, 0x2b739, Kind::han},
    Range{0x2ebf0, 0x2ee5d, Kind::han},
    Range{0x31350, 0x323af, Kind::han},
};

struct StandIn {
  char32_t three_bytes, four_bytes;  // by the length in UTF-8; none is shorter
};

// In the order of Kind; characters that no pattern names one by one.
constexpr std::array kStandIns = {StandIn{0x13a0, 0x118a0},   // Lu: Cherokee, Warang Citi
                                  StandIn{0x1d00, 0x118c0},   // Ll
                                  StandIn{0x1d2c, 0x10781},   // Lm
                                  StandIn{0xa000, 0x10280},   // Lo: Yi, Lycian
                                  StandIn{0x4e00, 0x20000},   // Han
                                  StandIn{0xa620, 0x104a0},   // Nd: Vai, Osmanya
                                  StandIn{0x2cfd, 0x10107},   // No: Coptic, Aegean
                                  StandIn{0x1ab0, 0x10a01},   // Mn
                                  StandIn{0x1c3b, 0x10100},   // Po
                                  StandIn{0x2400, 0x10137}};  // So

struct Span {
  char32_t first, last;
};

// Since Unicode 10: those that decompose, compose or are put in order.
constexpr std::array kSinceUnicode10 = {
    Span{0x7fd, 0x7fd},     Span{0x898, 0x89f},     Span{0x8ca, 0x8d3},     Span{0x9fe, 0x9fe},
    Span{0xc3c, 0xc3c},     Span{0xd3b, 0xd3c},     Span{0xeba, 0xeba},     Span{0xece, 0xece},
    Span{0x1715, 0x1715},   Span{0x1abf, 0x1ace},   Span{0x1df6, 0x1dfa},   Span{0x32ff, 0x32ff},
    Span{0xa7f2, 0xa7f4},   Span{0xa82c, 0xa82c},   Span{0xab69, 0xab69},   Span{0x10781, 0x107ba},
    Span{0x10d24, 0x10d27}, Span{0x10eab, 0x10eac}, Span{0x10efd, 0x10eff}, Span{0x10f46, 0x10f50},
    Span{0x10f82, 0x10f85}, Span{0x11070, 0x11070}, Span{0x1133b, 0x1133b}, Span{0x1145e, 0x1145e},
    Span{0x11839, 0x1183a}, Span{0x11930, 0x11930}, Span{0x11938, 0x11938}, Span{0x1193d, 0x1193e},
    Span{0x11943, 0x11943}, Span{0x119e0, 0x119e0}, Span{0x11a34, 0x11a34}, Span{0x11a47, 0x11a47},
    Span{0x11a99, 0x11a99}, Span{0x11d42, 0x11d42}, Span{0x11d44, 0x11d45}, Span{0x11d97, 0x11d97},
    Span{0x11f41, 0x11f42}, Span{0x16ff0, 0x16ff1}, Span{0x1e030, 0x1e06d}, Span{0x1e08f, 0x1e08f},
    Span{0x1e130, 0x1e136}, Span{0x1e2ae, 0x1e2ae}, Span{0x1e2ec, 0x1e2ef}, Span{0x1e4ec, 0x1e4ef},
    Span{0x1f16c, 0x1f16c}, Span{0x1fbf0, 0x1fbf9}};

template <class Table>
auto find_in(const Table& table, char32_t c) -> decltype(table.data()) {
  const auto after = std::upper_bound(table.begin(), table.end(), c,
                                      [](char32_t x, const auto& r) { return x < r.first; });
  if (after == table.begin()) return nullptr;
  const auto* r = &*(after - 1);
  return c <= r->last ? r : nullptr;
}

char32_t stand_in(char32_t c) {
  const Range* r = find_in(kSinceUnicode14, c);
  if (r == nullptr) return 0;
  const StandIn& s = kStandIns[static_cast<size_t>(r->kind)];
  return c < 0x10000 ? s.three_bytes : s.four_bytes;
}

bool is_three_bytes_or_more(char c) { return static_cast<unsigned char>(c) >= 0xe0; }

}  // namespace

std::string_view with_known_characters(std::string_view text, std::string& storage) {
  if (std::none_of(text.begin(), text.end(), is_three_bytes_or_more)) return text;
  bool changed = false;
  for (size_t i = 0; i < text.size(); i += utf8_length(text[i])) {
    if (!is_three_bytes_or_more(text[i])) continue;
    const char32_t known = stand_in(utf8_at(text, i));
    if (known == 0) continue;
    if (!changed) storage = std::string(text);
    changed = true;
    std::string bytes;
    append_utf8(bytes, known);
    storage.replace(i, bytes.size(), bytes);
  }
  return changed ? std::string_view(storage) : text;
}

char32_t lower_case_since_unicode_15(char32_t c) {
  switch (c) {
    case 0x1c89:
    case 0xa7cc:
    case 0xa7ce:
    case 0xa7d2:
    case 0xa7d4:
    case 0xa7da:
      return c + 1;
    case 0xa7cb:
      return 0x264;
    case 0xa7dc:
      return 0x19b;
    default:
      if (c >= 0x16ea0 && c <= 0x16eb8) return c + 0x1b;
      return c >= 0x10d50 && c <= 0x10d65 ? c + 0x20 : 0;
  }
}

bool is_unknown_to_normalizer(char32_t c) { return find_in(kSinceUnicode10, c) != nullptr; }

}  // namespace plait
