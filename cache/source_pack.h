// Source packs: kernels as files that people and version control can read, a folder each. The form
// is in FORMAT.md. They have no binaries: who imports one builds it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/kernel_store.h"
#include "cache/pack.h"

namespace cudaforge {

// Writes every kernel that is not doubtful (of `arch`; empty: of the only one there is) into a
// folder of its own under `folder`, which is made; files of the same region are replaced, others
// stay. A record that cannot be text is rejected. Errors: kInvalidArgument (kernels of several
// archs, whose folders would have the same names: nothing is written), kIoError.
Result<PackSummary> WriteSourcePack(KernelStore& store, const std::string& folder,
                                    std::string_view arch);

// The kernels under `folder`, in the order of their folders' names; what is no record is an error
// in its place that begins with its folder's name. Their binaries are empty. The files may come
// from anywhere. kNotFound: no such folder, or one without a kernel.
Result<std::vector<Result<CacheRecord>>> ReadSourcePack(const std::string& folder);

}  // namespace cudaforge
