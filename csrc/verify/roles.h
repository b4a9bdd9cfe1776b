// What each input of a region means to the ATen calls that read it: an index must stay in range, a
// saved standard deviation must be positive, and so on. Found by walking the signature's nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"

namespace cudaforge {

struct InputRole {
  enum class Kind {
    kValue,           // any number
    kIndex,           // an integer in [0, limit)
    kTarget,          // an integer in [0, limit), or ignore_index
    kPositive,        // a variance, a reciprocal standard deviation, a total weight
    kProbability,     // in (0, 1)
    kLogProbability,  // below 0
    kTanh,            // in (-1, 1)
    kWeight,          // a weight or a mean of an op that computes with it in an order of its own:
                      // one order makes a NaN of infinities where another makes an infinity, and
                      // rounds products of denormals where another rounds their sum
    kQuery,           // of attention: NaN, but no infinities, as what a row of scores of -infinity
                      // alone comes to depends on the kernel that PyTorch chooses
    kKey,             // its keys, where no query is kept from any: NaN at single places
    kSeen,            // its values there: the same, in other sets, as a key's NaN hides a value's
    kFinite,          // both where some are hidden: that may come through or not. And all three of
                      // fewer than 16 keys on a CPU, where ATen's kernel may lose a NaN
    kMask,            // what is added to its scores: -infinity hides single keys, all before or
                      // behind one, or all of a row, which then comes to zeros. Or booleans that
                      // such numbers are made of, whichever of them hides
  };
  Kind kind = Kind::kValue;
  int64_t limit = 0;
  int64_t ignore_index = -100;
};

// One role per input. kUnsupported: an integer input reaches an op that may use it as an index in a
// way that is not known here (an index out of range would be undefined behaviour on a GPU).
Result<std::vector<InputRole>> FindRoles(const OpSignature& signature);

}  // namespace cudaforge
