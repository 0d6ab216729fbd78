// Unicode grows, and libraries stop at different versions. Hugging Face's library splits by
// Unicode 16, normalizes by Unicode 10 and lowers case by 17; PCRE2 10.42 knows Unicode 14,
// utf8proc 2.8 knows 15. These tables make up the difference, so that ids agree for every code
// point.
#pragma once

#include <string>
#include <string_view>

namespace plait {

// `text` with every character that PCRE2 does not know replaced by one of the same general
// category and length in bytes (ideographs by an ideograph), so that a pattern finds the same
// places. `storage` holds the result if there was one; otherwise the result is `text` itself.
std::string_view with_known_characters(std::string_view text, std::string& storage);

// Characters that normalization leaves alone because they came after Unicode 10.
bool is_unknown_to_normalizer(char32_t character);

// The lower case of a capital letter that utf8proc does not know; 0 for all others.
char32_t lower_case_since_unicode_15(char32_t character);

}  // namespace plait
