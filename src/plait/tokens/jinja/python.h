// How Python writes values: str(), repr(), json.dumps(), and what int() and float() read.
#pragma once

#include <optional>
#include <string>

#include "plait/tokens/jinja/value.h"

namespace plait::jinja {

std::string float_text(double d);           // repr(float)
Value str(const Value& v, Budget& budget);  // a text
void append_str(std::string& out, const Value& v, Budget& budget);
std::string repr(const Value& v, Budget& budget);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level
  std::string between = ", ", colon = ": ";
};
std::string json_text(const Value& v, const JsonStyle& style, Budget& budget);

std::optional<int64_t> read_integer(std::string_view text, int base);
std::optional<double> read_float(std::string_view text);
// int(float): a Problem outside 64 bits, for infinities and NaN.
int64_t truncated(double d);

}  // namespace plait::jinja
