// The register-blocked product of micro-inl.h for bf16 operands, by the instructions that multiply
// pairs of bf16 and add them up in f32: AMX's tiles, or AVX-512 BF16.
//
//   c [rows, 32] = (c +) sum over l < depth of a(i, l) b(l, j)        c f32 with stride ldc
//
// b is a panel of 32 columns, pairs of summands side by side, made by pack_b or pack_b_transposed:
// panel[l / 2][j][l % 2]. a is rows as they lie in memory, or strips of 32 rows made by pack_a or
// pack_a_transposed: strip[l / 32][i][l % 32]. Depths are whole multiples of 32: what the packed
// forms have beyond the matrix is zeros, and rows are read in place only where there is nothing
// beyond.
//
// Every element is summed in an order that depth and the unit decide, from zero or from what c
// held: its bits do not depend on rows, or on where in a tile it lies. The two units differ in
// their last bits; both take denormal operands and sums for zeros, in c too.
#pragma once

#include <cstdint>

namespace plait {

enum class Bf16Unit : uint8_t { none, avx512, amx };

// The fastest unit of this processor that this system lets a process use; none where products in
// f32 are as fast. AMX needs a permission of Linux, which the first call asks for.
Bf16Unit bf16_unit();
// From now on `unit`, if the machine has it; returns whether it has. For tests and benchmarks.
bool use_bf16_unit(Bf16Unit unit);
const char* name(Bf16Unit unit);

namespace bf16_micro {

inline constexpr int64_t kRows = 32, kColumns = 32, kStep = 32;

constexpr int64_t whole(int64_t depth) { return (depth + kStep - 1) / kStep * kStep; }

// Rows of a strip: element (i, l) is data[i * ld + l / 32 * step + l % 32].
struct Strip {
  const uint16_t* data;
  int64_t ld, step;
  static Strip rows(const uint16_t* p, int64_t ld) { return {p, ld, kStep}; }
  static Strip packed(const uint16_t* p) { return {p, kStep, kRows * kStep}; }
};

// Panels from B [k, n] and from its transpose bt [n, k]; to: ceil(n / 32) whole(k) 32 elements,
// aligned to 64 bytes.
void pack_b(int64_t k, int64_t n, const uint16_t* b, int64_t ldb, uint16_t* to);
void pack_b_transposed(int64_t k, int64_t n, const uint16_t* bt, int64_t ld, uint16_t* to);
// Strips from A [m, k] and from its transpose at [k, m]; to: ceil(m / 32) whole(k) 32 elements,
// aligned to 64 bytes.
void pack_a(int64_t m, int64_t k, const uint16_t* a, int64_t lda, uint16_t* to);
void pack_a_transposed(int64_t m, int64_t k, const uint16_t* at, int64_t ld, uint16_t* to);

// A thread that multiplies does it between these; AMX keeps its tiles configured meanwhile.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // 0 < rows <= 32, and columns <= 32 of c are written. Rows of a packed strip beyond `rows` are
  // there; of rows in place, all 32 are used.
  void multiply(int64_t rows, int64_t columns, int64_t depth, const Strip& a, const uint16_t* panel,
                float* c, int64_t ldc, bool add) const;

 private:
  Bf16Unit unit_;
};

}  // namespace bf16_micro
}  // namespace plait
