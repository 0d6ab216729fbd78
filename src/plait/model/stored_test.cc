#include "plait/model/stored.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plait/base/error.h"
#include "plait/base/half.h"

namespace plait {
namespace {

HostTensor tensor(Dtype dtype, double value) {  // [2, 3] with it at [1, 0]
  HostTensor t(dtype, {2, 3});
  if (dtype == Dtype::f32)
    t.as<float>()[3] = static_cast<float>(value);
  else
    t.as<double>()[3] = value;
  return t;
}

std::string error_of(const HostTensor& t, Dtype dtype) {
  try {
    to_stored(t, dtype, "w");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Stored, ConvertsWhatFits) {
  for (const Dtype from : {Dtype::f32, Dtype::f64})
    for (const Dtype to : {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}) {
      const HostTensor t = tensor(from, -65504);
      EXPECT_EQ(to_stored(t, to, "w"), convert(t, to));
    }
  // 65519.99 rounds down to the largest f16; half way, 65520, does not.
  EXPECT_EQ(to_stored(tensor(Dtype::f64, 65519.99), Dtype::f16, "w").at(3), 65504);
  EXPECT_EQ(to_stored(tensor(Dtype::f32, 1e-30), Dtype::f16, "w").at(3), 0);
  HostTensor half(Dtype::f16, {1});
  half.as<uint16_t>()[0] = f16_bits(65504.0F);
  EXPECT_EQ(to_stored(half, Dtype::bf16, "w").at(0), 65536);
}

TEST(Stored, RefusesWhatBecomesAnInfinity) {
  EXPECT_EQ(error_of(tensor(Dtype::f32, 65520), Dtype::f16),
            "cannot save tensor 'w' as f16: element [1, 0] is 65520, expected at most 65504 in "
            "magnitude; choose a wider type to save in (--save-dtype bf16 or f32)");
  EXPECT_NE(error_of(tensor(Dtype::f64, -1e39), Dtype::bf16).find("as bf16: element [1, 0]"),
            std::string::npos);
  EXPECT_NE(error_of(tensor(Dtype::f64, 1e39), Dtype::f32).find("as f32: element [1, 0]"),
            std::string::npos);
  const double most = std::numeric_limits<float>::max();  // above the largest bf16
  EXPECT_NE(error_of(tensor(Dtype::f32, most), Dtype::bf16).find("as bf16"), std::string::npos);
}

TEST(Stored, RefusesWhatIsNoNumberAlready) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, -infinity, std::nan("")})
    for (const Dtype from : {Dtype::f32, Dtype::f64})
      for (const Dtype to : {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64})
        EXPECT_NE(error_of(tensor(from, bad), to).find("'w': element [1, 0] is"),
                  std::string::npos);
  HostTensor half(Dtype::f16, {2});
  half.as<uint16_t>()[1] = 0x7c00;
  EXPECT_NE(error_of(half, Dtype::f32).find("element [1] is"), std::string::npos);
  half.dtype = Dtype::bf16;  // the same bits are a large number there
  EXPECT_EQ(error_of(half, Dtype::bf16), "accepted");
  half.as<uint16_t>()[1] = 0xff81;
  EXPECT_NE(error_of(half, Dtype::bf16).find("element [1] is"), std::string::npos);
  EXPECT_NE(error_of(HostTensor(Dtype::i32, {1}), Dtype::f32), "accepted");
}

}  // namespace
}  // namespace plait
