// What an executor looks at while it runs, when it is asked to: values that are not finite, and
// digests of replicated results. Both are for diagnosis; a step without them costs nothing.
#pragma once

#include <optional>

#include "plait/program/program.h"

namespace plait {

// A floating-point value that is not finite, and where it arose.
class NotFinite : public Error {
 public:
  struct Where {
    int rank = 0;
    std::string unit;            // "W s0 m2 layers.3": phase, stage, micro-batch, block
    std::string op;              // or the kind of action; "state" when it was there before the step
    std::string tensor;          // name of the buffer
    std::vector<int64_t> index;  // of the first one, in the whole tensor
    double value = 0;
  };
  NotFinite(const std::string& what, Where where) : Error(what), where(std::move(where)) {}
  Where where;
};

// The first value of a buffer that is not finite; unit and op are left empty. A maximum or
// log-sum-exp that is pending may be minus infinity: that of no elements.
std::optional<NotFinite::Where> find_not_finite(const Programs& programs, int rank,
                                                const Buffer& buffer, const std::byte* data);
// `context` says where: "rank 0 action 12 ...".
[[noreturn]] void throw_not_finite(NotFinite::Where where, const TensorType& type,
                                   const std::string& context);

// States that a step reads before it writes them: what it begins with.
std::vector<BufferId> states_read(const Program& program);

// One digest per result of each action of one rank.
using ResultDigests = std::vector<std::vector<uint64_t>>;  // [action][result]

// Throws Error naming the first action whose results differ between two ranks that hold the same
// part of a tensor.
void compare_replicas(const Programs& programs, const std::vector<ResultDigests>& ranks);

}  // namespace plait
