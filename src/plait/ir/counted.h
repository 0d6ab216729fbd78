// Counted: a double that counts the arithmetic done on it, so that an op's `flops` is tested
// against its own reference and not against a second formula.
#pragma once

#include <cmath>
#include <cstdint>

namespace plait {

struct Counted {
  double v = 0;
  static inline thread_local int64_t operations = 0;
  Counted() = default;
  Counted(double value) : v(value) {}  // NOLINT: literals convert, as they do to double
  explicit operator double() const { return v; }
  explicit operator float() const { return static_cast<float>(v); }
  Counted& operator+=(Counted o) { return *this = *this + o; }
  Counted& operator-=(Counted o) { return *this = *this - o; }
  Counted& operator*=(Counted o) { return *this = *this * o; }
  Counted& operator/=(Counted o) { return *this = *this / o; }
  static Counted tick(double value) {
    ++operations;
    return Counted(value);
  }
  friend Counted operator+(Counted a, Counted b) { return Counted::tick(a.v + b.v); }
  friend Counted operator-(Counted a, Counted b) { return Counted::tick(a.v - b.v); }
  friend Counted operator*(Counted a, Counted b) { return Counted::tick(a.v * b.v); }
  friend Counted operator/(Counted a, Counted b) { return Counted::tick(a.v / b.v); }
  friend Counted operator-(Counted a) { return Counted(-a.v); }  // a sign flip is free
  friend bool operator<(Counted a, Counted b) { return a.v < b.v; }
  friend bool operator>(Counted a, Counted b) { return a.v > b.v; }
  friend bool operator<=(Counted a, Counted b) { return a.v <= b.v; }
  friend bool operator>=(Counted a, Counted b) { return a.v >= b.v; }
  friend bool operator==(Counted a, Counted b) { return a.v == b.v; }
  friend Counted exp(Counted a) { return Counted::tick(std::exp(a.v)); }
  friend Counted log(Counted a) { return Counted::tick(std::log(a.v)); }
  friend Counted sqrt(Counted a) { return Counted::tick(std::sqrt(a.v)); }
  friend Counted tanh(Counted a) { return Counted::tick(std::tanh(a.v)); }
  friend Counted erf(Counted a) { return Counted::tick(std::erf(a.v)); }
};
static_assert(sizeof(Counted) == sizeof(double));

}  // namespace plait
